//! Which way a long message takes: the one that was fastest lately.
//!
//! No rule holds on every machine. Where two cores share a small cache, two copies within it take less time than one for
//! which the system has to find the pages first; where they share a large one, behind a mesh, they take more than twice as
//! much. Whether it pays that a sender helps to copy depends on what else the sender has to do. The receiver decides, so
//! it notes how long each way took and, now and then, takes another one to see.
//!
//! What a message took is counted from when it met its receive, or from when the message before it was there if that is
//! later. Where several are under way together that is true only if all go the same way, and only of all of them: what both
//! sides copy is all there at the end. So whatever joins a message that is under way goes its way, and the time that they
//! took together is shared out by their bytes. A way is taken for a run of messages, which ends when none is under way.
//! Messages are compared with those of like lengths, and of like blocks where their data is in pieces. Those whose sender waits
//! for messages itself, so that its help is not free, are compared with their like, too, and so are those whose receiver was at
//! other work when they met their receives, for which alone the sender's help may be all it takes. What is known of some
//! lengths is expected of longer and shorter ones: a way that took more than twice as long there need not show at once what it
//! takes.
//!
//! A channel that was not used for long messages is short, and its memory in no cache. So a run through it begins with
//! messages that only warm it, and is the longer for them. The first message after a change of ways takes longer than those
//! behind it whichever the new one is, and is not judged, either, if it comes alone. What trials cost is kept small: the
//! longer one took, the more goes the best way before the next.
//!
//! Where messages cross, a way costs the other side, too: who takes what the other side has to copy for it is done sooner, and
//! the other later, which holds up the next message of both. So what such a message took is counted from when the one before,
//! if that was its like, was there, though the receive came later, within a limit: what the program computes meanwhile is the
//! same for all ways.
//!
//! Then the channel may pay only if both sides use it, or only if none does: a side that tries alone finds nothing, and both
//! may stay with what is not the fastest for either. So one side chooses for both whether messages that cross go through the
//! channel: the other does as it does, at once. Who tries something does so until the other has followed, and judges it from
//! then on.

/// Shortest and longest lengths that are told apart, as powers of two.
const LEN_BITS: std::ops::RangeInclusive<u32> = 13..=23;
/// Kinds of lengths.
const LENGTHS: usize = (*LEN_BITS.end() - *LEN_BITS.start() + 1) as usize;
/// Average blocks that are told apart, in bytes: shorter than the first, …, at least as long as the last.
const BLOCK_BYTES: [u64; 4] = [16, 64, 512, 4096];
/// Kinds of blocks, one piece among them.
const CLASSES: u32 = BLOCK_BYTES.len() as u32 + 2;
/// Lengths that differ by so many of their kinds are much alike.
const LIKE_MAX: u32 = 2;
/// Messages of a run: at least, and at most if there is always one under way.
const RUN: u32 = 4;
const RUN_MAX: u32 = 512;
/// Runs that a way gets at first to show what it takes.
const FIRST_TRIES: u8 = 2;
/// So many times something was under way in a run that what all took longer was the way's doing.
const ALL_MIN: u32 = 3;
/// What took so many times as long as another way is tried once more before it rests.
const DOUBTFUL: u32 = 2;
/// A trial took some times longer than the best way would have: for each of these times, so many times as many bytes as it
/// had go before the next. What the trials of a way cost is one part in so many, unless the bounds say otherwise.
const REST: u64 = 64;
/// So many times as many bytes at least and at most, whatever a trial took: something else may have delayed it.
const REST_BOUNDS: std::ops::RangeInclusive<u64> = 24..=128;
/// So many bytes go through a cold channel before it is judged: enough for it to grow, and to find out with which stores
/// it is fastest.
const CHANNEL_WARM_BYTES: u64 = 1 << 20;
/// Runs of a trial to use the channel, or to leave it, at most: it ends with the first before which the other side had followed.
const TRIAL_OF_BOTH: u32 = 4;
/// Of what goes by before a crossing message meets its receive, so many times as much as it then takes counts, at most.
const PAUSE_TIMES: u64 = 2;
/// It is cold again when so many went other ways.
const CHANNEL_COLD_BYTES: u64 = 8 << 20;

/// How the bytes of a long message get from memory to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyWay {
    /// The receiver copies them.
    Read,
    /// Both sides do.
    Shared,
    /// Through the channel.
    Staged,
}

/// The ways that a message can take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopyWays(u8);

impl CopyWays {
    const ALL: [CopyWay; 3] = [CopyWay::Shared, CopyWay::Read, CopyWay::Staged];

