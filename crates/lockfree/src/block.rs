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
//! A record's last 24 bytes are its header; the flag word, written last, carries kind and length and is never 0.
//! Before a record is published the word at the *next* arrival position is set to 0 (the paper's "extra zero
//! byte"): stale payload there must not look like a flag. For one-line records this was done right after the
//! record before was published, so that the critical path of a small message is one cache line.
//!
//! The receiver never writes to the block. It returns credits, in lines, by storing how many it has consumed into
//! a control line, once per quarter of the block.
//!
//! Cost of a message up to 40 bytes: one cache-line transfer. Memory: the block and one control line.

use base::sync::Ordering;

use crate::{CACHE_LINE_BYTES, SharedMemory};

const HEADER_BYTES: usize = 24;
/// How far ahead of itself a sender asks for the line it will write: a line that the receiver has read has to be taken
/// back from it, and the next messages should not wait for that one after the other.
const OWN_AHEAD_LINES: usize = 4;
const CONSUMED: usize = 0;
const HINT: usize = 8;
/// The kind that sends the reader back to the end of the block.
const WRAP: u8 = 0xff;

/// The header of a record, apart from its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// What the record is; 1 to 254.
    pub kind: u8,
    /// 16 + 8 bits for the protocol (the top byte is not carried).
    pub short: u32,
    /// 128 bits for the protocol: match key and identifiers.
    pub long: u128,
}

/// Payload bytes that fit one cache line together with the header.
pub const LINE_PAYLOAD_BYTES: usize = CACHE_LINE_BYTES - HEADER_BYTES;

fn lines_of(payload_bytes: usize) -> usize {
    (payload_bytes + HEADER_BYTES).div_ceil(CACHE_LINE_BYTES)
}

/// Lines of the longest record. With a quarter of the block consumed but not reported, the lines left over at a
/// turn of the lap, the record and the cleared line after it must still fit: 2 n + lines / 4 <= lines.
const fn record_lines_max(lines: usize) -> usize {
    lines / 8 * 3
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
}

/// The receiving end.
pub struct BlockReceiver {
    memory: SharedMemory,
    lines: usize,
    position: usize,
    consumed: u64,
    reported: u64,
}

/// Bytes before the block: the control line.
const CONTROL_BYTES: usize = CACHE_LINE_BYTES;

/// Offset of the line that is `position` lines from the end of the block.
#[inline]
fn line_offset(lines: usize, position: usize) -> usize {
    CONTROL_BYTES + (lines - 1 - position) * CACHE_LINE_BYTES
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
        let lines = block_bytes / CACHE_LINE_BYTES;
        Self { memory, lines, position: 0, produced: 0, consumed: 0, cleared_ahead: true }
    }

    /// Longest payload a record may have, in bytes.
    pub fn payload_max_bytes(&self) -> usize {
        payload_max_bytes(self.lines * CACHE_LINE_BYTES)
    }

    /// Appends a record of `len_bytes`, whose payload `fill` writes; false if there is no room now.
    ///
    /// # Panics
    /// If `len_bytes` exceeds [`BlockSender::payload_max_bytes`].
    #[inline]
    pub fn push(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let count = lines_of(len_bytes);
        assert!(count <= record_lines_max(self.lines), "a record takes at most three eighths of the block");
        debug_assert!(record.kind != 0 && record.kind != WRAP);
        if self.position + count > self.lines {
            if !self.has_room(self.lines - self.position + count + 1) {
                return false;
            }
            self.wrap();
        } else if !self.has_room(count + 1) {
            return false;
        }
        let top = line_offset(self.lines, self.position);
        let base = top - (count - 1) * CACHE_LINE_BYTES;
        // SAFETY: `base..base + len_bytes` lies in lines that the receiver has given back (has_room) and that only
        // this sender writes until the flag is published.
        unsafe { self.memory.write(base, len_bytes, fill) };
        self.memory.word(top + 40).store(record.long as u64, Ordering::Relaxed);
        self.memory.word(top + 48).store((record.long >> 64) as u64, Ordering::Relaxed);
        if count > 1 || !self.cleared_ahead {
            self.clear(self.position + count);
        }
        let flag = u64::from(record.kind) << 56 | u64::from(record.short & 0x00ff_ffff) << 32 | len_bytes as u64;
        // Release: the receiver that sees the flag sees the record and the cleared place after it.
        self.memory.word(top + 56).store(flag, Ordering::Release);
        self.position += count;
        self.produced += count as u64;
        self.cleared_ahead = self.position < self.lines && self.has_room(2);
        if self.cleared_ahead {
            self.clear(self.position + 1);
        }
        let ahead = self.position + OWN_AHEAD_LINES;
        if ahead < self.lines {
            self.memory.prefetch_to_write(line_offset(self.lines, ahead));
        }
        true
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
        // Acquire: the lines given back are not read any more. Pairs with the store in `report`.
        let consumed = self.memory.word(CONSUMED).load(Ordering::Acquire);
        // A count beyond what was sent, or one that goes back, can only be damage: believe the last good one.
        if consumed <= self.produced && consumed >= self.consumed {
            self.consumed = consumed;
        }
        needed <= self.consumed + self.lines as u64
    }

    /// Sets the flag word at arrival position `position` (the block's end counts as its start) to 0.
    #[inline]
    fn clear(&self, position: usize) {
        let position = if position >= self.lines { 0 } else { position };
        self.memory.word(line_offset(self.lines, position) + 56).store(0, Ordering::Relaxed);
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
    }
}

