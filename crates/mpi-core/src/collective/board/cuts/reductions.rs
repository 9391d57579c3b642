//! Operands from each, of which everyone reduces all, or a part for all.

use engine::{BOARD_PIECE_BYTES, BOARD_STEP_BYTES};

use super::LENGTH_BYTES;
use super::blocks::LENGTHS;
use crate::communicator::Comm;

/// Up to so many bytes of all inputs together, whoever wants the value reduces everything.
const REDUCE_ALL_MAX_BYTES: u64 = 16 << 10;
/// The same of two inputs: there is as much to read as if each reduced a half for both.
const PAIR_REDUCE_ALL_MAX_BYTES: u64 = 64 << 10;
/// Most bytes of an element.
pub const ELEMENT_MAX_BYTES: u64 = (BOARD_STEP_BYTES - LENGTHS * LENGTH_BYTES) as u64;

/// True if a reduction of so many bytes takes one step.
pub fn is_brief(len_bytes: u64, ranks: usize) -> bool {
    let max_bytes = if ranks == 2 { PAIR_REDUCE_ALL_MAX_BYTES } else { REDUCE_ALL_MAX_BYTES };
    len_bytes <= engine::BOARD_SHORT_BYTES as u64 || len_bytes.saturating_mul(ranks as u64) <= max_bytes
}

/// Longest piece of a reduction in which each member reduces a part. Where all run at once, what one writes is read while it
/// is near; otherwise each step costs a turn of everyone.
pub fn piece_max_bytes(comm: &Comm) -> u64 {
    let (ranks, told_bytes) = (u64::from(comm.size()), (LENGTHS * LENGTH_BYTES) as u64);
    let near_max = (BOARD_PIECE_BYTES as u64 - told_bytes) * ranks / (ranks - 1);
    if comm.is_oversubscribed() { ELEMENT_MAX_BYTES } else { near_max }
}
