//! Whether the data of long blocks is read straight from the memory of who has it, or goes over boards or by messages:
//! whichever took less time lately.
//!
//! No length holds on every machine. Four ranks on two cores of a Zen 4 exchange blocks of 256 KiB in 121 us over boards,
//! where other libraries take 210 or more; on two of a Xeon boards take 440 us, and reading straight 310. So one
//! member, the judge of a kind of calls, notes what they took, and tries the other way now and then. All have to go the same
//! way, so it says in each call which way the next one of its kind goes, behind the lengths that all tell anyway.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use collectives::Collective;
use smallvec::SmallVec;

/// Shortest blocks whose way is judged.
pub const JUDGED_MIN_BYTES: u64 = 16 << 10;
/// Calls of a kind before the first trial: most kinds are used seldom.
const FIRST_REST: u64 = 8;
/// Calls that are compared, the last of each way; one more goes before them, which pays for the change.
const SAMPLES: usize = 7;
/// The same of calls that take so long, in ns, that little disturbs them, and that trials are dear.
const LONG_SAMPLES: usize = 2;
const LONG_NS: u64 = 1_000_000;
/// A way is left for one that takes so many hundredths of its time, or less.
const BETTER_MAX_PERCENT: u64 = 95;
/// Calls to the next trial, for each of a trial: so many for each time that it took longer than the better way, within
/// bounds. What trials cost is one part in so many.
const REST: u64 = 64;
const REST_BOUNDS: (u64, u64) = (24, 128);

/// Calls that are compared with each other: of one operation and of lengths with as many bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    pub operation: Operation,
    pub len_bits: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Each member has one block for all others, or for the only one.
    OneEach,
    /// Each has one for each of several.
    EachToEach,
    Reduction,
    /// One of two has a block for the other.
    ToOne {
        collective: Collective,
        root: usize,
    },
}

impl Operation {
    /// The member that notes what calls take, and says which way the next one goes. Of two that is who has most to do: who
    /// shows something may leave before anything has arrived, but the root of a scatter copies a block of its own, too.
    pub fn judge(self) -> usize {
        match self {
            Operation::ToOne { collective: Collective::Bcast, root } => usize::from(root == 0),
            Operation::ToOne { root, .. } => root,
            _ => 0,
        }
    }
}

/// How the blocks of a call go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Over boards, or by messages.
    Passed,
    /// Straight from the memory of who has them: all read them there, or, of two, each gets them as a message, and so does the
    /// only one who wants them.
    Straight,
}

/// The way of a call, whether it is judged, and what is then said of the next one of its kind. In one byte, for short calls
/// carry it, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice(u8);

impl Choice {
    /// What is passed on, and not judged.
    pub const PASSED: Self = Self(0);
    const STRAIGHT: u8 = 1;
    const NEXT_STRAIGHT: u8 = 2;
    const JUDGED: u8 = 4;

    /// A way that is not judged.
    pub fn fixed(way: Way) -> Self {
        Self(if way == Way::Straight { Self::STRAIGHT } else { 0 })
    }

    fn judged(way: Way, next: Way) -> Self {
        let said = if next == Way::Straight { Self::NEXT_STRAIGHT } else { 0 };
        Self(Self::fixed(way).0 | said | Self::JUDGED)
    }

    pub fn is_straight(self) -> bool {
        self.0 & Self::STRAIGHT != 0
    }

    pub fn is_judged(self) -> bool {
        self.0 & Self::JUDGED != 0
    }

    pub fn is_next_straight(self) -> bool {
        self.0 & Self::NEXT_STRAIGHT != 0
    }
}

/// What is known of the calls on one communicator, as one member holds it. One call at a time.
#[derive(Default)]
pub struct Judgements {
    table: Mutex<Table>,
    /// What the call under way takes is noted.
    is_open: AtomicBool,
}

#[derive(Default)]
struct Table {
    kinds: Vec<(Kind, Known)>,
    /// Where the kind of the call under way stands there.
    current: usize,
    /// The call under way, if this member notes what it takes.
    open: Option<Open>,
}

struct Open {
    way: Way,
    len_bytes: u64,
    start: Instant,
}

struct Known {
    /// Of the next call, as the judge has said.
    next: Way,
    judge: Judge,
}

