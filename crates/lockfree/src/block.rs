//! The variable bottom-fill block (Veloblock): a one-way channel in the receiver's memory.
//!
//! Paper: veloblock §4. Records of whole cache lines fill the block from its end downwards, so that the place
//! where the next record's flag will arrive is known although its length is not:
//!
//! ```text
//!   low addresses                                             high addresses
//!   ┌───────────────┬──────────────────────────┬──────────────────┐
//!   │     free   [0]│ payload … long short flag│ older record     │
//!   └───────────────┴──────────────────────────┴──────────────────┘
//!               next arrival                ▲ arrival position: the last 8 bytes of a line
//! ```
//! A record's last 24 bytes are its header; the flag word, written last, carries kind and length and is never 0. Its payload
//! may lie in a shuttle (see [`crate::shuttle`]); it is one line then, with the place in it.
//! Before a record is published the word at the *next* arrival position is set to 0 (the paper's "extra zero
//! byte"): stale payload there must not look like a flag. For one-line records this was done right after the
//! record before was published, unless that was a long one, so that the critical path of a small message is one cache
//! line.
//!
//! The receiver never writes to the block. It returns credits, in lines, by a count of how many it has consumed: with
//! a record that goes the other way, or in the control line (see [`crate::fastpath`]).
//!
//! The block grows and shrinks with its traffic, within the memory it was given (Paper: veloblock §8). At the end of a
//! lap a sender that was refused in most of its recent laps, or has a record that is too long, says so with a *resize*
//! record and sends nothing until the receiver has consumed everything and answered in the control line; then both
//! begin at the new end. A sender that never had more than a quarter outstanding asks for less.
//!
//! A sender whose records are mostly *long* (2 KiB and more) asks for a block that is longer than the caches next to the
//! cores: there ordinary stores can be the faster ones (see [`crate::pace`]). One whose records are mostly *medium* (512 bytes
//! and more) tries whether it is better off so (`trial`). The receiver grants such lengths as far as its
//! [`Allowance`](crate::Allowance) goes, and a block is as short as in the beginning again when its records are.
//!
//! Where processes share processors ([`Reader`]), a sender that finds the block empty begins it anew before a long record: what
//! was used last is still in the caches next to whoever has the processor. To a reader on its own processor it writes with
//! ordinary stores.
//!
//! Cost of a message up to 40 bytes: one cache-line transfer. Memory: the block and one control line.

mod receiver;

use std::ops::Range;
use std::time::Instant;

use base::sync::Ordering;

use crate::fastpath::{CONSUMED, CONTROL_BYTES, HINT, RecordSender, begun, newer};
use crate::growth::{Growth, LINES_MIN};
use crate::instruction::{self, InstructionTrial};
use crate::pace::Pace;
use crate::shuttle::PLACE_BYTES;
use crate::trial::Trial;
use crate::{
    Aboard, Bounds, Brought, CACHE_LINE_BYTES, MEDIUM_MIN_BYTES, STREAMING_MIN_BYTES, SharedMemory, Shuttles, Stores,
};

pub use receiver::BlockReceiver;

const HEADER_BYTES: usize = 24;
/// How far ahead of itself a sender asks for the line it will write: a line that the receiver has read has to be taken
/// back from it, and the next messages should not wait for that one after the other.
const OWN_AHEAD_LINES: usize = 4;
/// It asks for as many as the last record took, for the next may be as long; not for such as are written past the caches.
const OWN_LINES_MAX: usize = lines_of(STREAMING_MIN_BYTES);
/// After longer records, up to so many lines, asking takes so long that it is done when there is nothing else to do
/// ([`BlockSender::ready`]). Between two cores of an Intel Xeon of the fourth generation that share no cache but the last, one
/// message at a time through a bare block, 8 and 16 KiB take 12 to 15 % less by that than written past the caches.
const OWN_LATER_LINES_MAX: usize = lines_of(32 << 10);
/// Lines that are asked for at a time: as many as a core waits for at once, or hardly more.
const OWN_STEP_LINES: usize = 16;
/// In the control line: how often the block was resized << 32 | lines it has now.
const RESIZED: usize = 16;
/// The kind that sends the reader back to the end of the block.
pub(crate) const WRAP: u8 = 0xff;
/// The kind that changes the block's length, in place of [`WRAP`].
const RESIZE: u8 = 0xfe;
/// Produced lines while a resize is not answered: more than any count of the receiver allows.
const NEVER: u64 = 1 << 62;

