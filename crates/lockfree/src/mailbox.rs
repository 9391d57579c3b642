//! The slow path on mapped memory: one queue of equal slots in the receiver's memory, into which all its senders write.
//!
//! It is what channel semantics are on an adapter, receives posted to one shared queue (Paper: mpich2-ib): memory does
//! not grow with the number of senders, but each record is claimed with an atomic operation on a line that all senders
//! share.
//!
//! ```text
//!   line 0   hint | awaited  line 1   tickets drawn
//!   slot     turn | from | flag | long | payload
//! ```
//! A slot's turn says whose it is: `2 n` free in lap *n*, `2 n + 1` holds a record of lap *n*. A sender draws a ticket
//! for the slot whose turn it is; records of one sender are taken in the order of their tickets. A sender that dies
//! between its ticket and its flag stops the mailbox; its death is the end of the job anyway.
//!
//! A sender that finds no room says that room is awaited and looks once more: either it finds some then, or the receiver,
//! who looks at that word after it has made room, sees it and wakes its senders.

use base::sync::{Ordering, fence};

use crate::fastpath::{HINT, flag_word, parse_flag};
use crate::{CACHE_LINE_BYTES, Record, SharedMemory};

/// Bytes of a slot.
const SLOT_BYTES: usize = 4 << 10;
/// Slots of a mailbox.
const SLOT_COUNT: usize = 64;
/// Beside the hint, which senders read and nobody writes often.
const AWAITED: usize = HINT + 8;
const TICKETS: usize = CACHE_LINE_BYTES;
const SLOTS: usize = 2 * CACHE_LINE_BYTES;
const FROM: usize = 8;
const FLAG: usize = 16;
const LONG: usize = 24;
const PAYLOAD: usize = 40;
/// Longest payload of a record, in bytes.
pub const PAYLOAD_MAX_BYTES: usize = SLOT_BYTES - PAYLOAD;
/// Bytes of a mailbox.
pub const FOOTPRINT: usize = SLOTS + SLOT_COUNT * SLOT_BYTES;

/// Slot and lap of a ticket.
fn place(ticket: u64) -> (usize, u64) {
    (SLOTS + (ticket % SLOT_COUNT as u64) as usize * SLOT_BYTES, ticket / SLOT_COUNT as u64)
}

/// One of many sending ends.
pub struct MailboxSender {
    memory: SharedMemory,
    from: u32,
}

/// The receiving end.
pub struct MailboxReceiver {
    memory: SharedMemory,
    taken: u64,
}

impl MailboxSender {
    /// A sending end, of the process `from`, over `memory`, zeroed before its first use.
    ///
    /// # Panics
    /// If `memory` is shorter than [`FOOTPRINT`].
    pub fn new(memory: SharedMemory, from: u32) -> Self {
        assert!(memory.len_bytes() >= FOOTPRINT, "the slots fit their memory");
        Self { memory, from }
    }

    /// Appends a record of `len_bytes`, whose payload `fill` writes; false if there is no room now.
    ///
    /// # Panics
    /// If `len_bytes` exceeds [`PAYLOAD_MAX_BYTES`].
    pub fn push(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        assert!(len_bytes <= PAYLOAD_MAX_BYTES, "a record fits a slot");
        let Some((at, lap)) = self.draw().or_else(|| self.draw_awaiting()) else { return false };
        // SAFETY: the ticket gives this slot to this sender alone until its turn is published.
        unsafe { self.memory.write(at + PAYLOAD, len_bytes, fill) };
        let flag = flag_word(record, 0, len_bytes);
        let words = [(FROM, self.from.into()), (FLAG, flag), (LONG, record.long as u64)];
        for (offset, word) in words.into_iter().chain([(LONG + 8, (record.long >> 64) as u64)]) {
            self.memory.word(at + offset).store(word, Ordering::Relaxed);
        }
        // Release: who sees the turn sees the record. Pairs with the load in `pop`.
        self.memory.word(at).store(2 * lap + 1, Ordering::Release);
        true
    }

    /// The slot and lap that are this sender's to fill, if there is room.
    fn draw(&self) -> Option<(usize, u64)> {
        let tickets = self.memory.word(TICKETS);
        let mut ticket = tickets.load(Ordering::Relaxed);
        loop {
            let (at, lap) = place(ticket);
            // Acquire: the receiver is through with the slot. Pairs with the store in `pop`.
            let turn = self.memory.word(at).load(Ordering::Acquire);
            if turn < 2 * lap {
                return None;
            }
            let drawn = if turn == 2 * lap {
                tickets.compare_exchange_weak(ticket, ticket + 1, Ordering::Relaxed, Ordering::Relaxed)
            } else {
                // Somebody drew it meanwhile.
                Err(tickets.load(Ordering::Relaxed))
            };
            match drawn {
                Ok(_) => return Some((at, lap)),
                // The count goes on, or somebody damaged it: then there is no room.
                Err(now) if now < ticket || (now == ticket && turn != 2 * lap) => return None,
                Err(now) => ticket = now,
            }
        }
    }

    /// As [`MailboxSender::draw`], after there was no room, of which the receiver hears.
    #[cold]
    fn draw_awaiting(&self) -> Option<(usize, u64)> {
        self.memory.word(AWAITED).store(1, Ordering::Relaxed);
        // Pairs with the fence in `take_awaited`.
        fence(Ordering::SeqCst);
        self.draw()
    }