    /// This one alone.
    pub fn only(way: CopyWay) -> Self {
        Self(1 << way as u8)
    }

    /// These and another one, `if` it is possible.
    #[must_use]
    pub fn and(self, way: CopyWay, possible: bool) -> Self {
        Self(self.0 | u8::from(possible) << way as u8)
    }

    fn without(self, way: CopyWay) -> Self {
        Self(self.0 & !(1 << way as u8))
    }

    /// True if this is one of them.
    pub fn has(self, way: CopyWay) -> bool {
        self.0 & 1 << way as u8 != 0
    }

    fn iter(self) -> impl Iterator<Item = CopyWay> {
        Self::ALL.into_iter().filter(move |way| self.has(*way))
    }

    /// Those that go through the channel, or those that do not; all, if there are none.
    fn that(self, stage: bool) -> Self {
        let those =
            self.iter().filter(|way| stages(*way) == stage).fold(Self::default(), |those, way| those.and(way, true));
        if those == Self::default() { self } else { those }
    }
}

/// One of two processes whose messages cross.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// It chooses for both.
    Leads,
    /// It does as the other does.
    Follows,
}

/// The kind of lengths that this is of.
fn length_of(len_bytes: u64) -> usize {
    (len_bytes.max(1).ilog2().clamp(*LEN_BITS.start(), *LEN_BITS.end()) - LEN_BITS.start()) as usize
}

/// Messages that are compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    class: u8,
    ways: CopyWays,
    crosses: Option<Side>,
    beside_work: bool,
}

impl Kind {
    /// Those of about `len_bytes`, in one piece on both sides or in blocks of about `block_bytes`, that can take `ways`.
    pub fn of(len_bytes: u64, block_bytes: Option<u64>, ways: CopyWays) -> Self {
        let blocks = block_bytes.map_or(0, |bytes| 1 + BLOCK_BYTES.iter().filter(|least| bytes >= **least).count());
        let class = length_of(len_bytes) * CLASSES as usize + blocks;
        Self { class: class as u8, ways, crosses: None, beside_work: false }
    }

    /// The same, of messages that met their receives while nobody waited for them. What their sender copies until somebody does
    /// costs nothing.
    #[must_use]
    pub fn beside_work(self) -> Self {
        Self { beside_work: true, ..self }
    }

    /// The same, of messages that cross others, on this side of both: who sends waits for messages, too. Nobody's help is free
    /// then: what a receiver gains by it the other loses, and each would choose it.
    #[must_use]
    pub fn crossing(self, side: Side) -> Self {
        let ways = if self.ways.has(CopyWay::Staged) { self.ways.without(CopyWay::Shared) } else { self.ways };
        Self { crosses: Some(side), ways, ..self }
    }

    /// How far lengths of this kind are from those of another one, if they differ in nothing else, and not by much.
    fn distance(&self, other: &Self) -> Option<u32> {
        let but_lengths = |kind: &Self| (u32::from(kind.class) % CLASSES, kind.ways, kind.crosses, kind.beside_work);
        let distance = self.len_bits().abs_diff(other.len_bits());
        (but_lengths(self) == but_lengths(other) && distance <= LIKE_MAX).then_some(distance)
    }

    /// Their lengths, as a power of two.
    fn len_bits(&self) -> u32 {
        LEN_BITS.start() + u32::from(self.class) / CLASSES
    }

    /// The ways while nothing is known: first that which is the fastest most often.
    fn usual_order(&self) -> [CopyWay; 3] {
        match self.crosses {
            Some(_) => [CopyWay::Staged, CopyWay::Read, CopyWay::Shared],
            None => [CopyWay::Shared, CopyWay::Read, CopyWay::Staged],
        }
    }

    /// The only way they can take, if there is only one.
    pub fn only_way(&self) -> Option<CopyWay> {
        let mut ways = self.ways.iter();
        ways.next().filter(|_| ways.next().is_none())
    }
}

/// What long messages from one peer took.
#[derive(Debug, Default)]
pub struct Experience {
    kinds: Vec<(Kind, Costs)>,
    channel: Warmth,
    /// Bytes that went through it before anything was judged.
    first_bytes: u64,
    /// What the sender last said of its channel: both processes share a cache.
    was_near: bool,
    /// Messages whose way was chosen and that are not there yet.
    under_way: u32,
    together: Together,
    /// By lengths.
    others: [Other; LENGTHS],
    /// The kind of the message that was there last.
    last: Option<Kind>,
}