/// The header of a record, apart from its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// What the record is; 1 to 254.
    pub kind: u8,
    /// 16 + 8 bits for the protocol (the top byte is not carried).
    pub short: u32,
    /// 128 bits for the protocol: match key and identifiers.
    pub long: u128,
    /// In a record that a block delivers: its payload was written past the caches, and is read faster from its end on, for
    /// the next record lies below it ([`base::copy::copy_downwards`]).
    pub streamed: bool,
    /// In a record that a block delivers: its payload is aboard a shuttle, and is read faster by the processor's own
    /// instruction ([`base::copy::copy_by_instruction`]).
    pub by_instruction: bool,
    /// In a record that a block delivers: what is the reader's from now on.
    pub brings: Option<Brought>,
}

/// On which processor the reader of a block runs, where processes share processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// On another than the sender.
    Elsewhere,
    /// On the same.
    Here,
}

/// Payload bytes that fit one cache line together with the header.
pub const LINE_PAYLOAD_BYTES: usize = CACHE_LINE_BYTES - HEADER_BYTES;

pub(crate) const fn lines_of(payload_bytes: usize) -> usize {
    (payload_bytes + HEADER_BYTES).div_ceil(CACHE_LINE_BYTES)
}

/// Lines of the longest record. With a quarter of the block consumed but not reported, the lines left over at a
/// turn of the lap, the record and the cleared line after it must still fit: 2 n + lines / 4 <= lines.
pub(crate) const fn record_lines_max(lines: usize) -> usize {
    lines / 8 * 3
}

/// In a flag word: [`Record::streamed`].
const STREAMED: u64 = 1 << 31;
/// In a flag word: the payload is in a shuttle, and one line says where.
const ABOARD: u64 = 1 << 30;

/// The flag word of a record.
#[inline]
pub(crate) fn flag_of(record: Record, len_bytes: usize) -> u64 {
    let streamed = if record.streamed { STREAMED } else { 0 };
    u64::from(record.kind) << 56 | u64::from(record.short & 0x00ff_ffff) << 32 | streamed | len_bytes as u64
}

/// Bytes of the payload of a record with this flag word.
#[inline]
fn payload_len(flag: u64) -> usize {
    (flag & (ABOARD - 1)) as usize
}

/// True if the sender of such a record of `count` lines asks for as many more with it.
#[inline]
fn asks_ahead(record: Record, count: usize) -> bool {
    count <= OWN_LINES_MAX && !record.streamed
}

/// Longest payload of a record in a block of `block_bytes`, in bytes.
pub const fn payload_max_bytes(block_bytes: usize) -> usize {
    record_lines_max(block_bytes / CACHE_LINE_BYTES) * CACHE_LINE_BYTES - HEADER_BYTES
}

/// The sending end; one per ordered pair of processes.
pub struct BlockSender {
    memory: SharedMemory,
    lines: usize,
    /// Lines of the block, counted from its end, that the current lap has filled.
    position: usize,
    produced: u64,
    /// Last value seen of the receiver's count.
    consumed: u64,
    /// The flag of the line after the arrival position is 0 already.
    cleared_ahead: bool,
    traffic: Box<Traffic>,
}

