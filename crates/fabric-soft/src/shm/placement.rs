//! Keeping the processes of a job on different processors while they wait for each other.
//!
//! A process that is woken is often put on the processor of the one that woke it, and two that take turns there stay
//! there: nothing looks overloaded, yet each message costs a switch, some forty times what it costs between two
//! processors. So a process that waits tells where it runs, and when it finds a peer waiting in the same place while
//! another processor is free of peers, it moves. Its affinity is the same afterwards: this is a push, not a binding, and
//! other programs of the machine are not shut out.

use std::sync::atomic::{AtomicU32, Ordering};

use fabric::SharedMemory;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Where an identity says on which processor its process waits; 0 while it has not said so.
const PROCESSOR: usize = 24;
/// Rests between two looks at where everybody is.
const RESTS_PER_LOOK: u32 = 16;

/// Where this process and its peers of this host run.
pub(super) struct Placement {
    me: usize,
    identities: Vec<SharedMemory>,
    /// There is a processor for each process.
    is_roomy: bool,
    rests: AtomicU32,
}

impl Placement {
    /// The placement of process `me` among those with these identities.
    pub(super) fn new(me: u32, identities: Vec<SharedMemory>) -> Self {
        let processors = sched_getaffinity(None).map_or(0, |allowed| allowed.count() as usize);
        let is_roomy = identities.len() > 1 && identities.len() <= processors;
        Self { me: me as usize, identities, is_roomy, rests: AtomicU32::new(0) }
    }

    /// One that moves nobody.
    pub(super) const fn nowhere() -> Self {
        Self { me: 0, identities: Vec::new(), is_roomy: false, rests: AtomicU32::new(0) }
    }

    /// Called now and then by whoever waits, awake.
    pub(super) fn look_around(&self) {
        if !self.is_roomy || !self.rests.fetch_add(1, Ordering::Relaxed).is_multiple_of(RESTS_PER_LOOK) {
            return;
        }
        let mine = sched_getcpu();
        // Relaxed, here and below: hints, nothing is guarded by them.
        self.identities[self.me].half(PROCESSOR).store(mine as u32 + 1, Ordering::Relaxed);
        let places = self.identities.iter().map(|identity| {
            let processor = identity.half(PROCESSOR).load(Ordering::Relaxed) as usize;
            processor.checked_sub(1)
        });
        let places: Vec<_> = places.collect();
        let shares = places[..self.me].contains(&Some(mine));
        if shares
            && let Ok(allowed) = sched_getaffinity(None)
            && let Some(better) = free_processor(&places, &allowed)
        {
            move_to(better, &allowed);
            self.identities[self.me].half(PROCESSOR).store(better as u32 + 1, Ordering::Relaxed);
        }
    }
}

/// A processor among those `allowed` on which nobody was last seen.
fn free_processor(places: &[Option<usize>], allowed: &CpuSet) -> Option<usize> {
    (0..CpuSet::MAX_CPU).find(|processor| allowed.is_set(*processor) && !places.contains(&Some(*processor)))
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

    fn set(processors: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        processors.iter().for_each(|processor| set.set(*processor));
        set
    }

    #[test]
    fn a_processor_without_peers_is_found_among_those_allowed() {
        let check = |places: &[Option<usize>], allowed: &[usize], expected| {
            assert_eq!(free_processor(places, &set(allowed)), expected, "{places:?} on {allowed:?}");
        };
        check(&[Some(0), Some(0)], &[0, 1], Some(1));
        check(&[Some(0), Some(1)], &[0, 1], None);
        check(&[Some(3), Some(3), None], &[3, 5, 9], Some(5));
        check(&[Some(3), Some(3), Some(5)], &[3, 5, 9], Some(9));
        check(&[Some(7)], &[7], None);
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
            placement.rests.store(0, Ordering::Relaxed);
            placement.look_around();
            let other = identities[0].half(PROCESSOR).load(Ordering::Relaxed);
            let own = identities[1].half(PROCESSOR).load(Ordering::Relaxed);
            assert_ne!(own, other, "round {round}");
            assert!(sched_getaffinity(None).expect("as before") == before, "round {round}");
        }
    }
}