/// Messages under way together, and what they took so far.
#[derive(Debug)]
struct Together {
    way: CopyWay,
    count: u32,
    taken: Taken,
    there: Vec<There>,
    /// The way of the message that was there last.
    last: CopyWay,
}

/// What the other side does with messages from here, of one kind of lengths.
#[derive(Clone, Copy, Debug, Default)]
struct Other {
    /// It takes them through the channel.
    stages: bool,
    /// Messages that it has taken some way.
    taken: u64,
}

/// Whether the channel is as it would be if all messages went through it.
#[derive(Debug, Default)]
struct Warmth {
    /// Bytes that were to go through it since it was cold, of which so many did.
    chosen_bytes: u64,
    there_bytes: u64,
    /// Bytes that went other ways since the last message that went this one.
    elsewhere_bytes: u64,
}

/// What messages of one kind took, by way.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// ns per KiB; 0 if nothing is known.
    per_kib: [u32; 3],
    tries: [u8; 3],
    /// In which they are tried, and preferred where they take the same.
    order: [CopyWay; 3],
    /// Bytes until the next trial.
    rest_bytes: [u64; 3],
    /// The way of this run, and messages it had so far, without those that only warmed the channel.
    current: CopyWay,
    run: u32,
    /// The run before went another way, and nothing of this one is there yet.
    is_new: bool,
    /// Runs of this trial to use the channel or to leave it, if it is one.
    trial: u32,
    /// When this run began, the other side had taken so many messages, and did as this one does.
    taken_before: u64,
    was_followed: bool,
    /// The other side has chosen.
    follows: bool,
    /// Bytes of all messages of this run.
    run_bytes: u64,
    /// What is known of those that are there: of all, and of those the way is judged by.
    spent: Taken,
    judged: Judged,
}

/// What the messages took by which a run is judged.
#[derive(Clone, Copy, Default, Debug)]
struct Judged {
    taken: Taken,
    /// What those took that were the quickest of all that were under way together, in ns per KiB, and how often some were.
    quickest: u32,
    count: u32,
}

/// What messages took.
#[derive(Clone, Copy, Default, Debug)]
struct Taken {
    ns: u64,
    bytes: u64,
}

/// Those of one kind among them that are there.
#[derive(Debug)]
struct There {
    kind: Kind,
    bytes: u64,
    /// Of those that only warmed the channel.
    warm_bytes: u64,
}

impl Default for Together {
    fn default() -> Self {
        let way = CopyWay::Staged;
        Self { way, count: 0, taken: Taken::default(), there: Vec::new(), last: way }
    }
}

impl Costs {
    fn of(kind: Kind) -> Self {
        Self {
            per_kib: [0; 3],
            tries: [0; 3],
            order: kind.usual_order(),
            rest_bytes: [0; 3],
            current: CopyWay::Read,
            run: RUN_MAX,
            is_new: false,
            trial: 0,
            taken_before: 0,
            was_followed: false,
            follows: false,
            run_bytes: 0,
            spent: Taken::default(),
            judged: Judged::default(),
        }
    }

    /// True if it has had its first tries, which one alone would leave in doubt.
    fn was_tried(&self, way: usize) -> bool {
        self.tries[way] >= FIRST_TRIES && self.current as usize != way
    }

    /// The same where this is known of messages of other lengths: ways that took much longer rest as after a trial.
    fn expecting(mut self, kind: Kind, alike: &Costs) -> Self {
        let least = alike.per_kib[alike.best(kind.ways) as usize];
        for way in kind.ways.iter().map(|way| way as usize) {
            let known = alike.per_kib[way];
            if least > 0 && takes_long(known, least) && alike.was_tried(way) {
                (self.per_kib[way], self.tries[way]) = (known, FIRST_TRIES);
                self.rest_bytes[way] = (u64::from(RUN) << kind.len_bits()).saturating_mul(rest_times(known, least));
            }
        }
        self
    }
}

/// True if a way that took so much, in ns per KiB, took far longer than the best: if it did so at first, that is doubted.
fn takes_long(took: u32, least: u32) -> bool {
    took / DOUBTFUL > least
}

/// How many times the bytes of a trial go before the next, if it took so much, in ns per KiB, and the best way does this.
fn rest_times(took: u32, least: u32) -> u64 {
    let least = u64::from(least).max(1);
    let longer = u64::from(took).saturating_sub(least);
    (REST * longer / least).clamp(*REST_BOUNDS.start(), *REST_BOUNDS.end())
}