/// What a sender knows of its block besides the place of the next record; touched by longer records, once per lap, and when
/// there is no room.
struct Traffic {
    growth: Growth,
    /// The length that was asked for, until it is answered; 0 if none was.
    asked_lines: u32,
    /// What had been produced then.
    asked_at: u64,
    /// How often the block was resized.
    resized: u32,
    pace: Pace,
    trial: Trial,
    /// Lines to ask for, counted as the position is, none beyond this lap or of a block that waits for another length.
    later: Range<usize>,
    /// [`BlockSender::ready`] was called since the last longer record.
    had_time: bool,
    /// When this lap began.
    lap_began: Instant,
    /// Where the reader was last seen; `None` where each process has a processor of its own.
    reader: Option<Reader>,
    /// Lines of this lap that were left behind when it went back to the start.
    lap_lines: usize,
    fleet: Option<Box<Fleet>>,
}

/// The shuttles of a sender, and what it knows of writing to them.
struct Fleet {
    shuttles: Shuttles,
    instruction: InstructionTrial,
}

impl Fleet {
    /// Writes `len_bytes` aboard, with the stores that are the faster ones as far as is known.
    ///
    /// # Panics
    /// If they are not inside.
    fn write(&mut self, aboard: Aboard, len_bytes: usize, fill: impl FnOnce(&mut [u8], Stores)) {
        let mut trial = (len_bytes >= instruction::MIN_BYTES).then_some(&mut self.instruction);
        let (by_instruction, is_timed) = trial.as_mut().map_or((false, false), |trial| trial.next(aboard.offset));
        let stores = if by_instruction { Stores::ByInstruction } else { Stores::Ordinary };
        let start = is_timed.then(Instant::now);
        // SAFETY: a shuttle is written by whoever has it, and read by the other once the flag is published.
        unsafe { self.shuttles.write(aboard, len_bytes, |space| fill(space, stores)) };
        if let (Some(start), Some(trial)) = (start, trial) {
            trial.note(len_bytes, start.elapsed().as_nanos() as u64, aboard.is_last);
        }
    }
}

/// Offset of the line that is `position` lines from the end of the block.
#[inline]
pub(crate) fn line_offset(lines: usize, position: usize) -> usize {
    CONTROL_BYTES + (lines - 1 - position) * CACHE_LINE_BYTES
}

/// Offset of the line in which the record at `position` arrives; the block's end is its start.
#[inline]
fn arrival(lines: usize, position: usize) -> usize {
    line_offset(lines, if position >= lines { 0 } else { position })
}

impl BlockSender {
    /// Bytes of shared memory for a block of `block_bytes`.
    pub const fn footprint(block_bytes: usize) -> usize {
        CONTROL_BYTES + block_bytes
    }

    /// The sending end over zeroed `memory`.
    ///
    /// # Panics
    /// If `memory` is shorter than [`BlockSender::footprint`] or the block is shorter than 16 lines.
    pub fn new(memory: SharedMemory, block_bytes: usize) -> Self {
        check_geometry(&memory, block_bytes);
        let bounds = Bounds { min_bytes: block_bytes, max_bytes: block_bytes, ..Bounds::default() };
        Self::resizable(memory, block_bytes, bounds)
    }

    /// As [`BlockSender::new`], of a block that follows its traffic.
    ///
    /// # Panics
    /// As [`BlockSender::new`].
    pub fn resizable(memory: SharedMemory, block_bytes: usize, bounds: Bounds) -> Self {
        check_geometry(&memory, block_bytes);
        let lines = block_bytes / CACHE_LINE_BYTES;
        let room = lines_that_fit(&memory);
        let resized = (memory.word(RESIZED).load(Ordering::Acquire) >> 32) as u32;
        let traffic = Traffic {
            growth: Growth::new(lines, bounds, room),
            pace: Pace::default(),
            trial: Trial::default(),
            later: 0..0,
            had_time: true,
            lap_began: Instant::now(),
            reader: None,
            lap_lines: 0,
            fleet: None,
            asked_lines: 0,
            asked_at: 0,
            resized,
        };
        let count = begun(memory.word(CONSUMED).load(Ordering::Relaxed));
        let traffic = Box::new(traffic);
        Self { memory, lines, position: 0, produced: count, consumed: count, cleared_ahead: true, traffic }
    }

