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
//! for messages itself, so that its help is not free, are compared with their like, too.
//!
//! A channel that was not used for long messages is short, and its memory in no cache. So a run through it begins with
//! messages that only warm it, and is the longer for them. The first message after a change of ways takes longer than those
//! behind it whichever the new one is, and is not judged, either, if it comes alone. What trials cost is kept small: the
//! longer one took, the more goes the best way before the next.
//!
//! Where long messages go both ways, the channel may pay only if both sides use it, or only if none does: a side that tries
//! alone finds nothing. So who sees that the other side begins to use it, or leaves it, does the same for a trial, unless it
//! has just followed in vain; and who tries does so until the other can have followed, and judges it from then on.

/// Shortest and longest lengths that are told apart, as powers of two.
const LEN_BITS: std::ops::RangeInclusive<u32> = 13..=23;
/// Average blocks that are told apart, in bytes: shorter than the first, …, at least as long as the last.
const BLOCK_BYTES: [u64; 4] = [16, 64, 512, 4096];
/// Messages of a run: at least, and at most if there is always one under way.
const RUN: u32 = 4;
const RUN_MAX: u32 = 512;
/// Runs that a way gets at first to show what it takes.
const FIRST_TRIES: u8 = 2;
/// No way takes so many times as long as another one.
const UNBELIEVABLE: u32 = 16;
/// A trial took some times longer than the best way would have: for each of these times, so many times as many bytes as it
/// had go before the next. What the trials of a way cost is one part in so many, unless the bounds say otherwise.
const REST: u64 = 64;
/// So many times as many bytes at least and at most, whatever a trial took: something else may have delayed it.
const REST_BOUNDS: std::ops::RangeInclusive<u64> = 24..=128;
/// So many bytes go through a cold channel before it is judged: enough for it to grow, and to find out with which stores
/// it is fastest.
const CHANNEL_WARM_BYTES: u64 = 1 << 20;
/// Runs of a trial to use the channel, or to leave it, where messages go both ways: in the first the other side has not
/// followed yet.
const TRIAL_OF_BOTH: u32 = 3;
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

    /// True if this is one of them.
    pub fn has(self, way: CopyWay) -> bool {
        self.0 & 1 << way as u8 != 0
    }

    fn iter(self) -> impl Iterator<Item = CopyWay> {
        Self::ALL.into_iter().filter(move |way| self.has(*way))
    }
}

/// Messages that are compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    class: u8,
    ways: CopyWays,
    crosses: bool,
}

impl Kind {
    /// Those of about `len_bytes`, in one piece on both sides or in blocks of about `block_bytes`, that can take `ways`.
    pub fn of(len_bytes: u64, block_bytes: Option<u64>, ways: CopyWays) -> Self {
        let bits = len_bytes.max(1).ilog2().clamp(*LEN_BITS.start(), *LEN_BITS.end()) - LEN_BITS.start();
        let blocks = block_bytes.map_or(0, |bytes| 1 + BLOCK_BYTES.iter().filter(|least| bytes >= **least).count());
        Self { class: bits as u8 * (BLOCK_BYTES.len() as u8 + 2) + blocks as u8, ways, crosses: false }
    }

    /// The same, of messages that cross others: their sender waits for messages itself.
    #[must_use]
    pub fn crossing(self, crosses: bool) -> Self {
        Self { crosses, ..self }
    }

