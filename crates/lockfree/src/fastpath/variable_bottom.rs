//! The variable bottom-fill block (Veloblock) as an adapter writes it; its receiving end is [`crate::BlockReceiver`].
//!
//! Paper: veloblock §5.4. Places and rules are those of [`crate::block`], whose sending end is made for stores to mapped
//! memory. Here every record is one write: the zero word at the place of the next arrival lies right before it.
//!
//! ```text
//!   │ free … │ 0 │ payload …   long flag │ older records │
//!              ▲                       ▲ arrival
//!              next arrival
//! ```
//! Only a record that ends at the block's lower end has its next arrival elsewhere, which is cleared by a write of its
//! own before. The block stays as long as it is, for registered memory is spent whether it is used or not; its sender
//! only finds out how long its successor should be.

use super::target::{Image, Target};
use super::{CONSUMED, HINT, RecordSender, Room};
use crate::block::{self, Record, WRAP, line_offset, lines_of, record_lines_max};
use crate::growth::Growth;
use crate::{Bounds, CACHE_LINE_BYTES};

/// The sending end.
pub struct VariableBottomSender<T> {
    target: T,
    lines: usize,
    position: usize,
    room: Room,
    growth: Growth,
    /// How many lines its successor should have, once it is known that there should be one.
    wanted: Option<usize>,
}

impl<T: Target> VariableBottomSender<T> {
    /// The sending end over a target of `block_bytes` zero bytes behind a control line, the first block of its channel.
    ///
    /// # Panics
    /// If the block is shorter than 16 lines.
    pub fn new(target: T, block_bytes: usize, bounds: Bounds) -> Self {
        let growth = Growth::new(block_bytes / CACHE_LINE_BYTES, bounds, usize::MAX);
        Self::over(target, block_bytes, growth)
    }

    /// The sending end of the block that comes after `before`, as [`VariableBottomSender::new`] otherwise.
    ///
    /// # Panics
    /// As [`VariableBottomSender::new`].
    pub fn after(before: &Self, target: T, block_bytes: usize) -> Self {
        Self::over(target, block_bytes, before.growth.clone())
    }

    fn over(target: T, block_bytes: usize, growth: Growth) -> Self {
        block::check_length(block_bytes);
        let lines = block_bytes / CACHE_LINE_BYTES;
        let room = Room::new(lines, target.control(CONSUMED));
        Self { target, lines, position: 0, room, growth, wanted: None }
    }

    /// What it writes to.
    pub fn target(&mut self) -> &mut T {
        &mut self.target
    }

    /// How long the block should be instead, in bytes, if it is known that it should.
    #[inline]
    pub fn wanted_bytes(&self) -> Option<usize> {
        self.wanted.map(|lines| lines * CACHE_LINE_BYTES)
    }

    /// There will be no such block; true if a record waits that this one is too short for.
    pub fn declined(&mut self) -> bool {
        self.wanted = None;
        self.growth.declined();
        self.growth.min_lines() > self.lines
    }

    /// A lap is over.
    fn think_over(&mut self) {
        if self.wanted.is_some() {
            return;
        }
        let outstanding = self.room.outstanding(self.target.control(CONSUMED));
        let wanted = self.growth.turn(self.lines, outstanding, false);
        self.wanted = (wanted != self.lines).then_some(wanted);
    }

    /// A record does not fit even an empty block: there is room for it in the next one.
    ///
    /// # Panics
    /// If that may not be so long.
    #[cold]
    #[inline(never)]
    fn ask_for_longer(&mut self, count: usize) -> bool {
        let longest = self.growth.max_lines();
        assert!(count <= record_lines_max(longest), "a record takes three eighths at most");
        self.wanted = Some(self.growth.need(self.lines, |lines| count <= record_lines_max(lines)));
        false
    }

    /// Offset of the flag at arrival position `position`.
    fn flag_at(&self, position: usize) -> usize {
        line_offset(self.lines, position) + 56
    }
}

impl<T: Target> RecordSender for VariableBottomSender<T> {
    fn push(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let count = lines_of(len_bytes);
        if count > record_lines_max(self.lines) {
            return self.ask_for_longer(count);
        }
        let turns = self.position + count > self.lines;
        let left = if turns { self.lines - self.position } else { 0 };
        let Self { target, room, .. } = self;
        if !room.has(left + count + 1, || target.control(CONSUMED)) {
            self.growth.refused();
            return false;
        }
        if turns {
            self.think_over();
            if left > 0 {
                // The start is cleared before the reader is sent there.
                let (start, here) = (self.flag_at(0), self.flag_at(self.position));
                self.target.write_word(start, 0);
                self.target.write_word(here, u64::from(WRAP) << 56);
            }
            self.room.produced += left as u64;
            self.position = 0;
        }
        let top = line_offset(self.lines, self.position);
        let base = top - (count - 1) * CACHE_LINE_BYTES;
        let [low, high] = [(top + 40, record.long as u64), (top + 48, (record.long >> 64) as u64)];
        let flag = block::flag_of(record, len_bytes);
        let (payload_at, flag_at) = (base, top + 56);
        if self.position + count < self.lines {
            let words = [(base - 8, 0), low, high];
            let image = Image { start: base - 8, words: &words, payload_at, len_bytes, flag_at, flag };
            self.target.write(&image, fill);
        } else {
            self.target.write_word(self.flag_at(0), 0);
            let image = Image { start: base, words: &[low, high], payload_at, len_bytes, flag_at, flag };
            self.target.write(&image, fill);
        }
        self.position += count;
        self.room.produced += count as u64;
        true
    }

    fn payload_max_bytes(&self) -> usize {
        block::payload_max_bytes(self.growth.max_lines() * CACHE_LINE_BYTES)
    }

    fn hint(&self) -> u64 {
        self.target.control(HINT)
    }

    fn credit(&mut self, consumed: u64) {
        self.room.credit(consumed);
    }

    fn produced(&self) -> u64 {
        self.room.produced
    }
}
