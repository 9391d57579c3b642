//! The receiving end of a block.

use std::time::Instant;

use base::sync::Ordering;

use super::{
    ABOARD, RESIZE, RESIZED, Record, STREAMED, WRAP, arrival, asks_ahead, check_geometry, line_offset, lines_of,
    lines_that_fit, payload_len, record_lines_max,
};
use crate::fastpath::{CONSUMED, CONTROL_BYTES, HINT, RecordReceiver, Returns};
use crate::growth::LINES_MIN;
use crate::instruction::{self, InstructionTrial};
use crate::shuttle::PLACE_BYTES;
use crate::{Aboard, Allowance, Brought, CACHE_LINE_BYTES, SharedMemory, Shuttles};

/// The receiving end.
pub struct BlockReceiver {
    memory: SharedMemory,
    lines: usize,
    position: usize,
    /// The last record took one line, and nobody has looked in vain since.
    follows: bool,
    returns: Returns,
    first_lines: usize,
    allowance: Allowance,
    /// Memory from this offset on is not used any more, and its owner has not heard of that.
    spare_from: Option<usize>,
    shuttles: Option<Shuttles>,
    /// Once something long has come aboard.
    instruction: Option<Box<InstructionTrial>>,
}

impl BlockReceiver {
    /// The receiving end over zeroed `memory`.
    ///
    /// # Panics
    /// As [`BlockSender::new`].
    pub fn new(memory: SharedMemory, block_bytes: usize) -> Self {
        check_geometry(&memory, block_bytes);
        let lines = block_bytes / CACHE_LINE_BYTES;
        let returns = Returns::new(lines, memory.word(CONSUMED).load(Ordering::Relaxed));
        let allowance = Allowance::new(u64::MAX / 2);
        Self {
            memory,
            lines,
            position: 0,
            follows: false,
            returns,
            first_lines: lines,
            allowance,
            spare_from: None,
            shuttles: None,
            instruction: None,
        }
    }

    /// The receiver as it is, that grows only as far as `allowance` goes.
    pub fn within(mut self, allowance: Allowance) -> Self {
        self.allowance = allowance;
        self
    }

    /// The receiver as it is, for payloads that are aboard.
    pub fn equipped(mut self, shuttles: Option<Shuttles>) -> Self {
        self.shuttles = shuttles;
        self
    }

    /// Bytes of the block now.
    pub fn block_bytes(&self) -> usize {
        self.lines * CACHE_LINE_BYTES
    }

    /// Takes the next record, if one has arrived, and shows it to `take`; its payload may still be changed by a
    /// hostile sender while `take` looks at it, so copy first and check the copy. Also true, without a record, after
    /// the block was resized: credits are due then.
    #[inline]
    pub fn pop(&mut self, take: impl FnOnce(Record, &[u8])) -> bool {
        if self.position == self.lines {
            self.position = 0;
        }
        let mut top = line_offset(self.lines, self.position);
        let mut flag = self.flag(top);
        if flag == 0 {
            self.follows = false;
            return false;
        }
        if (flag >> 56) as u8 >= RESIZE {
            if (flag >> 56) as u8 == RESIZE {
                self.resize(flag as u32 as usize);
                return true;
            }
            self.returns.consumed += (self.lines - self.position) as u64;
            self.position = 0;
            top = line_offset(self.lines, 0);
            flag = self.flag(top);
            if flag == 0 {
                return false;
            }
        }
        if flag & ABOARD != 0 {
            return self.pop_aboard(top, flag, take);
        }
        let len_bytes = payload_len(flag);
        let count = lines_of(len_bytes);
        if count > record_lines_max(self.lines) || self.position + count > self.lines {
            // Not something our sender writes. Refuse to read outside the block; the channel stays where it is.
            return false;
        }
        let base = top - (count - 1) * CACHE_LINE_BYTES;
        let record = self.record(top, flag);
        if std::mem::replace(&mut self.follows, count == 1) && count == 1 {
            // Of records that follow each other the sender is ahead, and each line comes from its cache.
            self.memory.prefetch_to_read(arrival(self.lines, self.position + 2));
        }
        if !asks_ahead(record, count) {
            // The next flag, if there is one, comes while this payload is copied.
            self.memory.prefetch_to_read(arrival(self.lines, self.position + count));
        }
        // SAFETY: inside the block by the check above; the sender does not write these lines before they are
        // given back in `report`.
        unsafe { self.memory.read(base, len_bytes, |payload| take(record, payload)) };
        self.position += count;
        self.returns.consumed += count as u64;
        true
    }

