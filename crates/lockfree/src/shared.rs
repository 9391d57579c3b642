//! Memory that other processes see.

#[cfg(loom)]
pub use model::{SharedMemory, SharedWord};
#[cfg(not(loom))]
pub use real::{SharedMemory, SharedWord};

/// Tests let a process die between two accesses to words: what it does afterwards comes to nothing.
#[cfg(all(test, not(loom)))]
pub(crate) mod dying {
    use std::cell::Cell;

    use base::sync::AtomicU64;

    thread_local! {
        /// Accesses that this thread has left, if it is to die.
        pub(crate) static AFTER: Cell<Option<u32>> = const { Cell::new(None) };
    }

    pub(super) fn is_dead() -> bool {
        match AFTER.get() {
            Some(0) => true,
            left => {
                AFTER.set(left.map(|left| left - 1));
                false
            }
        }
    }

    /// A word that nobody else sees.
    pub(super) fn nowhere() -> &'static AtomicU64 {
        Box::leak(Box::new(AtomicU64::new(0)))
    }
}

#[cfg(not(loom))]
mod real {
    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
    use std::any::Any;
    use std::ops::Deref;
    use std::ptr::NonNull;
    use std::sync::Arc;

    use base::sync::{AtomicU32, AtomicU64};
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

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

    /// One word of such memory, kept mapped, for who comes back to it again and again.
    #[derive(Clone)]
    pub struct SharedWord {
        word: NonNull<AtomicU64>,
        _keep: Arc<dyn Any + Send + Sync>,
    }

    // SAFETY: as for the memory it is of.
    unsafe impl Send for SharedWord {}
    // SAFETY: as above.
    unsafe impl Sync for SharedWord {}

    impl Deref for SharedWord {
        type Target = AtomicU64;

