//! Buffers as ranges of memory, for devices that move bytes themselves.

use base::memory::{ReadRange, WriteRange};

use crate::buffer::{RecvBuf, SendBuf};

impl SendBuf {
    /// The memory of a buffer that lies in one piece.
    pub fn range(&self) -> Option<ReadRange> {
        let bytes = self.as_contiguous()?;
        // SAFETY: whoever made the buffer promised its memory until the operation that holds it has completed, and a
        // device's work request is over before that.
        Some(unsafe { ReadRange::new(bytes.as_ptr(), bytes.len()) })
    }
}

impl RecvBuf {
    /// The memory of a buffer that lies in one piece.
    pub fn range(&mut self) -> Option<WriteRange> {
        let bytes = self.contiguous_mut()?;
        // SAFETY: as for `SendBuf::range`.
        Some(unsafe { WriteRange::new(bytes.as_mut_ptr(), bytes.len()) })
    }
}
