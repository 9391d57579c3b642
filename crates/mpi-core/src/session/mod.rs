//! Sessions: using MPI without `MPI_Init`, several times over and beside it.
//!
//! A session knows which processes there are before it has met any of them: opening one, asking for
//! its process sets and making groups of those is local. The processes meet when the first
//! communicator is made of such a group.
//!
//! **Invariants**
//! - A group made from a session remembers it, and so does every group and communicator made from
//!   that one; they may outlive the session.
//!
//! Deliberately absent: when the engine starts and ends (the face counts who needs it); process
//! sets of a resource manager.
//!
//! MPI: §11.3
//!
//! ```
//! use std::sync::Arc;
//! use mpi_core::environment::ErrorHandler;
//! use mpi_core::session::{Session, WORLD_SET};
//! use mpi_core::ThreadLevel;
//! let session = Arc::new(Session::new(2, 4, ThreadLevel::Multiple, ErrorHandler::fatal()));
//! let group = session.group(WORLD_SET).unwrap();
//! assert_eq!((group.rank(), group.size()), (Some(2), 4));
//! ```

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::PeerId;

use crate::environment::{ErrorHandler, MEMORY_KINDS};
use crate::error::{Error, ErrorClass, Result};
use crate::group::Group;
use crate::info::Info;
use crate::point_to_point::{AttachedBuffer, Budget};
use crate::world::ThreadLevel;

/// The process set of all processes.
pub const WORLD_SET: &str = "mpi://WORLD";
/// The process set of this process alone.
pub const SELF_SET: &str = "mpi://SELF";
/// The names of all process sets.
pub const PROCESS_SETS: [&str; 2] = [WORLD_SET, SELF_SET];

/// One session; shared as `Arc<Session>` by everything made from it.
pub struct Session {
    rank: PeerId,
    size: u32,
    thread_level: ThreadLevel,
    details: Mutex<Details>,
    /// A number the C face stores its handle in; 0 until then.
    pub face_handle: AtomicUsize,
}

struct Details {
    error_handler: Arc<ErrorHandler>,
    attached: AttachedBuffer,
}

impl Session {
    /// A session of process `rank` of `size`, whose threads may do what `thread_level` says.
    ///
    /// MPI: §11.3.1 `MPI_Session_init`
    pub fn new(rank: PeerId, size: u32, thread_level: ThreadLevel, error_handler: Arc<ErrorHandler>) -> Self {
        debug_assert!(rank < size);
        let details = Details { error_handler, attached: AttachedBuffer::default() };
        Session { rank, size, thread_level, details: Mutex::new(details), face_handle: AtomicUsize::new(0) }
    }

    /// The name of process set `n`, counted from 0.
    ///
    /// # Errors
    /// `Arg` if there are not as many.
    ///
    /// MPI: §11.3.3 `MPI_Session_get_nth_pset`
    pub fn nth_set(&self, n: i32) -> Result<&'static str> {
        match usize::try_from(n).ok().and_then(|n| PROCESS_SETS.get(n)) {
            Some(name) => Ok(name),
            None => ErrorClass::Arg.fail(format!("n = {n}, but there are {} process sets", PROCESS_SETS.len())),
        }
    }

    /// What is known of a process set: its size.
    ///
    /// # Errors
    /// `Arg` if there is no such set.
    ///
    /// MPI: §11.3.3 `MPI_Session_get_pset_info`
    pub fn set_info(&self, name: &str) -> Result<Info> {
        let size = match known_set(name) {
            Some(WORLD_SET) => self.size,
            Some(SELF_SET) => 1,
            _ => return Err(no_such_set(name)),
        };
        let info = Info::new();
        info.set("mpi_size", &size.to_string())?;
        Ok(info)
    }

    /// The processes of a set, in order of rank.
    ///
    /// # Errors
    /// `Arg` if there is no such set.
    ///
    /// MPI: §11.3.2 `MPI_Group_from_session_pset`
    pub fn group(self: &Arc<Self>, name: &str) -> Result<Group> {
        let group = match known_set(name) {
            Some(WORLD_SET) => Group::identity(self.size, self.rank),
            Some(SELF_SET) => Group::new(vec![self.rank], self.rank),
            _ => return Err(no_such_set(name)),
        };
        Ok(group.made_from(Arc::clone(self)))
    }

    /// The hints in use.
    ///
    /// MPI: §11.3.3 `MPI_Session_get_info`
    pub fn info(&self) -> Info {
        let facts = [
            ("thread_level", self.thread_level.name().to_owned()),
            ("mpi_memory_alloc_kinds", MEMORY_KINDS.to_owned()),
        ];
        Info::read_only(facts).duplicate()
    }

    /// What happens when a call about this session fails.
    pub fn error_handler(&self) -> Arc<ErrorHandler> {
        Arc::clone(&self.details().error_handler)
    }

    /// Chooses what happens when a call about this session fails.
    pub fn set_error_handler(&self, handler: Arc<ErrorHandler>) {
        self.details().error_handler = handler;
    }

    /// Attaches memory for buffered sends.
    ///
    /// # Errors
    /// `Buffer` when something is attached already.
    ///
    /// MPI: §3.6 `MPI_Session_attach_buffer`
    pub fn attach_buffer(&self, budget: Budget) -> Result<()> {
        self.with_attached_buffer(|attached| attached.attach(budget))
    }

    /// Looks at the session's own buffer for buffered sends.
    pub(crate) fn with_attached_buffer<R>(&self, act: impl FnOnce(&mut AttachedBuffer) -> R) -> R {
        act(&mut self.details().attached)
    }

    /// A panic elsewhere cannot leave the details half changed, so a poisoned lock is no obstacle.
    fn details(&self) -> MutexGuard<'_, Details> {
        self.details.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The process set that is meant by a name, in which capitals do not count.
