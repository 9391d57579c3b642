//! Entries that an owner shows to its peers, who act on them without asking: keys of memory, say. A peer says what it
//! is engaged with while it acts, so that the owner, having withdrawn an entry, can tell when the last one is through.
//!
//! ```text
//!   owner                                  peer
//!   state = generation, live               engaged = mark; fence  (SeqCst)
//!   …                                      look: state as expected? words? state again?
//!   withdraw: not live; fence (SeqCst)       ──no──▶ engaged = 0, gone
//!   engaged == mark ? not yet : free       act; engaged = 0       (Release)
//! ```
//! Either the peer's look sees that the entry is withdrawn or the owner sees that the peer is engaged: with a fence
//! between store and look on both sides they can not both miss. The mark stands in the peer's own memory, so a peer that
//! dies while engaged is told by its death.
//!
//! A state is shown once: whatever an entry says next, under the same generation too, it says under another state. So a
//! peer need not read an entry again that it acts on often: one look at the state tells whether it still says the same.
//!
//! ```text
//!   state = generation:16 | times shown:47 | live:1
//! ```

use base::sync::{Ordering, fence};

use crate::{CACHE_LINE_BYTES, SharedMemory, SharedWord};

const ENTRY_BYTES: usize = 32;
const LIVE: u64 = 1;
/// One more time shown.
const SHOWN: u64 = 2;
const GENERATION_SHIFT: u32 = 48;
const TIMES_SHOWN: u64 = (1 << GENERATION_SHIFT) - SHOWN;

/// What an entry said.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Its words.
    pub words: [u64; 3],
    at: usize,
    state: u64,
}

/// An entry as it was seen, for who comes back to it.
#[derive(Clone)]
pub struct Sight {
    word: SharedWord,
    state: u64,
}

impl Sight {
    /// True if the entry says the same as when it was seen; asked, as by [`PublishedTable::look`], by one who is engaged with
    /// it.
    #[inline]
    pub fn stands(&self) -> bool {
        self.word.load(Ordering::Acquire) == self.state
    }
}

/// A table of entries of three words each.
#[derive(Clone)]
pub struct PublishedTable {
    memory: SharedMemory,
    entries: u32,
}

impl PublishedTable {
    /// Bytes of a table of `entries`.
    pub const fn footprint(entries: u32) -> usize {
        (entries as usize * ENTRY_BYTES).next_multiple_of(CACHE_LINE_BYTES)
    }

    /// The table in `memory`, zeroed before its first use.
    ///
    /// # Panics
    /// If `memory` is too short.
    pub fn new(memory: SharedMemory, entries: u32) -> Self {
        assert!(memory.len_bytes() >= Self::footprint(entries), "the table fits its memory");
        Self { memory, entries }
    }

    /// The owner shows an entry, which is not shown now, under `generation`; false if the table has no such place.
    pub fn publish(&self, index: u32, generation: u16, words: [u64; 3]) -> bool {
        let Some(at) = self.offset(index) else { return false };
        // Only the owner writes it.
        let shown = self.memory.word(at).load(Ordering::Relaxed).wrapping_add(SHOWN) & TIMES_SHOWN;
        for (slot, word) in words.into_iter().enumerate() {
            self.memory.word(at + 8 + slot * 8).store(word, Ordering::Relaxed);
        }
        // Release: who sees the state sees the words. Pairs with the first load in `look`.
        self.memory.word(at).store(u64::from(generation) << GENERATION_SHIFT | shown | LIVE, Ordering::Release);
        true
    }

    /// The owner takes it back. Peers that are engaged with it may still act; see [`Engagement::is_with`].
    pub fn withdraw(&self, index: u32) {
        if let Some(at) = self.offset(index) {
            let state = self.memory.word(at);
            state.store(state.load(Ordering::Relaxed) & TIMES_SHOWN, Ordering::SeqCst);
            // Pairs with the fence in `Engagement::engage`. It also keeps the words of the next entry behind this.
            fence(Ordering::SeqCst);
        }
    }