impl BlockReceiver {
    /// The receiving end over zeroed `memory`.
    ///
    /// # Panics
    /// As [`BlockSender::new`].
    pub fn new(memory: SharedMemory, block_bytes: usize) -> Self {
        check_geometry(&memory, block_bytes);
        Self { memory, lines: block_bytes / CACHE_LINE_BYTES, position: 0, consumed: 0, reported: 0 }
    }

    /// Takes the next record, if one has arrived, and shows it to `take`; its payload may still be changed by a
    /// hostile sender while `take` looks at it, so copy first and check the copy.
    #[inline]
    pub fn pop(&mut self, take: impl FnOnce(Record, &[u8])) -> bool {
        if self.position == self.lines {
            self.position = 0;
        }
        let mut top = line_offset(self.lines, self.position);
        // Acquire pairs with the release of the flag in `push`.
        let mut flag = self.memory.word(top + 56).load(Ordering::Acquire);
        if flag == 0 {
            return false;
        }
        if (flag >> 56) as u8 == WRAP {
            self.consumed += (self.lines - self.position) as u64;
            self.position = 0;
            top = line_offset(self.lines, 0);
            flag = self.memory.word(top + 56).load(Ordering::Acquire);
            if flag == 0 {
                return false;
            }
        }
        let len_bytes = flag as u32 as usize;
        let count = lines_of(len_bytes);
        if count > record_lines_max(self.lines) || self.position + count > self.lines {
            // Not something our sender writes. Refuse to read outside the block; the channel stays where it is.
            return false;
        }
        let base = top - (count - 1) * CACHE_LINE_BYTES;
        let low = self.memory.word(top + 40).load(Ordering::Relaxed);
        let high = self.memory.word(top + 48).load(Ordering::Relaxed);
        let record = Record {
            kind: (flag >> 56) as u8,
            short: (flag >> 32) as u32 & 0x00ff_ffff,
            long: u128::from(high) << 64 | u128::from(low),
        };
        // SAFETY: inside the block by the check above; the sender does not write these lines before they are
        // given back in `report`.
        unsafe { self.memory.read(base, len_bytes, |payload| take(record, payload)) };
        self.position += count;
        self.consumed += count as u64;
        true
    }

    /// Returns credits if a quarter of the block has been consumed since the last time; true if it did, so that a
    /// sender waiting for room can be woken.
    #[inline]
    pub fn return_credits(&mut self) -> bool {
        if self.consumed - self.reported < (self.lines / 4) as u64 {
            return false;
        }
        self.reported = self.consumed;
        // Release: our reads of these lines are over. Pairs with the load in `has_room`.
        self.memory.word(CONSUMED).store(self.consumed, Ordering::Release);
        true
    }

    /// Leaves a word for the sender to see before it sends.
    pub fn set_hint(&self, hint: u64) {
        self.memory.word(HINT).store(hint, Ordering::Relaxed);
    }
}

