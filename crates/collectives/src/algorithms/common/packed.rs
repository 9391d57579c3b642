//! A buffer as plain bytes that can be cut anywhere.

use crate::builder::Builder;
use crate::data::Data;
use crate::schedule::{BufferId, Region, TypeSlot};

/// Bytes of a broadcast: in the caller's buffer where its type is contiguous, packed otherwise.
///
/// Ranks may see the same data through different types, so cuts must not depend on elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed {
    buffer: BufferId,
    len_bytes: u64,
}

impl Packed {
    /// Packs where need be; `filled` says that the caller's buffer holds the data already.
    pub(crate) fn open(b: &mut Builder, data: &Data, filled: bool) -> Packed {
        let len_bytes = data.len_bytes();
        if data.shape().contiguous {
            return Packed { buffer: BufferId::Recv, len_bytes };
        }
        let buffer = b.temp_bytes(len_bytes);
        if filled {
            b.copy(whole(data), Region::bytes(buffer, 0, len_bytes));
        }
        Packed { buffer, len_bytes }
    }

    /// The bytes from `from` up to `to`, as far as there are any.
    pub(crate) fn cut(&self, from: u64, to: u64) -> Region {
        let (from, to) = (from.min(self.len_bytes), to.min(self.len_bytes));
        Region::bytes(self.buffer, from, to.saturating_sub(from))
    }

    /// Unpacks where need be.
    pub(crate) fn close(&self, b: &mut Builder, data: &Data) {
        if self.buffer != BufferId::Recv {
            b.copy(Region::bytes(self.buffer, 0, self.len_bytes), whole(data));
        }
    }
}

fn whole(data: &Data) -> Region {
    data.elements(BufferId::Recv, TypeSlot::Recv, 0, data.count())
}
