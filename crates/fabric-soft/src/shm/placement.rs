//! Keeping the processes of a job spread over the processors while they wait for each other.
//!
//! A process that is woken is often put on the processor of the one that woke it, and two that take turns there stay
//! there: nothing looks overloaded, yet each message costs a switch, some forty times what it costs between two
//! processors. Where processes outnumber processors, the system leaves three of four on one of two processors half of the
//! time, for waiting in short yields looks like work. So a process that waits tells where it runs, and when a processor has
//! two peers fewer, it moves there, the last of those that wait in one place first. Its affinity is the same afterwards:
//! this is a push, not a binding, and other programs of the machine are not shut out.

use std::sync::atomic::{AtomicU32, Ordering};

use fabric::SharedMemory;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Where an identity says on which processor its process waits; 0 while it has not said so.
const PROCESSOR: usize = 24;
/// Rests between two looks at where everybody is; where there are more processes, as many as those.
const RESTS_PER_LOOK: u32 = 16;
/// Looks that a process leaves out when it has moved: what it saw of those that compute may be old, and the system, which
/// knows more, may move it back.
const LOOKS_LEFT_OUT: u32 = 64;

/// Where this process and its peers of this host run.
pub(super) struct Placement {
    me: usize,
    identities: Vec<SharedMemory>,
    /// What the process was allowed to run on in the beginning; none if that is not known.
    processors: Vec<usize>,
    rests: AtomicU32,
    /// Looks to leave out.
    left_out: AtomicU32,
}

impl Placement {
    /// The placement of process `me` among those with these identities.
    pub(super) fn new(me: u32, identities: Vec<SharedMemory>) -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_default();
        let processors = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
        Self { me: me as usize, identities, processors, rests: AtomicU32::new(0), left_out: AtomicU32::new(0) }
    }

    /// One that moves nobody.
    pub(super) const fn nowhere() -> Self {
        let (rests, left_out) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { me: 0, identities: Vec::new(), processors: Vec::new(), rests, left_out }
    }

    /// True if `process` was last seen on the processor that the caller runs on.
    pub(super) fn runs_here(&self, process: u32) -> bool {
        self.place_of(process as usize) == Some(sched_getcpu())
    }

    fn place_of(&self, process: usize) -> Option<usize> {
        // Relaxed, here and below: hints, nothing is guarded by them.
        let said = self.identities.get(process)?.half(PROCESSOR).load(Ordering::Relaxed);
        (said as usize).checked_sub(1)
    }

    fn tell(&self, processor: usize) {
        let said = self.identities[self.me].half(PROCESSOR);
        if said.load(Ordering::Relaxed) != processor as u32 + 1 {
            said.store(processor as u32 + 1, Ordering::Relaxed);
        }
    }

    /// Called now and then by whoever waits, awake.
    pub(super) fn look_around(&self) {
        if self.identities.len() < 2 || self.processors.is_empty() {
            return;
        }
        let rests_per_look = RESTS_PER_LOOK.max(self.identities.len() as u32);
        let looks = self.rests.fetch_add(1, Ordering::Relaxed).is_multiple_of(rests_per_look);
        // Where some share a processor, whoever writes to this process wants to know whether it is the same one.
        let is_crowded = self.identities.len() > self.processors.len();
        if !looks && !is_crowded {
            return;
        }
        let mine = sched_getcpu();
        self.tell(mine);
        if !looks {
            return;
        }
        let left_out = self.left_out.load(Ordering::Relaxed);
        if left_out > 0 {
            return self.left_out.store(left_out - 1, Ordering::Relaxed);
        }
        if let Some(better) = self.better_than(mine)
            && let Ok(allowed) = sched_getaffinity(None)
            && allowed.is_set(better)
        {
            move_to(better, &allowed);
            self.tell(better);
            self.left_out.store(LOOKS_LEFT_OUT, Ordering::Relaxed);
        }
    }

    /// The processor with the fewest processes, if there are at least two fewer than on `mine` and this process is the last of
    /// those there: one at a time moves away. (Four ranks on two processors were apart from two and two in 1 to 2 % of looks
    /// from outside; where any may move, in 5 to 27 %.)
    fn better_than(&self, mine: usize) -> Option<usize> {
        let mut counts = [0u16; CpuSet::MAX_CPU];
        let mut last_here = self.me;
        for process in 0..self.identities.len() {
            let Some(place) = self.place_of(process) else { continue };
            if let Some(count) = counts.get_mut(place) {
                *count = count.saturating_add(1);
            }
            last_here = if place == mine { process } else { last_here };
        }
        let best = self.processors.iter().copied().min_by_key(|processor| counts[*processor])?;
        (last_here == self.me && counts[best] + 2 <= *counts.get(mine)?).then_some(best)
    }
}

