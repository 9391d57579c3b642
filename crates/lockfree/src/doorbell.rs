//! The doorbell of a process: who sleeps says so, who brings work rings only if somebody sleeps.
//!
//! ```text
//!   sleeper                          bringer
//!   sleepers += 1   (SeqCst)         publish the work
//!   ticket = rings                   fence (SeqCst)
//!   poll once more  ──nothing──      sleepers == 0 ? done
//!   sleep while rings == ticket      rings += 1; wake
//! ```
//! Either the sleeper's last poll sees the work or the bringer sees the sleeper: the two SeqCst
//! accesses can not both miss.

use base::sync::{AtomicU32, Ordering, fence};

use crate::{CACHE_LINE_BYTES, SharedMemory};

const SLEEPERS: usize = 0;
const RINGS: usize = 4;

/// What a sleeper remembers: the number of rings when it announced itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "announce is followed by a sleep or a withdrawal"]
pub struct Ticket(u32);

impl Ticket {
    /// The ring count to sleep on.
    pub fn rings(self) -> u32 {
        self.0
    }
}

/// One cache line: how many sleep, and how often it rang.
#[derive(Clone)]
pub struct Doorbell {
    memory: SharedMemory,
}

impl Doorbell {
    /// Bytes a doorbell takes.
    pub const FOOTPRINT: usize = CACHE_LINE_BYTES;

    /// The doorbell in `memory`, zeroed before its first use.
    ///
    /// # Panics
    /// If `memory` is shorter than [`Doorbell::FOOTPRINT`].
    pub fn new(memory: SharedMemory) -> Self {
        assert!(memory.len_bytes() >= Self::FOOTPRINT, "a doorbell takes a cache line");
        Self { memory }
    }

    /// Says that the caller is about to sleep. It must look for work once more after this.
    pub fn announce(&self) -> Ticket {
        self.memory.half(SLEEPERS).fetch_add(1, Ordering::SeqCst);
        let ticket = Ticket(self.memory.half(RINGS).load(Ordering::SeqCst));
        // Pairs with the fence in `must_ring`.
        fence(Ordering::SeqCst);
        ticket
    }

    /// Takes an announcement back.
    pub fn withdraw(&self) {
        self.memory.half(SLEEPERS).fetch_sub(1, Ordering::Relaxed);
    }

    /// After work was published: true if somebody sleeps and has to be woken (the ring is counted).
    #[inline]
    pub fn must_ring(&self) -> bool {
        // Pairs with the fence in `announce`.
        fence(Ordering::SeqCst);
        if self.memory.half(SLEEPERS).load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.memory.half(RINGS).fetch_add(1, Ordering::SeqCst);
        true
    }

    /// True if it rang since the ticket was drawn.
    pub fn rang(&self, ticket: Ticket) -> bool {
        self.memory.half(RINGS).load(Ordering::Acquire) != ticket.0
    }

    /// The word to sleep on while it equals [`Ticket::rings`].
    pub fn futex_word(&self) -> &AtomicU32 {
        self.memory.half(RINGS)
    }
}
