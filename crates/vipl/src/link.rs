//! A connection as this side has it: the other side's node, the two segments, and what was mapped of the other side.

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use fabric_soft::shm;
use lockfree::Doorbell;

use crate::channel::{Inbound, Outbound};
use crate::descriptor::{DataSegment, MemoryHandle};
use crate::memory::ProtectionTag;
use crate::segments::{Bell, LocalSegment, Mapping, PeerNode, Published};
use crate::status::{Reliability, Status};

/// Most segments of a peer that stay mapped.
const MAPPED_MAX: usize = 256;

/// How long whoever disconnects waits for a copy of the other side's.
const FAREWELL_LIMIT: Duration = Duration::from_secs(10);
/// From one look at it to the next.
const FAREWELL_PAUSE: Duration = Duration::from_micros(100);

/// What both sides of a connection tell each other of their VIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAttributes {
    /// The level, which is the same on both sides.
    pub reliability: Reliability,
    /// The longest transfer, which is the same on both sides.
    pub transfer_max_bytes: u64,
    /// RDMA writes of the other side are taken.
    pub rdma_write: bool,
    /// RDMA reads of the other side are taken.
    pub rdma_read: bool,
}

/// The socket of a connection, and whether the other side still holds its end.
pub(crate) struct Line {
    pub(crate) socket: TcpStream,
    lost: AtomicBool,
}

impl Line {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self { socket, lost: AtomicBool::new(false) }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Acquire)
    }

    pub(crate) fn lose(&self) {
        self.lost.store(true, Release);
    }
}

/// One side of a connection.
pub(crate) struct Link {
    pub(crate) line: Arc<Line>,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    pub(crate) remote: RemoteAttributes,
    remote_ptag: u64,
    node: PeerNode,
    bells: [Doorbell; 3],
    mapped: HashMap<MemoryHandle, (Published, Mapping)>,
    /// Kept for the other side, which writes to it.
    _segment: LocalSegment,
}

impl Link {
    pub(crate) fn new(
        line: Arc<Line>,
        segment: LocalSegment,
        node: PeerNode,
        outbound: Outbound,
        (remote, remote_ptag): (RemoteAttributes, u64),
    ) -> Self {
        let inbound = Inbound::new(segment.mapping().shared().clone());
        let bells = [Bell::Waiters, Bell::Callbacks, Bell::Events].map(|bell| node.bell(bell));
        Self { line, inbound, outbound, remote, remote_ptag, node, bells, mapped: HashMap::new(), _segment: segment }
    }

    /// After something was written for the other side: whoever waits there looks.
    pub(crate) fn ring(&self) {
        let [waiters, callbacks, _] = &self.bells;
        shm::ring(waiters);
        if callbacks.must_ring() {
            self.ring_manager();
        }
    }

    /// Has the event manager of the other side look.
    pub(crate) fn ring_manager(&self) {
        let [_, _, events] = &self.bells;
        shm::ring(events);
    }

    /// Says farewell, and waits until the other side stores nothing more into memory of this one, which is a copy of a
    /// transfer at most. One that is stopped in the middle of it, or lies, is waited for no longer than [`FAREWELL_LIMIT`].
    pub(crate) fn end_transfers(&self) {
        self.outbound.close();
        let deadline = Instant::now() + FAREWELL_LIMIT;
        let is_busy = || self.inbound.is_busy() && !self.inbound.is_closed() && !self.line.is_lost();
        while is_busy() && Instant::now() < deadline {
            std::thread::sleep(FAREWELL_PAUSE);
        }
    }

    /// Where a segment of the other side's receive descriptor lies.
    pub(crate) fn receive_place(&mut self, segment: &DataSegment) -> Result<(Mapping, usize), Status> {
        let (published, mapping) = self.mapped(segment.handle).ok_or(Status::PROTECTION_ERROR)?;
        let offset = offset_in(&published, &mapping, segment.address, u64::from(segment.len_bytes));
        Ok((mapping, offset.ok_or(Status::PROTECTION_ERROR)?))
    }

    /// Where an RDMA operation goes, and whether the other side must copy there, too. Memory that is shared protects
    /// nothing, so it is this side that keeps to what the other side allows.
    pub(crate) fn rdma_place(
        &mut self,
        (address, handle): (u64, MemoryHandle),
        len_bytes: u64,
        write: bool,
    ) -> Result<(Mapping, usize, bool), Status> {
        let refused = Status::RDMA_PROTECTION_ERROR;
        let Some(now) = self.node.published(handle.0) else {
            self.mapped.remove(&handle);
            return Err(refused);
        };
        let (rights, vi) = (now.rights, &self.remote);
        let allowed = if write { rights.write && vi.rdma_write } else { rights.read && vi.rdma_read };
        if !allowed || ProtectionTag(now.tag) != ProtectionTag(self.remote_ptag) {
            return Err(refused);
        }
        let (published, mapping) = self.mapped(handle).ok_or(refused)?;
        let offset = offset_in(&published, &mapping, address, len_bytes).ok_or(refused)?;
        Ok((mapping, offset, published.rights.shadow))
    }

    #[cfg(test)]
    pub(crate) fn mapped_count(&self) -> usize {
        self.mapped.len()
    }

    /// A segment of the other side, mapped at its first use.
    fn mapped(&mut self, handle: MemoryHandle) -> Option<(Published, Mapping)> {
        if let Some((published, mapping)) = self.mapped.get(&handle) {
            return Some((*published, mapping.clone()));
        }
        let segment = self.node.connect_segment(handle.0).ok()?;
        let found = (*segment.published(), segment.map().ok()?);
        // What the other side has given back is not kept alive here.
        let node = &self.node;
        self.mapped.retain(|handle, _| node.published(handle.0).is_some());
        if self.mapped.len() >= MAPPED_MAX {
            self.mapped.clear();
        }
        self.mapped.insert(handle, found.clone());
        Some(found)
    }
}

/// Address translation: the offset of a virtual address of the segment's owner. Paper: via2sisci §1.4.5.
fn offset_in(published: &Published, mapping: &Mapping, address: u64, len_bytes: u64) -> Option<usize> {
    let offset = address.checked_sub(published.base)?;
    let inside = offset.checked_add(len_bytes).is_some_and(|end| end <= mapping.len_bytes() as u64);
    inside.then_some(offset as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::Node;
    use proptest::prelude::*;

    proptest! {
        /// Against arithmetic that cannot overflow.
        #[test]
        fn addresses_become_offsets_or_nothing(
            base in any::<u64>(), ahead in prop::num::i64::ANY, near in -200i64..200, len in prop_oneof![0..200u64, any::<u64>()],
        ) {
            let node = Node::create().unwrap();
            let segment = node.create_segment(100).unwrap();
            for step in [ahead, near] {
                let address = base.wrapping_add_signed(step);
                let published = Published { base, ..Published::default() };
                let offset = i128::from(address) - i128::from(base);
                let expected = (offset >= 0 && offset + i128::from(len) <= 100).then_some(offset as usize);
                prop_assert_eq!(offset_in(&published, segment.mapping(), address, len), expected);
            }
        }
    }
}