/// What the judge of a kind knows of it.
struct Judge {
    best: Way,
    is_trial: bool,
    /// Calls until that changes.
    left: u64,
    /// The way of the last call that was noted.
    last: Option<Way>,
    /// ns per KiB of the last calls of each way.
    took: [SmallVec<[u64; SAMPLES]>; 2],
    /// Calls that are compared now.
    samples: usize,
}

impl Way {
    fn other(self) -> Self {
        match self {
            Way::Passed => Way::Straight,
            Way::Straight => Way::Passed,
        }
    }
}

impl Judgements {
    /// The way of a call of so many bytes, the same in all members; `by_itself` before anything was said of its kind. The judge
    /// begins to note what the call takes, and has something to say of the next one.
    pub fn choose(&self, kind: Kind, len_bytes: u64, by_itself: Way, is_judge: bool) -> Choice {
        let mut table = self.table();
        let known = table.begin(kind, by_itself);
        let way = known.next;
        let next = if is_judge { known.judge.next() } else { way };
        if is_judge {
            table.open = Some(Open { way, len_bytes, start: Instant::now() });
            self.is_open.store(true, Ordering::Relaxed);
        }
        Choice::judged(way, next)
    }

    /// The judge has said which way the next call of the kind of this one goes, and all members have heard it.
    pub fn hear(&self, next: Way) {
        if let Some(known) = self.table().current() {
            known.next = next;
        }
    }

    /// A call is over, judged or not; nothing is learned from one that failed.
    #[inline]
    pub fn end(&self, has_failed: bool) {
        if self.is_open.load(Ordering::Relaxed) {
            self.close(has_failed);
        }
    }

