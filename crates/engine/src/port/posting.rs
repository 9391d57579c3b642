//! What a port posts of long messages: reads and writes of registered memory, and segments.

use std::ops::Range;

use fabric::{
    Access, FabricError, LocalMemory, Operation, Payload, RemoteMemory, ScatterGather, SendFlags, SendRequest,
    Translation, WcStatus, WorkCompletion,
};
use protocol::registration::{DomainRegistrar, Registration};
use smallvec::SmallVec;

use super::{Port, SEND_DEPTH, SegmentUse, Stage, Work, status_text};
use crate::request::PeerId;

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Posted {
    /// So many are posted.
    Gone(usize),
    /// There is no room now.
    Later,
    /// The connection is lost.
    Never,
}

impl Port {
    /// Pieces of memory that one request gathers or scatters, at most.
    pub(crate) fn entries_max(&self) -> usize {
        self.entries_max as usize
    }

    /// What registering memory here means.
    pub(crate) fn translation(&self) -> Translation {
        self.registrations.translation()
    }

    /// Registers several pieces of memory, or none.
    pub(crate) fn register_all(
        &mut self,
        memories: impl IntoIterator<Item = LocalMemory>,
        access: Access,
    ) -> Result<Vec<Registration>, FabricError> {
        let mut registrar = DomainRegistrar { context: self.context.as_mut(), domain: self.domain };
        self.registrations.acquire_all(&mut registrar, memories, access)
    }

    /// A segment for what `used` says, for a peer to write; where it is, and its number. `None` if all are taken.
    pub(crate) fn open_segment(&mut self, used: SegmentUse) -> Option<(RemoteMemory, u32)> {
        let slot = self.unpacking.take(self.context.as_mut())?;
        Some(self.unpacking.open(slot, used))
    }

    /// Fills a segment with `len_bytes` bytes to be sent; what is sent, and its number. `None` if all are taken.
    pub(crate) fn fill_segment(
        &mut self,
        len_bytes: u32,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<(ScatterGather, u32)> {
        let slot = self.packing.take(self.context.as_mut())?;
        Some(self.packing.fill(slot, len_bytes, fill))
    }

    /// Bytes of segments in use.
    pub(crate) fn segment_bytes_in_use(&self) -> u64 {
        self.packing.bytes_in_use() + self.unpacking.bytes_in_use()
    }

    /// True unless there is no room now for an operation to `to`, which takes a receive there or not.
    pub(crate) fn has_room_for(&mut self, to: PeerId, takes_receive: bool) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(to as usize) else { return true };
        let starves = takes_receive && !connection.credits.may_spend();
        self.counters.credit_stalls += u64::from(starves);
        !starves && connection.in_flight < SEND_DEPTH
    }

    /// Posts operations of a long message one after the other, each with its own part of `entries`; only the last may take
    /// a receive of the peer, and only it is reported. How many were posted.
    pub(crate) fn post_transfer(
        &mut self,
        to: PeerId,
        work: Work,
        operations: &[(Operation, Range<usize>)],
        entries: &[ScatterGather],
    ) -> Posted {
        let Some(Some(connection)) = self.connections.get_mut(to as usize) else { return Posted::Never };
        let Some(qp) = connection.qp.filter(|_| connection.stage == Stage::Open) else { return Posted::Never };
        if connection.in_flight + operations.len() as u32 > SEND_DEPTH {
            return Posted::Later;
        }
        let costs = operations.last().is_some_and(|(operation, _)| operation.takes_receive());
        if costs && !connection.credits.spend() {
            self.counters.credit_stalls += 1;
            return Posted::Later;
        }
        let requests: SmallVec<[SendRequest<'_>; 1]> = operations
            .iter()
            .enumerate()
            .map(|(at, (operation, range))| {
                let request = SendRequest::new(work.id(), *operation, Payload::Memory(&entries[range.clone()]));
                let flags = SendFlags { signalled: at + 1 == operations.len(), ..request.flags };
                SendRequest { flags, ..request }
            })
            .collect();
        let outcome = self.context.post_send(qp, &requests);
        if costs && outcome != Ok(requests.len()) {
            connection.credits.unspend();
        }
        match outcome {
            Ok(0) => Posted::Later,
            Ok(count) => {
                connection.in_flight += count as u32;
                Posted::Gone(count)
            }
            Err(error) => {
                self.lose(to, error.to_string());
                Posted::Never
            }
        }
    }

    /// Whose connection a completion is of.
    pub(crate) fn peer_of(&self, completion: &WorkCompletion) -> Option<PeerId> {
        self.by_number.get(&completion.qp.0).copied()
    }

    /// So many posted operations have ended.
    pub(crate) fn transfer_ended(&mut self, peer: PeerId, completion: &WorkCompletion, count: u32) {
        if let Some(Some(connection)) = self.connections.get_mut(peer as usize) {
            connection.in_flight = connection.in_flight.saturating_sub(count);
        }
        if completion.status != WcStatus::Success {
            self.lose(peer, status_text(completion.status).to_owned());
        }
    }
}
