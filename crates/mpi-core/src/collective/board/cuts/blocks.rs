//! Blocks of one length from each to all, or from each to each.

use engine::{BOARD_PIECE_BYTES, BOARD_STEP_BYTES};

use super::{LENGTH_BYTES, TO_EACH_MAX_BYTES};
use crate::communicator::Comm;

/// Longest block where all members run at once: longer ones are faster copied straight from each to each.
const BLOCK_MAX_BYTES: u64 = 32 << 10;
/// The same of two members: by pieces, the copy in of one goes on beside the copy out of another.
const PAIR_BLOCK_MAX_BYTES: u64 = 256 << 10;
/// Longest block of a scatter where members do not all run at once: of a longer one two copies cost more than the turns.
const SCATTER_MAX_BYTES: u64 = 128 << 10;
/// Shortest block that is read straight from the memory of who has it, where members all run at once, if all read the same one:
/// so many bytes for each of them, for what the system does to let somebody read costs more the more do it, and nothing that
/// boards do not take.
const SAME_READ_MIN_BYTES: u64 = 4 << 10;
/// Shortest one of two members, who pass shorter ones on as fast over boards.
const PAIR_READ_MIN_BYTES: u64 = 48 << 10;
/// The same of more if each reads another one: so many bytes of one, and of all that a member has.
const EACH_READ_MIN_BYTES: (u64, u64) = (8 << 10, 48 << 10);
/// No shorter block is read straight by itself, whatever the ranks.
pub const READ_MIN_BYTES: u64 = EACH_READ_MIN_BYTES.0;
/// Lengths told behind what the first of several steps shows: of what the member brings, and of the longest block that it
/// knows of.
pub const LENGTHS: usize = 2;
/// Pieces are multiples of it: a line.
const PIECE_UNIT_BYTES: usize = 64;

/// Longest block of a collective whose members show `blocks` of them each, to each other. Where members do not all run at
/// once, boards are two to three times as fast as messages: each message waits for a turn of its sender and one of its
/// receiver, a step for one turn of each member, whatever it brings.
pub fn len_max_bytes(comm: &Comm, blocks: usize) -> u64 {
    match (comm.is_oversubscribed(), blocks) {
        (false, _) => BLOCK_MAX_BYTES.min(most_bytes(BOARD_STEP_BYTES, blocks, PIECE_UNIT_BYTES) as u64),
        (true, 1) => u64::MAX,
        (true, _) => TO_EACH_MAX_BYTES / blocks as u64,
    }
}

/// Shortest block that is read straight by itself, of blocks of which a member has so many: none where members do not all run at
/// once.
pub fn read_min_bytes(comm: &Comm, blocks: usize) -> u64 {
    if comm.is_oversubscribed() { u64::MAX } else { read_min_of(comm.size(), blocks) }
}

/// The same where all run at once.
fn read_min_of(ranks: u32, blocks: usize) -> u64 {
    let (each_min, all_min) = EACH_READ_MIN_BYTES;
    match blocks {
        1 if ranks == 2 => PAIR_READ_MIN_BYTES,
        1 => (SAME_READ_MIN_BYTES * u64::from(ranks)).min(BLOCK_MAX_BYTES + 1),
        _ => all_min.div_ceil(blocks as u64).max(each_min),
    }
}

/// Whom the blocks are for that a member shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// One block for all.
    All,
    /// One for each of the others.
    Each,
}

/// What is known of all blocks of a call before their length.
#[derive(Clone, Copy)]
pub struct Cut {
    /// How many a member shows.
    pub blocks: usize,
    /// Pieces of them are multiples of so many bytes.
    unit_bytes: usize,
    /// The longest that goes over boards.
    pub max_bytes: u64,
    /// Bytes of a step at most.
    step_bytes: usize,
}

impl Cut {
    /// Of bytes that nothing holds together, from each to each.
    pub fn of(comm: &Comm, blocks: usize) -> Self {
        let max_bytes = if is_pair(comm) { PAIR_BLOCK_MAX_BYTES } else { len_max_bytes(comm, blocks) };
        Self::in_units(comm, blocks, PIECE_UNIT_BYTES, max_bytes)
    }

    /// To a root.
    pub fn to_root(comm: &Comm) -> Self {
        let cut = Self::of(comm, 1);
        if comm.size() == 2 { cut.unlimited() } else { cut }
    }

    /// From a root.
    pub fn from_root(comm: &Comm) -> Self {
        let cut = Self::of(comm, comm.size() as usize - 1);
        match (comm.is_oversubscribed(), comm.size()) {
            (true, _) => Self { max_bytes: cut.max_bytes.min(SCATTER_MAX_BYTES), ..cut },
            (false, 2) => cut.unlimited(),
            (false, _) => cut,
        }
    }

    /// Of elements of so many bytes.
    pub fn of_elements(comm: &Comm, blocks: usize, size: usize) -> Self {
        Self::in_units(comm, blocks, size, len_max_bytes(comm, blocks))
    }

