//! What a root shows to all others, piece by piece.

use engine::BOARD_PIECE_BYTES;

use super::LENGTH_BYTES;

/// Longest broadcast in one step.
pub const ONE_STEP_MAX_BYTES: u64 = 32 << 10;
/// Bytes of a piece. With the length it is longer than a broadcast in one step, and several have room.
const PIECE_BYTES: (usize, usize) = (ONE_STEP_MAX_BYTES as usize, BOARD_PIECE_BYTES - LENGTH_BYTES);

/// How a broadcast is cut into steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pieces {
    pub len_bytes: usize,
    piece_bytes: usize,
    pub count: usize,
}

impl Pieces {
    /// Of so many bytes; of none it is one empty step.
    pub fn of(len_bytes: usize) -> Self {
        let (least, most) = PIECE_BYTES;
        let piece_bytes = (len_bytes / 8).clamp(least, most) & !63;
        Self { len_bytes, piece_bytes, count: len_bytes.div_ceil(piece_bytes).max(1) }
    }

    /// Where a piece begins, and its length, in bytes.
    pub fn range(&self, piece: usize) -> (usize, usize) {
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
