//! The boards of a communicator's group, once they are worth having.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use engine::{BOARDS_MAX, BoardOffer, GroupBoard, PeerId};

use super::Comm;
use super::tree::TreeRound;
use crate::error::{ErrorClass, Result};
use crate::world::World;

/// Calls that could have used boards before the members look for some: most communicators are used seldom.
const CALLS_BEFORE_FIRST: u32 = 8;
/// And before they look again, if there were none to be had.
const CALLS_BEFORE_NEXT: u32 = 1024;

/// A communicator's boards.
#[derive(Default)]
pub(super) struct Boards {
    /// Calls since the members looked last.
    calls: AtomicU32,
    has_looked: std::sync::atomic::AtomicBool,
    group: OnceLock<Box<GroupBoard>>,
}

impl Comm {
    /// The boards of the group, if its members have some in common. Every member asks in the same calls, and now and
    /// then they agree here.
    #[inline]
    pub(crate) fn boards(&self, world: &World) -> Option<&GroupBoard> {
        match self.boards.group.get() {
            Some(group) => Some(group),
            None => self.look_for_boards(world),
        }
    }

    #[cold]
    fn look_for_boards(&self, world: &World) -> Option<&GroupBoard> {
        let patience =
            if self.boards.has_looked.load(Ordering::Relaxed) { CALLS_BEFORE_NEXT } else { CALLS_BEFORE_FIRST };
        if self.boards.calls.fetch_add(1, Ordering::Relaxed) < patience {
            return None;
        }
        self.boards.calls.store(0, Ordering::Relaxed);
        self.boards.has_looked.store(true, Ordering::Relaxed);
        let table = &self.commons.boards;
        let Ok(offered) = self.gather_offers(world, &table.offer()) else {
            table.take_back();
            return None;
        };
        let peers: Vec<PeerId> = (0..self.size()).map(|rank| self.peer_of(rank)).collect();
        let group = table.settle(&world.engine.borrow(), &peers, &offered)?;
        Some(self.boards.group.get_or_init(|| Box::new(group)))
    }

    /// The greatest of what all members offer.
    fn gather_offers(&self, world: &World, own: &BoardOffer) -> Result<BoardOffer> {
        let mut round = TreeRound::gather(self.collective_tree(), encode(own));
        let mut greatest = |records: &[u8], _: &[u8]| {
            let offers = records.chunks(OFFER_BYTES).map(decode).collect::<Option<Vec<_>>>();
            let offers = offers.ok_or_else(malformed)?;
            Ok(encode(&offers.iter().fold(*own, |all, offer| all.merge(offer))))
        };
        let answer = world.wait_until(|world| match round.advance(world, &mut greatest) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        })?;
        decode(&answer).ok_or_else(malformed)
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