    /// Longest payload a record may have, in bytes; the block grows for it.
    pub fn payload_max_bytes(&self) -> usize {
        payload_max_bytes(self.traffic.growth.max_lines() * CACHE_LINE_BYTES)
    }

    /// Longest payload in a block as long as it was in the beginning, in bytes.
    pub fn first_payload_max_bytes(&self) -> usize {
        payload_max_bytes(self.traffic.growth.first_lines() * CACHE_LINE_BYTES)
    }

    /// Longest payload of a block as long as this one is now, in bytes: beyond [`BlockSender::payload_max_bytes`] if it is
    /// as long as for long records. Such a record is refused should the block become shorter first.
    #[inline]
    pub fn present_payload_max_bytes(&self) -> usize {
        payload_max_bytes(self.block_bytes())
    }

    /// As [`BlockSender::present_payload_max_bytes`], of the block as long as it will be if most of its records are long.
    pub fn long_payload_max_bytes(&self) -> usize {
        payload_max_bytes(self.traffic.growth.long_lines(self.lines) * CACHE_LINE_BYTES)
    }

    /// Bytes of the block now.
    #[inline]
    pub fn block_bytes(&self) -> usize {
        self.lines * CACHE_LINE_BYTES
    }

    /// True while ordinary stores are the faster ones into this block (see [`crate::pace`]).
    #[inline]
    pub fn is_near(&self) -> bool {
        self.traffic.pace.is_near()
    }

    /// Where processes share processors, before a record of `len_bytes`, at least [`STREAMING_MIN_BYTES`], that is not one of
    /// several reserved: where the reader runs now, as far as is known. If the block is known to be empty, the record will lie
    /// where the last ones did, for that is in the caches next to whoever has the processor.
    pub fn prepare(&mut self, len_bytes: usize, reader: Reader) {
        let traffic = &mut *self.traffic;
        traffic.reader = Some(reader);
        let count = lines_of(len_bytes);
        traffic.growth.note_shared(|lines| count <= record_lines_max(lines));
        if count <= record_lines_max(self.lines) {
            self.restart(count);
        }
    }

    /// How often the block was resized.
    pub fn resized(&self) -> u64 {
        self.traffic.resized.into()
    }

    /// Appends a record of `len_bytes`, whose payload `fill` writes; false if there is no room now.
    ///
    /// # Panics
    /// If `len_bytes` exceeds what a block takes that is as long as it may ever be: [`BlockSender::payload_max_bytes`], or more
    /// if blocks of long records may be longer.
    #[inline]
    pub fn push(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        self.append(record, flag_of(record, len_bytes), len_bytes, fill)
    }

    /// Appends a record with this flag, of which `len_bytes` are in the block.
    #[inline]
    fn append(&mut self, record: Record, flag: u64, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let count = lines_of(len_bytes);
        debug_assert!(record.kind != 0 && record.kind < RESIZE);
        let fits = count <= record_lines_max(self.lines) && self.position + count <= self.lines;
        let has_room = fits && self.has_room(count + 1);
        if !has_room && !self.make_room(count) {
            return false;
        }
        let top = line_offset(self.lines, self.position);
        let base = top - (count - 1) * CACHE_LINE_BYTES;
        let asks_ahead = asks_ahead(record, count);
        if !asks_ahead {
            // They come while the payload is copied: the line of the flag, and that where the next one will arrive.
            self.memory.prefetch_to_write(top);
            self.memory.prefetch_to_write(arrival(self.lines, self.position + count));
        }
        // SAFETY: `base..base + len_bytes` lies in lines that the receiver has given back (has_room) and that only
        // this sender writes until the flag is published.
        unsafe { self.memory.write(base, len_bytes, fill) };
        self.memory.word(top + 40).store(record.long as u64, Ordering::Relaxed);
        self.memory.word(top + 48).store((record.long >> 64) as u64, Ordering::Relaxed);
        if count > 1 || !self.cleared_ahead {
            self.clear(self.position + count);
        }
        // Release: the receiver that sees the flag sees the record and the cleared place after it.
        self.memory.word(top + 56).store(flag, Ordering::Release);
        self.position += count;
        self.produced += count as u64;
        if asks_ahead {
            self.own_ahead(count);
        } else {
            self.own_later(record, count);
        }
        true
    }

