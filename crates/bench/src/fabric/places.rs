//! Ends that poll, each on a core of its own: two on one core would take turns by the millisecond, and what they measured
//! would be the scheduler.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// This thread on a core of its own, until this is dropped.
pub struct Place {
    before: Option<CpuSet>,
}

impl Place {
    /// The core of end number `number` of `ends`, if there are as many cores as ends. Threads that a device started
    /// before stay free.
    pub fn take(number: usize, ends: usize) -> Self {
        // Where the system refuses, it places the ends itself.
        let Ok(allowed) = sched_getaffinity(None) else { return Self { before: None } };
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
        if cores.len() < ends {
            return Self { before: None };
        }
        let mut own = CpuSet::new();
        own.set(cores[number % cores.len()]);
        Self { before: sched_setaffinity(None, &own).is_ok().then_some(allowed) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = sched_setaffinity(None, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_apart_where_there_are_enough_cores() {
        let count = || {
            let set = sched_getaffinity(None).unwrap();
            (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect::<Vec<_>>()
        };
        // Each in a thread, so that this one keeps what it is allowed whatever happens.
        let on = |number, ends| {
            let thread = std::thread::spawn(move || {
                let place = Place::take(number, ends);
                let during = count();
                drop(place);
                (during, count())
            });
            thread.join().unwrap()
        };
        let all = count();
        let (first, second) = (on(0, 2), on(1, 2));
        if all.len() > 1 {
            assert_eq!((&first.0[..], &second.0[..]), (&all[..1], &all[1..2]));
        }
        assert_eq!((&first.1, &second.1), (&all, &all), "given back");
        assert_eq!(on(0, all.len() + 1).0, all, "more ends than cores stay where they are put");
    }
}