impl Experience {
    /// The way for a message of `len_bytes` that has met its receive; `is_near` is what its sender says of the channel.
    /// Where several are possible, [`Experience::end`] is told of its end.
    ///
    /// # Panics
    /// If none is possible.
    pub fn choose(&mut self, kind: Kind, len_bytes: u64, is_near: bool) -> CopyWay {
        let under_way = self.under_way;
        self.under_way += 1;
        if kind.ways.has(CopyWay::Staged) && std::mem::replace(&mut self.was_near, is_near) != is_near {
            // The channel's pace is another one: what was known of it does not hold.
            self.kinds.iter_mut().for_each(|(_, costs)| costs.forget(CopyWay::Staged));
        }
        if kind.ways.has(CopyWay::Staged) && self.first_bytes < CHANNEL_WARM_BYTES {
            // Nothing is known of any way, and this one takes the longest to show what it takes.
            self.first_bytes = self.first_bytes.saturating_add(len_bytes);
            self.channel.warms(CopyWay::Staged, len_bytes);
            self.begin(CopyWay::Staged);
            return CopyWay::Staged;
        }
        let together = &mut self.together;
        let way = if under_way > 0 && together.count < RUN_MAX && kind.ways.has(together.way) {
            let way = together.way;
            together.count += 1;
            self.costs(kind).join(way, kind.ways, len_bytes);
            way
        } else {
            let other = self.others[length_of(len_bytes)];
            let way = self.costs(kind).choose(kind, under_way, len_bytes, other);
            self.begin(way);
            way
        };
        let warms = self.channel.warms(way, len_bytes);
        let costs = self.costs(kind);
        if !warms || costs.is_warmed() {
            costs.run += 1;
        }
        way
    }

    /// A message goes this way, whatever is under way still.
    fn begin(&mut self, way: CopyWay) {
        self.share_out();
        (self.together.way, self.together.count) = (way, 1);
    }

    /// What messages took together is noted for each kind of them.
    fn share_out(&mut self) {
        let Taken { ns, bytes } = std::mem::take(&mut self.together.taken);
        let (way, was_one) = (self.together.way, self.together.count == 1);
        let mut there = std::mem::take(&mut self.together.there);
        let share = |part: u64| {
            let ns = u128::from(ns) * u128::from(part) / u128::from(bytes.max(1));
            Taken { ns: ns as u64, bytes: part }
        };
        for There { kind, bytes, warm_bytes } in there.drain(..) {
            self.costs(kind).see(way, share(bytes), share(bytes - warm_bytes), was_one);
        }
        self.together.there = there;
    }

    /// True if the way of these messages is the channel, and not only to see what they take there.
    pub fn keeps_to_channel(&self, kind: Kind) -> bool {
        let known = self.kinds.iter().find(|(known, _)| *known == kind);
        known.is_some_and(|(_, costs)| stages(costs.current) && (costs.follows || stages(costs.best(kind.ways))))
    }

    /// A message of `len_bytes` that went this way is there, or has failed. It took `ns`, or `None` if nothing can be
    /// learned from it. It met its receive so long after the message before was there; `None` if it did before that.
    pub fn end(&mut self, kind: Kind, len_bytes: u64, way: CopyWay, pause_ns: Option<u64>, ns: Option<u64>) {
        let was_alone = pause_ns.is_some();
        let is_alike = self.last.replace(kind) == Some(kind);
        let pause_ns = pause_ns.filter(|_| kind.crosses.is_some() && is_alike).unwrap_or(0);
        let ns = ns.map(|ns| ns.saturating_add(pause_ns.min(ns.saturating_mul(PAUSE_TIMES))));
        self.under_way = self.under_way.saturating_sub(1);
        let is_run = std::mem::replace(&mut self.together.last, way) == way;
        let only_warms = way == CopyWay::Staged && self.channel.there(len_bytes);
        let together = &mut self.together;
        if let Some(ns) = ns.filter(|_| way == together.way && (is_run || was_alone)) {
            together.taken.add(Taken { ns, bytes: len_bytes });
            let at = together.there.iter().position(|its| its.kind == kind).unwrap_or_else(|| {
                together.there.push(There { kind, bytes: 0, warm_bytes: 0 });
                together.there.len() - 1
            });
            together.there[at].bytes += len_bytes;
            together.there[at].warm_bytes += if only_warms { len_bytes } else { 0 };
        }
        if self.under_way == 0 {
            self.share_out();
        }
    }

