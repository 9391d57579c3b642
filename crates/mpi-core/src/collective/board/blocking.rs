//! The steps, for calls that wait in them.

#[path = "steps/mod.rs"]
mod steps;

use std::sync::Arc;

use datatype::{Datatype, Scratch};
use engine::GroupBoard;
use maybe_async::must_be_sync as flavoured;

pub(super) use self::steps::Table;
use crate::collective::arguments::Arguments;
use crate::communicator::Comm;
use crate::error::Result;
use crate::world::World;

/// Who carries the steps out.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a>(pub &'a World);

impl Caller<'_> {
    /// The call, as errors name it.
    fn name_of(self, arguments: &Arguments) -> &'static str {
        arguments.names()[0]
    }

    #[inline]
    fn wait(self, comm: &Comm, is_reached: impl FnMut() -> bool) -> Result<()> {
        self.0.wait_closely(is_reached, |world| world.lost_among(comm))
    }

    /// Wakes other members that wait, or `only` one.
    #[inline]
    fn ring(self, group: &GroupBoard, only: Option<usize>) {
        group.ring(&self.0.engine.borrow(), only);
    }

    fn temporary(self, count: u64, datatype: &Arc<Datatype>) -> Result<Scratch> {
        self.0.temporary(count, datatype)
    }

    fn keep(self, room: Scratch) {
        self.0.keep_temporaries(std::iter::once(room));
    }
}

/// What has happened already.
#[inline]
fn boxed<T>(outcome: T) -> T {
    outcome
}
