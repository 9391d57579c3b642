//! Communicators: who may talk to whom.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use mpi_core::communicator::SplitType;
use mpi_core::constants::UNDEFINED;
use mpi_core::{Comm, ErrorClass};

use crate::error::{Error, Result};
use crate::scope::Scope;
use crate::shared::{Checked, Shared};

/// Processes that can exchange messages, and this process's rank among them.
///
/// Cloning gives another handle of the same communicator; [`Communicator::duplicate`] makes a new one. It is gone when
/// its last handle is.
///
/// A communicator stays on its thread; [`Communicator::share`] takes it to others:
///
/// ```compile_fail,E0277
/// # fn demo(world: ferrovia::Communicator<'_>) {
/// std::thread::scope(|threads| {
///     threads.spawn(|| world.barrier());
/// });
/// # }
/// ```
///
/// MPI: §7
#[derive(Clone)]
pub struct Communicator<'u> {
    shared: &'u Shared,
    comm: Arc<Comm>,
    _alarm: Option<Alarm<'u>>,
    /// Neither `Send` nor `Sync`.
    _stays: PhantomData<*const ()>,
}

impl<'u> Communicator<'u> {
    pub(crate) fn new(shared: &'u Shared, comm: Arc<Comm>) -> Self {
        Communicator { shared, comm, _alarm: None, _stays: PhantomData }
    }

    /// Rank of this process.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.comm.rank()
    }

    /// Number of processes.
    #[inline]
    pub fn size(&self) -> u32 {
        self.comm.size()
    }

    /// A communicator of the same processes, whose messages stay apart from this one's. Collective.
    ///
    /// # Errors
    /// `NoMem` when no context is left.
    ///
    /// MPI: §7.4.2 `MPI_Comm_dup`
    pub fn duplicate(&self) -> Result<Communicator<'u>> {
        let copy = self.shared.call("duplicate", |world| world.comm_dup(&self.comm))?;
        Ok(self.sibling(copy))
    }

    /// One new communicator per colour, ranks ordered by `key` and then by old rank; `None` for a process without a
    /// colour. Collective.
    ///
    /// ```
    /// ferrovia::local::run(4, |universe| {
    ///     let world = universe.world();
    ///     let parity = world.split(Some(world.rank() % 2), 0).unwrap().expect("every rank gave a colour");
    ///     assert_eq!((parity.size(), parity.rank()), (2, world.rank() / 2));
    /// });
    /// ```
    ///
    /// # Errors
    /// `Arg` for a colour beyond `i32::MAX`, `NoMem` when no context is left.
    ///
    /// MPI: §7.4.2 `MPI_Comm_split`
    pub fn split(&self, colour: Option<u32>, key: i32) -> Result<Option<Communicator<'u>>> {
        let part = self.shared.call("split", |world| {
            let colour = match colour {
                None => UNDEFINED,
                Some(colour) => i32::try_from(colour)
                    .map_err(|_| ErrorClass::Arg.error(format!("colour {colour} is greater than {}", i32::MAX)))?,
            };
            world.comm_split(&self.comm, colour, key)
        })?;
        Ok(part.map(|part| self.sibling(part)))
    }

    /// One new communicator per machine, of the processes that can share memory. Collective.
    ///
    /// # Errors
    /// `NoMem` when no context is left.
    ///
    /// MPI: §7.4.2 `MPI_Comm_split_type`
    pub fn split_by_node(&self, key: i32) -> Result<Communicator<'u>> {
        let node = self.shared.call("split_by_node", |world| {
            let node = world.comm_split_type(&self.comm, SplitType::Shared, key, None)?;
            node.ok_or_else(|| ErrorClass::Intern.error("a process is on no machine"))
        })?;
        Ok(self.sibling(node))
    }

    /// A communicator of the processes with these ranks, in this order; `None` for the others. Collective, with the same
    /// `ranks` everywhere.
    ///
    /// # Errors
    /// `Rank` for a rank that does not exist or is named twice, `NoMem` when no context is left.
    ///
    /// MPI: §7.4.2 `MPI_Comm_create`
    pub fn subset(&self, ranks: &[u32]) -> Result<Option<Communicator<'u>>> {
        let part = self.shared.call("subset", |world| {
            let ranks: Vec<i32> = ranks.iter().map(|rank| self.peer(*rank)).collect::<Checked<_>>()?;
            let group = self.comm.group().incl(&ranks)?;
            world.comm_create(&self.comm, &Arc::new(group))
        })?;
        Ok(part.map(|part| self.sibling(part)))
    }

    /// What error messages call it.
    pub fn name(&self) -> String {
        self.comm.name()
    }

    /// Gives it a name, shown in error messages.
    ///
    /// MPI: §7.8 `MPI_Comm_set_name`
    pub fn set_name(&self, name: &str) {
        self.comm.set_name(name);
    }

    /// Starts operations that run while `body` does something else, and ends when all of them have.
    ///
    /// The buffers are borrowed until then, so none is touched too early or freed too late; see [`Scope`].
    ///
    /// ```
    /// ferrovia::local::run(2, |universe| {
    ///     let world = universe.world();
    ///     let other = 1 - world.rank();
    ///     let (mine, mut theirs) = ([world.rank(); 3], [9; 3]);
    ///     world.scope(|scope| {
    ///         let incoming = scope.irecv(&mut theirs, other, 0)?;
    ///         scope.isend(&mine, other, 0)?;
    ///         let (numbers, status) = incoming.wait()?;
    ///         assert_eq!((&*numbers, status.source), (&[other; 3][..], other));
    ///         Ok(())
    ///     }).unwrap();
    ///     assert_eq!(theirs, [other; 3]);
    /// });
    /// ```
    ///
    /// Receives that no message has met are cancelled when `body` returns an error; everything else is waited for. If
    /// `body` panics with operations under way, the job ends.
    ///
    /// # Errors
    /// That of `body`, or else that of the first operation nobody waited for.
    pub fn scope<'env, R, F>(&'env self, body: F) -> Result<R>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
    {
        Scope::run(self, body)
    }

    /// A handle that other threads make communicators of.
    ///
    /// # Errors
    /// `Other` unless the universe was made for [`Threading::Multiple`](crate::Threading::Multiple).
    pub fn share(&self) -> Result<SharedCommunicator<'u>> {
        if !self.shared.is_threaded() {
            let error = ErrorClass::Other
                .error("this universe is for one thread; start with initialize_with_threading(Threading::Multiple)");
            return Err(self.error("share", error));
        }
        Ok(SharedCommunicator { shared: self.shared, comm: Arc::clone(&self.comm) })
    }

    /// Ends all processes of the job with exit status `code`, after showing `message`.
    ///
    /// MPI: §9.7 `MPI_Abort`
    pub fn abort(&self, code: i32, message: &str) -> ! {
        self.shared.abort(code, message)
    }

    pub(crate) fn shared(&self) -> &'u Shared {
        self.shared
    }

    pub(crate) fn comm(&self) -> &Arc<Comm> {
        &self.comm
    }

    pub(crate) fn error(&self, call: &str, error: mpi_core::Error) -> Error {
        self.shared.error(call, error)
    }

    /// A rank as the floor below takes it.
    #[inline]
    pub(crate) fn peer(&self, rank: u32) -> Checked<i32> {
        if rank < self.size() {
            return Ok(rank as i32);
        }
        let size = self.size();
        ErrorClass::Rank.fail(format!("{} has no rank {rank}: its size is {size}", self.comm))
    }

    fn sibling(&self, comm: Arc<Comm>) -> Communicator<'u> {
        Communicator { comm, ..self.clone() }
    }
}