        #[inline]
        fn deref(&self) -> &AtomicU64 {
            // SAFETY: a word of a mapping that `_keep` keeps, only ever accessed as an atomic.
            unsafe { self.word.as_ref() }
        }
    }

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
            let owned = Owned::zeroed(len_bytes);
            // SAFETY: as long and as aligned as asked for; nothing but `keep` refers to it, which only frees it.
            unsafe { Self::new(owned.start, len_bytes, Arc::new(owned)) }
        }

        /// Its length in bytes.
        pub fn len_bytes(&self) -> usize {
            self.len_bytes
        }

        /// Its first byte in this process: a pointer that reaches all of it, as one made of a word's address does not.
        pub fn start(&self) -> NonNull<u8> {
            self.start
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
            #[cfg(test)]
            if super::dying::is_dead() {
                return super::dying::nowhere();
            }
            // SAFETY: inside the mapping, aligned, and only ever accessed as an atomic.
            unsafe { self.start.add(offset).cast::<AtomicU64>().as_ref() }
        }

        /// The same word, to be kept.
        ///
        /// # Panics
        /// As [`SharedMemory::word`].
        pub fn keep_word(&self, offset: usize) -> SharedWord {
            SharedWord { word: NonNull::from(self.word(offset)), _keep: Arc::clone(&self.keep) }
        }

        /// The `N` 64-bit words from `offset` on.
        ///
        /// # Panics
        /// If they are not inside or not aligned.
        #[inline]
        pub(crate) fn words<const N: usize>(&self, offset: usize) -> &[AtomicU64; N] {
            let is_inside = self.len_bytes.checked_sub(N * 8).is_some_and(|last| offset <= last);
            assert!(offset.is_multiple_of(8) && is_inside, "the words are inside the memory");
            // SAFETY: inside the mapping, aligned, and only ever accessed as atomics.
            unsafe { self.start.add(offset).cast::<[AtomicU64; N]>().as_ref() }
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

        /// Has the system provide the whole pages of a range in one go, which are met one by one otherwise, at the cost of
        /// a fault each; nothing else happens, and nothing at all where the system knows no such wish (miri has no pages).
        pub(crate) fn populate(&self, offset: usize, len_bytes: usize) {
            let len_bytes = len_bytes.min(self.len_bytes.saturating_sub(offset));
            let page_bytes = rustix::param::page_size();
            let skipped = (self.start.as_ptr() as usize + offset).wrapping_neg() % page_bytes;
            let len_bytes = len_bytes.saturating_sub(skipped) / page_bytes * page_bytes;
            if len_bytes == 0 || cfg!(miri) {
                return;
            }
            let advice = rustix::mm::Advice::LinuxPopulateWrite;
            let first = self.start.as_ptr().wrapping_add(offset + skipped).cast();
            // Older systems provide pages when they are met.
            // SAFETY: the pages lie inside the range, which stays mapped, and what they hold does not change.
            let _ = unsafe { rustix::mm::madvise(first, len_bytes, advice) };
        }

        /// Asks the processor for the cache line at `offset`, which will be written; nothing else happens.
        #[inline]
        pub(crate) fn prefetch_to_write(&self, offset: usize) {
            debug_assert!(offset < self.len_bytes, "the line is inside the memory");
            base::streaming::prefetch_to_write(self.start.as_ptr().wrapping_add(offset));
        }

        /// Asks for the line at `offset`, which will be read soon.
        #[inline]
        pub(crate) fn prefetch_to_read(&self, offset: usize) {
            debug_assert!(offset < self.len_bytes, "the line is inside the memory");
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: a hint that touches no memory and faults at no address.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(self.start.as_ptr().wrapping_add(offset).cast());
            }
            #[cfg(not(all(target_arch = "x86_64", not(miri))))]
            let _ = offset;
        }

        /// Lets `fill` write `len_bytes` bytes at `offset`.
        ///
        /// # Safety
        /// Nobody else reads or writes them until the caller publishes them.
        #[inline]
        pub(crate) unsafe fn write(&self, offset: usize, len_bytes: usize, fill: impl FnOnce(&mut [u8])) {
            assert!(offset + len_bytes <= self.len_bytes, "the bytes are inside the memory");
            // SAFETY: inside the mapping by the check above.
            let start = unsafe { self.start.as_ptr().add(offset) };
            // SAFETY: the bytes are the caller's alone.
            fill(unsafe { std::slice::from_raw_parts_mut(start, len_bytes) });
        }

        /// Lets `take` read `len_bytes` bytes at `offset`.
        ///
        /// # Safety
        /// Whoever keeps to the protocol does not write them while `take` runs.
        #[inline]
        pub(crate) unsafe fn read(&self, offset: usize, len_bytes: usize, take: impl FnOnce(&[u8])) {
            assert!(offset + len_bytes <= self.len_bytes, "the bytes are inside the memory");
            // SAFETY: inside the mapping by the check above.
            let start = unsafe { self.start.as_ptr().add(offset) };
            // SAFETY: published to the caller, who has not given them back.
            take(unsafe { std::slice::from_raw_parts(start, len_bytes) });
        }
    }

    /// Memory from the allocator. It is no box: whoever moves a box says that no other pointer reaches what is in it.
    /// From so many bytes on memory is the system's pages, which are there when they are touched; the allocator writes
    /// zeroes to all of it.
    const PAGES_MIN_BYTES: usize = 32 << 10;

    struct Owned {
        start: NonNull<u8>,
        layout: Layout,
    }

    // SAFETY: bytes of the allocator or pages, which any thread may free.
    unsafe impl Send for Owned {}
    // SAFETY: a reference to it gives no access to the bytes.
    unsafe impl Sync for Owned {}

    impl Owned {
        fn zeroed(len_bytes: usize) -> Self {
            let layout = Layout::from_size_align(len_bytes.max(1), crate::CACHE_LINE_BYTES)
                .expect("a length that the address space has room for")
                .pad_to_align();
            let start = if Self::is_pages(layout) {
                let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
                // SAFETY: new pages, at a place of the system's choice.
                let start = unsafe { mmap_anonymous(std::ptr::null_mut(), layout.size(), access, flags) };
                start.map_or(std::ptr::null_mut(), <*mut _>::cast)
            } else {
                // SAFETY: the length is not zero.
                unsafe { alloc_zeroed(layout) }
            };
            Self { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)), layout }
        }

        fn is_pages(layout: Layout) -> bool {
            layout.size() >= PAGES_MIN_BYTES && !cfg!(miri)
        }
    }

    impl Drop for Owned {
        fn drop(&mut self) {
            if Self::is_pages(self.layout) {
                // Pages that were mapped with this length can be unmapped.
                // SAFETY: mapped when this was made, and unmapped here alone.
                let _ = unsafe { munmap(self.start.as_ptr().cast(), self.layout.size()) };
            } else {
                // SAFETY: allocated with this layout when this was made, and freed here alone.
                unsafe { dealloc(self.start.as_ptr(), self.layout) };
            }
        }
    }
}

