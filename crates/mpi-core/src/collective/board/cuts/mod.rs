//! How what a call moves is cut into steps, and what is too long for boards.

pub(super) mod blocks;
pub(super) mod broadcast;
pub(super) mod reductions;
pub(super) mod streams;

/// The length of something that may take several steps, behind what the first of them shows.
pub(super) const LENGTH_BYTES: usize = 8;

/// Most that one member shows in all where it has something else for each of the others: what is longer is with no cache
/// when it is read.
const TO_EACH_MAX_BYTES: u64 = 4 << 20;