    /// What a peer, engaged with it, sees; `None` if it is not there under `generation`.
    #[inline]
    pub fn look(&self, index: u32, generation: u16) -> Option<Look> {
        let at = self.offset(index)?;
        let [state, first, second, third] = self.memory.words(at);
        let seen = state.load(Ordering::Acquire);
        if seen & !TIMES_SHOWN != u64::from(generation) << GENERATION_SHIFT | LIVE {
            return None;
        }
        let words = [first.load(Ordering::Relaxed), second.load(Ordering::Relaxed), third.load(Ordering::Relaxed)];
        // The loads above are done before the state is looked at again.
        fence(Ordering::Acquire);
        (state.load(Ordering::Relaxed) == seen).then_some(Look { words, at, state: seen })
    }

    /// For a peer that will act by what it saw in this table more than once.
    pub fn remember(&self, look: &Look) -> Sight {
        Sight { word: self.memory.keep_word(look.at), state: look.state }
    }

    fn offset(&self, index: u32) -> Option<usize> {
        (index < self.entries).then_some(index as usize * ENTRY_BYTES)
    }
}

/// What a peer is engaged with, in its own memory: one thing at a time.
#[derive(Clone)]
pub struct Engagement {
    word: SharedWord,
}

impl Engagement {
    /// Bytes it takes.
    pub const FOOTPRINT: usize = CACHE_LINE_BYTES;

    /// The engagement in `memory`, zeroed before its first use.
    ///
    /// # Panics
    /// If `memory` is too short.
    pub fn new(memory: &SharedMemory) -> Self {
        assert!(memory.len_bytes() >= Self::FOOTPRINT, "an engagement takes a cache line");
        Self { word: memory.keep_word(0) }
    }

    /// The peer says what it is about to act on; `mark` is not 0.
    #[inline]
    pub fn engage(&self, mark: u64) {
        // Release, as in `release`: an owner that finds another mark sees what was done under the one before.
        self.word.store(mark, Ordering::Release);
        // Pairs with the fence in `PublishedTable::withdraw`: of what stands before them on both sides, one is seen by what
        // stands behind.
        fence(Ordering::SeqCst);
    }

    /// The peer is through.
    #[inline]
    pub fn release(&self) {
        // Release: what the peer did is done. Pairs with the load in `is_with`, as the store in `engage` does.
        self.word.store(0, Ordering::Release);
    }

    /// True if the peer is engaged with `mark`; asked by an owner that has withdrawn it.
    pub fn is_with(&self, mark: u64) -> bool {
        self.word.load(Ordering::Acquire) == mark
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_seen_under_its_generation_only() {
        let table = PublishedTable::new(SharedMemory::private(PublishedTable::footprint(3)), 3);
        assert!(table.publish(2, 7, [1, 2, 3]));
        assert_eq!(table.look(2, 7).map(|look| look.words), Some([1, 2, 3]));
        assert!([(2, 6), (1, 7), (0, 0)].iter().all(|(index, generation)| table.look(*index, *generation).is_none()));
        assert!(!table.publish(3, 1, [0; 3]) && table.look(3, 1).is_none(), "outside");
        table.withdraw(2);
        assert!(table.look(2, 7).is_none() && table.look(2, 0).is_none());
        table.withdraw(100);
    }

    #[test]
    fn what_was_seen_stands_until_it_is_withdrawn_and_not_again_when_it_is_back() {
        let table = PublishedTable::new(SharedMemory::private(PublishedTable::footprint(2)), 2);
        let mut sights = Vec::new();
        for words in [[1, 2, 3], [1, 2, 3], [4, 5, 6]] {
            assert!(table.publish(1, u16::MAX, words));
            let look = table.look(1, u16::MAX).expect("it is shown");
            assert_eq!(look.words, words);
            let sight = table.remember(&look);
            assert!(sight.stands() && !sights.iter().any(Sight::stands), "{words:?}");
            table.withdraw(1);
            assert!(!sight.stands());
            sights.push(sight);
        }
    }
}