    /// Takes a record of one line whose payload is in a shuttle.
    #[inline(never)]
    fn pop_aboard(&mut self, top: usize, flag: u64, take: impl FnOnce(Record, &[u8])) -> bool {
        let Some(shuttles) = &self.shuttles else { return false };
        let mut place = [0; PLACE_BYTES];
        // SAFETY: the payload of a record that has arrived, as in `pop`.
        unsafe { self.memory.read(top, place.len(), |payload| place.copy_from_slice(payload)) };
        let aboard = Aboard::of(u64::from_ne_bytes(place));
        let len_bytes = payload_len(flag);
        if !shuttles.have(aboard.offset, len_bytes) {
            // As for one that does not fit the block.
            return false;
        }
        let end = aboard.offset + len_bytes;
        let brings = aboard.is_last.then_some(Brought { shuttle: aboard.shuttle, len_bytes: end });
        let new_trial = || Box::new(shuttles.instruction_trial());
        let trial = (len_bytes >= instruction::MIN_BYTES).then(|| self.instruction.get_or_insert_with(new_trial));
        let (by_instruction, is_timed) = trial.map_or((false, false), |trial| trial.next(aboard.offset));
        let record = Record { brings, by_instruction, ..self.record(top, flag) };
        let start = is_timed.then(Instant::now);
        // SAFETY: inside the shuttle by the check above, which is not written again before the sender hears of us.
        unsafe { shuttles.read(aboard, len_bytes, |payload| take(record, payload)) };
        if let (Some(start), Some(trial)) = (start, &mut self.instruction) {
            trial.note(len_bytes, start.elapsed().as_nanos() as u64, aboard.is_last);
        }
        self.position += 1;
        self.returns.consumed += 1;
        true
    }

    /// As [`RecordReceiver::may_read_by_instruction`].
    pub fn may_read_by_instruction(&self) -> bool {
        let Some(shuttles) = &self.shuttles else { return false };
        match &self.instruction {
            Some(trial) => trial.may_be_by_instruction(),
            None => shuttles.instruction_trial().may_be_by_instruction(),
        }
    }

    /// As [`RecordReceiver::peek`].
    #[inline]
    pub fn peek(&self) -> Option<(Record, usize)> {
        let mut top = arrival(self.lines, self.position);
        let mut flag = self.flag(top);
        if (flag >> 56) as u8 == WRAP {
            top = line_offset(self.lines, 0);
            flag = self.flag(top);
        }
        let is_record = (1..RESIZE).contains(&((flag >> 56) as u8));
        is_record.then(|| (self.record(top, flag), payload_len(flag)))
    }

    /// The flag word of the line at `top`.
    #[inline]
    fn flag(&self, top: usize) -> u64 {
        // Acquire pairs with the release of the flag in `push`.
        self.memory.word(top + 56).load(Ordering::Acquire)
    }

    /// The record that arrived in the line at `top`, with this flag.
    #[inline]
    fn record(&self, top: usize, flag: u64) -> Record {
        let low = self.memory.word(top + 40).load(Ordering::Relaxed);
        let high = self.memory.word(top + 48).load(Ordering::Relaxed);
        Record {
            kind: (flag >> 56) as u8,
            short: (flag >> 32) as u32 & 0x00ff_ffff,
            long: u128::from(high) << 64 | u128::from(low),
            streamed: flag & STREAMED != 0,
            by_instruction: false,
            brings: None,
        }
    }

