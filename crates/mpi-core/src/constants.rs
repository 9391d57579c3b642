//! Numbers of the standard ABI that this crate interprets.
//!
//! MPI: appendix A.1.1

/// `MPI_ANY_SOURCE`: receive from whichever rank sends first.
pub const ANY_SOURCE: i32 = -1;
/// `MPI_ANY_TAG`: receive whichever tag comes first.
pub const ANY_TAG: i32 = -2;
/// `MPI_PROC_NULL`: the rank of nobody; communication with it completes at once and moves nothing.
pub const PROC_NULL: i32 = -3;
/// `MPI_ROOT`: says of itself to be the root of a collective over an intercommunicator.
pub const ROOT: i32 = -4;
/// `MPI_UNDEFINED`: no colour, no index, no rank.
pub const UNDEFINED: i32 = -32766;
/// `MPI_TAG_UB`: the greatest tag a user may choose. Tags above it belong to the library.
pub const TAG_UB: i32 = (1 << 29) - 1;