    /// The way while nothing is known.
    fn usual_way(&self) -> CopyWay {
        if self.crosses { CopyWay::Read } else { CopyWay::Shared }
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
    other: Other,
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

/// What the other side does with messages from here.
#[derive(Debug, Default)]
struct Other {
    /// It takes them through the channel.
    stages: bool,
    /// It has begun to, or has ended.
    has_changed: bool,
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
    /// That which is fastest most often.
    usual: CopyWay,
    /// Bytes until the next trial, and until the other side is followed again.
    rest_bytes: [u64; 3],
    follow_rest_bytes: u64,
    /// The way of this run, and messages it had so far, without those that only warmed the channel.
    current: CopyWay,
    run: u32,
    /// The run before went another way, and nothing of this one is there yet.
    is_new: bool,
    /// Runs of this trial to use the channel or to leave it, if it is one, and messages that the other side had taken when it
    /// began.
    trial: u32,
    taken_before: u64,
    /// It follows the other side.
    follows: bool,
    /// Bytes of all messages of this run.
    run_bytes: u64,
    /// What is known of those that are there: of all, and of those the way is judged by.
    spent: Taken,
    judged: Taken,
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
            usual: kind.usual_way(),
            rest_bytes: [0; 3],
            follow_rest_bytes: 0,
            current: CopyWay::Read,
            run: RUN_MAX,
            is_new: false,
            trial: 0,
            taken_before: 0,
            follows: false,
            run_bytes: 0,
            spent: Taken::default(),
            judged: Taken::default(),
        }
    }
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
            let mut other = std::mem::take(&mut self.other);
            let way = self.costs(kind).choose(kind.ways, under_way, len_bytes, &mut other);
            self.other = other;
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
        known.is_some_and(|(_, costs)| stages(costs.current) && stages(costs.best(kind.ways)))
    }

    /// A message of `len_bytes` that went this way is there, or has failed. It took `ns`, or `None` if nothing can be
    /// learned from it. `was_alone` if the message before was there when it met its receive.
    pub fn end(&mut self, kind: Kind, len_bytes: u64, way: CopyWay, was_alone: bool, ns: Option<u64>) {
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

    /// The other side takes a message from here through the channel, or has taken it another way.
    pub fn other_takes(&mut self, stages: bool) {
        self.other.has_changed |= stages != self.other.stages;
        self.other.stages = stages;
        self.other.taken = self.other.taken.wrapping_add(1);
    }

    fn costs(&mut self, kind: Kind) -> &mut Costs {
        let found = self.kinds.iter().position(|(known, _)| *known == kind);
        let at = found.unwrap_or_else(|| {
            self.kinds.push((kind, Costs::of(kind)));
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

/// True if a message goes through the channel this way.
fn stages(way: CopyWay) -> bool {
    way == CopyWay::Staged
}

impl Costs {
    fn choose(&mut self, possible: CopyWays, under_way: u32, len_bytes: u64, other: &mut Other) -> CopyWay {
        let is_over = self.run >= if under_way == 0 { RUN } else { RUN_MAX };
        if is_over || !possible.has(self.current) {
            let goes_both_ways = other.taken != self.taken_before;
            if possible.has(self.current) && goes_both_ways && (1..TRIAL_OF_BOTH).contains(&self.trial) {
                if self.trial == 1 {
                    self.judged = Taken::default();
                }
                self.trial += 1;
            } else {
                self.sum_up(possible);
                let other_stages = std::mem::take(&mut other.has_changed).then_some(other.stages);
                let next = self.next(possible, other_stages);
                self.is_new = std::mem::replace(&mut self.current, next) != next;
                self.trial = u32::from(stages(self.current) != stages(self.best(possible)));
            }
            (self.run, self.taken_before) = (0, other.taken);
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
        for rest in self.rest_bytes.iter_mut().chain([&mut self.follow_rest_bytes]) {
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
        if let Some(per_kib) = judged.per_kib() {
            self.note(way, per_kib);
        }
        let best = self.best(possible);
        if best != before && self.per_kib[before as usize] != 0 {
            // What it takes is known, and the other side may be about to find the same.
            self.rest_bytes[before as usize] = run_bytes.saturating_mul(*REST_BOUNDS.start());
        }
        if way != best {
            let least = u64::from(self.per_kib[best as usize]).max(1);
            let longer = u64::from(spent.per_kib().unwrap_or(u32::MAX)).saturating_sub(least);
            let times = (REST * longer / least).clamp(*REST_BOUNDS.start(), *REST_BOUNDS.end());
            self.rest_bytes[way as usize] = run_bytes.saturating_mul(times);
            if self.follows {
                // Sooner than its own next trial, for the other side's may come before that.
                self.follow_rest_bytes = self.rest_bytes[way as usize] / 2;
            }
        }
    }

    /// Nothing is known of a way any more.
    fn forget(&mut self, way: CopyWay) {
        (self.per_kib[way as usize], self.tries[way as usize]) = (0, 0);
    }

    /// The way of the next run; the other side has begun to use the channel (`Some(true)`), has ended (`Some(false)`), or goes
    /// on as it did.
    fn next(&mut self, possible: CopyWays, other_stages: Option<bool>) -> CopyWay {
        // Not if it has followed this side, nor each time that it changes.
        let may_follow = |staged: &bool| *staged != stages(self.current) && self.follow_rest_bytes == 0;
        let followed = other_stages
            .filter(may_follow)
            .and_then(|staged| self.fastest(possible.iter().filter(|way| stages(*way) == staged)));
        self.follows = followed.is_some();
        if let Some(way) = followed {
            return way;
        }
        let best = self.best(possible);
        let least = self.per_kib[best as usize];
        // What is not believable was not the way's doing.
        let is_unknown = |known: u32| known == 0 || known / UNBELIEVABLE > least;
        let is_new = |way: &CopyWay| self.tries[*way as usize] < FIRST_TRIES && is_unknown(self.per_kib[*way as usize]);
        if let Some(way) = possible.iter().find(is_new) {
            self.tries[way as usize] += 1;
            return way;
        }
        let mut others = possible.iter().filter(|way| *way != best);
        others.find(|way| self.rest_bytes[*way as usize] == 0).unwrap_or(best)
    }

    /// The fastest as far as is known; where nothing is, that which is most often.
    fn best(&self, possible: CopyWays) -> CopyWay {
        self.fastest(possible.iter()).expect("some are possible")
    }

    fn fastest(&self, ways: impl Iterator<Item = CopyWay>) -> Option<CopyWay> {
        let cost = |way: &CopyWay| match self.per_kib[*way as usize] {
            0 => u32::MAX,
            known => known,
        };
        ways.min_by_key(|way| (cost(way), *way != self.usual))
    }

    /// What is faster is believed sooner than what is slower: most of what delays a message is not its way's doing.
    fn note(&mut self, way: CopyWay, per_kib: u32) {
        let at = way as usize;
        let known = self.per_kib[at];
        self.per_kib[at] = match known {
            0 => per_kib,
            // What was far off was not the way's doing.
            known if per_kib < known / 2 => per_kib,
            known if per_kib < known => known - (known - per_kib).div_ceil(2),
            known => known.saturating_add(((per_kib - known).min(known) / 8).max(1)),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use CopyWay::{Read, Shared, Staged};

    const LEN: u64 = 64 << 10;

    fn all() -> CopyWays {
        CopyWays::only(Read).and(Shared, true).and(Staged, true)
    }

    /// How often each way is taken by `count` messages that take what `cost` says, in ns.
    fn run(
        experience: &mut Experience,
        count: usize,
        is_near: bool,
        cost: impl Fn(CopyWay, usize) -> u64,
    ) -> [usize; 3] {
        run_of(Kind::of(LEN, None, all()), experience, count, is_near, cost)
    }

    fn run_of(
        kind: Kind,
        experience: &mut Experience,
        count: usize,
        is_near: bool,
        cost: impl Fn(CopyWay, usize) -> u64,
    ) -> [usize; 3] {
        let mut taken = [0; 3];
        for message in 0..count {
            let way = experience.choose(kind, LEN, is_near);
            taken[way as usize] += 1;
            experience.end(kind, LEN, way, true, Some(cost(way, message)));
        }
        taken
    }

    #[test]
    fn of_many_under_way_together_all_go_the_same_way() {
        let mut experience = Experience::default();
        let kind = Kind::of(LEN, None, all());
        let mut taken = [0; 3];
        for _ in 0..1000 {
            let ways: Vec<CopyWay> = (0..64).map(|_| experience.choose(kind, LEN, true)).collect();
            let warm = taken.iter().sum::<usize>() > 64;
            assert!(!warm || ways.iter().all(|way| *way == ways[0]), "{ways:?}");
            for (message, way) in ways.into_iter().enumerate() {
                taken[way as usize] += 1;
                // What both copy is all there at the end.
                let ns = match (way, message) {
                    (Shared, 0) => 64 * 4000,
                    (Shared, _) => 100,
                    _ => 5000,
                };
                experience.end(kind, LEN, way, message == 0, Some(ns));
            }
        }
        assert!(taken[1] > 900 * 64, "{taken:?}");
        assert_eq!(experience.under_way, 0);
    }

    /// As in a step of a program that sends all its faces and then waits for all: whatever goes another way than the others
    /// costs more than it saves.
    #[test]
    fn of_several_lengths_under_way_together_all_go_the_way_that_is_fastest_for_all() {
        const LENS: [u64; 4] = [4 * LEN, 2 * LEN, 4 * LEN, LEN / 2];
        for fastest in [Read, Shared, Staged] {
            let mut experience = Experience::default();
            let mut taken = [0; 3];
            for step in 0..2000 {
                let kinds = LENS.map(|len| Kind::of(len, None, all()));
                let ways: Vec<CopyWay> =
                    kinds.iter().zip(LENS).map(|(kind, len)| experience.choose(*kind, len, true)).collect();
                let is_mixed = ways.iter().any(|way| *way != ways[0]);
                let per_kib = |way| if is_mixed { 160 } else { if way == fastest { 80 } else { 120 } };
                for (message, (kind, len)) in kinds.into_iter().zip(LENS).enumerate() {
                    taken[ways[message] as usize] += usize::from(step >= 200);
                    let ns = match (ways[0], message) {
                        // What both copy is all there at the end.
                        (Shared, 0) => LENS.iter().sum::<u64>() / 1024 * per_kib(Shared),
                        (Shared, _) => 100,
                        (way, _) => len / 1024 * per_kib(way),
                    };
                    experience.end(kind, len, ways[message], message == 0, Some(ns));
                }
            }
            let count: usize = taken.iter().sum();
            assert!(taken[fastest as usize] > count / 10 * 9, "{fastest:?}: {taken:?}");
        }
    }

    /// There and back, the sender's help costs nothing; where both send, each holds up the other.
    #[test]
    fn what_is_known_of_messages_one_way_is_not_believed_of_those_that_cross() {
        let mut experience = Experience::default();
        let alone = |way, _| if way == Shared { 4000 } else { 6000 };
        run(&mut experience, 3000, true, alone);
        let crossing = Kind::of(LEN, None, all()).crossing(true);
        for count in [60, 200] {
            let taken =
                run_of(crossing, &mut experience, count, true, |way, _| if way == Read { 6000 } else { 11_000 });
            assert!(taken[0] > count / 2, "{taken:?}");
            let taken = run(&mut experience, 60, true, alone);
            assert!(taken[1] > 50, "{taken:?}");
        }
    }

    #[test]
    fn what_never_comes_alone_goes_the_usual_way() {
        let mut experience = Experience::default();
        let (first, second) = (Kind::of(LEN, None, all()), Kind::of(8 * LEN, None, all()));
        let mut taken = [0; 3];
        for _ in 0..10_000 {
            let ways = [experience.choose(first, LEN, true), experience.choose(second, 8 * LEN, true)];
            taken[ways[1] as usize] += 1;
            experience.end(first, LEN, ways[0], true, Some(5000));
            experience.end(second, 8 * LEN, ways[1], false, Some(5000));
        }
        assert!(taken[1] > 6000, "{taken:?}");
    }

    /// So it is while the channel is the fastest, but for the runs that try another way, and never while it is only tried.
    #[test]
    fn who_keeps_to_the_channel_is_not_trying_it() {
        let kind = Kind::of(LEN, None, all());
        for (staged_ns, keeps) in [(2000, true), (9000, false)] {
            let mut experience = Experience::default();
            run(&mut experience, 2000, true, |way, _| if way == Staged { staged_ns } else { 5000 });
            let mut staged = [0; 2];
            for _ in 0..20_000 {
                let way = experience.choose(kind, LEN, true);
                let kept = experience.keeps_to_channel(kind);
                assert_eq!(kept, keeps && way == Staged, "{way:?} where the channel takes {staged_ns} ns");
                staged[usize::from(way == Staged)] += 1;
                experience.end(kind, LEN, way, true, Some(if way == Staged { staged_ns } else { 5000 }));
            }
            assert!(staged.iter().all(|count| *count > 0), "both happened: {staged:?}");
            assert!((staged[1] > 10_000) == keeps, "{staged:?}");
        }
    }

    #[test]
    fn a_first_message_that_was_delayed_is_soon_forgiven() {
        let mut experience = Experience::default();
        let delayed = |way, message| match way {
            Shared if message < 64 => 50_000_000,
            Shared => 4000,
            _ => 6000,
        };
        run(&mut experience, 64, false, delayed);
        let taken = run(&mut experience, 3000, false, |way, message| delayed(way, message + 64));
        assert!(taken[1] > 2000, "{taken:?}");
    }

    #[test]
    fn where_there_is_always_one_under_way_others_are_tried_all_the_same() {
        let mut experience = Experience::default();
        let kind = Kind::of(LEN, None, all());
        let mut last = experience.choose(kind, LEN, true);
        let mut taken = [0; 3];
        for _ in 0..100_000 {
            let way = experience.choose(kind, LEN, true);
            taken[way as usize] += 1;
            experience.end(kind, LEN, last, false, Some(if last == Shared { 4000 } else { 6000 }));
            last = way;
        }
        assert!(taken[1] > 85_000 && taken[0] > 500 && taken[2] > 500, "{taken:?}");
    }

    #[test]
    fn the_fastest_way_is_taken_and_the_others_are_tried_now_and_then() {
        for fastest in [Read, Shared, Staged] {
            let mut experience = Experience::default();
            let taken = run(&mut experience, 2000, true, |way, _| if way == fastest { 5000 } else { 11_000 });
            assert!(taken[fastest as usize] > 1900, "{fastest:?}: {taken:?}");
            assert!(taken.iter().all(|count| *count >= 8), "all are tried: {taken:?}");
        }
    }

    #[test]
    fn ways_about_as_fast_are_tried_more_often() {
        let tried =
            |slower| run(&mut Experience::default(), 5000, false, |way, _| if way == Read { 5000 } else { slower })[1];
        assert!(tried(5500) > 2 * tried(20_000), "{} {}", tried(5500), tried(20_000));
    }

    #[test]
    fn what_changes_is_found_out() {
        let mut experience = Experience::default();
        run(&mut experience, 1000, true, |way, _| if way == Staged { 4000 } else { 6000 });
        let apart = |way, _| if way == Staged { 8000 } else { 6000 };
        let taken = run(&mut experience, 200, true, apart);
        assert!(taken[2] < 40, "what has become slower is left soon: {taken:?}");
        run(&mut experience, 5000, false, apart);
        let taken = run(&mut experience, 800, false, |way, _| if way == Staged { 4000 } else { 6000 });
        assert!(taken[2] > 250, "what has become faster is found at the next trial: {taken:?}");
        run(&mut experience, 5000, false, apart);
        let taken = run(&mut experience, 100, true, |way, _| if way == Staged { 4000 } else { 6000 });
        assert!(taken[2] > 90, "at once if the sender says that it might: {taken:?}");
    }

    #[test]
    fn a_message_that_something_delayed_changes_nothing() {
        let mut experience = Experience::default();
        let taken = run(&mut experience, 3000, false, |way, message| match way {
            Read if message % 20 == 0 => 10_000_000,
            Read => 5000,
            _ => 7000,
        });
        assert!(taken[0] > 2700, "{taken:?}");
    }

    #[test]
    fn the_channel_is_warmed_before_it_is_judged() {
        let mut experience = Experience::default();
        let warm = (CHANNEL_WARM_BYTES / LEN) as usize;
        assert_eq!(run(&mut experience, warm, true, |_, _| 1_000_000), [0, 0, warm]);
        let taken = run(&mut experience, 1000, true, |way, _| if way == Staged { 4000 } else { 6000 });
        assert!(taken[2] > 900, "{taken:?}");
    }

    #[test]
    fn a_channel_that_has_become_cold_is_warmed_before_it_is_judged_again() {
        let mut experience = Experience::default();
        run(&mut experience, 1000, true, |way, _| if way == Staged { 8000 } else { 6000 });
        // It is faster now, but not at once.
        let staged = Cell::new((0, 0));
        let taken = run(&mut experience, 4000, true, |way, message| {
            let (last, count) = staged.get();
            let count = if message - last > 100 { 0 } else { count };
            staged.set(if way == Staged { (message, count + 1) } else { (last, count) });
            match way {
                Staged if count < 16 => 20_000,
                Staged => 4000,
                _ => 6000,
            }
        });
        assert!(taken[2] > 2000, "{taken:?}");
    }

    #[test]
    fn what_a_change_of_ways_costs_is_not_held_against_the_new_one() {
        let mut experience = Experience::default();
        let last = Cell::new(Staged);
        let taken = run(&mut experience, 1000, false, |way, _| match (way, last.replace(way)) {
            (Shared, Shared) => 4000,
            (Shared, _) => 20_000,
            _ => 6000,
        });
        assert!(taken[1] > 800, "{taken:?}");
    }

    #[test]
    fn a_channel_that_others_keep_cold_is_judged_all_the_same() {
        let mut experience = Experience::default();
        let (short, long) =
            (Kind::of(LEN, None, all()), Kind::of(8 << 20, None, CopyWays::only(Shared).and(Read, true)));
        let mut taken = [0; 3];
        for _ in 0..1000 {
            let way = experience.choose(short, LEN, true);
            taken[way as usize] += 1;
            experience.end(short, LEN, way, true, Some(if way == Staged { 60_000 } else { 6000 }));
            let way = experience.choose(long, 8 << 20, true);
            experience.end(long, 8 << 20, way, true, Some(800_000));
        }
        assert!(taken[2] < 100, "{taken:?}");
    }

    #[test]
    fn trials_of_a_channel_that_is_slow_cost_little() {
        let mut experience = Experience::default();
        let cost = |way, _| if way == Staged { 13_000 } else { 5500 };
        run(&mut experience, 2000, true, cost);
        let total = Cell::new(0);
        run(&mut experience, 20_000, true, |way, message| {
            total.set(total.get() + cost(way, message));
            cost(way, message)
        });
        assert!(total.get() < 20_000 * 5500 / 100 * 103, "{}", total.get());
    }

    /// Both sides send windows to each other; `cost` of a message by its way and by whether the other side stages, too.
    /// How often each way is taken by the one side, in the last quarter of the windows.
    fn both_ways(sides: &mut [Experience; 2], windows: usize, cost: impl Fn(CopyWay, bool) -> u64) -> [usize; 3] {
        let kind = Kind::of(LEN, None, all());
        let mut taken = [0; 3];
        for window in 0..windows {
            let ways = [0, 1].map(|side| (0..64).map(|_| sides[side].choose(kind, LEN, true)).collect::<Vec<_>>());
            for message in 0..64 {
                for side in 0..2 {
                    let (own, others) = (ways[side][message], ways[1 - side][message]);
                    sides[side].end(kind, LEN, own, message == 0, Some(cost(own, others == Staged)));
                    sides[1 - side].other_takes(own == Staged);
                }
                taken[ways[0][message] as usize] += usize::from(window >= windows / 4 * 3);
            }
        }
        taken
    }

    #[test]
    fn what_pays_only_if_both_sides_do_it_is_found() {
        let mut sides = [Experience::default(), Experience::default()];
        // They are out of step: one has used the other ways by itself before.
        run(&mut sides[1], 3000, true, |way, _| if way == Read { 6000 } else { 9000 });
        let taken = both_ways(&mut sides, 2000, |way, too| match way {
            Staged if too => 4000,
            Staged => 9000,
            Read => 6000,
            Shared => 20_000,
        });
        assert!(taken[2] > 28_000, "{taken:?}");
    }

    #[test]
    fn what_pays_only_if_no_side_uses_the_channel_is_found() {
        let mut sides = [Experience::default(), Experience::default()];
        run(&mut sides[1], 3000, true, |way, _| if way == Staged { 6000 } else { 9000 });
        let taken = both_ways(&mut sides, 2000, |way, too| match way {
            Staged => 6000,
            Shared if too => 9000,
            Shared => 4000,
            Read => 20_000,
        });
        assert!(taken[1] > 28_000, "{taken:?}");
    }

    #[test]
    fn following_the_other_side_costs_little_where_it_does_not_pay() {
        let mut sides = [Experience::default(), Experience::default()];
        let taken = both_ways(&mut sides, 2000, |way, _| if way == Read { 6000 } else { 12_000 });
        assert!(taken[0] > 30_000, "{taken:?}");
    }

    #[test]
    fn an_other_side_that_begins_again_and_again_is_not_followed_each_time() {
        let mut experience = Experience::default();
        let kind = Kind::of(LEN, None, all());
        let mut total = 0;
        for _ in 0..20_000 {
            let way = experience.choose(kind, LEN, true);
            let ns = if way == Staged { 12_000 } else { 6000 };
            experience.end(kind, LEN, way, true, Some(ns));
            // Messages of two lengths, say, of which it stages one.
            experience.other_takes(true);
            experience.other_takes(false);
            total += ns;
        }
        assert!(total < 20_000 * 6000 / 100 * 106, "{total}");
    }

    #[test]
    fn what_is_the_only_way_is_taken_and_kinds_do_not_mix() {
        let mut experience = Experience::default();
        for way in [Read, Shared, Staged] {
            let kind = Kind::of(LEN, None, CopyWays::only(way));
            assert_eq!(experience.choose(kind, LEN, true), way);
            assert_eq!(kind.only_way(), Some(way));
        }
        assert_eq!(Kind::of(LEN, None, all()).only_way(), None);
        let kinds: Vec<Kind> = [None, Some(8), Some(16), Some(100), Some(600), Some(9000)]
            .into_iter()
            .flat_map(|block| [1, 20_000, 40_000, 1 << 23, u64::MAX].map(|len| Kind::of(len, block, all())))
            .collect();
        for (at, kind) in kinds.iter().enumerate() {
            assert_eq!(kinds.iter().position(|other| other == kind), Some(at - at % 5 + [0, 1, 2, 3, 3][at % 5]));
        }
    }
}
