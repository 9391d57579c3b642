//! Atomics by one name: the standard library's, or loom's when a model is checked
//! (`RUSTFLAGS="--cfg loom"`).

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Under loom, which knows no barriers of the compiler alone.
#[cfg(loom)]
pub fn compiler_fence(_: Ordering) {}

/// Tells the processor that this is a waiting loop.
#[inline]
pub fn spin_hint() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
