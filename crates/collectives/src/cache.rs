//! Schedules kept between calls: programs repeat themselves.

use std::sync::Arc;

use crate::call::Call;
use crate::data::Place;
use crate::error::BuildError;
use crate::schedule::Schedule;
use crate::selection::Selection;

/// Schedules kept per communicator.
const SCHEDULES_MAX: usize = 16;
/// Steps kept per communicator, some 80 bytes each. A schedule with more than a quarter of these is
/// not kept: building it is cheap against running it.
const STEPS_MAX: usize = 8192;

/// The last schedules of one communicator, found again by equal calls.
#[derive(Debug)]
pub struct Cache {
    place: Place,
    selection: Arc<Selection>,
    /// Most recently used towards the front.
    kept: Vec<(Call, Arc<Schedule>)>,
}

impl Cache {
    /// An empty cache for a rank of a communicator.
    pub fn new(place: Place, selection: Arc<Selection>) -> Cache {
        Cache { place, selection, kept: Vec::new() }
    }

    /// The selection schedules are built by.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// The schedule of `call`, kept or new. A hit compares a few numbers and counts a reference.
    ///
    /// # Errors
    /// As [`crate::build`].
    pub fn schedule(&mut self, call: &Call) -> Result<Arc<Schedule>, BuildError> {
        if let Some(at) = self.kept.iter().position(|(kept, _)| kept == call) {
            let schedule = Arc::clone(&self.kept[at].1);
            if at > 0 {
                self.kept.swap(at, at / 2);
            }
            return Ok(schedule);
        }
        let schedule = Arc::new(crate::build(self.place, call, &self.selection)?);
        if schedule.steps().len() <= STEPS_MAX / 4 {
            self.make_room(schedule.steps().len());
            // In the middle: a newcomer that never returns does not push the steady ones out.
            self.kept.insert(self.kept.len() / 2, (call.clone(), Arc::clone(&schedule)));
        }
        Ok(schedule)
    }

    /// Drops the least used schedules until one more of `steps` steps may be kept.
    fn make_room(&mut self, steps: usize) {
        self.kept.truncate(SCHEDULES_MAX - 1);
        let mut total = steps + self.steps();
        while total > STEPS_MAX
            && let Some((_, dropped)) = self.kept.pop()
        {
            total -= dropped.steps().len();
        }
    }

    fn steps(&self) -> usize {
        self.kept.iter().map(|(_, schedule)| schedule.steps().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Alltoall, Barrier, Bcast};
    use crate::data::{Data, TypeShape};

    #[test]
    fn equal_calls_share_a_schedule_and_the_cache_is_bounded() {
        let place = Place { rank: 0, size: 4 };
        let mut cache = Cache::new(place, Arc::default());
        let barrier = Call::Barrier(Barrier);
        let first = cache.schedule(&barrier).unwrap();
        for root in 0..4 {
            for count in 1..40 {
                let data = Data::new(count, TypeShape::basic(1));
                cache.schedule(&Call::Bcast(Bcast { root, data })).unwrap();
                assert!(Arc::ptr_eq(&first, &cache.schedule(&barrier).unwrap()));
            }
        }
        assert_eq!(cache.kept.len(), SCHEDULES_MAX);
    }

    #[test]
    fn long_schedules_have_a_budget() {
        let place = Place { rank: 0, size: 600 };
        let mut cache = Cache::new(place, Arc::default());
        for count in 1000..1040 {
            let block = Data::new(count, TypeShape::basic(8));
            cache.schedule(&Call::Alltoall(Alltoall { in_place: false, send: block, recv: block })).unwrap();
            assert!(cache.steps() <= STEPS_MAX, "{} steps", cache.steps());
        }
        assert!(cache.steps() > STEPS_MAX / 2, "what fits is kept: {} steps", cache.steps());
    }
}