    /// A short record of `count` lines is out: readies the lines of the next ones.
    #[inline]
    fn own_ahead(&mut self, count: usize) {
        self.cleared_ahead = self.position < self.lines && self.has_room(2);
        if self.cleared_ahead {
            self.clear(self.position + 1);
        }
        let ahead = self.position + OWN_AHEAD_LINES;
        // Lines that are not known to be free may be unread.
        let free_end = self.free_end();
        for line in ahead..(ahead + count).min(self.lines).min(free_end) {
            self.memory.prefetch_to_write(line_offset(self.lines, line));
        }
    }

    /// The line after those known to be free, counted from the end of the block; it may lie in the next lap.
    #[inline]
    fn free_end(&self) -> usize {
        self.position + (self.consumed + self.lines as u64 - self.produced) as usize
    }

    /// A longer record of `count` lines is out: leaves the lines of the next one to [`BlockSender::ready`], or asks for them if
    /// such records follow each other at once. What the next one writes past the caches is not to be in this one, nor what is
    /// timed to see what it takes where nobody asks.
    #[inline]
    fn own_later(&mut self, record: Record, count: usize) {
        self.cleared_ahead = false;
        let end = self.position + count;
        // Where processors are shared, there is no time that nobody else needs, nor is it known where the next record goes.
        let is_apart = self.traffic.reader.is_none();
        let is_later = !record.streamed && is_apart && count <= OWN_LATER_LINES_MAX && end <= self.lines;
        self.traffic.later = if is_later && !self.traffic.pace.wants_sample() { self.position..end } else { 0..0 };
        if !std::mem::take(&mut self.traffic.had_time) {
            self.own(OWN_LATER_LINES_MAX);
        }
    }

    /// Asks for so many of the lines that are left to ask for.
    fn own(&mut self, count: usize) {
        // Lines that are not known to be free may be unread.
        let free_end = self.free_end();
        let later = &mut self.traffic.later;
        later.end = later.end.min(free_end);
        for line in later.take(count) {
            self.memory.prefetch_to_write(line_offset(self.lines, line));
        }
    }

    /// For a moment between two messages: asks for some lines of the next record if there `is_time`, for it is likely to be as
    /// long as the last. True if some are left.
    pub fn ready(&mut self, is_time: bool) -> bool {
        self.traffic.had_time = true;
        if is_time && !self.traffic.later.is_empty() {
            self.own(OWN_STEP_LINES);
        }
        !self.traffic.later.is_empty()
    }