impl fmt::Debug for Communicator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} in {}", self.rank(), self.size(), self.comm)
    }
}

/// A communicator on its way to other threads, each of which makes its own handle of it.
///
/// ```
/// use ferrovia::Sum;
/// ferrovia::local::run(2, |universe| {
///     let world = universe.world();
///     let (first, second) = (world.share().unwrap(), world.duplicate().unwrap().share().unwrap());
///     std::thread::scope(|threads| {
///         threads.spawn(|| assert_eq!(first.local().all_reduce_value(1, Sum).unwrap(), 2));
///         threads.spawn(|| assert_eq!(second.local().all_reduce_value(10, Sum).unwrap(), 20));
///     });
/// });
/// ```
///
/// Threads that run collectives at the same time use communicators of their own, as above.
///
/// MPI: §11.6
#[derive(Clone)]
pub struct SharedCommunicator<'u> {
    shared: &'u Shared,
    comm: Arc<Comm>,
}

// SAFETY: made only if the universe is for several threads. Then `Shared` lets one thread at a time use the world, and
// whatever else it holds is made for sharing; see its invariants.
unsafe impl Send for SharedCommunicator<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedCommunicator<'_> {}

impl<'u> SharedCommunicator<'u> {
    /// A handle for the calling thread.
    ///
    /// If the thread panics while it holds one, the job ends: this process would go on without it.
    pub fn local(&self) -> Communicator<'u> {
        Communicator { _alarm: Some(Alarm(self.shared)), ..Communicator::new(self.shared, Arc::clone(&self.comm)) }
    }
}

/// Ends the job if dropped by a panic.
#[derive(Clone)]
struct Alarm<'u>(&'u Shared);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.die("a thread panicked; the job is ended");
        }
    }
}

/// What `Shared` hands to several threads besides the world must be made for it.
const _: fn() = || {
    fn check<T: Send + Sync>() {}
    check::<Comm>();
};
