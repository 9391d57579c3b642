//! Software adapters: devices that need no hardware.
//!
//! Floor: wire. Uses `base`, `lockfree` and `fabric`.
//!
//! [`shm`]: processes of one host. The initiator's processor plays the adapter: it checks the target's keys in the
//! target's own table and moves the bytes itself, by cross-memory attach.
//!
//! **Invariants**
//! - Segments are memfds, sealed against shrinking and handed over a Unix socket of the abstract namespace to
//!   processes of the same user only: no file, no `/dev/shm`, nothing left behind after a crash.
//! - One file descriptor is open while joining and none afterwards, however many peers there are.
//! - A peer's table entries, counts and flags are checked before use; a damaged peer costs itself its messages.
//!
//! Deliberately absent: links to other hosts, which are devices of their own.

pub mod shm;
