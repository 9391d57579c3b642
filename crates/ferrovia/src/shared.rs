//! What all communicators of a universe share: its world, entered by one thread at a time.
//!
//! **Invariants**
//! - Every use of the world goes through [`Shared::enter`] or a call built on it, which holds the gate.
//! - Unwinding never leaves a call: buffers of the caller might be freed while messages are on their way into them.
//!   A panic inside (of a reduction's closure, or a bug) ends the job instead.

use std::sync::{Arc, Mutex, PoisonError};

use datatype::{Basic, Datatype};
use mpi_core::collective::Arguments;
use mpi_core::{Comm, ErrorClass, ThreadLevel, World};

use crate::borrowed::Borrowed;
use crate::element::Element;
use crate::error::{Error, Result, Witness};

/// The result of a call below this crate.
pub(crate) type Checked<T> = mpi_core::Result<T>;

/// A world and what is kept beside it.
pub(crate) struct Shared {
    world: World,
    witness: Arc<Witness>,
    types: Mutex<Vec<KnownType>>,
}

struct KnownType {
    leaf: Basic,
    leaves: usize,
    datatype: Arc<Datatype>,
}

impl Shared {
    pub fn new(world: World) -> Self {
        Shared { world, witness: Arc::default(), types: Mutex::default() }
    }

    /// True if several threads may enter.
    pub fn is_threaded(&self) -> bool {
        self.world.thread_level() == ThreadLevel::Multiple
    }

    /// The predefined communicator of all processes, and that of this one.
    pub fn predefined(&self) -> [&Arc<Comm>; 2] {
        [self.world.comm_world(), self.world.comm_self()]
    }

    /// Runs `inside` with the world entered; a panic in it ends the job.
    #[inline]
    pub fn enter<R>(&self, inside: impl FnOnce(&World) -> R) -> R {
        let _guard = self.world.enter();
        let bomb = Bomb(self);
        let result = inside(&self.world);
        std::mem::forget(bomb);
        result
    }

    /// As [`Shared::enter`] for something that can fail under the name `call`.
    #[inline]
    pub fn call<R>(&self, call: &str, inside: impl FnOnce(&World) -> Checked<R>) -> Result<R> {
        self.enter(inside).map_err(|error| self.error(call, error))
    }

    /// Carries out a collective.
    pub fn collective(&self, call: &str, comm: &Comm, plan: Checked<Borrowed<'_, Arguments>>) -> Result<()> {
        self.call(call, |world| {
            // SAFETY: the collective is over when this returns, or the process ends below.
            let arguments = unsafe { plan?.into_inner() };
            world.collective(comm, &arguments).map_err(|error| self.survivable(call, error))
        })
    }

    /// An error of a collective that failed before it began; others end the job.
    ///
    /// After a failure under way messages may still come in for memory of the caller, and the ranks no longer agree
    /// about what is next.
    pub fn survivable(&self, call: &str, error: mpi_core::Error) -> mpi_core::Error {
        match error.class {
            ErrorClass::Root | ErrorClass::Count | ErrorClass::Arg | ErrorClass::NoMem => error,
            _ => self.die(&format!("{call}: {error}")),
        }
    }

    /// An error to be handed to the user.
    pub fn error(&self, call: &str, error: mpi_core::Error) -> Error {
        self.witness.error(call, error)
    }

    /// The text of the latest error if one is still alive.
    pub fn living_error(&self) -> Option<String> {
        self.witness.living()
    }

    /// The type of a leaf of `T`, and how many make one `T`.
    pub fn leaf_type<T: Element>(&self) -> Checked<Arc<Datatype>> {
        self.datatype(T::LEAF, 1)
    }

    /// The type of one `T`.
    pub fn whole_type<T: Element>(&self) -> Checked<Arc<Datatype>> {
        self.datatype(T::LEAF, T::LEAVES)
    }

    fn datatype(&self, leaf: Basic, leaves: usize) -> Checked<Arc<Datatype>> {
        let mut types = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = types.iter().find(|known| known.leaf == leaf && known.leaves == leaves) {
            return Ok(Arc::clone(&known.datatype));
        }
        let mut datatype = Datatype::predefined(leaf);
        if leaves != 1 {
            let made = i64::try_from(leaves).ok().and_then(|count| Datatype::contiguous(count, &datatype).ok());
            let too_large = || ErrorClass::Type.error(format!("{leaves} elements of {} are too many", leaf.name()));
            datatype = made.ok_or_else(too_large)?;
            datatype.commit();
        }
        types.push(KnownType { leaf, leaves, datatype: Arc::clone(&datatype) });
        Ok(datatype)
    }

    /// Ends the job with a line that names this rank.
    pub fn die(&self, why: &str) -> ! {
        let comm = self.world.comm_world();
        self.abort(1, &format!("rank {} of {}: {why}", comm.rank(), comm.size()))
    }

    /// Ends the job with a code and a line of the user's.
    pub fn abort(&self, code: i32, message: &str) -> ! {
        let _guard = self.world.enter();
        self.world.abort(code, message)
    }
}

/// Ends the job when dropped, which only unwinding does.
struct Bomb<'a>(&'a Shared);

impl Drop for Bomb<'_> {
    fn drop(&mut self) {
        self.0.die("a panic inside a call of the library, perhaps in the closure of a reduction; the job is ended");
    }
}
