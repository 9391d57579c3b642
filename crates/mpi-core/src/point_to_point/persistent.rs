//! Persistent sends and receives.
//!
//! MPI: §3.9

use std::sync::Arc;

use datatype::{Datatype, UserMemory, UserMemoryMut};

use super::{Mode, send_tag, source_pattern, tag_pattern};
use crate::communicator::Comm;
use crate::error::Result;
use crate::request::{Elements, Request, Template};
use crate::status::Status;
use crate::world::World;

impl World {
    /// Makes a send that can be started any number of times.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments.
    ///
    /// MPI: §3.9 `MPI_Send_init`, `MPI_Ssend_init`, `MPI_Rsend_init`, `MPI_Bsend_init`
    #[allow(clippy::too_many_arguments, reason = "the arguments of the call")]
    pub fn send_init(
        &self,
        mode: Mode,
        comm: &Arc<Comm>,
        dest: i32,
        tag: i32,
        memory: UserMemory,
        count: u64,
        datatype: &Arc<Datatype>,
    ) -> Result<Request> {
        let call = match mode {
            Mode::Standard => "MPI_Send_init",
            Mode::Synchronous => "MPI_Ssend_init",
            Mode::Ready => "MPI_Rsend_init",
            Mode::Buffered => "MPI_Bsend_init",
        };
        let tag = send_tag(tag)?;
        let template = match comm.peer_argument(dest)? {
            Some(peer) => {
                let elements = Elements { memory, count, datatype: Arc::clone(datatype) };
                Template::Send { mode, peer, to: dest as u32, tag, elements }
            }
            None => Template::Nothing(Status::EMPTY),
        };
        Ok(Request::persistent(comm, template, call))
    }

    /// Makes a receive that can be started any number of times.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments.
    ///
    /// MPI: §3.9 `MPI_Recv_init`
    pub fn recv_init(
        &self,
        comm: &Arc<Comm>,
        source: i32,
        tag: i32,
        memory: UserMemoryMut,
        count: u64,
        datatype: &Arc<Datatype>,
    ) -> Result<Request> {
        let tag = tag_pattern(tag)?;
        let template = match source_pattern(comm, source)? {
            Some(from) => {
                let elements = Elements { memory, count, datatype: Arc::clone(datatype) };
                Template::Receive { source, from, tag, elements }
            }
            None => Template::Nothing(Status::PROC_NULL),
        };
        Ok(Request::persistent(comm, template, "MPI_Recv_init"))
    }
}
