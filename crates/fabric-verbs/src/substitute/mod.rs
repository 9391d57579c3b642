//! XRC where the adapter has none.
//!
//! An XRC connection of ours is then a *control* connection and any number of *lanes*: ordinary reliable connections,
//! each to one shared receive queue of the target, and one to none for operations on memory. The adapter places data
//! and holds sends that no receive is ready for, just as with XRC.
//!
//! ```text
//!   initiator                                   target
//!   first send to queue 7 ── open 7, QP a ────▶ QP b takes receives from queue 7
//!   QP a connects to b    ◀── opened, QP b ──   (or refused: the send ends as an invalid request)
//!   send ═══════════════════ QP a ▶ QP b ═════▶ receive of queue 7
//! ```
//!
//! - **Order.** Requests of one connection are carried out in order, as XRC does it: a lane is left only when all that
//!   was posted to it has completed. Alternating between queues therefore costs a round trip each time.
//! - **Progress.** Both ends run inside [`Context::poll`](fabric::Context::poll) of any completion queue. The first send
//!   to a queue waits until the target polls; those after it do not.
//! - **Cost.** A queue pair at each end per queue used, at most [`LANES_MAX`] per connection; past that the lane not
//!   used for longest is closed.
//! - Both ends must be substitutes: the endpoint says whether one is.

pub(crate) mod control;
mod initiator;
mod service;
mod target;

pub(crate) use initiator::Initiator;
pub(crate) use service::{Service, Signal};
pub(crate) use target::Target;

use crate::address::Address;
use crate::ffi::numbers::QPT_RC;
use crate::ffi::{IbvQpCap, IbvRecvWr, IbvSge};
use crate::objects::{Completions, Domain, Pair, PairParts, Region};
use control::Message;
use fabric::{FabricError, SharedMemory, Transport};
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Lanes of one connection.
pub(crate) const LANES_MAX: usize = 256;
/// Control messages under way each way; one request waits for its answer before the next.
const CONTROL_DEPTH: u32 = 4;
const CONTROL_BYTES: usize = control::BYTES;
/// Bytes of the control buffer: slots that receive, then slots that send.
const BUFFER_BYTES: usize = 2 * CONTROL_DEPTH as usize * CONTROL_BYTES;

/// What stands in for an XRC queue pair.
pub(crate) struct Substitute {
    pub(crate) role: Role,
    /// What the initiator may do, for lanes that the target makes.
    pub(crate) access: c_int,
    /// The way to the peer's port; lanes take it too.
    pub(crate) peer: Option<Address>,
    /// As asked for in the transitions.
    pub(crate) receiver_not_ready_timer: Duration,
    pub(crate) timeout: Duration,
    pub(crate) retry_count: u8,
    pub(crate) receiver_not_ready_retry: fabric::ReceiverNotReadyRetry,
    region: Region,
    buffer: SharedMemory,
    /// Control messages sent; picks the slot of the next.
    sent: u32,
}

/// Which half.
pub(crate) enum Role {
    /// Posts.
    Initiator(Initiator),
    /// Is posted to.
    Target(Target),
}

impl Substitute {
    /// A substitute for a queue pair of `transport`, and its control connection.
    pub(crate) fn new(
        transport: Transport,
        domain: &Arc<Domain>,
        completions: &Arc<Completions>,
    ) -> Result<(Self, Pair), FabricError> {
        let buffer = SharedMemory::private(BUFFER_BYTES);
        let start = buffer.start().as_ptr().expose_provenance();
        let region = Region::new(domain, start, BUFFER_BYTES, crate::ffi::numbers::access::LOCAL_WRITE)?;
        let cap = IbvQpCap {
            max_send_wr: CONTROL_DEPTH,
            max_recv_wr: CONTROL_DEPTH,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let parts = PairParts {
            domain: Arc::clone(domain),
            send: Arc::clone(completions),
            receive: Arc::clone(completions),
            shared: None,
            extended: None,
        };
        let role = match transport {
            Transport::XrcTarget(domain) => Role::Target(Target::new(domain)),
            _ => Role::Initiator(Initiator::default()),
        };
        let substitute = Self {
            role,
            access: 0,
            peer: None,
            receiver_not_ready_timer: Duration::ZERO,
            timeout: Duration::ZERO,
            retry_count: 0,
            receiver_not_ready_retry: fabric::ReceiverNotReadyRetry::Forever,
            region,
            buffer,
            sent: 0,
        };
        Ok((substitute, Pair::new(parts, QPT_RC, cap)?))
    }

    /// Entry of a scatter/gather list for slot `slot` of the buffer.
    fn entry(&self, slot: u32) -> IbvSge {
        let offset = slot as usize * CONTROL_BYTES;
        let addr = (self.buffer.start().addr().get() + offset) as u64;
        IbvSge { addr, length: CONTROL_BYTES as u32, lkey: self.region.keys().0 }
    }

    /// Posts receive slot `slot`; `request` makes the number of its completion.
    pub(crate) fn post_receive(&self, pair: &Pair, slot: u32, request: u64) -> Result<(), FabricError> {
        let mut entry = self.entry(slot);
        let mut chain = [IbvRecvWr { wr_id: request, next: std::ptr::null_mut(), sg_list: &raw mut entry, num_sge: 1 }];
        // SAFETY: a chain of one, whose list is `entry`; the slot belongs to a region of ours.
        unsafe { pair.post_receive(&mut chain) }.map_err(|(_, code)| crate::objects::system("ibv_post_recv", code))
    }

    /// Slots to post receives from.
    pub(crate) fn receive_slots() -> std::ops::Range<u32> {
        0..CONTROL_DEPTH
    }

    /// What arrived in receive slot `slot`, if it makes sense.
    pub(crate) fn read(&self, slot: u32) -> Option<Message> {
        let mut bytes = [0; CONTROL_BYTES];
        for (place, chunk) in bytes.chunks_exact_mut(8).enumerate() {
            // The completion was polled before, which orders this after the adapter's store.
            let word = self.buffer.word(slot as usize * CONTROL_BYTES + place * 8).load(Relaxed);
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        Message::parse(&bytes)
    }

    /// Puts a message into the next send slot; returns the slot and its entry.
    pub(crate) fn write(&mut self, message: Message) -> (u32, IbvSge) {
        let slot = CONTROL_DEPTH + self.sent % CONTROL_DEPTH;
        self.sent = self.sent.wrapping_add(1);
        for (place, chunk) in message.to_bytes().chunks_exact(8).enumerate() {
            let word = u64::from_ne_bytes(chunk.try_into().expect("chunks of 8"));
            self.buffer.word(slot as usize * CONTROL_BYTES + place * 8).store(word, Relaxed);
        }
        (slot, self.entry(slot))
    }
}
