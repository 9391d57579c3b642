//! Ranges of the caller's memory, promised once at the face and used safely below it.

/// Bytes somebody promised to keep valid and unchanged, to be read.
#[derive(Clone, Copy, Debug)]
pub struct ReadRange {
    address: usize,
    len_bytes: usize,
}

/// Bytes somebody promised to keep valid and to leave alone, to be written.
#[derive(Clone, Copy, Debug)]
pub struct WriteRange {
    address: usize,
    len_bytes: usize,
}

impl ReadRange {
    /// A range starting at `start`.
    ///
    /// # Safety
    /// The bytes stay valid for reads, and nobody writes them, until the operation this range is given to has
    /// completed.
    pub unsafe fn new(start: *const u8, len_bytes: usize) -> Self {
        Self { address: start as usize, len_bytes }
    }

    /// Where the range starts in this process.
    pub fn address(self) -> usize {
        self.address
    }

    /// Its length in bytes.
    pub fn len_bytes(self) -> usize {
        self.len_bytes
    }

    /// `len_bytes` bytes from `offset` on, or `None` if they are not inside.
    pub fn part(self, offset: usize, len_bytes: usize) -> Option<Self> {
        within(self.len_bytes, offset, len_bytes).then(|| Self { address: self.address + offset, len_bytes })
    }
}

impl WriteRange {
    /// A range starting at `start`.
    ///
    /// # Safety
    /// The bytes stay valid for writes, and nobody else touches them, until the operation this range is given to
    /// has completed.
    pub unsafe fn new(start: *mut u8, len_bytes: usize) -> Self {
        Self { address: start as usize, len_bytes }
    }

    /// Where the range starts in this process.
    pub fn address(self) -> usize {
        self.address
    }

    /// Its length in bytes.
    pub fn len_bytes(self) -> usize {
        self.len_bytes
    }

    /// `len_bytes` bytes from `offset` on, or `None` if they are not inside.
    pub fn part(self, offset: usize, len_bytes: usize) -> Option<Self> {
        within(self.len_bytes, offset, len_bytes).then(|| Self { address: self.address + offset, len_bytes })
    }
}

fn within(total: usize, offset: usize, len: usize) -> bool {
    offset.checked_add(len).is_some_and(|end| end <= total)
}
