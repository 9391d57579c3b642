//! A link inside one process: adapters in a hub, each with a mailbox. For tests, and for measuring what the adapter
//! itself costs.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fabric::{DeviceKind, FabricError, WriteOrder};
use rustix::event::{EventfdFlags, eventfd};

use crate::copying;
use crate::link::{HEADER_BYTES, Link, LinkPeer, LinkProperties, Outgoing, Responder, SendOutcome};

/// Packets in a mailbox, at most, from one peer.
const MAILBOX_MAX: usize = 256;

/// A packet on its way, its payload copied.
struct Parcel {
    from: LinkPeer,
    header: [u8; HEADER_BYTES],
    payload: Vec<u8>,
}

struct Mailbox {
    parcels: VecDeque<Parcel>,
    /// Rung while somebody sleeps.
    bell: Arc<OwnedFd>,
    sleeps: bool,
    is_open: bool,
}

#[derive(Default)]
struct Hub {
    mailboxes: Vec<Mailbox>,
}

/// Where adapters of one process meet.
#[derive(Clone, Default)]
pub struct LoopbackHub {
    hub: Arc<Mutex<Hub>>,
}

impl LoopbackHub {
    /// An empty hub.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new adapter's link.
    ///
    /// # Errors
    /// When the system has no descriptor for its bell.
    pub fn link(&self) -> Result<LoopbackLink, FabricError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| FabricError::System { operation: "making a bell (eventfd)", reason: error.to_string() })?;
        let bell = Arc::new(bell);
        let mut hub = lock(&self.hub);
        let me = LinkPeer(hub.mailboxes.len() as u32);
        hub.mailboxes.push(Mailbox { parcels: VecDeque::new(), bell: Arc::clone(&bell), sleeps: false, is_open: true });
        let properties = LinkProperties {
            kind: DeviceKind::Loopback,
            description: "inside one process".into(),
            message_max_bytes: 1 << 30,
            datagram_max_bytes: 4096,
            asynchronous: Err("work is done while this process polls".into()),
            single_copy: Err("payload is copied into a mailbox".into()),
            multicast: true,
            mapped_memory: false,
            answers_ride: false,
            write_order: WriteOrder::ByWord,
            writes_wake: false,
            peer_bytes: 0,
        };
        Ok(LoopbackLink { hub: Arc::clone(&self.hub), me, bell, properties, lost: Vec::new(), start: Instant::now() })
    }
}

/// One adapter's end. Dropping it is death: its peers find it lost.
pub struct LoopbackLink {
    hub: Arc<Mutex<Hub>>,
    me: LinkPeer,
    bell: Arc<OwnedFd>,
    properties: LinkProperties,
    /// Peers the adapter was told of already.
    lost: Vec<LinkPeer>,
    start: Instant,
}

impl Drop for LoopbackLink {
    fn drop(&mut self) {
        let mut hub = lock(&self.hub);
        let me = &mut hub.mailboxes[self.me.0 as usize];
        me.is_open = false;
        me.parcels.clear();
        hub.mailboxes.iter_mut().for_each(Mailbox::ring);
    }
}

impl Mailbox {
    fn ring(&mut self) {
        if std::mem::take(&mut self.sleeps) {
            // A counter that is full is readable already.
            let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        }
    }
}

impl Link for LoopbackLink {
    fn properties(&self) -> &LinkProperties {
        &self.properties
    }

    fn address(&self) -> Vec<u8> {
        self.me.0.to_le_bytes().to_vec()
    }

    fn resolve(&mut self, address: &[u8]) -> Result<LinkPeer, FabricError> {
        let bytes = address.try_into().map_err(|_| FabricError::BadEndpoint("not a place in a hub"))?;
        let peer = u32::from_le_bytes(bytes);
        if (peer as usize) < lock(&self.hub).mailboxes.len() {
            Ok(LinkPeer(peer))
        } else {
            Err(FabricError::NoSuchPeer(peer))
        }
    }

    fn send(&mut self, to: LinkPeer, header: &[u8; HEADER_BYTES], payload: Outgoing<'_>) -> SendOutcome {
        let mut hub = lock(&self.hub);
        let Some(mailbox) = hub.mailboxes.get_mut(to.0 as usize).filter(|mailbox| mailbox.is_open) else {
            return SendOutcome::Gone;
        };
        if mailbox.parcels.iter().filter(|parcel| parcel.from == self.me).count() >= MAILBOX_MAX {
            return SendOutcome::Full;
        }
        let payload = copying::gather(payload.ranges);
        mailbox.parcels.push_back(Parcel { from: self.me, header: *header, payload });
        mailbox.ring();
        SendOutcome::Taken
    }

    fn progress(&mut self, responder: &mut dyn Responder) {
        let (parcels, gone) = {
            let mut hub = lock(&self.hub);
            let parcels = std::mem::take(&mut hub.mailboxes[self.me.0 as usize].parcels);
            let closed = hub.mailboxes.iter().enumerate().filter(|(_, mailbox)| !mailbox.is_open);
            let gone: Vec<_> = closed.map(|(index, _)| LinkPeer(index as u32)).collect();
            (parcels, gone)
        };
        for Parcel { from, header, payload } in parcels {
            let placement = responder.begin(from, &header, payload.len() as u64);
            copying::scatter(&payload, &placement.ranges);
            responder.finish(from);
        }
        for peer in gone {
            if !self.lost.contains(&peer) {
                self.lost.push(peer);
                responder.lost(peer);
            }
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn recall(&mut self, _address: u64, _len_bytes: u64) {
        // Payload is copied on its way in and placed at once.
    }

    fn everyone(&mut self) -> Option<Vec<LinkPeer>> {
        let count = lock(&self.hub).mailboxes.len() as u32;
        Some((0..count).map(LinkPeer).filter(|peer| *peer != self.me).collect())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn prepare_sleep(&mut self) -> Result<(), FabricError> {
        lock(&self.hub).mailboxes[self.me.0 as usize].sleeps = true;
        Ok(())
    }

    fn woken(&mut self) {
        lock(&self.hub).mailboxes[self.me.0 as usize].sleeps = false;
        // Nothing to read is nothing to forget.
        let _ = rustix::io::read(&*self.bell, &mut [0u8; 8]);
    }
}

/// A test that failed in another thread has said so already; the mailboxes are whole all the same.
fn lock(hub: &Mutex<Hub>) -> MutexGuard<'_, Hub> {
    hub.lock().unwrap_or_else(PoisonError::into_inner)
}
