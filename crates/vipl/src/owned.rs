//! Memory of way 2 that is owned and registered in one, so that nothing need be promised.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use base::memory::WriteRange;

use crate::descriptor::{DataSegment, MemoryHandle};
use crate::memory::MemoryAttributes;
use crate::nic::Nic;
use crate::status::Error;

/// Registered words of this process, with a shadow segment (way 2); taken back when dropped.
pub struct OwnedMemory {
    /// No box: whoever moves a box says that no other pointer reaches what is in it, and transfers write to these words.
    words: Vec<AtomicU64>,
    handle: MemoryHandle,
    nic: Nic,
}

impl Nic {
    /// Registers so many zeroed words of its own making (way 2).
    ///
    /// # Errors
    /// As [`Nic::register`].
    pub fn register_owned(&self, words: usize, attributes: MemoryAttributes) -> Result<OwnedMemory, Error> {
        let mut words: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        // SAFETY: atomics may be written behind a shared reference, and live until they are deregistered: `drop` gives them up
        // rather than freeing them before. Who loads a word while a transfer writes it may see it half written, as with any
        // memory that a device writes; each word of it is whole or still old where the transfer is aligned.
        let range = unsafe { WriteRange::new(words.as_mut_ptr().cast(), size_of_val(&*words)) };
        let handle = self.register(range, attributes)?;
        Ok(OwnedMemory { words, handle, nic: self.clone() })
    }
}

impl OwnedMemory {
    /// Its handle.
    pub fn handle(&self) -> MemoryHandle {
        self.handle
    }

    /// The virtual address of its first byte.
    pub fn address(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    /// `len_bytes` bytes from `offset` on, as a data segment.
    pub fn segment(&self, offset: usize, len_bytes: u32) -> DataSegment {
        DataSegment { address: self.address() + offset as u64, handle: self.handle, len_bytes }
    }

    /// Loads a word.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn load(&self, word: usize) -> u64 {
        self.words[word].load(Acquire)
    }

    /// Stores a word.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn store(&self, word: usize, value: u64) {
        self.words[word].store(value, Release);
    }
}

impl Drop for OwnedMemory {
    fn drop(&mut self) {
        if self.nic.deregister(self.address(), self.handle).is_err() {
            // A descriptor that is not complete may still be written to: the words stay for ever.
            std::mem::forget(std::mem::take(&mut self.words));
        }
    }
}
