//! The verbs: what every device of Ferrovia offers, in InfiniBand's words.
//!
//! Floor: wire. Uses `base` and `lockfree`.
//!
//! A [`Device`] opens to a [`Context`]. There, memory registered in a [`ProtectionDomain`] becomes a [`MemoryRegion`]
//! with keys; a [`QueuePair`] is connected by exchanging [`Endpoint`]s; [`SendRequest`]s and [`ReceiveRequest`]s posted
//! to it end as [`WorkCompletion`]s in a [`CompletionQueue`]. Receives may come from a [`SharedReceiveQueue`], which
//! XRC addresses by number. Beside the verbs stand [`MappedPeers`]: the processes of one host that store to each
//! other's memory directly.
//!
//! **Invariants**
//! - Keys, bounds and rights are checked against what the target registered, not against what the initiator believes.
//! - Work requests of one queue pair complete in the order they were posted; a message fills one receive.
//! - A queue pair that fails goes to [`QueuePairState::Error`]; everything posted to it is flushed, on both sides.
//! - "No room" is a count of what was accepted, never an error. Every queue has a depth, every object a limit.
//! - `dyn` stands here and nowhere below: a slice is posted, an array is polled into.
//!
//! Deliberately absent: matching, protocols, ranks' meaning; how endpoints travel; unreliable connections and memory
//! windows, which nothing here needs.
//!
//! ```
//! use fabric::{ConnectOptions, Context, FabricError, Payload, QueuePair, QueuePairAttributes, SendRequest, Operation};
//!
//! /// Sends eight bytes to whoever owns `remote` and waits until they are in a receive of it.
//! fn send(context: &mut dyn Context, remote: fabric::Endpoint) -> Result<fabric::WcStatus, FabricError> {
//!     let domain = context.allocate_protection_domain()?;
//!     let completions = context.create_completion_queue(16)?;
//!     let qp: QueuePair = context.create_queue_pair(&QueuePairAttributes::new(domain, completions))?;
//!     fabric::connect(context, qp, Some(remote), &ConnectOptions::default())?;
//!     context.post_send(qp, &[SendRequest::new(1, Operation::Send, Payload::Inline(b"ferrovia"))])?;
//!     let mut done = [fabric::WorkCompletion::default()];
//!     while context.poll(completions, &mut done)? == 0 {
//!         std::thread::yield_now();
//!     }
//!     Ok(done[0].status)
//! }
//! ```

#![forbid(unsafe_code)]

mod capabilities;
mod completion;
mod device;
mod endpoint;
mod error;
mod identifiers;
mod memory;
mod peers;
mod queue_pair;
mod work;

pub use capabilities::{Capabilities, LimitRow, Limits, WriteOrder};
pub use completion::{CompletionOpcode, NotifyOn, WcStatus, WorkCompletion};
pub use device::{AsynchronousEvent, Context, DatagramAddress, Device, connect};
pub use endpoint::{DeviceKind, Endpoint};
pub use error::FabricError;
pub use identifiers::{
    AddressHandle, CompletionQueue, Lkey, MultiQueueReceive, MulticastGroup, PeerIndex, ProtectionDomain, Qkey,
    QpNumber, QueuePair, Rkey, SharedReceiveQueue, SrqNumber, XrcDomain,
};
pub use memory::{Access, LocalMemory, MemoryRegion, RemoteMemory, ScatterGather, Translation};
pub use peers::{DirectCopy, DirectCopyError, LocalPieces, MappedArea, MappedPeers, PieceCopy, RemotePiece, Wakeup};
pub use queue_pair::{
    ConnectOptions, QueuePairAttributes, QueuePairState, ReceiverNotReadyRetry, SharedReceiveQueueAttributes,
    Transition, Transport,
};
pub use work::{Destination, LoneSend, Operation, Payload, ReceiveRequest, SendFlags, SendRequest};

#[doc(no_inline)]
pub use lockfree::{SharedMemory, Ticket};
