//! The calls themselves, one file per chapter of the standard: hand-written, short, mostly safe.
//!
//! `build.rs` generates every C entry point (`PMPI_X`, and weak `MPI_X`) from `standard/*.json`. An
//! entry point enters the gate, checks arguments from their kinds, decodes handles, and calls the
//! chapter function of the same name. **It finds the function by scanning these files** for
//! `pub(crate) fn x(` or `pub(crate) unsafe fn x(` at the start of a line; a call without one
//! answers `MPI_ERR_UNSUPPORTED_OPERATION`. Nothing needs to be registered.
//!
//! **Name.** The C name without `MPI_`, in small letters: `MPI_Comm_rank` is `comm_rank`,
//! `MPI_Type_create_struct` is `type_create_struct`. The large-count twin (`MPI_Send_c`) calls the
//! same function: counts arrive widened.
//!
//! **First attempts.** What a call `x` often comes to at once may be a function of its own, `x_at_once`, or `x_alone` for what
//! it comes to on a communicator of this process alone: `Some` once the call is over, `None` if nothing has changed and the
//! whole of it is to be made. It frees nothing, looks at no object once code of the user may have run, and `x` does by itself
//! what the attempt does: where threads call, only that is called.
//!
//! **Signature.** `fn x(face: &Face, <the C parameters in order>) -> mpi_core::Result<()>`; `unsafe fn`
//! where it takes raw buffers. What a parameter becomes (all types are in [`crate::face`]):
//!
//! | C | here |
//! |---|---|
//! | `int` in | `i32` (`bool` if the kind is LOGICAL) |
//! | a count, displacement or size that differs between `X` and `X_c` | `i64` |
//! | `MPI_Aint`, `MPI_Offset`, `MPI_Count` in | `i64` |
//! | array of such counts, in | `Counts<'_>` (`.len()`, `.at(i) -> i64`, `.iter()`) |
//! | scalar out that differs between `X` and `X_c` | `CountOut` (`.set(i64)`, `MPI_UNDEFINED` if it does not fit) |
//! | the same, in and out (`position`) | `CountInOut` (`.value()`, `.set(i64)`) |
//! | the same, array out | `CountsOut` (`.set(i, i64)`) |
//! | `int *`, `MPI_Aint *`, … out | `Out<i32>`, `Out<i64>`, … (`.set(v)`) |
//! | `int *` in and out | `CountInOut`; in and out handles see below |
//! | LOGICAL out | `Out<i32>`; use `.set_flag(bool)` |
//! | `int[]` in / out, length given by a parameter | `&[i32]` / `OutArray<i32>` (`.set(i, v)`) |
//! | `int ranges[][3]` | `&[[i32; 3]]` |
//! | arrays of statuses / of completed indices | `StatusesOut` (`.set(i, &Status)`, `.set_failed(i, &Status, code)`) / `OutArray<i32>` |
//! | `const char *` in | `&CStr` |
//! | `char *` out | `StringOut` (`.set(&str) -> i32` length written; `.set_within(&str, capacity)`) |
//! | `const void *buf` / `void *buf` | `*const u8` / `*mut u8` (`IN_PLACE`, `BOTTOM`: see [`crate::face::is_in_place`]) |
//! | `void *` holding an address to return (`baseptr`, `attribute_val` out) | `Out<*mut c_void>` |
//! | `extra_state`, `attribute_val` in | `*mut c_void` |
//! | callbacks | `Option<unsafe extern "C" fn …>` from [`crate::types`], e.g. `MPI_Comm_copy_attr_function` |
//! | the user function of `Op_create` | `UserFunctionPointer` |
//! | `MPI_Comm` in | `&Arc<Comm>` |
//! | `MPI_Group`, `MPI_Datatype`, `MPI_Op`, `MPI_Errhandler`, `MPI_Session` in | `&Arc<Group>`, `&Arc<Datatype>`, `&Op`, `&Arc<ErrorHandler>`, `&Arc<Session>` |
//! | `MPI_Info` in | `Option<&Arc<Info>>`; `&Arc<Info>` in `MPI_Info_*` |
//! | `MPI_Datatype[]` in | `&[Arc<Datatype>]` |
//! | any handle out (`MPI_Comm *newcomm`) | `OutHandle<Comm>` (`.set(face, value)`, `.set_null()`, `.set_or_null(face, option)`) |
//! | any handle in and out (`MPI_Comm *comm` of a free) | `InOutHandle<Comm>` (`.object()`, `.release(face)`) |
//! | `MPI_Message *` in and out | `MessageInOut` (`.take(face)` gives the message and writes null) |
//! | `MPI_Request` in any form: by value, `*`, `[]` | `Requests<'_>`, a [`mpi_core::RequestSet`] of 1 or n |
//! | `MPI_Request *` out | `OutHandle<Request>` |
//! | `MPI_Status *` out | `StatusOut` (`.set(&Status)`; nothing happens if ignored) |
//! | `MPI_Status *` in / in and out | `&CStatus` / `&mut CStatus` |
//! | window, file handles | `Handle<Win>`, `Handle<File>`, undecoded |
//! | anything of which there is only a large-count form | `Option<…>`, `None` from the small form |
//! | `argc`, `argv`, arrays of strings | as in C |
//! | in `MPI_T_*`: whatever is written, strings aside | `OptionalOut<…>` (nothing happens if null) |
//!
//! **Not significant arguments** do not arrive: arrays that matter at the root only are empty
//! elsewhere, and send counts, displacements and types are empty if the send buffer is
//! `MPI_IN_PLACE`; scalar ones arrive as given but unchecked (a datatype that is not significant is
//! decoded leniently: `MPI_BYTE` if it is not a datatype); a handle that matters at a leader only is
//! `None` elsewhere.
//!
//! **What is already checked** when a function is called: the library is initialised and not
//! finalised, or a session is open (except for the calls of the table `ANY_TIME` in `build/tables.rs`;
//! those, and those of `needs_no_others`, must not call [`Face::world`] before asking
//! [`Face::world_if_running`]); no pointer is null that may not be;
//! counts are not negative; `dest`, `source` and `root` are ranks of the communicator or special
//! values that are legal there; tags are legal; datatypes used in communication are committed;
//! handles are live and of the right type; every request of a list is null or live.
//!
//! **Errors** are returned as [`mpi_core::Error`]; the face puts the name of the call in front and
//! asks the error handler of the communicator or session the call was given, or else of
//! [`World::comm_for_errors`](mpi_core::World::comm_for_errors).
//! [`Face::blame`] names another communicator (that of a request, say). [`Face::code`] gives the
//! number for an error that goes into a status instead.
//!
//! **Callbacks of the user** may call MPI: hold no `RefCell` borrow across them.
//!
//! Calls that return no error code (`MPI_Wtime`, `MPI_Aint_add`) take no face and return their value.

pub(crate) mod attribute;
pub(crate) mod buffer;
pub(crate) mod coll;
pub(crate) mod coll_init;
pub(crate) mod comm;
pub(crate) mod datatype;
pub(crate) mod environment;
pub(crate) mod error;
pub(crate) mod fortran;
pub(crate) mod group;
pub(crate) mod icoll;
pub(crate) mod info;
pub(crate) mod init;
pub(crate) mod neighbor;
pub(crate) mod op;
pub(crate) mod p2p;
pub(crate) mod partitioned;
pub(crate) mod request;
pub(crate) mod session;
pub(crate) mod status;
pub(crate) mod tool;
pub(crate) mod tool_event;
pub(crate) mod tool_performance;
pub(crate) mod topology;