    /// The other side takes a message of `len_bytes` from here through the channel, or has taken it another way.
    pub fn other_takes(&mut self, len_bytes: u64, stages: bool) {
        let other = &mut self.others[length_of(len_bytes)];
        other.stages = stages;
        other.taken = other.taken.wrapping_add(1);
    }

    fn costs(&mut self, kind: Kind) -> &mut Costs {
        let found = self.kinds.iter().position(|(known, _)| *known == kind);
        let at = found.unwrap_or_else(|| {
            let alike = self.kinds.iter().filter_map(|(known, costs)| Some((kind.distance(known)?, costs)));
            let costs = Costs::of(kind);
            let costs = match alike.min_by_key(|(distance, _)| *distance) {
                Some((_, nearest)) => costs.expecting(kind, nearest),
                None => costs,
            };
            self.kinds.push((kind, costs));
            self.kinds.len() - 1
        });
        &mut self.kinds[at].1
    }
}

impl Warmth {
    /// A message of `len_bytes` is to go this `way`; true if that only warms the channel.
    fn warms(&mut self, way: CopyWay, len_bytes: u64) -> bool {
        if way != CopyWay::Staged {
            self.elsewhere_bytes = self.elsewhere_bytes.saturating_add(len_bytes);
            return false;
        }
        if self.elsewhere_bytes >= CHANNEL_COLD_BYTES {
            *self = Self::default();
        }
        self.elsewhere_bytes = 0;
        let is_cold = self.chosen_bytes < CHANNEL_WARM_BYTES;
        self.chosen_bytes = self.chosen_bytes.saturating_add(len_bytes);
        is_cold
    }

    /// A message of `len_bytes` came through the channel; true if that only warmed it.
    fn there(&mut self, len_bytes: u64) -> bool {
        let was_cold = self.there_bytes < CHANNEL_WARM_BYTES;
        self.there_bytes = self.there_bytes.saturating_add(len_bytes);
        was_cold
    }
}

impl Taken {
    fn add(&mut self, more: Taken) {
        (self.ns, self.bytes) = (self.ns.saturating_add(more.ns), self.bytes.saturating_add(more.bytes));
    }

    /// ns per KiB; `None` of nothing.
    fn per_kib(&self) -> Option<u32> {
        let per_kib = self.ns.saturating_mul(1024).checked_div(self.bytes)?;
        Some(u32::try_from(per_kib).unwrap_or(u32::MAX).max(1))
    }
}

impl Judged {
    /// These were under way together, beside no others.
    fn add(&mut self, taken: Taken) {
        let Some(per_kib) = taken.per_kib() else { return };
        self.quickest = if self.count == 0 { per_kib } else { self.quickest.min(per_kib) };
        self.count += 1;
        self.taken.add(taken);
    }

    /// What the quickest took, where there were so many that nothing else can have delayed them all; or else 0.
    fn at_least(&self) -> u32 {
        if self.count >= ALL_MIN { self.quickest } else { 0 }
    }
}

/// True if a message goes through the channel this way.
fn stages(way: CopyWay) -> bool {
    way == CopyWay::Staged
}

impl Costs {
    fn choose(&mut self, kind: Kind, under_way: u32, len_bytes: u64, other: Other) -> CopyWay {
        let possible = kind.ways;
        let goes_both_ways = other.taken != self.taken_before;
        self.follows = kind.crosses == Some(Side::Follows) && goes_both_ways;
        let allowed = if self.follows { possible.that(other.stages) } else { possible };
        let is_over = self.run >= if under_way == 0 { RUN } else { RUN_MAX };
        if is_over || !allowed.has(self.current) {
            let is_awaited = kind.crosses == Some(Side::Leads) && goes_both_ways && !self.was_followed;
            if possible.has(self.current) && is_awaited && (1..TRIAL_OF_BOTH).contains(&self.trial) {
                self.judged = Judged::default();
                self.trial += 1;
            } else {
                if !allowed.has(self.current) {
                    // The other side was doing otherwise already.
                    self.judged = Judged::default();
                }
                self.sum_up(possible);
                let next = self.next(allowed);
                self.is_new = std::mem::replace(&mut self.current, next) != next;
                self.trial = u32::from(stages(self.current) != stages(self.best(possible)));
            }
            (self.run, self.taken_before, self.was_followed) = (0, other.taken, other.stages == stages(self.current));
        }
        self.count(len_bytes);
        self.current
    }

    /// So much went in this run that it is judged in any case: other messages keep the channel cold.
    fn is_warmed(&self) -> bool {
        self.run_bytes > CHANNEL_WARM_BYTES
    }