    /// The sender has sent everything it wanted to in the block as it was, and waits.
    #[cold]
    #[inline(never)]
    fn resize(&mut self, wanted: usize) {
        let before = self.lines;
        let wanted = wanted.clamp(LINES_MIN, lines_that_fit(&self.memory)) & !3;
        self.lines = self.granted(before, wanted);
        if self.lines > before {
            self.memory.populate(CONTROL_BYTES, self.lines * CACHE_LINE_BYTES);
        }
        if self.lines < before {
            self.spare_from = Some(CONTROL_BYTES + self.lines * CACHE_LINE_BYTES);
        }
        self.position = 0;
        self.returns = Returns::at_once(self.lines, self.returns.consumed);
        self.memory.word(CONSUMED).store(self.returns.consumed, Ordering::Relaxed);
        self.memory.word(line_offset(self.lines, 0) + 56).store(0, Ordering::Relaxed);
        let resized = (self.memory.word(RESIZED).load(Ordering::Relaxed) >> 32) as u32;
        let answer = u64::from(resized.wrapping_add(1)) << 32 | self.lines as u64;
        // Release: our reads are over and the first arrival is cleared. Pairs with the load in `take_up_resize`.
        self.memory.word(RESIZED).store(answer, Ordering::Release);
    }

    /// The lines that a block of `before` gets if it wants to have `wanted`: of many perhaps half, or a quarter and so on, for
    /// some memory stays for others.
    fn granted(&self, before: usize, wanted: usize) -> usize {
        let beyond_first = |lines: usize| bytes_beyond(self.first_lines, lines);
        let (held, always) = (beyond_first(before), before.max(self.first_lines));
        if wanted <= always {
            self.allowance.change(held, beyond_first(wanted));
            return wanted;
        }
        let halves = std::iter::successors(Some(wanted), |lines| Some((lines / 2) & !3));
        let mut longer = halves.take_while(|lines| *lines > always);
        longer.find(|lines| self.allowance.change_leaving_some(held, beyond_first(*lines))).unwrap_or(always)
    }

    /// True if an eighth of the block has been consumed since credits went back, or were offered, last.
    #[inline]
    pub fn credits_due(&self) -> bool {
        self.returns.are_due()
    }

    /// Returns credits that are due; see [`RecordReceiver::return_credits`].
    pub fn return_credits(&mut self, offer: bool) -> Option<u64> {
        self.returns.settle(offer, &self.memory)
    }

    /// Leaves a word for the sender to see before it sends.
    pub fn set_hint(&self, hint: u64) {
        self.memory.word(HINT).store(hint, Ordering::Relaxed);
    }
}

impl Drop for BlockReceiver {
    fn drop(&mut self) {
        self.allowance.change(bytes_beyond(self.first_lines, self.lines), 0);
    }
}

impl RecordReceiver for BlockReceiver {
    #[inline]
    fn pop(&mut self, take: impl FnOnce(Record, &[u8])) -> bool {
        BlockReceiver::pop(self, take)
    }

    #[inline]
    fn peek(&self) -> Option<(Record, usize)> {
        BlockReceiver::peek(self)
    }

    fn may_read_by_instruction(&self) -> bool {
        BlockReceiver::may_read_by_instruction(self)
    }

    #[inline]
    fn credits_due(&self) -> bool {
        BlockReceiver::credits_due(self)
    }

    fn return_credits(&mut self, offer: bool) -> Option<u64> {
        BlockReceiver::return_credits(self, offer)
    }

    fn set_hint(&self, hint: u64) {
        BlockReceiver::set_hint(self, hint);
    }

    fn consumed(&self) -> u64 {
        self.returns.consumed
    }

    fn take_spare(&mut self) -> Option<usize> {
        self.spare_from.take()
    }
}

/// Bytes of a block of `lines` beyond those of one of `first`.
fn bytes_beyond(first: usize, lines: usize) -> u64 {
    (lines.saturating_sub(first) * CACHE_LINE_BYTES) as u64
}
