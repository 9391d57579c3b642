//! Where a sender's writes go: memory of its receiver that is mapped here, or that an adapter writes.

use base::sync::Ordering;

use super::CONTROL_BYTES;
use crate::SharedMemory;

/// One record as it will lie in the receiver's memory; all places count from the start of the channel.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// The first byte: whoever carries whole writes carries everything from here to the end of the flag.
    pub start: usize,
    /// Words beside the payload and where they go.
    pub words: &'a [(usize, u64)],
    /// Where the payload begins.
    pub payload_at: usize,
    /// Length of the payload in bytes.
    pub len_bytes: usize,
    /// Where the flag goes; everything else lies before it.
    pub flag_at: usize,
    /// The flag, seen last.
    pub flag: u64,
}

/// Memory of a receiver, as its sender writes it.
pub trait Target {
    /// Writes a record whose payload `fill` gives; its flag is seen last.
    fn write(&mut self, image: &Image<'_>, fill: impl FnOnce(&mut [u8]));

    /// Writes one word, seen after everything before it.
    fn write_word(&mut self, at: usize, value: u64);

    /// What was last written at `at`, where a copy is kept. Paper: veloblock §4.3.
    fn previous(&self, at: usize) -> u64;

    /// A word of the control line, as the receiver left it.
    fn control(&self, at: usize) -> u64;
}

/// The receiver's memory is mapped here: a write is a store. With a mirror every payload is put there first, as designs
/// need it whose sender must know what it wrote before.
pub struct Mapped {
    memory: SharedMemory,
    mirror: Option<SharedMemory>,
}

impl Mapped {
    /// A target in `memory`, zeroed before its first use.
    pub fn new(memory: SharedMemory) -> Self {
        Self { memory, mirror: None }
    }

    /// As [`Mapped::new`], with a copy of its first `len_bytes` here.
    pub fn mirrored(memory: SharedMemory, len_bytes: usize) -> Self {
        Self { memory, mirror: Some(SharedMemory::private(len_bytes)) }
    }
}

impl Target for Mapped {
    fn write(&mut self, image: &Image<'_>, fill: impl FnOnce(&mut [u8])) {
        let (at, len) = (image.payload_at, image.len_bytes);
        match &self.mirror {
            None => {
                // SAFETY: the receiver has given this place back (the caller looked) and does not read it before it
                // sees the flag; nobody else writes the channel.
                unsafe { self.memory.write(at, len, fill) };
            }
            Some(mirror) => {
                // SAFETY: the mirror is this sender's alone.
                unsafe { mirror.write(at, len, fill) };
                for (at, word) in image.words {
                    mirror.word(*at).store(*word, Ordering::Relaxed);
                }
                mirror.word(image.flag_at).store(image.flag, Ordering::Relaxed);
                let carry = |from: &[u8]| {
                    // SAFETY: as above, for a channel without a mirror.
                    unsafe { self.memory.write(at, len, |into| base::streaming::copy(into, from)) };
                };
                // SAFETY: written above, by this thread.
                unsafe { mirror.read(at, len, carry) };
            }
        }
        for (at, word) in image.words {
            self.memory.word(*at).store(*word, Ordering::Relaxed);
        }
        // Release: who sees the flag sees the record. Pairs with the load in `pop`.
        self.memory.word(image.flag_at).store(image.flag, Ordering::Release);
    }

    fn write_word(&mut self, at: usize, value: u64) {
        if let Some(mirror) = &self.mirror {
            mirror.word(at).store(value, Ordering::Relaxed);
        }
        // Release: seen after what was written before.
        self.memory.word(at).store(value, Ordering::Release);
    }

    fn previous(&self, at: usize) -> u64 {
        self.mirror.as_ref().map_or(0, |mirror| mirror.word(at).load(Ordering::Relaxed))
    }

    fn control(&self, at: usize) -> u64 {
        debug_assert!(at < CONTROL_BYTES);
        // Acquire: what was given back is not read any more. Pairs with the store in `Returns::settle`.
        self.memory.word(at).load(Ordering::Acquire)
    }
}