    /// A message goes the way of others that are under way.
    fn join(&mut self, way: CopyWay, possible: CopyWays, len_bytes: u64) {
        if self.current != way {
            self.sum_up(possible);
            (self.current, self.is_new, self.run, self.trial) = (way, true, 0, 0);
        }
        self.count(len_bytes);
    }

    /// So many more bytes go.
    fn count(&mut self, len_bytes: u64) {
        self.run_bytes = self.run_bytes.saturating_add(len_bytes);
        for rest in &mut self.rest_bytes {
            *rest = rest.saturating_sub(len_bytes);
        }
    }

    /// Adds what messages took, and what those of them did that did more than warm the channel. It `was_one` if none was
    /// under way beside it.
    fn see(&mut self, way: CopyWay, taken: Taken, judged: Taken, was_one: bool) {
        if way != self.current {
            return;
        }
        self.spent.add(taken);
        let pays_for_change = std::mem::take(&mut self.is_new) && was_one;
        if !pays_for_change {
            self.judged.add(if self.is_warmed() { taken } else { judged });
        }
    }

    /// The run is over.
    fn sum_up(&mut self, possible: CopyWays) {
        let (way, run_bytes) = (self.current, std::mem::take(&mut self.run_bytes));
        let (spent, judged) = (std::mem::take(&mut self.spent), std::mem::take(&mut self.judged));
        let before = self.best(possible);
        let was_known = self.per_kib[before as usize] != 0;
        let took = judged.taken.per_kib();
        if let Some(per_kib) = took {
            self.note(way, per_kib, judged.at_least());
        }
        let best = self.best(possible);
        // What was faster this time, and is only not believed yet, is tried again at once.
        let promises = took.is_some_and(|per_kib| per_kib < self.per_kib[best as usize]);
        if was_known && way == best && way == before {
            // It is used on and on, which tells more than tries.
            self.tries[way as usize] = FIRST_TRIES;
        }
        if way != best && !promises {
            let times = rest_times(spent.per_kib().unwrap_or(u32::MAX), self.per_kib[best as usize]);
            self.rest_bytes[way as usize] = run_bytes.saturating_mul(times);
        }
        if was_known && best != before {
            // What it takes is known; if that has become more, something else may have been the reason.
            self.rest_bytes[before as usize] = judged.taken.bytes.saturating_mul(*REST_BOUNDS.start());
        }
    }

    /// Nothing is known of a way any more.
    fn forget(&mut self, way: CopyWay) {
        (self.per_kib[way as usize], self.tries[way as usize]) = (0, 0);
    }

    /// The way of the next run.
    fn next(&mut self, possible: CopyWays) -> CopyWay {
        let best = self.best(possible);
        let least = self.per_kib[best as usize];
        // The first time, a channel has to be made, and its memory found.
        let is_unknown = |known: u32| known == 0 || takes_long(known, least);
        let is_new = |way: &CopyWay| self.tries[*way as usize] < FIRST_TRIES && is_unknown(self.per_kib[*way as usize]);
        if let Some(way) = self.ordered(possible).find(is_new) {
            self.tries[way as usize] += 1;
            return way;
        }
        let mut others = self.ordered(possible).filter(|way| *way != best);
        others.find(|way| self.rest_bytes[*way as usize] == 0).unwrap_or(best)
    }

    /// The fastest as far as is known; where nothing is, that which is most often.
    fn best(&self, possible: CopyWays) -> CopyWay {
        let cost = |way: &CopyWay| match self.per_kib[*way as usize] {
            0 => u32::MAX,
            known => known,
        };
        self.ordered(possible).min_by_key(cost).expect("some are possible")
    }

    fn ordered(&self, possible: CopyWays) -> impl Iterator<Item = CopyWay> + use<> {
        self.order.into_iter().filter(move |way| possible.has(*way))
    }

    /// What is faster is believed sooner than what is slower: most of what delays a message is not its way's doing. What
    /// all of a run were slower by is.
    fn note(&mut self, way: CopyWay, per_kib: u32, at_least: u32) {
        let at = way as usize;
        let known = self.per_kib[at];
        self.per_kib[at] = match known {
            0 => per_kib,
            // What was far off was not the way's doing.
            known if per_kib < known / 2 => per_kib,
            known if per_kib < known => known - (known - per_kib).div_ceil(2),
            known => known.saturating_add(((per_kib - known).min(known) / 8).max(1)).max(at_least),
        };
    }
}

#[cfg(test)]
mod tests;
