//! MPI datatypes: type maps, buffers seen through them, and reductions of what they hold.
//!
//! Floor: machinery. Knows nothing of messages, ranks or devices.
//!
//! A [`Datatype`] is made from a [`Basic`] by constructors and never changes; its layout is kept as nested strided loops,
//! however many elements it describes. A [`SendBuf`] or [`RecvBuf`] is user memory seen through a datatype: it packs and
//! unpacks from any byte on. A [`Layout`] is what a peer needs to know of a datatype to copy on its own, in a wire form that is
//! parsed or refused. [`UserMemory`] and [`Scratch`] are memory that many buffers are carved from. An [`Op`]
//! reduces elements.
//!
//! **Invariants**
//! - A user's pointer enters through an unsafe constructor, once; everything after that is safe to call.
//! - Sizes, extents and all displacements of a datatype fit 64 bits: the constructor that would break this fails, and
//!   whoever walks a layout may compute without checks.
//! - The order of packed bytes is the order of the type map, whatever the layout was normalised to.
//! - No code assumes that user memory is aligned.
//!
//! Deliberately absent: global tables of predefined types, handles, reference counts other than `Arc`.
//!
//! ```
//! use datatype::{Basic, Datatype, SendBuf};
//!
//! // The second column of a matrix of 3 rows and 4 columns.
//! let matrix: [i32; 12] = std::array::from_fn(|i| i as i32);
//! let column = Datatype::vector(3, 1, 4, &Datatype::predefined(Basic::Int))?;
//! assert_eq!((column.size(), column.extent()), (12, 36));
//!
//! // SAFETY: the column lies inside the matrix, which outlives the buffer.
//! let buffer = unsafe { SendBuf::new(matrix[1..].as_ptr().cast(), 1, &column) };
//! let mut packed = [0; 12];
//! assert_eq!(buffer.pack_at(0, &mut packed), 12);
//! assert_eq!(packed, bytemuck::cast::<[i32; 3], [u8; 12]>([1, 5, 9]));
//! # Ok::<(), datatype::TypeError>(())
//! ```

mod array;
mod basic;
mod buffer;
mod construct;
mod contents;
mod copy;
mod datatype;
mod error;
pub mod external32;
mod kernel;
mod layout;
mod memory;
mod op;
mod range;
mod reduce;
mod shape;
mod streaming;
mod wire;

pub use array::Darray;
pub use basic::{Basic, Class, SizedClass};
pub use buffer::{LentSendBuf, RecvBuf, RecvBytes, ScatteredData, SendBuf};
pub use contents::{ArrayOrder, Combiner, Contents, DISTRIBUTE_DEFAULT_ARGUMENT, Distribution, Envelope};
pub use copy::Segment;
pub use datatype::Datatype;
pub use error::{Argument, TypeError};
pub use memory::{Memory, Scratch, UserMemory, UserMemoryMut};
pub use op::{Op, OpError, PackedOp, PredefinedOp, UserFunction};
pub use range::{Group, Grouping};
pub use wire::{Layout, LayoutError};