    /// What the receiver asked of its senders.
    pub fn hint(&self) -> u64 {
        self.memory.word(HINT).load(Ordering::Relaxed)
    }
}

impl MailboxReceiver {
    /// The receiving end over `memory`.
    ///
    /// # Panics
    /// As [`MailboxSender::new`].
    pub fn new(memory: SharedMemory) -> Self {
        assert!(memory.len_bytes() >= FOOTPRINT, "the slots fit their memory");
        Self { memory, taken: 0 }
    }

    /// True if nothing has arrived.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let (at, lap) = place(self.taken);
        // Relaxed: `pop` orders.
        self.memory.word(at).load(Ordering::Relaxed) != 2 * lap + 1
    }

    /// Takes the next record, if one has arrived, and shows it to `take` with the process it says it is from; neither
    /// is to be trusted.
    pub fn pop(&mut self, take: impl FnOnce(u32, Record, &[u8])) -> bool {
        let (at, lap) = place(self.taken);
        // Acquire pairs with the release in `push`.
        if self.memory.word(at).load(Ordering::Acquire) != 2 * lap + 1 {
            return false;
        }
        let [from, flag, low, high] =
            [FROM, FLAG, LONG, LONG + 8].map(|offset| self.memory.word(at + offset).load(Ordering::Relaxed));
        let (record, len_bytes) = parse_flag(flag, low, high);
        if len_bytes <= PAYLOAD_MAX_BYTES {
            let take = |payload: &[u8]| take(u32::try_from(from).unwrap_or(u32::MAX), record, payload);
            // SAFETY: inside the slot by the check above; no sender writes it before its turn goes on.
            unsafe { self.memory.read(at + PAYLOAD, len_bytes, take) };
        }
        // Release: our reads are over. Pairs with the load in `draw`.
        self.memory.word(at).store(2 * lap + 2, Ordering::Release);
        self.taken += 1;
        true
    }

    /// After records were taken: true if a sender has found no room since this was asked last. It may sleep by now; one
    /// that does not looks again before it does.
    pub fn take_awaited(&mut self) -> bool {
        let awaited = self.memory.word(AWAITED);
        // Pairs with the fence in `draw_awaiting`: either its sender sees the room, or this sees its word.
        fence(Ordering::SeqCst);
        let is_awaited = awaited.load(Ordering::Relaxed) != 0;
        if is_awaited {
            awaited.store(0, Ordering::Relaxed);
        }
        is_awaited
    }

    /// Leaves a word for all senders to see before they send.
    pub fn set_hint(&self, hint: u64) {
        self.memory.word(HINT).store(hint, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::times;

    #[test]
    fn a_full_mailbox_says_so_and_recovers() {
        let memory = SharedMemory::private(FOOTPRINT);
        let mut senders = [0, 1].map(|from| MailboxSender::new(memory.clone(), from));
        let mut receiver = MailboxReceiver::new(memory);
        let mut next = 0u64;
        for _ in 0..3 {
            let mut count = 0;
            let record = |count| Record { kind: 1, long: count as u128, ..Record::default() };
            while senders[count % 2].push(record(count), count, |_| ()) {
                count += 1;
            }
            assert_eq!(count, SLOT_COUNT);
            assert!(receiver.take_awaited() && !receiver.take_awaited(), "once for all who were refused");
            for expected in 0..count {
                assert!(receiver.pop(|from, record, payload| {
                    assert_eq!((from as usize, record.long, payload.len()), (expected % 2, expected as u128, expected));
                    next += 1;
                }));
            }
            assert!(receiver.is_empty() && !receiver.pop(|_, _, _| panic!("it is empty")));
        }
        assert_eq!(next, 3 * SLOT_COUNT as u64);
    }

    #[test]
    fn many_threads_keep_their_own_order() {
        let memory = SharedMemory::private(FOOTPRINT);
        let mut receiver = MailboxReceiver::new(memory.clone());
        let total = times(3000, 6);
        std::thread::scope(|scope| {
            for from in 0..4 {
                let mut sender = MailboxSender::new(memory.clone(), from);
                scope.spawn(move || {
                    for number in 0..total {
                        let len = (number * 37 % 3000) as usize;
                        let record = Record { kind: 2, long: number.into(), ..Record::default() };
                        while !sender.push(record, len, |space| space.fill(number as u8 ^ from as u8)) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut next = [0u64; 4];
            while next.iter().sum::<u64>() < 4 * total {
                let moved = receiver.pop(|from, record, payload| {
                    let number = &mut next[from as usize];
                    assert_eq!(record.long, (*number).into());
                    assert_eq!(payload.len() as u64, *number * 37 % 3000);
                    assert!(payload.iter().all(|byte| *byte == *number as u8 ^ from as u8));
                    *number += 1;
                });
                if !moved {
                    std::thread::yield_now();
                }
            }
        });
    }

    #[test]
    fn a_length_beyond_the_slot_is_passed_over() {
        let memory = SharedMemory::private(FOOTPRINT);
        let mut receiver = MailboxReceiver::new(memory.clone());
        memory.word(SLOTS + FLAG).store(1 << 56 | 0xff_ffff, Ordering::Relaxed);
        memory.word(SLOTS).store(1, Ordering::Release);
        assert!(receiver.pop(|_, _, _| panic!("nothing valid arrived")));
    }
}
