//! Collective operations: one set of arguments, four ways to carry them out.
//!
//! A blocking call of a process alone is at most a copy ([`alone`]). Others go over boards where that is faster
//! ([`board`]). Else a call becomes a schedule (kept with the communicator, so that a repeated call finds it) whose symbols
//! the arguments give a meaning. Blocking calls are carried out on the spot, non-blocking ones are handed to the
//! operations in flight, unless they come to their ends when they are started (of one step over boards), persistent ones
//! keep the schedule for their starts.
//!
//! **Invariants**
//! - Each call takes the next number of its communicator and [`Sequence`]; its messages carry it as their tag, so any
//!   number of collectives run at once without meeting. All starts of a persistent one have the same tag: one start is
//!   complete before the next, and messages between two processes do not overtake each other.
//! - No borrow is held while a reduction of the user's runs.
//!
//! MPI: §6

mod alone;
mod arguments;
mod background;
mod board;
mod checks;
mod host;
mod plan;

pub use arguments::{Arguments, Blocks, Buffer, Operands, Parts, Reduction};
pub(crate) use board::Judgements;
pub(crate) use host::Running;
pub(crate) use plan::schedule_of;

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use collectives::{BuildError, Cache, Call, Place, Schedule, Selection};

use self::alone::carry_out_alone;
use self::background::Background;
use self::board::{Advance, OneStep, Plan};
use self::checks::check_buffers;
use crate::communicator::{Comm, Sequence, Turn};
use crate::error::Result;
use crate::request::{Request, Template};
use crate::world::World;

/// The schedules one communicator has used lately.
pub(crate) struct ScheduleCache(Mutex<Cache>);

impl ScheduleCache {
    pub fn new(place: Place, selection: Arc<Selection>) -> Self {
        ScheduleCache(Mutex::new(Cache::new(place, selection)))
    }

    /// The schedule of `call`, kept or new.
    #[inline]
    pub fn schedule(&self, call: &Call) -> std::result::Result<Arc<Schedule>, BuildError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).schedule(call)
    }
}

impl World {
    /// Carries out a collective operation.
    ///
    /// # Errors
    /// `Root`, `Count`, `Op`, `Arg` for bad arguments, `Truncate` where ranks disagree about sizes.
    ///
    /// MPI: §6
    pub fn collective(&self, comm: &Comm, arguments: &Arguments) -> Result<()> {
        if carry_out_alone(comm, arguments) {
            return Ok(());
        }
        check_buffers(comm, arguments)?;
        if let Some(result) = self.on_boards(comm, arguments) {
            return result;
        }
        let outcome = self.by_messages(comm, arguments);
        comm.judgements().end(outcome.is_err());
        outcome
    }

    fn by_messages(&self, comm: &Comm, arguments: &Arguments) -> Result<()> {
        let call = arguments.names()[0];
        let schedule = schedule_of(comm, arguments)?;
        let tag = comm.next_collective_tag(Sequence::Blocking);
        let mut running = Running::new(self, comm, schedule, arguments, tag)?;
        self.wait_until(|world| match running.advance(world, comm, arguments, call) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        })
    }

    /// Starts a collective operation.
    ///
    /// # Errors
    /// As [`World::collective`], those of arguments at once.
    ///
    /// MPI: §6.12
    pub fn start_collective(&self, comm: &Arc<Comm>, arguments: Arguments) -> Result<Request> {
        let call = arguments.names()[1];
        check_buffers(comm, &arguments)?;
        let Some((turn, plan)) = board::turn_for(comm, &arguments) else {
            let schedule = schedule_of(comm, &arguments)?;
            let tag = comm.next_collective_tag(Sequence::Nonblocking);
            let request = self.run_in_background(comm, schedule, arguments, tag, call)?;
            self.progress();
            return Ok(request);
        };
        let tag = comm.next_collective_tag(Sequence::Nonblocking);
        let begun = self.begin_at_once(comm, &turn, plan, &arguments);
        // What has begun has come as far as it can.
        let needs_poll = begun.is_none() || !self.operations.is_empty();
        let request = match begun {
            Some((_, Advance::Over(outcome))) => {
                comm.end_turn(&turn);
                Request::collective(self.operations.ended(outcome), self.spare_holds.hold(comm), call)
            }
            begun => {
                let step = begun.map(|(step, _)| step);
                self.run(comm, Background::at_boards(comm, turn, step, arguments, tag, call), call)
            }
        };
        if needs_poll {
            self.progress();
        }
        Ok(request)
    }

    /// Begins with an operation of one step whose turn it is already; `None` if it is another, or shows itself as one.
    #[inline]
    fn begin_at_once(
        &self,
        comm: &Comm,
        turn: &Turn,
        plan: Plan<'_>,
        arguments: &Arguments,
    ) -> Option<(OneStep, Advance)> {
        let group = comm.boards_at(turn)?;
        let mut step = OneStep::of(comm, plan)?;
        // Those who were in an operation when a member was lost may have left it at different steps.
        if self.lost_among(comm).is_some() {
            return None;
        }
        match step.advance(self, comm, group, arguments, || plan) {
            Advance::Otherwise => None,
            begun => Some((step, begun)),
        }
    }

    /// Makes a collective operation that can be started any number of times.
    ///
    /// # Errors
    /// As [`World::collective`], those of arguments at once.
    ///
    /// MPI: §6.13
    pub fn collective_init(&self, comm: &Arc<Comm>, arguments: Arguments) -> Result<Request> {
        let call = arguments.names()[2];
        check_buffers(comm, &arguments)?;
        let schedule = schedule_of(comm, &arguments)?;
        let tag = comm.next_collective_tag(Sequence::Persistent);
        Ok(Request::persistent(comm, Template::Collective { schedule, arguments, tag }, call))
    }

    /// Puts a collective among the operations in flight; the next poll advances it.
    pub(crate) fn run_in_background(
        &self,
        comm: &Arc<Comm>,
        schedule: Arc<Schedule>,
        arguments: Arguments,
        tag: i32,
        call: &'static str,
    ) -> Result<Request> {
        Ok(self.run(comm, Background::scheduled(self, comm, schedule, arguments, tag, call)?, call))
    }

    fn run(&self, comm: &Arc<Comm>, background: Background, call: &'static str) -> Request {
        let key = self.operations.start(Box::new(background));
        Request::collective(key, self.spare_holds.hold(comm), call)
    }
}
