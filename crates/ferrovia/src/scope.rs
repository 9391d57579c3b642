//! Operations that run while the program does something else, within a scope that outlasts them.
//!
//! The lifetimes are those of `std::thread::scope`: `'env` is what lives outside of the scope, `'scope` the scope
//! itself. Buffers are borrowed for `'scope`, which ends after every operation has. No request can be leaked past it,
//! because the scope keeps them all; what the program holds are tickets.

use std::cell::RefCell;
use std::marker::PhantomData;

use mpi_core::collective::Arguments;
use mpi_core::point_to_point::Mode;
use mpi_core::request::{AnyFinished, RequestSet};
use mpi_core::{Request as Running, World};

use crate::borrowed::{Borrowed, Loan, incoming, outgoing};
use crate::communicator::Communicator;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::point_to_point::{Source, Status, Tag, tag_number, tag_pattern};
use crate::shared::Checked;

/// Where operations on one communicator are started that run by themselves; see [`Communicator::scope`].
///
/// What is lent to an operation stays out of reach until the operation is over:
///
/// ```compile_fail,E0502
/// # fn demo(world: ferrovia::Communicator<'_>) -> ferrovia::Result<()> {
/// let mut numbers = [0; 4];
/// world.scope(|scope| {
///     let request = scope.irecv(&mut numbers, 1, 0)?;
///     println!("{}", numbers[0]);
///     request.wait()?;
///     Ok(())
/// })
/// # }
/// ```
///
/// and lives outside of the scope:
///
/// ```compile_fail,E0597
/// # fn demo(world: ferrovia::Communicator<'_>) -> ferrovia::Result<()> {
/// world.scope(|scope| {
///     let mut numbers = [0; 4];
///     scope.irecv(&mut numbers, 1, 0)?;
///     Ok(())
/// })
/// # }
/// ```
///
/// MPI: §3.7, §6.12
pub struct Scope<'scope, 'env: 'scope> {
    comm: &'env Communicator<'env>,
    table: Table,
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

impl<'scope, 'env> Scope<'scope, 'env> {
    pub(crate) fn run<R, F>(comm: &'env Communicator<'_>, body: F) -> Result<R>
    where
        F: for<'s> FnOnce(&'s Scope<'s, 'env>) -> Result<R>,
    {
        let scope = Scope { comm, table: Table::default(), _scope: PhantomData, _env: PhantomData };
        let unwinding = Unwinding { comm, table: &scope.table };
        let result = body(&scope);
        std::mem::forget(unwinding);
        let failure = scope.finish(result.is_err());
        match (result, failure) {
            (Ok(_), Some(error)) => Err(error),
            (result, _) => result,
        }
    }

    /// Starts a send.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    ///
    /// MPI: §3.7.2 `MPI_Isend`
    pub fn isend<T: Element>(&'scope self, data: &'scope [T], to: u32, tag: u32) -> Result<Request<'scope, Signal>> {
        self.start_send("isend", Mode::Standard, data, to, tag)
    }

    /// Starts a send that is complete when the receiver has begun to receive.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    ///
    /// MPI: §3.7.2 `MPI_Issend`
    pub fn issend<T: Element>(&'scope self, data: &'scope [T], to: u32, tag: u32) -> Result<Request<'scope, Signal>> {
        self.start_send("issend", Mode::Synchronous, data, to, tag)
    }

    /// Starts a receive.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments; what goes wrong later, the request reports.
    ///
    /// MPI: §3.7.2 `MPI_Irecv`
    pub fn irecv<T: Element>(
        &'scope self,
        into: &'scope mut [T],
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Request<'scope, Receiving<'scope, T>>> {
        let (from, tag) = (from.into(), tag.into());
        let (lent, loan) = Loan::new(into, incoming);
        let running = self.comm.shared().call("irecv", |world| {
            let (from, tag) = (self.comm.source(from)?, tag_pattern(tag)?);
            // SAFETY: the request stays in the table of this scope, which ends after it.
            world.irecv(self.comm.comm(), from, tag, unsafe { lent.into_inner() })
        })?;
        Ok(self.ticket("irecv", running, Receiving(loan)))
    }

    /// Starts a collective operation.
    pub(crate) fn start<K>(
        &'scope self,
        call: &'static str,
        plan: Checked<(Borrowed<'scope, Arguments>, K)>,
    ) -> Result<Request<'scope, K>> {
        let (running, kind) = self.comm.shared().call(call, |world| {
            let (arguments, kind) = plan?;
            // SAFETY: the request stays in the table of this scope, which ends after it.
            let arguments = unsafe { arguments.into_inner() };
            let running = world.start_collective(self.comm.comm(), arguments);
            Ok((running.map_err(|error| self.comm.shared().survivable(call, error))?, kind))
        })?;
        Ok(self.ticket(call, running, kind))
    }

    pub(crate) fn communicator(&self) -> &'env Communicator<'env> {
        self.comm
    }

    fn start_send<T: Element>(
        &'scope self,
        call: &'static str,
        mode: Mode,
        data: &'scope [T],
        to: u32,
        tag: u32,
    ) -> Result<Request<'scope, Signal>> {
        let running = self.comm.shared().call(call, |world| {
            let (to, tag) = (self.comm.peer(to)?, tag_number(tag)?);
            // SAFETY: the request stays in the table of this scope, which ends after it.
            world.isend(mode, self.comm.comm(), to, tag, unsafe { outgoing(data).into_inner() })
        })?;
        Ok(self.ticket(call, running, Signal))
    }

    fn ticket<K>(&'scope self, call: &'static str, running: Running, kind: K) -> Request<'scope, K> {
        Request { comm: self.comm, table: &self.table, slot: self.table.insert(running, call), call, kind }
    }

    /// Waits for everything nobody waited for; the first error.
    fn finish(&self, cancels: bool) -> Option<Error> {
        let mut first = None;
        for slot in 0..self.table.len() {
            let at = At { table: &self.table, slot };
            if cancels {
                // Refused only by generalized requests.
                self.comm.shared().enter(|world| drop(world.cancel(&at)));
            }
            let call = self.table.call(slot);
            if let Err(error) = wait(self.comm, call, &at) {
                first = first.or(Some(error));
            }
        }
        first
    }
}