/// Moves the calling thread to `processor`; it may run on all that are `allowed` again afterwards.
fn move_to(processor: usize, allowed: &CpuSet) {
    let mut only = CpuSet::new();
    only.set(processor);
    if sched_setaffinity(None, &only).is_ok() {
        // The mask was this thread's own a moment ago; if a processor was taken away meanwhile, the kernel's is kept.
        let _ = sched_setaffinity(None, allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A placement of process `me` with all where they were last seen.
    fn placed(me: u32, places: &[Option<usize>], processors: &[usize]) -> Placement {
        let identity = |place: &Option<usize>| {
            let identity = SharedMemory::private(64);
            identity.half(PROCESSOR).store(place.map_or(0, |place| place as u32 + 1), Ordering::Relaxed);
            identity
        };
        let identities = places.iter().map(identity).collect();
        Placement { processors: processors.to_vec(), ..Placement::new(me, identities) }
    }

    #[test]
    fn the_last_one_moves_to_where_two_fewer_are() {
        let check = |me: u32, places: &[Option<usize>], processors: &[usize], expected| {
            let mine = places[me as usize].expect("this one knows");
            let better = placed(me, places, processors).better_than(mine);
            assert_eq!(better, expected, "{me} of {places:?} on {processors:?}");
        };
        check(1, &[Some(0), Some(0)], &[0, 1], Some(1));
        check(0, &[Some(0), Some(0)], &[0, 1], None);
        check(1, &[Some(0), Some(1)], &[0, 1], None);
        check(1, &[Some(3), Some(3), None], &[3, 5, 9], Some(5));
        check(1, &[Some(3), Some(3), Some(5)], &[3, 5, 9], Some(9));
        check(0, &[Some(7)], &[7], None);
        check(2, &[Some(1), Some(1), Some(1), Some(0)], &[0, 1], Some(0));
        check(1, &[Some(1), Some(1), Some(1), Some(0)], &[0, 1], None);
        check(2, &[Some(1), Some(1), Some(1), Some(0), Some(0)], &[0, 1], None);
        check(1, &[Some(u32::MAX as usize - 1), Some(0)], &[0, 1], None);
    }

    #[test]
    fn those_that_run_on_the_callers_processor_are_known() {
        let here = sched_getcpu();
        // Should the system move this thread meanwhile, it is asked again.
        let tells = |_: &u32| {
            let placement = placed(0, &[Some(here), Some(here), Some(here + 1), None], &[here]);
            placement.runs_here(1) && !placement.runs_here(2) && !placement.runs_here(3) && !placement.runs_here(4)
        };
        assert!((0..1000).any(|round| sched_getcpu() != here || tells(&round)));
    }

    #[test]
    fn who_shares_a_processor_moves_and_keeps_its_affinity() {
        let before = sched_getaffinity(None).expect("a thread has an affinity");
        if before.count() < 2 {
            println!("skipped: this process may use one processor only");
            return;
        }
        let identities: Vec<_> = (0..2).map(|_| SharedMemory::private(64)).collect();
        let placement = Placement::new(1, identities.clone());
        // Wherever this thread runs when it looks, the other is said to be there.
        for round in 0..50 {
            identities[0].half(PROCESSOR).store(sched_getcpu() as u32 + 1, Ordering::Relaxed);
            placement.left_out.store(0, Ordering::Relaxed);
            placement.rests.store(0, Ordering::Relaxed);
            placement.look_around();
            let other = identities[0].half(PROCESSOR).load(Ordering::Relaxed);
            let own = identities[1].half(PROCESSOR).load(Ordering::Relaxed);
            assert_ne!(own, other, "round {round}");
            assert!(sched_getaffinity(None).expect("as before") == before, "round {round}");
        }
    }
}
