//! The VI Provider Library (VIPL 1.0) over shared segments. Paper: via2sisci §1.
//!
//! Floor: face. Uses `base`, `lockfree` and `fabric-soft`.
//!
//! [`segments`] is distributed shared memory as SISCI has it: segments that are published, connected to and mapped. On it
//! stands message passing as the Virtual Interface Architecture has it: a [`Nic`] with protection tags and registered memory,
//! [`Vi`]s with a send and a receive queue, [`Descriptor`]s with gather and scatter lists, RDMA, completion queues and
//! handlers. The C interface (`include/vipl.h`, `libvipl.so`) is a thin layer over this one.
//!
//! **Invariants**
//! - Payload goes through segments only; TCP carries what is said before there is a connection, and its end.
//! - The sender's processor moves the data. Nothing in a VI waits; whoever waits sleeps on a doorbell in shared memory.
//! - What the other side wrote, there or on the socket, is parsed or refused; who writes nonsense loses its connection.
//! - Every queue has a limit: work queues refuse, completion queues leave completions where they are.
//! - The end of a process is an error at those that it was connected to, and never a hang.
//!
//! Deliberately absent: other hosts (segments are memory of one; who asks from elsewhere is told so), protection of memory
//! against a peer of the same user (shared memory has none, so both sides keep to what was agreed; one that wipes out the
//! doorbells of a node can keep its threads asleep), quality of service.
//!
//! ```
//! use vipl::{Descriptor, MemoryAttributes, NetAddress, Nic, Reliability, Settings, ViAttributes, WorkQueue};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let nic = Nic::open(Settings::default())?;
//! let ptag = nic.create_ptag()?;
//! let memory = nic.allocate(4096, MemoryAttributes { ptag, rdma_write: false, rdma_read: false })?;
//! let attributes = ViAttributes {
//!     reliability: Reliability::Delivery,
//!     transfer_max_bytes: 4096,
//!     ptag,
//!     rdma_write: false,
//!     rdma_read: false,
//! };
//! let (server, client) = (nic.create_vi(&attributes, None, None)?, nic.create_vi(&attributes, None, None)?);
//! server.post_receive(Descriptor::of(vec![memory.segment(64, 64)], 1))?;
//!
//! let address = |name: &str| NetAddress::new(NetAddress::local_host(), name.as_bytes()).expect("it is short");
//! let (here, there) = (address("a client of lib.rs"), address("a server of lib.rs"));
//! std::thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
//!     let accepting = scope.spawn(|| nic.connect_wait(&there, None)?.accept(&server));
//!     while let Err(vipl::Error::NoMatch(_)) = client.connect_request(&here, &there, None) {
//!         std::thread::yield_now(); // the server does not wait yet
//!     }
//!     Ok(accepting.join().expect("it does not panic")?)
//! })?;
//!
//! memory.write(0, b"hello")?;
//! client.post_send(Descriptor::of(vec![memory.segment(0, 5)], 2).with_immediate(7))?;
//! let received = server.wait(WorkQueue::Receive, None)?;
//! assert_eq!((received.context, received.len_bytes, received.immediate), (1, 5, 7));
//! let mut text = [0; 5];
//! memory.read(64, &mut text)?;
//! assert_eq!(&text, b"hello");
//! assert!(!client.wait(WorkQueue::Send, None)?.status.is_error());
//! # Ok(())
//! # }
//! ```

pub mod segments;

mod address;
mod channel;
mod connect;
mod counters;
mod descriptor;
#[allow(non_snake_case, missing_docs, reason = "the calls are those of vipl.h, which tells what they do")]
mod face;
mod hello;
mod link;
mod manager;
mod memory;
mod names;
mod nic;
mod owned;
mod queue;
mod shapes;
mod status;
mod vi;
mod waiting;
mod watch;
mod work;

pub use address::NetAddress;
pub use connect::{PeerRequest, Request};
pub use counters::{Counter, Counts};
pub use descriptor::{Completion, DataSegment, Descriptor, MemoryHandle, SEGMENTS_PER_DESCRIPTOR_MAX};
pub use link::RemoteAttributes;
pub use memory::{MemoryAttributes, ProtectionTag};
pub use names::NameService;
pub use nic::{ErrorEvent, LIMITS, Limits, Nic, SegmentMemory, Settings};
pub use owned::OwnedMemory;
pub use queue::{CompletionQueue, Entry, QueueHandler};
pub use status::{Error, ErrorCode, Operation, Reliability, State, Status};
pub use vi::{Handler, Vi, ViAttributes, ViReport, WorkQueue};
pub use waiting::WaitPolicy;
