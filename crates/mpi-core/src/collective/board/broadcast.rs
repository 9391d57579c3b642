//! Broadcasts: the root shows, all others read, piece by piece.

use datatype::{RecvBuf, SendBuf};
use engine::BOARD_PIECE_BYTES;

use super::{LENGTH_BYTES, Table};
use crate::collective::arguments::Buffer;
use crate::communicator::Comm;
use crate::error::Result;

/// Longest broadcast in one step.
const ONE_STEP_MAX_BYTES: u64 = 32 << 10;
/// Ranks from which on a longer one goes by pieces: with two of them it is faster copied straight from the root.
const PIECES_RANKS_MIN: u32 = 3;
/// Steps of a piece's length that have room at a time.
const PIECES_AT_ONCE: usize = 8;
/// Bytes of a piece. With the length it is longer than a broadcast in one step, and several have room.
const PIECE_BYTES: (usize, usize) = (ONE_STEP_MAX_BYTES as usize, BOARD_PIECE_BYTES - LENGTH_BYTES);

/// Longest broadcast that goes over boards.
pub(super) fn len_max_bytes(comm: &Comm) -> u64 {
    if comm.size() >= PIECES_RANKS_MIN { u64::MAX } else { ONE_STEP_MAX_BYTES }
}

impl Table<'_> {
    /// `None` if messages are to do it.
    pub(super) fn bcast(self, root: usize, buffer: &Buffer<datatype::UserMemoryMut>) -> Result<Option<()>> {
        let Buffer { memory, count, datatype } = buffer;
        let len_bytes = count * datatype.size();
        if len_bytes > len_max_bytes(self.comm) {
            return self.leave_to_messages("MPI_Bcast", Some(root), len_bytes);
        }
        let outcome = if root == self.me() {
            self.show_pieces(&memory.send(0, *count, datatype))
        } else {
            self.read_pieces(root, len_bytes as usize, &mut memory.recv(0, *count, datatype))
        };
        outcome.map(Some)
    }

    /// The root's part of a broadcast.
    fn show_pieces(self, content: &SendBuf) -> Result<()> {
        let pieces = Pieces::of(content.len_bytes() as usize);
        let mut step = 0;
        for piece in 0..pieces.count {
            let (offset, len_bytes) = pieces.range(piece);
            let whole_bytes = (pieces.len_bytes as u64).to_ne_bytes();
            let told = if piece == 0 && pieces.count > 1 { &whole_bytes[..] } else { &[] };
            step = self.group.next_step();
            self.show(step, &[content.slice(offset as u64, len_bytes as u64)], told)?;
        }
        self.group.finish_lone(&self.world.engine.borrow(), step, None);
        Ok(())
    }

    /// The part of all others. Who expects another length than the root has follows it through all of its steps, so that
    /// what comes next is not mistaken for one of them.
    fn read_pieces(self, root: usize, own_bytes: usize, into: &mut RecvBuf) -> Result<()> {
        let mut outcome = Ok(());
        let mut pieces = Pieces::of(own_bytes);
        let mut piece = 0;
        while piece < pieces.count {
            let step = self.group.next_step();
            self.wait(|| self.group.is_shown(root, step))?;
            if piece == 0 {
                pieces = Pieces::of(self.broadcast_bytes(root, step));
                if pieces.len_bytes != own_bytes {
                    outcome = Err(self.shorter(root, pieces.len_bytes, "MPI_Bcast"));
                }
                if pieces.len_bytes as u64 > len_max_bytes(self.comm) {
                    // It would leave it to messages if all did, for whom it waits.
                    return self.leave_reading(step, own_bytes as u64, outcome);
                }
            }
            let (offset, len_bytes) = pieces.range(piece);
            if outcome.is_ok() {
                let whole = self.group.read(root, step, 0, len_bytes, |bytes| {
                    into.unpack_at(offset as u64, bytes);
                });
                if !whole {
                    outcome = Err(self.shorter(root, pieces.len_bytes, "MPI_Bcast"));
                }
            }
            // For the room of a piece only the root waits, until all is shown; for that of the last ones whoever shows
            // something next.
            let only = Some(root).filter(|_| piece + PIECES_AT_ONCE < pieces.count);
            self.group.finish_lone(&self.world.engine.borrow(), step, only);
            piece += 1;
        }
        outcome
    }

    /// Bytes of the broadcast whose first piece the root shows as `step`.
    fn broadcast_bytes(self, root: usize, step: u64) -> usize {
        self.told(root, step).map_or(self.group.len_bytes(root, step), |[len_bytes]| len_bytes as usize)
    }
}

/// How a broadcast is cut into steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pieces {
    len_bytes: usize,
    piece_bytes: usize,
    count: usize,
}

impl Pieces {
    /// Of so many bytes; of none it is one empty step.
    fn of(len_bytes: usize) -> Self {
        let (least, most) = PIECE_BYTES;
        let piece_bytes = (len_bytes / 8).clamp(least, most) & !63;
        Self { len_bytes, piece_bytes, count: len_bytes.div_ceil(piece_bytes).max(1) }
    }

    /// Where a piece begins, and its length, in bytes.
    fn range(&self, piece: usize) -> (usize, usize) {
        let offset = piece * self.piece_bytes;
        (offset, self.piece_bytes.min(self.len_bytes - offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_of_a_broadcast_tells_whether_there_are_more() {
        let one = ONE_STEP_MAX_BYTES as usize;
        for len_bytes in [1, 63, one - 1, one, one + 1, 2 * one, 100_000, 8 * one + 7, 1 << 20, (1 << 26) + 5] {
            let pieces = Pieces::of(len_bytes);
            let mut next = 0;
            for piece in 0..pieces.count {
                let (offset, len) = pieces.range(piece);
                assert_eq!(offset, next);
                assert!(len > 0);
                next += len;
            }
            assert_eq!(next, len_bytes);
            let told = if pieces.count > 1 { LENGTH_BYTES } else { 0 };
            let first = pieces.range(0).1 + told;
            assert_eq!(first > one, pieces.count > 1, "{len_bytes}");
            assert!(first <= BOARD_PIECE_BYTES, "several have room");
        }
    }
}
