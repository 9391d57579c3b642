//! Message passing in safe Rust: MPI without its C face.
//!
//! ```
//! use ferrovia::Sum;
//!
//! fn main() -> ferrovia::Result<()> {
//!     let universe = ferrovia::initialize()?;
//!     let world = universe.world();
//!     println!("rank {} of {}", world.rank(), world.size());
//!     let total = world.all_reduce_value(world.rank() + 1, Sum)?;
//!     assert_eq!(total, world.size() * (world.size() + 1) / 2);
//!     Ok(())
//! }
//! ```
//!
//! Started by hand, this is a world of one; `mpiexec -n 4 program` makes it four. In a test, [`local::run`] makes ranks
//! of threads.
//!
//! Floor: face. It stands beside the C face on `mpi-core`, and reaches it without going through C.
//!
//! **Invariants**
//! - Safe code cannot break memory: a buffer is borrowed until the operation on it is over, whatever was forgotten,
//!   returned early or panicked meanwhile. Where an operation cannot be brought to its end, the job is.
//! - What arrives is only ever read as a type for which all bytes are good ([`Element`]).
//! - A rank that leaves with a panic or an [`Error`] ends the job with a line that names it, so that nobody waits.
//! - Whatever is used from two threads is either refused by the compiler or goes through the gate of the world
//!   ([`SharedCommunicator`]).
//! - Unsafe code stands in the modules marked below, mostly where a slice is handed over to an operation.
//!
//! Deliberately absent: the null process (`if let` says it), `MPI_IN_PLACE` (methods named so), attributes and error
//! handlers (Rust has better ones), derived datatypes beyond arrays and structs, persistent requests, windows, files.
//!
//! | | |
//! |---|---|
//! | begin and end | [`initialize`], [`Universe`] |
//! | who | [`Communicator`]: `rank`, `size`, `duplicate`, `split`, `subset` |
//! | messages | [`send`](Communicator::send), [`recv`](Communicator::recv), [`receive_vec`](Communicator::receive_vec) |
//! | in the background | [`scope`](Communicator::scope), [`Scope`], [`Request`], [`wait_any`] |
//! | all together | [`broadcast`](Communicator::broadcast), [`all_reduce`](Communicator::all_reduce), … |
//! | combining | [`Sum`], [`Min`], [`Op::from_fn`] |

#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "addresses of slices")]
mod borrowed;
mod collective;
#[expect(unsafe_code, reason = "a handle that crosses threads")]
mod communicator;
#[expect(unsafe_code, reason = "which types are plain bytes")]
mod element;
mod error;
pub mod local;
#[expect(unsafe_code, reason = "slices for closures")]
mod op;
#[expect(unsafe_code, reason = "calls that return when their buffers are free again")]
mod point_to_point;
#[expect(unsafe_code, reason = "operations that end before their scope")]
mod scope;
#[expect(unsafe_code, reason = "collectives that return when their buffers are free again")]
mod shared;
mod universe;

pub use collective::Blocks;
pub use communicator::{Communicator, SharedCommunicator};
pub use element::{Basic, Bool, Element};
pub use error::{Error, Result};
pub use mpi_core::ErrorClass;
pub use num_complex::Complex;
pub use op::{
    BitAnd, BitOr, BitXor, Bits, Logical, LogicalAnd, LogicalOr, LogicalXor, Max, Min, Number, Op, Operation, Ordered,
    Product, Sum,
};
pub use point_to_point::{Source, Status, Tag};
pub use scope::{Collecting, Kind, Progress, Receiving, Request, Scope, Signal, wait_any};
pub use universe::{Threading, Universe, initialize, initialize_with_threading};