/// An operation under way; what `K` is decides what its end gives back.
///
/// A request that is dropped goes on; its scope waits for it.
pub struct Request<'scope, K> {
    comm: &'scope Communicator<'scope>,
    table: &'scope Table,
    slot: usize,
    call: &'static str,
    kind: K,
}

/// What [`Request::test`] found.
pub enum Progress<'scope, K: Kind> {
    /// It is over.
    Done(K::Output),
    /// It is still under way.
    Pending(Request<'scope, K>),
}

impl<K: Kind> Request<'_, K> {
    /// Waits for the end of the operation.
    ///
    /// # Errors
    /// `Truncate` for a message that was longer than the receive's buffer, `Other` for one that could not be delivered.
    ///
    /// MPI: §3.7.3 `MPI_Wait`
    pub fn wait(self) -> Result<K::Output> {
        let status = wait(self.comm, self.call, &At { table: self.table, slot: self.slot })?;
        Ok(self.kind.finish(status, Over(())))
    }
}

impl<'scope, K: Kind> Request<'scope, K> {
    /// Says whether the operation is over, without waiting.
    ///
    /// # Errors
    /// As [`Request::wait`].
    ///
    /// MPI: §3.7.3 `MPI_Test`
    pub fn test(self) -> Result<Progress<'scope, K>> {
        let at = At { table: self.table, slot: self.slot };
        match self.comm.shared().enter(|world| world.test(&at)) {
            None => Ok(Progress::Pending(self)),
            Some(finish) => {
                let status = checked(self.comm, self.call, finish.map_err(|failure| failure.error))?;
                Ok(Progress::Done(self.kind.finish(status, Over(()))))
            }
        }
    }
}

/// Waits until one of the requests of a scope is over, takes it out of `requests` and gives its index and its result;
/// `None` if there are none.
///
/// ```
/// ferrovia::local::run(3, |universe| {
///     let world = universe.world();
///     if world.rank() > 0 {
///         return world.send(&[world.rank()], 0, 0).unwrap();
///     }
///     let mut numbers = [[0]; 2];
///     world.scope(|scope| {
///         let mut requests = Vec::new();
///         for (number, rank) in numbers.iter_mut().zip(1..) {
///             requests.push(scope.irecv(number, rank, 0)?);
///         }
///         while let Some((_, (number, status))) = ferrovia::wait_any(&mut requests)? {
///             assert_eq!(number[0], status.source);
///         }
///         Ok(())
///     }).unwrap();
/// });
/// ```
///
/// # Errors
/// As [`Request::wait`].
///
/// MPI: §3.7.5 `MPI_Waitany`
pub fn wait_any<'scope, K: Kind>(requests: &mut Vec<Request<'scope, K>>) -> Result<Option<(usize, K::Output)>> {
    let Some(comm) = requests.first().map(|request| request.comm) else { return Ok(None) };
    let (index, finish) = match comm.shared().enter(|world| world.wait_any(&Tickets(requests))) {
        AnyFinished::One(index, finish) => (index, finish),
        AnyFinished::NoneActive => unreachable!("a ticket stands for a request that nobody has waited for"),
    };
    let request = requests.remove(index);
    let status = checked(request.comm, request.call, finish.map_err(|failure| failure.error))?;
    Ok(Some((index, request.kind.finish(status, Over(())))))
}

/// What the end of an operation gives back.
pub trait Kind {
    /// What it is.
    type Output;

    #[doc(hidden)]
    fn finish(self, status: mpi_core::Status, over: Over) -> Self::Output;
}

/// Proof that an operation is over.
pub struct Over(());

/// An operation that fills no buffer: a send, a barrier.
#[derive(Debug)]
pub struct Signal;

impl Kind for Signal {
    type Output = ();

