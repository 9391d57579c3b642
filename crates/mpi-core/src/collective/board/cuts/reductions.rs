//! Operands from each, of which everyone reduces all, or a part for all, or which are added to one value in turn.

use base::streaming::LINE_BYTES;
use engine::{BOARD_COMMON_BYTES, BOARD_COMMON_PIECES, BOARD_PIECE_BYTES, BOARD_STEP_BYTES};

use super::LENGTH_BYTES;
use super::blocks::LENGTHS;
use crate::communicator::Comm;

/// Up to so many bytes of all inputs together, whoever wants the value reduces everything.
const REDUCE_ALL_MAX_BYTES: u64 = 16 << 10;
/// The same of two inputs: there is as much to read as if each reduced a half for both.
const PAIR_REDUCE_ALL_MAX_BYTES: u64 = 64 << 10;
/// The same of a reduction to a root where members do not all run at once: nobody but the root waits for a turn.
const TURNS_REDUCE_ALL_MAX_BYTES: u64 = 256 << 10;
/// Shortest part of which the operands are read straight from the memory of who has them where members all run at once:
/// shorter ones are faster over boards, whose contents are reduced where they stand.
const PART_READ_MIN_BYTES: u64 = 32 << 10;
/// Shortest piece of a reduction in a chain that has several.
const LINK_MIN_BYTES: u64 = 16 << 10;
/// Bytes reduced at a time: operand and value stay in a first-level cache.
const BLOCK_BYTES: u64 = 8 << 10;
/// Most bytes of an element.
pub const ELEMENT_MAX_BYTES: u64 = (BOARD_STEP_BYTES - LENGTHS * LENGTH_BYTES) as u64;

/// Elements that are reduced at a time: of short ones whole lines.
pub fn block_of(size: u64) -> u64 {
    let (count, line) = ((BLOCK_BYTES / size).max(1), LINE_BYTES as u64);
    if count > line { count / line * line } else { count }
}

/// True if a reduction of so many bytes, to a root or to all, takes one step.
pub fn is_brief(comm: &Comm, len_bytes: u64, has_root: bool) -> bool {
    let (ranks, takes_turns) = (comm.size(), comm.is_oversubscribed());
    let max_bytes = match ranks {
        2 => PAIR_REDUCE_ALL_MAX_BYTES,
        _ if has_root && takes_turns => TURNS_REDUCE_ALL_MAX_BYTES,
        _ => REDUCE_ALL_MAX_BYTES,
    };
    // What is one piece of a chain has a member wait for each of those before it.
    let least = if takes_turns { LINK_MIN_BYTES } else { engine::BOARD_SHORT_BYTES as u64 };
    len_bytes <= least || len_bytes.saturating_mul(ranks.into()) <= max_bytes
}

/// Shortest part of a reduction to all whose operands are read straight by itself: none where most go in a chain.
pub fn read_min_bytes(comm: &Comm) -> u64 {
    if has_chains(comm) { u64::MAX } else { PART_READ_MIN_BYTES }
}

/// True if a reduction of elements of so many bytes that is not brief goes in a chain, by a predefined operation.
pub fn goes_in_chain(comm: &Comm, size: u64) -> bool {
    has_chains(comm) && size <= BOARD_COMMON_BYTES as u64
}

/// Where members take turns on the processors, or there are two, each of which works at a piece while the other is at the next.
fn has_chains(comm: &Comm) -> bool {
    comm.is_oversubscribed() || comm.size() == 2
}

/// Steps of a reduction of so many elements in a chain.
pub fn chain_steps(count: u64, size: u64) -> u64 {
    count.div_ceil(link_max(size) * BOARD_COMMON_PIECES as u64).max(1)
}

/// Pieces of one of its steps, of so many elements: as many as there may be, so that one member begins while the one before is at
/// it, unless they would be short.
pub fn chain_pieces(count: u64, size: u64) -> u64 {
    let early = (count * size).div_ceil(LINK_MIN_BYTES).min(BOARD_COMMON_PIECES as u64);
    count.div_ceil(link_max(size)).max(early)
}

/// Most elements of a piece.
fn link_max(size: u64) -> u64 {
    BOARD_COMMON_BYTES as u64 / size
}

/// Longest piece of a reduction in which each member reduces a part. Where all run at once, what one writes is read while it
/// is near; otherwise each step costs a turn of everyone.
pub fn piece_max_bytes(comm: &Comm) -> u64 {
    let (ranks, told_bytes) = (u64::from(comm.size()), (LENGTHS * LENGTH_BYTES) as u64);
    let near_max = (BOARD_PIECE_BYTES as u64 - told_bytes) * ranks / (ranks - 1);
    if comm.is_oversubscribed() { ELEMENT_MAX_BYTES } else { near_max }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_a_chain_fit_their_places() {
        for size in [1, 3, 8, 12, 16, 4096, 5000, 40_000, BOARD_COMMON_BYTES as u64] {
            for len_bytes in [1, 100, 16 << 10, 17 << 10, 64 << 10, 300_000, 512 << 10, (512 << 10) + 1, 10_000_019] {
                let count = u64::div_ceil(len_bytes, size);
                let in_step = count.div_ceil(chain_steps(count, size));
                let pieces = chain_pieces(in_step, size);
                assert!((1..=BOARD_COMMON_PIECES as u64).contains(&pieces), "{count} of {size} bytes");
                assert!(in_step.div_ceil(pieces) * size <= BOARD_COMMON_BYTES as u64, "{count} of {size} bytes");
            }
        }
    }
}