    /// True if blocks of so many bytes take one step, and are too short for another way to be thought of.
    pub fn takes_one_step(&self, block_bytes: u64) -> bool {
        let is_short = block_bytes < READ_MIN_BYTES && block_bytes <= self.max_bytes;
        is_short && Steps::of(block_bytes as usize, self).count == 1
    }

    /// The same of blocks of any length.
    pub fn unlimited(self) -> Self {
        Self { max_bytes: u64::MAX, ..self }
    }

    /// Of two members that run at once, one reads a piece while the other writes the next; elsewhere each step costs a turn
    /// of everyone.
    fn in_units(comm: &Comm, blocks: usize, unit_bytes: usize, max_bytes: u64) -> Self {
        let has_room = most_bytes(BOARD_PIECE_BYTES, blocks, unit_bytes) > 0;
        let step_bytes = if has_room && is_pair(comm) { BOARD_PIECE_BYTES } else { BOARD_STEP_BYTES };
        Self { blocks, unit_bytes, max_bytes, step_bytes }
    }
}

/// True of two members that run at once.
pub fn is_pair(comm: &Comm) -> bool {
    comm.size() == 2 && !comm.is_oversubscribed()
}

/// True if an element of so many bytes of each of `blocks` blocks fits a step.
pub fn has_room(blocks: usize, size: usize) -> bool {
    most_bytes(BOARD_STEP_BYTES, blocks, size) > 0
}

/// Longest piece of each of `blocks` blocks in a step of so many bytes; 0 if no unit of all of them fits.
fn most_bytes(step_bytes: usize, blocks: usize, unit_bytes: usize) -> usize {
    (step_bytes - LENGTHS * LENGTH_BYTES) / blocks / unit_bytes * unit_bytes
}

/// How blocks of one length are cut into steps: each shows a piece of all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steps {
    block_bytes: usize,
    piece_bytes: usize,
    pub count: usize,
}

impl Steps {
    /// Of blocks of so many bytes, in pieces of whole units; of none it is one empty step.
    pub fn of(block_bytes: usize, cut: &Cut) -> Self {
        let most = most_bytes(cut.step_bytes, cut.blocks, cut.unit_bytes);
        let even = block_bytes.div_ceil(block_bytes.div_ceil(most).max(1));
        let piece_bytes = even.next_multiple_of(cut.unit_bytes).max(cut.unit_bytes);
        Self { block_bytes, piece_bytes, count: block_bytes.div_ceil(piece_bytes).max(1) }
    }

    /// Where a piece begins, and its length, in bytes of each block.
    pub fn range(&self, piece: usize) -> (usize, usize) {
        let offset = piece * self.piece_bytes;
        (offset, self.piece_bytes.min(self.block_bytes - offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::board::RANKS_MAX;

    /// As it was measured where 16 processes, or two, all ran at once.
    #[test]
    fn what_is_read_straight_is_what_is_faster_so() {
        let of_one = [2, 4, 8, 16].map(|ranks| read_min_of(ranks, 1));
        assert_eq!(of_one, [48 << 10, 16 << 10, 32 << 10, (32 << 10) + 1]);
        assert_eq!([4, 8, 16].map(|ranks| read_min_of(ranks, ranks as usize - 1)), [16 << 10, 8 << 10, 8 << 10]);
        for ranks in 2..=RANKS_MAX {
            let least = read_min_of(ranks, 1).min(read_min_of(ranks, ranks as usize - 1));
            assert!(least >= READ_MIN_BYTES, "{ranks}");
        }
    }

    #[test]
    fn pieces_cover_the_blocks_and_fit_a_step() {
        for blocks in [1, 2, 3, 7, 31, RANKS_MAX as usize - 1] {
            for (unit_bytes, step_bytes) in [(PIECE_UNIT_BYTES, BOARD_PIECE_BYTES), (12, BOARD_STEP_BYTES)] {
                let cut = Cut { blocks, unit_bytes, max_bytes: u64::MAX, step_bytes };
                let most = most_bytes(step_bytes, blocks, unit_bytes);
                for block_bytes in [1, 63, 64, most - 1, most, most + 1, 2 * most, 3 * most + 5, 10_000_019] {
                    let steps = Steps::of(block_bytes, &cut);
                    let mut next = 0;
                    for piece in 0..steps.count {
                        let (offset, len_bytes) = steps.range(piece);
                        assert_eq!(offset, next);
                        assert!(
                            offset % unit_bytes == 0
                                && len_bytes > 0
                                && blocks * len_bytes + LENGTHS * LENGTH_BYTES <= step_bytes
                        );
                        next += len_bytes;
                    }
                    assert_eq!(next, block_bytes);
                    assert_eq!(steps.count, block_bytes.div_ceil(most), "no more steps than need be");
                }
            }
        }
    }
}