fn check_geometry(memory: &SharedMemory, block_bytes: usize) {
    assert!(memory.len_bytes() >= BlockSender::footprint(block_bytes), "the block fits its memory");
    assert!(block_bytes >= 16 * CACHE_LINE_BYTES && block_bytes.is_multiple_of(4 * CACHE_LINE_BYTES));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn pair(block_bytes: usize) -> (BlockSender, BlockReceiver) {
        let memory = SharedMemory::private(BlockSender::footprint(block_bytes));
        (BlockSender::new(memory.clone(), block_bytes), BlockReceiver::new(memory, block_bytes))
    }

    /// A small generator of numbers; the seed is printed when something fails.
    struct Random(u64);
    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) as usize % limit
        }
    }

    #[test]
    fn records_arrive_whole_in_order_and_nothing_else_does() {
        for seed in 0..200 {
            let (mut sender, mut receiver) = pair(1024 << (seed % 3));
            let mut random = Random(seed);
            let mut sent: VecDeque<(Record, Vec<u8>)> = VecDeque::new();
            let mut number = 0u32;
            for _ in 0..2000 {
                if random.below(2) == 0 {
                    let len = random.below(sender.payload_max_bytes() + 1);
                    // Payload that looks like flags, to catch a stale one being taken for an arrival.
                    let payload = vec![0xff; len];
                    let record = Record { kind: 1 + (number % 200) as u8, short: number & 0xffffff, long: 1 << 100 };
                    let pushed = sender.push(record, len, |space| space.copy_from_slice(&payload));
                    assert!(pushed || !sent.is_empty(), "seed {seed}: an empty block has room");
                    if pushed {
                        sent.push_back((record, payload));
                        number += 1;
                    }
                } else {
                    let expected = sent.front().cloned();
                    let mut got = None;
                    receiver.pop(|record, payload| got = Some((record, payload.to_vec())));
                    assert_eq!(got, expected, "seed {seed}");
                    sent.pop_front();
                    receiver.return_credits();
                }
            }
            assert!(number > 100, "seed {seed}: the channel moved on");
        }
    }

    #[test]
    fn a_full_block_says_so_and_recovers() {
        let (mut sender, mut receiver) = pair(1024);
        let mut count = 0;
        while sender.push(Record { kind: 1, ..Record::default() }, 8, |_| ()) {
            count += 1;
        }
        assert_eq!(count, 15, "one line stays free for the next arrival");
        for _ in 0..count {
            assert!(receiver.pop(|_, _| ()));
            receiver.return_credits();
        }
        assert!(!receiver.pop(|_, _| ()));
        assert!(sender.push(Record { kind: 1, ..Record::default() }, 8, |_| ()));
    }

    #[test]
    fn a_length_beyond_the_block_is_refused() {
        let memory = SharedMemory::private(BlockSender::footprint(1024));
        let mut receiver = BlockReceiver::new(memory.clone(), 1024);
        memory.word(CONTROL_BYTES + 1024 - 8).store(1 << 56 | 0xffff_ffff, Ordering::Release);
        assert!(!receiver.pop(|_, _| panic!("nothing valid arrived")));
    }

    #[test]
    fn two_threads_pass_a_stream() {
        let (mut sender, mut receiver) = pair(4096);
        let total = 20_000u64;
        let writer = std::thread::spawn(move || {
            for number in 0..total {
                let len = 8 + (number as usize * 37) % 900;
                while !sender.push(Record { kind: 3, short: 0, long: number.into() }, len, |space| {
                    space.fill(number as u8);
                    space[..8].copy_from_slice(&number.to_ne_bytes());
                }) {
                    std::thread::yield_now();
                }
            }
        });
        let mut next = 0u64;
        while next < total {
            let moved = receiver.pop(|record, payload| {
                assert_eq!(record.long, next.into());
                assert_eq!(payload[..8], next.to_ne_bytes());
                assert!(payload[8..].iter().all(|byte| *byte == next as u8));
                next += 1;
            });
            if !receiver.return_credits() && !moved {
                std::thread::yield_now();
            }
        }
        writer.join().expect("no panic");
    }
}