pub fn known_set(name: &str) -> Option<&'static str> {
    PROCESS_SETS.into_iter().find(|known| known.eq_ignore_ascii_case(name))
}

fn no_such_set(name: &str) -> Error {
    ErrorClass::Arg.error(format!("there is no process set '{name}'"))
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session(rank {} of {}, {})", self.rank, self.size, self.thread_level.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Arc<Session> {
        Arc::new(Session::new(1, 3, ThreadLevel::Serialized, ErrorHandler::returning()))
    }

    #[test]
    fn every_set_has_a_group_of_its_size() {
        let session = session();
        for n in 0..PROCESS_SETS.len() as i32 {
            let name = session.nth_set(n).unwrap();
            let group = session.group(name).unwrap();
            assert_eq!(session.set_info(name).unwrap().value("mpi_size"), Some(group.size().to_string()));
            assert!(group.rank().is_some());
            assert!(Arc::ptr_eq(group.session().unwrap(), &session));
        }
        assert!(session.nth_set(-1).is_err() && session.nth_set(2).is_err());
        // Capitals mean as much in these names as in a host's.
        assert_eq!(session.group("mpi://world").unwrap().size(), session.group(WORLD_SET).unwrap().size());
        assert!(session.group("mpi://").is_err() && session.group("").is_err());
        assert_eq!(session.set_info("app://ocean").unwrap_err().class, ErrorClass::Arg);
    }

    #[test]
    fn whatever_is_made_of_a_group_remembers_its_session() {
        let session = session();
        let (world, own) = (session.group(WORLD_SET).unwrap(), session.group(SELF_SET).unwrap());
        let stranger = Group::identity(3, 1);
        let made = [
            world.incl(&[2, 0]).unwrap(),
            world.excl(&[0]).unwrap(),
            world.range_incl(&[[0, 2, 2]]).unwrap(),
            world.range_excl(&[[0, 2, 2]]).unwrap(),
            own.union(&stranger),
            stranger.intersection(&own),
            world.difference(&own),
            world.of_peers(vec![2]),
        ];
        for group in &made {
            assert!(group.session().is_some_and(|known| Arc::ptr_eq(known, &session)), "{group:?}");
        }
        assert!(stranger.incl(&[0]).unwrap().session().is_none());
    }

    #[test]
    fn hints_name_the_thread_level() {
        assert_eq!(session().info().value("thread_level").as_deref(), Some("MPI_THREAD_SERIALIZED"));
        assert_eq!(ThreadLevel::from_name("MPI_THREAD_FUNNELED"), Some(ThreadLevel::Funneled));
        assert_eq!(ThreadLevel::from_name("MULTIPLE"), None);
    }
}
