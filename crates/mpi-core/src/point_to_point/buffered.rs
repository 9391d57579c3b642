//! Buffered sends and the buffer the user attaches for them.
//!
//! A buffered send completes at once: the message is copied and sent from the copy. The attached
//! memory itself is not written to. It is a budget: each message on its way counts its packed bytes
//! and a little more, and a send that goes beyond the budget is an error, just as if the copy
//! lay in the user's memory. That little is far less than the `MPI_BSEND_OVERHEAD` of the ABI: programs
//! that attach what sufficed elsewhere run.
//!
//! A communicator can have a buffer of its own, and so can a session, for those made from it; others
//! share that of the process.
//!
//! MPI: §3.6

use std::sync::Arc;
use std::task::Poll;

use datatype::SendBuf;
use engine::{PeerId, RequestId, SendMode};

use super::exchange::packed;
use super::send_tag;
use crate::communicator::Comm;
use crate::error::{ErrorClass, Result};
use crate::request::Request;
use crate::session::Session;
use crate::status::Status;
use crate::world::{Operation, World, engine_error};

/// What a message on its way counts beyond its packed bytes: none is free, so that the budget limits their number.
const ENTRY_BYTES: u64 = 32;

/// The memory attached for buffered sends, seen as a budget.
#[derive(Debug, Default)]
pub struct AttachedBuffer {
    budget: Option<Budget>,
    under_way: Vec<Copied>,
}

/// What the user attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budget {
    /// Memory at this address, of this length.
    Memory {
        /// Where it lies; handed back at the detach, never looked into.
        address: usize,
        /// Its length.
        len_bytes: u64,
    },
    /// Whatever is needed (`MPI_BUFFER_AUTOMATIC`).
    Automatic,
}

/// A copy on its way.
#[derive(Debug)]
struct Copied {
    id: RequestId,
    cost_bytes: u64,
}

impl AttachedBuffer {
    fn in_use_bytes(&self) -> u64 {
        self.under_way.iter().map(|copied| copied.cost_bytes).sum()
    }

    /// Room for a message of `cost_bytes`, given what is under way.
    fn admit(&self, cost_bytes: u64) -> std::result::Result<(), String> {
        match self.budget {
            None => Err("no buffer is attached".to_owned()),
            Some(Budget::Automatic) => Ok(()),
            Some(Budget::Memory { len_bytes, .. }) => {
                let free_bytes = len_bytes.saturating_sub(self.in_use_bytes());
                if cost_bytes <= free_bytes {
                    return Ok(());
                }
                Err(format!("{free_bytes} bytes of the {len_bytes} attached are free"))
            }
        }
    }
}

impl AttachedBuffer {
    /// True if something is attached.
    pub(crate) fn is_attached(&self) -> bool {
        self.budget.is_some()
    }

    pub(crate) fn attach(&mut self, budget: Budget) -> Result<()> {
        if self.is_attached() {
            return ErrorClass::Buffer.fail("a buffer for buffered sends is attached already");
        }
        self.budget = Some(budget);
        Ok(())
    }
}

/// Whose buffer a call is about.
#[derive(Clone, Debug)]
pub enum BufferOwner {
    /// That of the process: for all that have none of their own.
    Process,
    /// A communicator's own.
    Comm(Arc<Comm>),
    /// A session's, for the communicators made from it that have none of their own.
    Session(Arc<Session>),
}

impl BufferOwner {
    /// Whose buffer the messages of a communicator go through.
    ///
    /// MPI: §3.6
    fn serving(comm: &Arc<Comm>) -> BufferOwner {
        if comm.with_attached_buffer(|attached| attached.is_attached()) {
            return BufferOwner::Comm(Arc::clone(comm));
        }
        match comm.group().session() {
            Some(session) if session.with_attached_buffer(|attached| attached.is_attached()) => {
                BufferOwner::Session(Arc::clone(session))
            }
            _ => BufferOwner::Process,
        }
    }

    fn iflush_name(&self) -> &'static str {
        match self {
            BufferOwner::Process => "MPI_Buffer_iflush",
            BufferOwner::Comm(_) => "MPI_Comm_iflush_buffer",
            BufferOwner::Session(_) => "MPI_Session_iflush_buffer",
        }
    }
}

impl World {
    /// Attaches memory for buffered sends.
    ///
    /// # Errors
    /// `Buffer` when something is attached already.
    ///
    /// MPI: §3.6 `MPI_Buffer_attach`, `MPI_Comm_attach_buffer`, `MPI_Session_attach_buffer`
    pub fn attach_buffer(&self, owner: &BufferOwner, budget: Budget) -> Result<()> {
        self.with_buffer(owner, |attached| attached.attach(budget))
    }

    /// Waits until all messages of the buffer are gone and detaches it; `None` if there was none.
    ///
    /// MPI: §3.6 `MPI_Buffer_detach`, `MPI_Comm_detach_buffer`, `MPI_Session_detach_buffer`
    pub fn detach_buffer(&self, owner: &BufferOwner) -> Option<Budget> {
        self.flush_buffer(owner);
        self.with_buffer(owner, |attached| attached.budget.take())
    }

