//! Memory that other processes see.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use base::sync::{AtomicU32, AtomicU64};

/// A range of memory shared with other processes (or threads), kept mapped as long as a handle lives.
///
/// It is read and written through atomics, or copied whole; a reference into it never leaves this crate.
#[derive(Clone)]
pub struct SharedMemory {
    start: NonNull<u8>,
    len_bytes: usize,
    /// Whatever keeps the memory mapped.
    keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the handle is a pointer to memory that lives as long as `keep`; all access goes through atomics or
// through the single-reader/single-writer protocols of this crate.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Memory at `start`, mapped until `keep` is dropped.
    ///
    /// # Safety
    /// `len_bytes` bytes at `start` are mapped readable and writable while `keep` lives, are aligned to a cache
    /// line, and are accessed in this process only through `SharedMemory`.
    pub unsafe fn new(start: NonNull<u8>, len_bytes: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { start, len_bytes, keep }
    }

    /// Zeroed memory of this process alone, for tests and for worlds inside one process.
    pub fn private(len_bytes: usize) -> Self {
        let mut lines = vec![Line([0; 64]); len_bytes.div_ceil(64).max(1)].into_boxed_slice();
        let start = NonNull::new(lines.as_mut_ptr().cast::<u8>()).expect("a box is not null");
        // SAFETY: the box is moved into `keep`, is aligned by `Line`, and nothing else refers to it.
        unsafe { Self::new(start, len_bytes, Arc::new(Owned(lines))) }
    }

    /// Its length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// The part of `len_bytes` bytes at `offset`, or `None` if it is not inside or not on a cache line.
    pub fn part(&self, offset: usize, len_bytes: usize) -> Option<Self> {
        let end = offset.checked_add(len_bytes)?;
        if end > self.len_bytes || !offset.is_multiple_of(crate::CACHE_LINE_BYTES) {
            return None;
        }
        // SAFETY: the offset is inside the range, so the sum is inside the same mapping.
        let start = unsafe { self.start.add(offset) };
        Some(Self { start, len_bytes, keep: Arc::clone(&self.keep) })
    }

    /// The 64-bit word at `offset`.
    ///
    /// # Panics
    /// If the word is not inside or not aligned: offsets are ours, never a peer's.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len_bytes, "the word is inside the memory");
        // SAFETY: inside the mapping, aligned, and only ever accessed as an atomic.
        unsafe { self.start.add(offset).cast::<AtomicU64>().as_ref() }
    }

    /// The 32-bit word at `offset`.
    ///
    /// # Panics
    /// If the word is not inside or not aligned.
    #[inline]
    pub fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len_bytes, "the word is inside the memory");
        // SAFETY: as for `word`.
        unsafe { self.start.add(offset).cast::<AtomicU32>().as_ref() }
    }

    /// The address of the byte at `offset`, for the structures of this crate.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.len_bytes);
        // SAFETY: callers pass offsets inside the range (checked above in debug builds).
        unsafe { self.start.as_ptr().add(offset) }
    }
}

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

/// Keeps the lines alive; they are only reached through the pointer taken before.
struct Owned(#[expect(dead_code, reason = "held for its memory")] Box<[Line]>);