    /// As [`BlockSender::push`], for a record of at least [`MEDIUM_MIN_BYTES`], of which a block may be better off longer;
    /// `fill` is told with which stores to write.
    ///
    /// # Panics
    /// As [`BlockSender::push`].
    #[inline]
    pub fn push_long(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8], Stores)) -> bool {
        debug_assert!(len_bytes >= MEDIUM_MIN_BYTES);
        if len_bytes < STREAMING_MIN_BYTES {
            let pushed = self.push(record, len_bytes, |space| fill(space, Stores::Streaming));
            if pushed {
                self.traffic.trial.note(lines_of(len_bytes));
            }
            return pushed;
        }
        let (stores, timed) = match self.traffic.reader {
            // It finds what it reads in the cache next to both.
            Some(Reader::Here) => (Stores::Ordinary, false),
            _ => (self.traffic.pace.stores(), self.traffic.pace.wants_sample()),
        };
        let record = Record { streamed: stores == Stores::Streaming, ..record };
        let resized = self.traffic.resized;
        let mut ns = 0;
        let pushed = self.push(record, len_bytes, |space| {
            if timed {
                let start = Instant::now();
                fill(space, stores);
                ns = start.elapsed().as_nanos() as u64;
            } else {
                fill(space, stores);
            }
        });
        if pushed {
            self.traffic.growth.note_long(lines_of(len_bytes));
            // In a block that this record found longer nothing is timed yet.
            if timed && resized == self.traffic.resized {
                self.traffic.pace.note(len_bytes, ns);
            }
        }
        pushed
    }

    /// As [`BlockSender::push`], with the payload in a shuttle that this process has; `fill` is told with which stores to write.
    ///
    /// # Panics
    /// If it does not fit there.
    pub fn push_aboard(
        &mut self,
        record: Record,
        len_bytes: usize,
        aboard: Aboard,
        fill: impl FnOnce(&mut [u8], Stores),
    ) -> bool {
        let Some(mut fleet) = self.traffic.fleet.take() else { return false };
        let record = Record { streamed: false, ..record };
        let pushed = self.append(record, flag_of(record, len_bytes) | ABOARD, PLACE_BYTES, |space| {
            fleet.write(aboard, len_bytes, fill);
            space.copy_from_slice(&aboard.word().to_ne_bytes());
        });
        self.traffic.fleet = Some(fleet);
        pushed
    }

    /// As a sender that claims what it likes: `len_bytes` aboard at a place that is this word.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn push_claiming(&mut self, record: Record, len_bytes: usize, place: u64) -> bool {
        let flag = flag_of(record, len_bytes) | ABOARD;
        self.append(record, flag, PLACE_BYTES, |space| space.copy_from_slice(&place.to_ne_bytes()))
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Longest message that a shuttle takes, in bytes.
    #[inline]
    pub fn shuttle_bytes(&self) -> usize {
        self.traffic.fleet.as_ref().map_or(0, |fleet| fleet.shuttles.len_bytes())
    }

    /// True if shuttles are written faster by the processor's own instruction for copying, as far as is known. Then even those
    /// that come back empty are faster than the block.
    #[inline]
    pub fn writes_by_instruction(&self) -> bool {
        self.traffic.fleet.as_ref().is_some_and(|fleet| fleet.instruction.is_by_instruction())
    }

    /// Lets payloads go aboard, where there are shuttles.
    pub fn equip(&mut self, shuttles: Option<Shuttles>) {
        self.traffic.fleet =
            shuttles.map(|shuttles| Box::new(Fleet { instruction: shuttles.instruction_trial(), shuttles }));
    }

    /// True if records with payloads of these lengths can be pushed now one after the other, and none will be refused. All
    /// together they may take what one record may, as long as the block is.
    pub fn reserve(&mut self, payloads: impl Iterator<Item = usize>) -> bool {
        let count = payloads.map(lines_of).sum();
        if self.traffic.asked_lines > 0 && !self.take_up_resize() || count > record_lines_max(self.lines) {
            return false;
        }
        let fits = self.position + count <= self.lines && self.has_room(count + 1);
        fits || self.make_room(count)
    }

    /// What the receiver asked of this sender (see [`BlockReceiver::set_hint`]).
    #[inline]
    pub fn hint(&self) -> u64 {
        self.memory.word(HINT).load(Ordering::Relaxed)
    }

    /// True if `count` lines after what was produced are free.
    #[inline]
    fn has_room(&mut self, count: usize) -> bool {
        let needed = self.produced + count as u64;
        if needed <= self.consumed + self.lines as u64 {
            return true;
        }
        // Acquire: the lines given back are not read any more. Pairs with the store in `Returns::settle`.
        let consumed = self.memory.word(CONSUMED).load(Ordering::Acquire);
        // A count beyond what was sent, or one that goes back, can only be damage: believe the last good one.
        if consumed <= self.produced && consumed >= self.consumed {
            self.consumed = consumed;
        }
        needed <= self.consumed + self.lines as u64
    }

    /// Room for a record of `count` lines where there is none as things are: takes up what the receiver answered to a
    /// resize, or begins the next lap. False if there is none now; then that was noted, or another length asked for.
    #[inline(never)]
    fn make_room(&mut self, count: usize) -> bool {
        if self.traffic.asked_lines > 0 && !self.take_up_resize() {
            return false;
        }
        if count > record_lines_max(self.lines) {
            self.ask_for_longer(count);
            return false;
        }
        let turns = self.position + count > self.lines;
        let spent = if turns { self.lines - self.position } else { 0 };
        if !self.has_room(spent + count + 1) {
            self.traffic.growth.refused();
            return false;
        }
        !turns || self.turn()
    }

    /// Goes back to the start of a block that is known to be empty, if a record of `count` lines fits before where it stands.
    /// The lap goes on, unless it has used as many lines as there are.
    fn restart(&mut self, count: usize) {
        // The record, and the flag after it, must not reach the line that sends the reader back.
        if self.traffic.asked_lines > 0 || self.position <= count {
            return;
        }
        self.consumed = newer(self.consumed, self.produced, self.memory.word(CONSUMED).load(Ordering::Acquire));
        if self.consumed < self.produced {
            return;
        }
        self.traffic.lap_lines += self.position;
        if self.traffic.lap_lines >= self.lines {
            self.turn();
        } else {
            self.traffic.pace.restart();
            self.wrap();
        }
    }

    /// A lap is over: begins the next, or asks for another length and sends nothing until it is answered (false).
    fn turn(&mut self) -> bool {
        self.consumed = newer(self.consumed, self.produced, self.memory.word(CONSUMED).load(Ordering::Acquire));
        self.traffic.lap_lines = 0;
        self.traffic.pace.turn();
        let is_long = self.lines > self.traffic.growth.max_lines();
        let began = std::mem::replace(&mut self.traffic.lap_began, Instant::now());
        let ns = (self.traffic.lap_began - began).as_nanos() as u64;
        let is_apart = self.traffic.reader.is_none();
        let wanted = if is_apart && self.traffic.trial.turn(self.lines, is_long, ns) {
            self.traffic.growth.try_long(self.lines)
        } else {
            // A short block tells sooner which stores are the faster ones.
            let is_unsettled = is_apart && !self.traffic.pace.is_known();
            self.traffic.growth.turn(self.lines, self.produced - self.consumed, is_unsettled)
        };
        if wanted != self.lines {
            self.ask_for(wanted as u32);
            return false;
        }
        self.wrap();
        true
    }

    /// A record does not fit even an empty block: asks for a block it fits, which is its shortest from now on, unless that is
    /// longer than it may be for one record.
    ///
    /// # Panics
    /// If no block may be so long.
    #[cold]
    fn ask_for_longer(&mut self, count: usize) {
        let (longest, longest_ever) = (self.traffic.growth.max_lines(), self.traffic.growth.longest_lines());
        assert!(count <= record_lines_max(longest_ever), "a record takes three eighths at most");
        if count <= record_lines_max(longest) && self.has_room(2) {
            let wanted = self.traffic.growth.need(self.lines, |lines| count <= record_lines_max(lines));
            self.ask_for(wanted as u32);
        }
    }

    /// Says to the receiver that the block is to have `lines` once it is empty. There is room for one record.
    fn ask_for(&mut self, lines: u32) {
        if self.position == self.lines {
            self.wrap();
        }
        let flag = self.memory.word(line_offset(self.lines, self.position) + 56);
        // Release: everything sent before is seen before.
        flag.store(u64::from(RESIZE) << 56 | u64::from(lines), Ordering::Release);
        (self.traffic.asked_lines, self.traffic.asked_at) = (lines, self.produced);
        self.traffic.later = 0..0;
        self.produced = NEVER;
        self.consumed = 0;
    }

    /// Goes on in the block as the receiver has made it; false if it has not answered.
    fn take_up_resize(&mut self) -> bool {
        // Acquire: the receiver is through with the block as it was. Pairs with the store in `resize`.
        let answer = self.memory.word(RESIZED).load(Ordering::Acquire);
        let lines = (answer & 0xffff_ffff) as usize;
        if (answer >> 32) as u32 != self.traffic.resized.wrapping_add(1) {
            return false;
        }
        self.traffic.resized = self.traffic.resized.wrapping_add(1);
        let traffic = &mut *self.traffic;
        if lines < traffic.asked_lines as usize {
            // There is no more memory for this now.
            traffic.growth.declined();
        }
        if (LINES_MIN..=lines_that_fit(&self.memory)).contains(&lines) && lines.is_multiple_of(4) {
            if lines > self.lines {
                // The receiver has had the pages made; here they are only mapped.
                self.memory.populate(CONTROL_BYTES, lines * CACHE_LINE_BYTES);
                traffic.pace.grown();
            } else {
                traffic.pace = Pace::default();
            }
            self.lines = lines;
        }
        self.traffic.asked_lines = 0;
        // All of it was consumed. The count goes on, so that a credit under way can not be taken for a newer one.
        (self.produced, self.consumed) = (self.traffic.asked_at, self.traffic.asked_at);
        (self.position, self.cleared_ahead) = (0, false);
        true
    }

    /// Sets the flag word at arrival position `position` to 0.
    #[inline]
    fn clear(&self, position: usize) {
        self.memory.word(arrival(self.lines, position) + 56).store(0, Ordering::Relaxed);
    }

    /// Sends the reader back to the start; the lines left over are spent.
    fn wrap(&mut self) {
        let left = self.lines - self.position;
        if left > 0 {
            self.clear(0);
            let flag = self.memory.word(line_offset(self.lines, self.position) + 56);
            // Release: the cleared place at the start is seen before the reader goes there.
            flag.store(u64::from(WRAP) << 56, Ordering::Release);
        }
        self.produced += left as u64;
        self.position = 0;
        self.cleared_ahead = false;
        self.traffic.later = 0..0;
    }
}

