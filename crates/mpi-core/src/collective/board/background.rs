//! The steps, for operations that go on whenever their process polls.

#[path = "steps/mod.rs"]
#[expect(clippy::duplicate_mod, reason = "the same steps, in two flavours")]
mod steps;

use std::convert::Infallible;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use base::memory::{ReadRange, WriteRange};
use datatype::{Datatype, Scratch};
use engine::{GroupBoard, LentPlace};
use maybe_async::must_be_async as flavoured;

use self::steps::Table;
use super::Plan;
use crate::collective::arguments::Arguments;
use crate::collective::host;
use crate::communicator::Comm;
use crate::error::Result;
use crate::world::World;

/// An operation over the boards of its communicator, at its turn. It gives its arguments back if messages are to do it.
pub(in crate::collective) struct OnBoards {
    steps: Pin<Box<Steps>>,
    wishes: Arc<Wishes>,
}

type Steps = dyn Future<Output = Result<Option<Box<Arguments>>>> + Send;

/// What the steps want of whoever polls them, who has the world at hand: notes that one thread leaves for itself, whichever
/// that is; atomics because the operation may be polled by another next time.
#[derive(Default)]
struct Wishes {
    /// To wake members that wait: [`NOBODY`], [`ALL_OTHERS`], or from [`ONLY`] on one of a rank.
    ring: AtomicUsize,
    /// To know that something moved.
    has_moved: AtomicBool,
    /// To count it as one in which members added to one value in turn.
    was_in_chain: AtomicBool,
}

const NOBODY: usize = 0;
const ALL_OTHERS: usize = 1;
const ONLY: usize = 2;

impl Wishes {
    fn wants_ring(&self) -> bool {
        self.ring.load(Ordering::Relaxed) != NOBODY
    }

    fn want_ring(&self, only: Option<usize>) {
        self.ring.store(only.map_or(ALL_OTHERS, |rank| ONLY + rank), Ordering::Relaxed);
    }

    fn fulfil(&self, world: &World, group: &GroupBoard) {
        let ring = self.ring.load(Ordering::Relaxed);
        if ring != NOBODY {
            self.ring.store(NOBODY, Ordering::Relaxed);
            group.ring(&world.engine.borrow(), ring.checked_sub(ONLY));
        }
        if self.has_moved.load(Ordering::Relaxed) {
            self.has_moved.store(false, Ordering::Relaxed);
            world.operations.note_movement();
        }
        if self.was_in_chain.load(Ordering::Relaxed) {
            self.was_in_chain.store(false, Ordering::Relaxed);
            world.engine.borrow_mut().count_chain_collective();
        }
    }
}

impl OnBoards {
    /// An operation that is one for boards, of which there are some.
    pub fn new(comm: &Arc<Comm>, arguments: Arguments) -> Self {
        let wishes = Arc::<Wishes>::default();
        let (its, comm, arguments) = (Arc::clone(&wishes), Arc::clone(comm), Box::new(arguments));
        let steps = async move {
            let comm = &*comm;
            let plan = Plan::of(comm, &arguments).expect(super::ONE_FOR_BOARDS);
            let group = comm.queued_boards().expect("its turn came because there are boards");
            let table = Table { comm, group, arguments: &arguments, caller: Caller(&its) };
            let outcome = table.carry_out(plan).await?;
            Ok(if outcome.is_none() { Some(arguments) } else { None })
        };
        Self { steps: Box::pin(steps), wishes }
    }

    /// Does what can be done now.
    pub fn advance(&mut self, world: &World, comm: &Comm) -> Poll<Result<Option<Box<Arguments>>>> {
        loop {
            let polled = self.steps.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let wants_ring = self.wishes.wants_ring();
            if let Some(group) = comm.queued_boards() {
                self.wishes.fulfil(world, group);
            }
            // Who has waited for that goes on.
            if polled.is_ready() || !wants_ring {
                return polled;
            }
        }
    }
}

/// Who carries the steps out: whoever polls.
#[derive(Clone, Copy)]
struct Caller<'a>(&'a Wishes);

/// Memory that others may read: nothing is lent here.
struct Lending<'a>(Infallible, PhantomData<&'a ()>);

impl Lending<'_> {
    fn place(&self) -> LentPlace {
        match self.0 {}
    }
}

impl<'a> Caller<'a> {
    /// Steps are taken where there is no engine at hand to read memory with.
    const READS_STRAIGHT: bool = false;

    fn count_straight(self) {}

    fn count_chain(self) {
        self.0.was_in_chain.store(true, Ordering::Relaxed);
    }

    fn may_lend(self) -> bool {
        false
    }

    fn lend(self, _: ReadRange) -> Option<Lending<'a>> {
        None
    }

    fn read_lent(self, _: &GroupBoard, _: usize, _: LentPlace, _: u64, _: WriteRange) -> bool {
        false
    }

    /// The call, as errors name it.
    fn name_of(self, arguments: &Arguments) -> &'static str {
        arguments.names()[1]
    }

    /// Whoever polls looks for lost members.
    async fn wait(self, _: &Comm, mut is_reached: impl FnMut() -> bool) -> Result<()> {
        if !is_reached() {
            poll_fn(|_| if is_reached() { Poll::Ready(()) } else { Poll::Pending }).await;
            self.0.has_moved.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Wakes other members that wait, or `only` one: when the steps wait next, or when there is somebody else to wake.
    async fn ring(self, _: &GroupBoard, only: Option<usize>) {
        if self.0.wants_ring() {
            poll_fn(|_| if self.0.wants_ring() { Poll::Pending } else { Poll::Ready(()) }).await;
        }
        self.0.want_ring(only);
    }

    fn temporary(self, count: u64, datatype: &Arc<Datatype>) -> Result<Scratch> {
        host::scratch(count, datatype)
    }

    fn keep(self, _: Scratch) {}
}

/// What waits may be long: it is kept apart.
fn boxed<F: Future>(steps: F) -> Pin<Box<F>> {
    Box::pin(steps)
}
