//! The steps, for calls that wait in them.

#[path = "steps/mod.rs"]
mod steps;

use std::sync::Arc;

use base::memory::{ReadRange, WriteRange};
use datatype::{Datatype, Scratch};
use engine::{GroupBoard, Lent, LentPlace};
use maybe_async::must_be_sync as flavoured;

pub(super) use self::steps::Table;
pub(super) use self::steps::blocks::{Brought, Shown, outgoing};
use crate::collective::arguments::Arguments;
use crate::communicator::Comm;
use crate::error::Result;
use crate::world::World;

/// Who carries the steps out.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    pub world: &'a World,
    /// Which of [`Arguments::names`] errors tell.
    pub form: usize,
}

/// Memory that others may read until this is dropped.
pub(super) struct Lending<'a> {
    world: &'a World,
    lent: Lent,
}

impl<'a> Caller<'a> {
    /// Data may be read straight from the memory of other members.
    pub(super) const READS_STRAIGHT: bool = true;

    /// The data of this call was read straight.
    fn count_straight(self) {
        self.world.engine.borrow_mut().count_straight_collective();
    }

    /// In this call members added to one value in turn.
    fn count_chain(self) {
        self.world.engine.borrow_mut().count_chain_collective();
    }

    /// True if the system lets members read each other's memory, as far as this one knows.
    fn may_lend(self) -> bool {
        self.world.engine.borrow().may_lend()
    }

    /// Lets others read `memory`; `None` if that can not be had now.
    fn lend(self, memory: ReadRange) -> Option<Lending<'a>> {
        let lent = self.world.engine.borrow_mut().lend(memory)?;
        Some(Lending { world: self.world, lent })
    }

    /// Reads what the member of this rank has lent, from `offset` on; false if the system, or the member, does not let us.
    fn read_lent(self, group: &GroupBoard, rank: usize, place: LentPlace, offset: u64, into: WriteRange) -> bool {
        group.read_lent(&mut self.world.engine.borrow_mut(), rank, place, offset, into)
    }

    /// The call, as errors name it.
    fn name_of(self, arguments: &Arguments) -> &'static str {
        arguments.names()[self.form]
    }

    #[inline]
    fn wait(self, comm: &Comm, is_reached: impl FnMut() -> bool) -> Result<()> {
        self.world.wait_closely(is_reached, |world| world.lost_among(comm))
    }

    /// Wakes other members that wait, or `only` one.
    #[inline]
    fn ring(self, group: &GroupBoard, only: Option<usize>) {
        group.ring(&self.world.engine.borrow(), only);
    }

    fn temporary(self, count: u64, datatype: &Arc<Datatype>) -> Result<Scratch> {
        self.world.temporary(count, datatype)
    }

    fn keep(self, room: Scratch) {
        self.world.keep_temporaries(std::iter::once(room));
    }
}

impl Lending<'_> {
    fn place(&self) -> LentPlace {
        self.lent.place()
    }
}

impl Drop for Lending<'_> {
    fn drop(&mut self) {
        self.world.engine.borrow_mut().end_lending(&self.lent);
    }
}

/// What has happened already.
#[inline]
fn boxed<T>(outcome: T) -> T {
    outcome
}
