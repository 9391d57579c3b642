//! The meaning of MPI: one module per chapter of the standard, over an engine that moves messages.
//!
//! Floor: meaning. Below it `collectives`, `engine`, `datatype` and `base`; above it the process
//! managers, `boot` and the faces. A face decodes handles and checks arguments, then calls here.
//!
//! **Invariants**
//! - No global state: a [`World`] is a value, and a test owns several in one process.
//! - No borrow is held while a callback of the user runs; every callback may call MPI again.
//! - Whatever is freed by the user lives on until the operations that need it have completed.
//! - Ranks are `i32` with the standard's special values at the public edge, and processes
//!   ([`engine::PeerId`]) inside.
//! - An error names both ends, the communicator, the tag and the sizes it is about.
//!
//! Deliberately absent: devices (chosen by `boot`), handle integers (a table of the C face),
//! unsafe code (user memory arrives as `SendBuf` and `RecvBuf`).
//!
//! ```no_run
//! # fn demo(world: &mpi_core::World) -> mpi_core::Result<()> {
//! use datatype::{RecvBuf, SendBuf};
//! let comm = world.comm_world();
//! if comm.rank() == 0 {
//!     world.send(comm, 1, 7, SendBuf::from_owned(Box::from(*b"hello")))?;
//! } else if comm.rank() == 1 {
//!     let status = world.probe(comm, 0, 7)?;
//!     println!("{} bytes are waiting", status.len_bytes);
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod attribute;
pub mod collective;
pub mod communicator;
pub mod constants;
pub mod environment;
pub mod error;
pub mod group;
pub mod info;
pub mod partitioned;
pub mod point_to_point;
pub mod request;
pub mod session;
pub mod status;
pub mod tool;
pub mod topology;
pub mod world;

pub use communicator::Comm;
pub use error::{Error, ErrorClass, Result};
pub use request::{Request, RequestSet};
pub use session::Session;
pub use status::Status;
pub use world::{ProcessManager, RankReport, ThreadLevel, World};