    fn finish(self, _: mpi_core::Status, _: Over) {}
}

/// A receive: gives back its buffer and says what came.
pub struct Receiving<'scope, T>(Loan<'scope, T>);

impl<'scope, T: Element> Kind for Receiving<'scope, T> {
    type Output = (&'scope mut [T], Status);

    fn finish(self, status: mpi_core::Status, _: Over) -> Self::Output {
        // SAFETY: the receive is over.
        (unsafe { self.0.give_back() }, Status::new(status))
    }
}

/// A collective: gives back the buffer with its result.
pub struct Collecting<'scope, T>(pub(crate) Loan<'scope, T>);

impl<'scope, T: Element> Kind for Collecting<'scope, T> {
    type Output = &'scope mut [T];

    fn finish(self, _: mpi_core::Status, _: Over) -> Self::Output {
        // SAFETY: the collective is over.
        unsafe { self.0.give_back() }
    }
}

/// One request, to be waited for by the call that made it.
pub(crate) struct One(RefCell<Option<Running>>);

impl One {
    pub fn new(running: Running) -> Self {
        One(RefCell::new(Some(running)))
    }
}

impl RequestSet for One {
    fn len(&self) -> usize {
        1
    }

    fn with<R>(&self, _: usize, look: impl FnOnce(&mut Running) -> R) -> Option<R> {
        self.0.borrow_mut().as_mut().map(look)
    }

    fn remove(&self, _: usize) {
        self.0.replace(None);
    }
}

/// The requests of one scope. A ticket owns its slot until the request has been fetched.
#[derive(Default)]
struct Table(RefCell<Slots>);

#[derive(Default)]
struct Slots {
    requests: Vec<Option<Running>>,
    calls: Vec<&'static str>,
    free: Vec<usize>,
}

impl Table {
    fn insert(&self, running: Running, call: &'static str) -> usize {
        let slots = &mut *self.0.borrow_mut();
        if let Some(slot) = slots.free.pop() {
            slots.requests[slot] = Some(running);
            slots.calls[slot] = call;
            return slot;
        }
        slots.requests.push(Some(running));
        slots.calls.push(call);
        slots.requests.len() - 1
    }

    fn len(&self) -> usize {
        self.0.borrow().requests.len()
    }

    fn call(&self, slot: usize) -> &'static str {
        self.0.borrow().calls[slot]
    }

    fn with<R>(&self, slot: usize, look: impl FnOnce(&mut Running) -> R) -> Option<R> {
        self.0.borrow_mut().requests[slot].as_mut().map(look)
    }

    fn remove(&self, slot: usize) {
        let slots = &mut *self.0.borrow_mut();
        if slots.requests[slot].take().is_some() {
            slots.free.push(slot);
        }
    }
}

/// One slot of a table.
struct At<'a> {
    table: &'a Table,
    slot: usize,
}

impl RequestSet for At<'_> {
    fn len(&self) -> usize {
        1
    }

    fn with<R>(&self, _: usize, look: impl FnOnce(&mut Running) -> R) -> Option<R> {
        self.table.with(self.slot, look)
    }

    fn remove(&self, _: usize) {
        self.table.remove(self.slot);
    }
}

/// All slots of a table.
struct All<'a>(&'a Table);

impl RequestSet for All<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn with<R>(&self, index: usize, look: impl FnOnce(&mut Running) -> R) -> Option<R> {
        self.0.with(index, look)
    }

    fn remove(&self, index: usize) {
        self.0.remove(index);
    }
}

/// The slots of some tickets.
struct Tickets<'a, 'scope, K>(&'a [Request<'scope, K>]);

impl<K> RequestSet for Tickets<'_, '_, K> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn with<R>(&self, index: usize, look: impl FnOnce(&mut Running) -> R) -> Option<R> {
        let ticket = &self.0[index];
        ticket.table.with(ticket.slot, look)
    }

    fn remove(&self, index: usize) {
        let ticket = &self.0[index];
        ticket.table.remove(ticket.slot);
    }
}

fn wait(comm: &Communicator<'_>, call: &str, at: &At<'_>) -> Result<mpi_core::Status> {
    let finish = comm.shared().enter(|world: &World| world.wait(at));
    checked(comm, call, finish.map_err(|failure| failure.error))
}

/// The result of an operation, unless it is a collective that failed under way.
fn checked(comm: &Communicator<'_>, call: &str, finish: Checked<mpi_core::Status>) -> Result<mpi_core::Status> {
    finish.map_err(|error| {
        let is_message = matches!(call, "isend" | "issend" | "irecv");
        let error = if is_message { error } else { comm.shared().survivable(call, error) };
        comm.error(call, error)
    })
}

/// Dropped only when the body of a scope panics.
struct Unwinding<'a> {
    comm: &'a Communicator<'a>,
    table: &'a Table,
}

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        let all = All(self.table);
        let shared = self.comm.shared();
        if shared.enter(|world| world.test_all(&all, |_, _| ())).is_none() {
            shared.die("panicked with operations under way; the job is ended");
        }
    }
}
