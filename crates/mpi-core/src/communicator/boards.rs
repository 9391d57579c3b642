//! The boards of a communicator's group, once they are worth having: some for calls that wait, others for operations in
//! the background.
//!
//! Each are used by one operation at a time, in the order of calls, which is the same in all members. A call that waits
//! finds its boards free; operations in the background draw turns. Whether there are boards is found out in some call by
//! all members together; operations that are started meanwhile have a turn behind it, and see then.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Poll;

use engine::{BOARDS_MAX, BoardOffer, GroupBoard, PeerId};

use super::tree::{Tree, TreeRound};
use super::{Comm, Sequence};
use crate::error::ErrorClass;
use crate::world::World;

/// Calls that could have used boards before the members look for some: most communicators are used seldom.
const CALLS_BEFORE_FIRST: u32 = 8;
/// And before they look again, if there were none to be had.
const CALLS_BEFORE_NEXT: u32 = 1024;

/// Boards for one sequence of calls.
#[derive(Default)]
pub(super) struct Boards {
    /// Calls since the members looked last.
    calls: AtomicU32,
    has_looked: AtomicBool,
    group: OnceLock<Box<GroupBoard>>,
}

/// Boards for operations in the background, and whose turn it is.
#[derive(Default)]
pub(super) struct QueuedBoards {
    boards: Boards,
    /// Turns given out, and those that are over.
    drawn: AtomicU64,
    done: AtomicU64,
}

/// A turn of an operation in the background at the boards of its communicator, until [`Comm::end_turn`].
pub(crate) struct Turn {
    number: u64,
    /// When it comes, the members look for boards.
    search: Option<Box<Search>>,
}

impl Comm {
    /// The boards of the group for calls that wait, if its members have some in common. Every member asks in the same
    /// calls, and now and then they agree here.
    #[inline]
    pub(crate) fn boards(&self, world: &World) -> Option<&GroupBoard> {
        match self.boards.group.get() {
            Some(group) => Some(group),
            None => self.look_for_boards(world),
        }
    }

    #[cold]
    fn look_for_boards(&self, world: &World) -> Option<&GroupBoard> {
        if !self.boards.is_time_to_look() {
            return None;
        }
        let mut search = Search::over(self.collective_tree());
        let found = world.wait_until(|world| match search.advance(world, self) {
            Poll::Ready(found) => Some(found),
            Poll::Pending => None,
        });
        found.map(|group| &**self.boards.group.get_or_init(|| Box::new(group)))
    }

    /// A turn at the boards for operations in the background, for one that starts; `None` if there are none yet.
    #[inline]
    pub(crate) fn draw_turn(&self) -> Option<Turn> {
        let QueuedBoards { boards, drawn, done } = &self.queued_boards;
        // A load and a store, no addition that locks: calls on one communicator are ordered by the user, and their turns end
        // behind the gate.
        let number = drawn.load(Ordering::Relaxed);
        let mut search = None;
        if boards.group.get().is_none() {
            if boards.is_time_to_look() {
                search = Some(self.search());
            } else if number == done.load(Ordering::Relaxed) {
                return None;
            }
        }
        drawn.store(number + 1, Ordering::Relaxed);
        Some(Turn { number, search })
    }

    #[cold]
    fn search(&self) -> Box<Search> {
        let tag = self.next_collective_tag(Sequence::Search);
        Box::new(Search::over(self.tree(self.collective(), tag)))
    }

    /// The boards for operations in the background, at one's turn.
    #[inline]
    pub(crate) fn queued_boards(&self) -> Option<&GroupBoard> {
        self.queued_boards.boards.group.get().map(|group| &**group)
    }

    /// The same if it is this turn, and is known that there are some.
    #[inline]
    pub(crate) fn boards_at(&self, turn: &Turn) -> Option<&GroupBoard> {
        self.is_at(turn).then(|| self.queued_boards()).flatten()
    }

