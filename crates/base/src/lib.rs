//! What every floor stands on: configuration, limits, long copies, the gate round an engine,
//! slabs with generations, the synchronisation shim, log lines, a watch over the memory map, what tools are
//! told of memory, threads without signals, and the end of a process.
//!
//! Floor: ground. Uses no other crate of the workspace.
//!
//! **Invariants**
//! - Nothing here reads the clock, the environment or files: values come in as arguments
//!   ([`Config::parse`] takes the variables, [`log::Log`] takes its level).
//! - A [`SlabKey`] of a removed entry never finds a later one.
//! - A [`Gate`] is free for the asking when threads are not used, and wholly released while its holder waits.
//! - An [`address_watch::AddressWatch`] misses no change whose end the program has seen.
//!
//! Deliberately absent: global state (but for who ends the process), allocation pools, a time source.
//!
//! ```
//! use base::{Slab, SlabKey};
//! let mut names: Slab<&str> = Slab::new();
//! let key: SlabKey = names.insert("rank 0");
//! assert_eq!(names.remove(key), Some("rank 0"));
//! assert_eq!(names.get(key), None);
//! ```

pub mod address_watch;
pub mod config;
pub mod copy;
pub mod descriptor;
pub mod ending;
pub mod gate;
pub mod log;
pub mod memory;
pub mod signals;
pub mod slab;
pub mod streaming;
pub mod sync;
pub mod watched;

pub use config::Config;
pub use gate::{Gate, GateGuard, Released};
pub use slab::{Slab, SlabKey};
