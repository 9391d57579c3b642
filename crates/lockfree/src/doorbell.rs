//! The doorbell of a process: who sleeps says so, who brings work rings only if somebody sleeps.
//!
//! ```text
//!   sleeper                          bringer
//!   sleepers += 1                    publish the work
//!   barrier                          barrier
//!   ticket = rings                   sleepers == 0 ? done
//!   poll once more  ──nothing──      rings += 1; wake
//!   sleep while rings == ticket
//! ```
//! Either the sleeper's last poll sees the work or the bringer sees the sleeper: a store and the load after it must
//! not change places on either side.
//!
//! A bringer's barrier would be paid by every message, and it would wait until the message has left the store
//! buffer: several hundred cycles when the line is with the other core. Where the system offers a barrier that one
//! process imposes on all others ([`Barrier::Imposed`]; `membarrier` on Linux), the sleeper imposes it before it
//! sleeps and bringers pay nothing. A process that can not do so says so in its doorbell, and its bringers go the
//! slow way.

use base::sync::{AtomicU32, Ordering, compiler_fence, fence};

use crate::{CACHE_LINE_BYTES, SharedMemory};

const SLEEPERS: usize = 0;
const RINGS: usize = 4;
/// In the word of sleepers: this process imposes no barrier, so its bringers need one of their own.
const BRINGER_NEEDS_BARRIER: u32 = 1 << 31;

/// How the two sides' accesses are kept in order.
#[derive(Clone, Copy, Debug)]
pub enum Barrier {
    /// Each side executes its own.
    Own,
    /// This process is one of those on which barriers can be imposed, and this function imposes one on all of them.
    Imposed(fn()),
}

/// What a sleeper remembers: the number of rings when it announced itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "announce is followed by a sleep or a withdrawal"]
pub struct Ticket(u32);

impl Ticket {
    /// The ticket of a bell that has rung so often.
    pub fn new(rings: u32) -> Self {
        Self(rings)
    }

    /// The ring count to sleep on.
    pub fn rings(self) -> u32 {
        self.0
    }
}

/// One cache line: how many sleep, and how often it rang.
#[derive(Clone)]
pub struct Doorbell {
    memory: SharedMemory,
    barrier: Barrier,
}

impl Doorbell {
    /// Bytes a doorbell takes.
    pub const FOOTPRINT: usize = CACHE_LINE_BYTES;

    /// The doorbell in `memory`, zeroed before its first use, as a process with `barrier` uses it.
    ///
    /// # Panics
    /// If `memory` is shorter than [`Doorbell::FOOTPRINT`].
    pub fn new(memory: SharedMemory, barrier: Barrier) -> Self {
        assert!(memory.len_bytes() >= Self::FOOTPRINT, "a doorbell takes a cache line");
        Self { memory, barrier }
    }

    /// Says, once and before anything else, that this process will sleep here. A bringer that does not see this yet
    /// might let one sleep last until its time is up, no longer.
    pub fn own(&self) {
        if matches!(self.barrier, Barrier::Own) {
            self.memory.half(SLEEPERS).fetch_or(BRINGER_NEEDS_BARRIER, Ordering::SeqCst);
        }
    }

    /// Says that the caller is about to sleep. It must look for work once more after this.
    pub fn announce(&self) -> Ticket {
        self.memory.half(SLEEPERS).fetch_add(1, Ordering::SeqCst);
        // Pairs with the barrier in `must_ring`.
        match self.barrier {
            Barrier::Own => fence(Ordering::SeqCst),
            Barrier::Imposed(impose) => impose(),
        }
        Ticket(self.memory.half(RINGS).load(Ordering::SeqCst))
    }

    /// Takes an announcement back.
    pub fn withdraw(&self) {
        self.memory.half(SLEEPERS).fetch_sub(1, Ordering::Relaxed);
    }

    /// After work was published: true if somebody sleeps and has to be woken (the ring is counted).
    #[inline]
    pub fn must_ring(&self) -> bool {
        // Pairs with the barrier in `announce`.
        match self.barrier {
            Barrier::Own => fence(Ordering::SeqCst),
            Barrier::Imposed(_) => compiler_fence(Ordering::SeqCst),
        }
        self.memory.half(SLEEPERS).load(Ordering::Relaxed) != 0 && self.must_ring_somebody()
    }

    #[cold]
    fn must_ring_somebody(&self) -> bool {
        fence(Ordering::SeqCst);
        if self.memory.half(SLEEPERS).load(Ordering::Relaxed) & !BRINGER_NEEDS_BARRIER == 0 {
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