    /// Waits until all messages of the buffer are gone.
    ///
    /// MPI: §3.6 `MPI_Buffer_flush`, `MPI_Comm_flush_buffer`, `MPI_Session_flush_buffer`
    pub fn flush_buffer(&self, owner: &BufferOwner) {
        self.wait_until(|world| world.reap_buffered(owner).then_some(()));
    }

    /// A request that completes when all messages of the buffer are gone.
    ///
    /// MPI: §3.6 `MPI_Buffer_iflush`, `MPI_Comm_iflush_buffer`, `MPI_Session_iflush_buffer`
    pub fn iflush_buffer(&self, owner: &BufferOwner) -> Request {
        let call = owner.iflush_name();
        if self.reap_buffered(owner) {
            return Request::finished(Status::EMPTY, call);
        }
        let key = self.operations.start(Box::new(Flush { owner: owner.clone() }));
        let comm = match owner {
            BufferOwner::Comm(comm) => comm,
            BufferOwner::Process | BufferOwner::Session(_) => self.comm_self(),
        };
        Request::operation(key, Arc::clone(comm), call)
    }

    /// The messages a communicator still has on their way go on without it.
    pub(crate) fn orphan_buffered(&self, comm: &Arc<Comm>) {
        let under_way = comm.with_attached_buffer(std::mem::take).under_way;
        let unpaid = under_way.into_iter().map(|copied| Copied { cost_bytes: 0, ..copied });
        self.attached.borrow_mut().under_way.extend(unpaid);
    }

    fn with_buffer<R>(&self, owner: &BufferOwner, act: impl FnOnce(&mut AttachedBuffer) -> R) -> R {
        match owner {
            BufferOwner::Comm(comm) => comm.with_attached_buffer(act),
            BufferOwner::Session(session) => session.with_attached_buffer(act),
            BufferOwner::Process => act(&mut self.attached.borrow_mut()),
        }
    }

    pub(crate) fn buffered_send(&self, comm: &Arc<Comm>, dest: i32, tag: i32, buf: SendBuf) -> Result<()> {
        let tag = send_tag(tag)?;
        match comm.peer_argument(dest)? {
            Some(peer) => self.start_buffered_send(comm, peer, dest as u32, tag, &buf),
            None => Ok(()),
        }
    }

    pub(crate) fn start_buffered_send(
        &self,
        comm: &Arc<Comm>,
        peer: PeerId,
        to: u32,
        tag: i32,
        buf: &SendBuf,
    ) -> Result<()> {
        let cost_bytes = buf.len_bytes() + ENTRY_BYTES;
        let owner = &BufferOwner::serving(comm);
        self.reap_buffered(owner);
        let mut admitted = self.with_buffer(owner, |attached| attached.admit(cost_bytes));
        if admitted.is_err() {
            // Copies may have left without being noticed yet.
            self.progress();
            self.reap_buffered(owner);
            admitted = self.with_buffer(owner, |attached| attached.admit(cost_bytes));
        }
        if let Err(why) = admitted {
            return ErrorClass::Buffer.fail(format!(
                "a buffered send of {} bytes to {} with tag {tag} on {comm} needs {cost_bytes} bytes of the \
                 attached buffer: {why}",
                buf.len_bytes(),
                comm.describe_rank(to)
            ));
        }
        let mut engine = self.engine.borrow_mut();
        let context = comm.point_to_point();
        if !engine.try_send(peer, context, tag, buf) {
            let id = engine.send(SendMode::Standard, peer, context, tag, packed(buf)).map_err(engine_error)?;
            self.with_buffer(owner, |attached| attached.under_way.push(Copied { id, cost_bytes }));
        }
        drop(engine);
        self.wake_sleepers();
        Ok(())
    }

    /// Forgets copies that have gone; true if none is left.
    fn reap_buffered(&self, owner: &BufferOwner) -> bool {
        self.with_buffer(owner, |attached| {
            if !attached.under_way.is_empty() {
                let mut engine = self.engine.borrow_mut();
                attached.under_way.retain(|copied| engine.take(copied.id).is_none());
            }
            attached.under_way.is_empty()
        })
    }
}

/// Waits for the messages that are under way.
struct Flush {
    owner: BufferOwner,
}

impl Operation for Flush {
    fn advance(&mut self, world: &World) -> Poll<Result<()>> {
        if world.reap_buffered(&self.owner) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_kept_to() {
        let mut attached = AttachedBuffer::default();
        assert!(attached.admit(1).is_err(), "nothing is attached");
        attached.budget = Some(Budget::Memory { address: 4096, len_bytes: 2 * ENTRY_BYTES + 8 });
        assert!(attached.admit(ENTRY_BYTES + 8).is_ok());
        assert!(attached.admit(2 * ENTRY_BYTES + 9).is_err());
        attached.budget = Some(Budget::Automatic);
        assert!(attached.admit(u64::MAX).is_ok());
    }
}