    /// Whether there are boards, once it is this turn.
    pub(crate) fn poll_turn(&self, turn: &mut Turn, world: &World) -> Poll<bool> {
        if !self.is_at(turn) {
            return Poll::Pending;
        }
        let boards = &self.queued_boards.boards;
        if let (None, Some(search)) = (boards.group.get(), &mut turn.search) {
            match search.advance(world, self) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(found) => {
                    turn.search = None;
                    found.map(|group| boards.group.set(Box::new(group)));
                }
            }
        }
        Poll::Ready(boards.group.get().is_some())
    }

    #[inline]
    fn is_at(&self, turn: &Turn) -> bool {
        self.queued_boards.done.load(Ordering::Relaxed) == turn.number
    }

    /// The next operation may use the boards.
    #[inline]
    pub(crate) fn end_turn(&self, turn: &Turn) {
        let done = &self.queued_boards.done;
        // As in `draw_turn`. Who gives its turn up before it has come gives up those before it, too.
        let others = done.load(Ordering::Relaxed);
        done.store(others.max(turn.number + 1), Ordering::Relaxed);
    }
}

impl Boards {
    /// Counts a call that could have used some.
    fn is_time_to_look(&self) -> bool {
        let patience = if self.has_looked.load(Ordering::Relaxed) { CALLS_BEFORE_NEXT } else { CALLS_BEFORE_FIRST };
        let is_time = self.calls.fetch_add(1, Ordering::Relaxed) >= patience;
        if is_time {
            self.calls.store(0, Ordering::Relaxed);
            self.has_looked.store(true, Ordering::Relaxed);
        }
        is_time
    }
}

/// Members finding out which boards they have in common.
struct Search {
    tree: Tree,
    /// What this member offers.
    under_way: Option<(BoardOffer, TreeRound)>,
}

impl Search {
    fn over(tree: Tree) -> Search {
        Search { tree, under_way: None }
    }

    /// Goes on; gives what was found, once that is known.
    fn advance(&mut self, world: &World, comm: &Comm) -> Poll<Option<GroupBoard>> {
        let table = &comm.commons.boards;
        let (own, round) = self.under_way.get_or_insert_with(|| {
            let own = table.offer();
            (own, TreeRound::gather(self.tree.clone(), encode(&own)))
        });
        let mut greatest = |records: &[u8], _: &[u8]| {
            let offers = records.chunks(OFFER_BYTES).map(decode).collect::<Option<Vec<_>>>();
            let offers = offers.ok_or_else(malformed)?;
            Ok(encode(&offers.iter().fold(*own, |all, offer| all.merge(offer))))
        };
        let answer = match round.advance(world, &mut greatest) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(answer) => answer,
        };
        let Some(offered) = answer.ok().and_then(|answer| decode(&answer)) else {
            table.take_back();
            return Poll::Ready(None);
        };
        let peers: Vec<PeerId> = (0..comm.size()).map(|rank| comm.peer_of(rank)).collect();
        Poll::Ready(table.settle(&world.engine.borrow(), &peers, &offered, comm.is_oversubscribed()))
    }
}

const OFFER_BYTES: usize = 8 * (BOARDS_MAX + 1);
/// Nobody has taken so many steps, and counting on from there does not overflow.
const STEPS_MAX: u64 = 1 << 62;

fn encode(offer: &BoardOffer) -> Vec<u8> {
    offer.taken.iter().chain([&offer.highest_step]).flat_map(|word| word.to_le_bytes()).collect()
}

fn decode(bytes: &[u8]) -> Option<BoardOffer> {
    let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let mut taken = [0; BOARDS_MAX];
    for taken in &mut taken {
        *taken = words.next()?;
    }
    let highest_step = words.next().filter(|step| *step < STEPS_MAX)?;
    (bytes.len() == OFFER_BYTES).then_some(BoardOffer { taken, highest_step })
}

fn malformed() -> crate::Error {
    ErrorClass::Intern.error("agreeing on boards: an offer makes no sense")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_offer_comes_back_as_it_went_and_nonsense_is_refused(bytes in proptest::collection::vec(any::<u8>(), OFFER_BYTES - 1..OFFER_BYTES + 2)) {
            match decode(&bytes) {
                Some(offer) => prop_assert_eq!(encode(&offer), bytes),
                None => prop_assert!(bytes.len() != OFFER_BYTES || bytes[OFFER_BYTES - 1] >= 0x40),
            }
        }
    }
}