    #[cold]
    fn close(&self, has_failed: bool) {
        self.is_open.store(false, Ordering::Relaxed);
        let mut table = self.table();
        let open = table.open.take().filter(|_| !has_failed);
        if let (Some(Open { way, len_bytes, start }), Some(known)) = (open, table.current()) {
            known.judge.note(way, start.elapsed().as_nanos() as u64, len_bytes);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// A call of that kind begins.
    fn begin(&mut self, kind: Kind, by_itself: Way) -> &mut Known {
        let found = self.kinds.iter().position(|(known, _)| *known == kind);
        self.current = found.unwrap_or_else(|| {
            self.kinds.push((kind, Known { next: by_itself, judge: Judge::new(by_itself) }));
            self.kinds.len() - 1
        });
        &mut self.kinds[self.current].1
    }

    fn current(&mut self) -> Option<&mut Known> {
        self.kinds.get_mut(self.current).map(|(_, known)| known)
    }
}

impl Judge {
    fn new(best: Way) -> Self {
        let took = Default::default();
        Self { best, is_trial: false, left: FIRST_REST, last: None, took, samples: SAMPLES }
    }

    /// The way of the call after the one that begins.
    fn next(&mut self) -> Way {
        if self.left > 0 {
            self.left -= 1;
        } else if self.is_trial {
            self.sum_up();
        } else {
            self.is_trial = true;
            self.took[self.best.other() as usize].clear();
            self.left = self.samples as u64;
        }
        if self.is_trial { self.best.other() } else { self.best }
    }

    /// What a call took.
    fn note(&mut self, way: Way, ns: u64, len_bytes: u64) {
        if self.last.replace(way) != Some(way) {
            return;
        }
        self.samples = if ns < LONG_NS { SAMPLES } else { LONG_SAMPLES };
        let took = &mut self.took[way as usize];
        if took.len() == SAMPLES {
            took.remove(0);
        }
        took.push(ns.saturating_mul(1024) / len_bytes.max(1));
    }

    /// A trial is over.
    fn sum_up(&mut self) {
        self.is_trial = false;
        let calls = self.samples as u64 + 1;
        let count = self.took[0].len().min(self.took[1].len());
        let [best, other] = [self.best, self.best.other()].map(|way| self.typical(way, count));
        let times = match (best, other) {
            (Some(best), Some(other)) if other.saturating_mul(100) <= best.saturating_mul(BETTER_MAX_PERCENT) => {
                self.best = self.best.other();
                0
            }
            (Some(best), Some(other)) => REST.saturating_mul(other.saturating_sub(best)) / best.max(1),
            _ => 0,
        };
        self.left = calls * times.clamp(REST_BOUNDS.0, REST_BOUNDS.1);
    }

    /// What so many of the last calls that went this way took: the median.
    fn typical(&self, way: Way, count: usize) -> Option<u64> {
        let took = &self.took[way as usize];
        let mut last = SmallVec::<[u64; SAMPLES]>::from_slice(&took[took.len() - count..]);
        let middle = count.checked_sub(1)? / 2;
        Some(*last.select_nth_unstable(middle).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 256 << 10;

    /// How many of so many calls go each way, if they take what `cost` says, in ns.
    fn run(judge: &mut Judge, way: &mut Way, count: usize, cost: impl Fn(Way, usize) -> u64) -> [usize; 2] {
        let mut taken = [0; 2];
        for call in 0..count {
            let next = judge.next();
            taken[*way as usize] += 1;
            judge.note(*way, cost(*way, call), LEN);
            *way = next;
        }
        taken
    }

    #[test]
    fn the_faster_way_is_taken_whatever_the_first_was() {
        for first in [Way::Passed, Way::Straight] {
            for faster in [Way::Passed, Way::Straight] {
                let (mut judge, mut way) = (Judge::new(first), first);
                let cost = |way, _| if way == faster { 100_000 } else { 130_000 };
                run(&mut judge, &mut way, 100, cost);
                let taken = run(&mut judge, &mut way, 10_000, cost);
                let slower = taken[faster.other() as usize];
                assert!((50..500).contains(&slower), "it is tried, and seldom: {taken:?}");
            }
        }
    }

    #[test]
    fn calls_of_which_there_are_few_are_not_tried() {
        let (mut judge, mut way) = (Judge::new(Way::Straight), Way::Straight);
        assert_eq!(run(&mut judge, &mut way, FIRST_REST as usize, |_, _| 1), [0, FIRST_REST as usize]);
    }

    #[test]
    fn a_trial_of_long_calls_is_short() {
        let (mut judge, mut way) = (Judge::new(Way::Straight), Way::Straight);
        let taken = run(&mut judge, &mut way, 60, |way, _| if way == Way::Passed { 9_000_000 } else { 5_000_000 });
        assert_eq!(taken[0], 1 + LONG_SAMPLES, "{taken:?}");
    }

    #[test]
    fn what_changes_is_found_out_and_a_delay_is_not_a_change() {
        let (mut judge, mut way) = (Judge::new(Way::Straight), Way::Straight);
        let delayed = |way, call: usize| match way {
            Way::Straight if call.is_multiple_of(5) => 50_000_000,
            Way::Straight => 100_000,
            Way::Passed => 120_000,
        };
        let taken = run(&mut judge, &mut way, 5000, delayed);
        assert!(taken[0] < 500, "{taken:?}");
        run(&mut judge, &mut way, 1500, |way, _| if way == Way::Straight { 100_000 } else { 80_000 });
        assert_eq!(judge.best, Way::Passed);
    }

    #[test]
    fn what_is_about_as_fast_is_no_reason_to_change() {
        let (mut judge, mut way) = (Judge::new(Way::Passed), Way::Passed);
        run(&mut judge, &mut way, 3000, |way, _| if way == Way::Straight { 97_000 } else { 100_000 });
        assert_eq!(judge.best, Way::Passed);
    }

    /// All members go the way that the judge has said, and only what all have heard counts.
    #[test]
    fn members_go_the_way_that_the_judge_has_said() {
        let members = [Judgements::default(), Judgements::default()];
        let kind = Kind { operation: Operation::EachToEach, len_bits: 18 };
        let mut ways = Vec::new();
        for call in 0..60 {
            let [first, other] = [0, 1].map(|rank| members[rank].choose(kind, LEN, Way::Passed, rank == 0));
            assert!(first.is_judged() && first.is_straight() == other.is_straight());
            ways.push(first.is_straight());
            // A call in which a member was lost, say.
            if call != 30 {
                let said = if first.is_next_straight() { Way::Straight } else { Way::Passed };
                members.iter().for_each(|member| member.hear(said));
            }
            members.iter().for_each(|member| member.end(call == 30));
        }
        assert!(ways.contains(&true) && !ways[..FIRST_REST as usize].contains(&true));
    }
}
