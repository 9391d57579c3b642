//! Memory of this process, to be registered: the one place here that makes a promise about memory.

use base::memory::WriteRange;
use fabric::LocalMemory;

/// Bytes that stay where they are, are touched once, and that nobody looks at while a device may write to them.
pub struct Private {
    words: Box<[std::cell::UnsafeCell<u64>]>,
    len_bytes: usize,
}

impl Private {
    /// So many zeroed bytes.
    pub fn new(len_bytes: usize) -> Self {
        let words: Vec<_> = (0..len_bytes.div_ceil(8).max(1)).map(|_| std::cell::UnsafeCell::new(0)).collect();
        Self { words: words.into_boxed_slice(), len_bytes }
    }

    /// For registering. The region must be deregistered before this is dropped; [`super::costs`] does so at once.
    #[allow(unsafe_code)]
    pub fn as_target(&self) -> LocalMemory {
        // The cells were made for being written to behind a shared reference.
        let start = self.words.as_ptr().cast_mut().cast::<u8>();
        // SAFETY: the bytes are allocated, writable through the cells, never read by anybody else, and live as long as
        // `self`, which outlives every registration made here.
        LocalMemory::Target(unsafe { WriteRange::new(start, self.len_bytes) })
    }
}
