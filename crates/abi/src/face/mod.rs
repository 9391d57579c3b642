//! From C to the chapters and back: what every call has in common.
//!
//! - [`handle`], [`table`]: integers for objects; [`objects`]: which table holds what.
//! - [`process`]: everything this process owns, in the one static of the project; `stage`: how far it has come.
//! - [`entry`]: entering and leaving a call; what happens when it fails.
//! - [`check`]: arguments, with messages that name parameter and value; `brief`: the same for what is tried before the whole of a call.
//! - [`values`], [`status`], [`requests`]: what parameters become.

pub(crate) mod brief;
pub mod check;
pub mod entry;
pub mod handle;
pub mod objects;
pub mod process;
pub mod requests;
mod stage;
pub mod status;
pub mod table;
pub mod values;

pub use entry::{Call, Face};
pub use handle::Handle;
pub use mpi_core::Session;
pub use objects::{File, InOutHandle, MessageInOut, OutHandle, Win};
pub use requests::Requests;
pub use status::{CStatus, StatusOut, StatusesOut};
pub use table::Held;
pub use values::{
    CountInOut, CountOut, Counts, CountsOut, IN_PLACE, OptionalOut, Out, OutArray, StringOut, is_in_place,
};

use crate::types::{MPI_User_function, MPI_User_function_c};

/// The function of `MPI_Op_create`, in either form.
#[derive(Clone, Copy)]
pub enum UserFunctionPointer {
    /// Takes `int` counts.
    Small(MPI_User_function),
    /// Takes `MPI_Count` counts.
    Large(MPI_User_function_c),
}