/// The same memory under loom: atomics that loom schedules, and bytes whose every access loom checks for races.
#[cfg(loom)]
mod model {
    use std::sync::Arc;

    use base::sync::{AtomicU32, AtomicU64};
    use loom::cell::UnsafeCell;

    /// Memory of the model; see the real one for what its methods promise.
    #[derive(Clone)]
    pub struct SharedMemory {
        cells: Arc<Cells>,
        start: usize,
        len_bytes: usize,
    }

    struct Cells {
        words: Vec<AtomicU64>,
        halves: Vec<AtomicU32>,
        lines: Vec<UnsafeCell<[u8; 64]>>,
    }

    // SAFETY: loom runs one thread at a time and reports unsynchronised access to a line as a failure.
    unsafe impl Send for SharedMemory {}
    // SAFETY: as above.
    unsafe impl Sync for SharedMemory {}

    /// A word that is kept.
    #[derive(Clone)]
    pub struct SharedWord {
        memory: SharedMemory,
        offset: usize,
    }

    impl std::ops::Deref for SharedWord {
        type Target = AtomicU64;

        fn deref(&self) -> &AtomicU64 {
            self.memory.word(self.offset)
        }
    }

    impl SharedMemory {
        /// Zeroed memory.
        pub fn private(len_bytes: usize) -> Self {
            let cells = Cells {
                words: (0..len_bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect(),
                halves: (0..len_bytes.div_ceil(4)).map(|_| AtomicU32::new(0)).collect(),
                lines: (0..len_bytes.div_ceil(64)).map(|_| UnsafeCell::new([0; 64])).collect(),
            };
            Self { cells: Arc::new(cells), start: 0, len_bytes }
        }

        /// Its length in bytes.
        pub fn len_bytes(&self) -> usize {
            self.len_bytes
        }

        /// A part of it.
        pub fn part(&self, offset: usize, len_bytes: usize) -> Option<Self> {
            (offset + len_bytes <= self.len_bytes).then(|| Self {
                cells: Arc::clone(&self.cells),
                start: self.start + offset,
                len_bytes,
            })
        }

        /// A word. Words and halves of one place are different cells: no structure uses both.
        pub fn word(&self, offset: usize) -> &AtomicU64 {
            &self.cells.words[(self.start + offset) / 8]
        }

        /// A word to be kept.
        pub fn keep_word(&self, offset: usize) -> SharedWord {
            SharedWord { memory: self.clone(), offset }
        }

        /// Words that follow each other.
        pub(crate) fn words<const N: usize>(&self, offset: usize) -> &[AtomicU64; N] {
            let first = (self.start + offset) / 8;
            self.cells.words[first..first + N].try_into().expect("as many")
        }

        /// There are no pages here.
        pub(crate) fn populate(&self, _offset: usize, _len_bytes: usize) {}

        /// No hints are taken here.
        pub(crate) fn prefetch_to_write(&self, _offset: usize) {}

        pub(crate) fn prefetch_to_read(&self, _offset: usize) {}

        /// A half word.
        pub fn half(&self, offset: usize) -> &AtomicU32 {
            &self.cells.halves[(self.start + offset) / 4]
        }

        pub(crate) unsafe fn write(&self, offset: usize, len_bytes: usize, fill: impl FnOnce(&mut [u8])) {
            let mut bytes = Vec::new();
            // SAFETY: as below.
            unsafe { self.read(offset, len_bytes, |present| bytes.extend_from_slice(present)) };
            fill(&mut bytes);
            for (index, byte) in bytes.into_iter().enumerate() {
                let at = self.start + offset + index;
                // SAFETY: loom fails the model if another thread may access the line at the same time.
                self.cells.lines[at / 64].with_mut(|line| unsafe { (*line)[at % 64] = byte });
            }
        }

        pub(crate) unsafe fn read(&self, offset: usize, len_bytes: usize, take: impl FnOnce(&[u8])) {
            let bytes: Vec<u8> = (0..len_bytes)
                .map(|index| {
                    let at = self.start + offset + index;
                    // SAFETY: as in `write`.
                    self.cells.lines[at / 64].with(|line| unsafe { (*line)[at % 64] })
                })
                .collect();
            take(&bytes);
        }
    }
}