impl RecordSender for BlockSender {
    #[inline]
    fn push(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        BlockSender::push(self, record, len_bytes, fill)
    }

    fn payload_max_bytes(&self) -> usize {
        BlockSender::payload_max_bytes(self)
    }

    fn hint(&self) -> u64 {
        BlockSender::hint(self)
    }

    fn credit(&mut self, consumed: u64) {
        if self.traffic.asked_lines == 0 {
            self.consumed = newer(self.consumed, self.produced, consumed);
        }
    }

    fn produced(&self) -> u64 {
        self.produced
    }
}

/// Lines of the longest block in this memory.
fn lines_that_fit(memory: &SharedMemory) -> usize {
    ((memory.len_bytes() - CONTROL_BYTES) / CACHE_LINE_BYTES) & !3
}

fn check_geometry(memory: &SharedMemory, block_bytes: usize) {
    assert!(memory.len_bytes() >= BlockSender::footprint(block_bytes), "the block fits its memory");
    check_length(block_bytes);
}

pub(crate) fn check_length(block_bytes: usize) {
    assert!(block_bytes >= LINES_MIN * CACHE_LINE_BYTES && block_bytes.is_multiple_of(4 * CACHE_LINE_BYTES));
}

#[cfg(all(test, not(loom)))]
mod tests;
