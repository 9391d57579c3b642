//! Which number separates the messages of one communicator from those of all others.
//!
//! A communicator needs a context id that no member uses for another communicator. Instead of
//! searching for a common free number with a reduction (which two overlapping creations can enter
//! at the same time, and have to retry), the numbers are divided among the processes beforehand:
//! process *p* of *n* owns the ids *p*, *p + n*, *p + 2n*, … The first member of the new
//! communicator, its *leader*, takes one of its own and tells the others. Two creations can never
//! propose the same id, whichever threads run them and however their groups overlap.
//!
//! ```text
//!   leader:   propose ──► fresh?  ── yes ─────────────────────► in use everywhere
//!                            │ no (used before, freed here)
//!                            ▼
//!   members:            still live here? ── nobody ───────────► in use everywhere
//!                            │ somebody has not freed it yet
//!                            └──► leader proposes another
//! ```
//!
//! A fresh id costs one broadcast. A recycled one is also confirmed by all members, because a
//! member may still hold the old communicator (its free is local, and pending operations delay it).
//! Ids are recycled first in, first out, so that a refusal is rare.
//!
//! A communicator with one member talks to itself only: its ids come from a private range of which
//! every process has the whole.
//!
//! **Invariants**
//! - An id is in `live` from its claim until the last reference to its communicator is gone,
//!   pending operations included.
//! - No live id is proposed by its owner.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::ContextId;

use crate::error::{ErrorClass, Result};

/// Names one communicator among those of its members.
///
/// The engine's contexts for point-to-point and collective messages derive from it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CommId(pub u32);

impl CommId {
    /// The id of the communicator of all processes.
    pub const WORLD: CommId = CommId(0);
    /// The id of the communicator of this process alone.
    pub const SELF: CommId = CommId(PRIVATE);

    /// The context of point-to-point messages.
    #[inline]
    pub const fn point_to_point(self) -> ContextId {
        ContextId(self.0 << 1)
    }

    /// The context of collective operations.
    #[inline]
    pub const fn collective(self) -> ContextId {
        ContextId(self.0 << 1 | 1)
    }

    /// True if the communicator has one member.
    pub const fn is_private(self) -> bool {
        self.0 & PRIVATE != 0
    }
}

/// An id its owner offers for a new communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Proposal {
    pub id: CommId,
    /// Was in use before: the members have to confirm that it is free with them.
    pub is_recycled: bool,
}

/// Ids with this bit belong to communicators with one member.
const PRIVATE: u32 = 1 << 30;
/// Ids are below this, with and without the private bit.
const IDS_MAX: u32 = 1 << 30;

/// The context ids of one process: those it owns, and those live here whoever owns them.
#[derive(Debug)]
pub(crate) struct ContextIds {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    owner: u32,
    owners: u32,
    ids_max: u32,
    /// Next id never proposed, as the number of rounds over the owners. Round 0 is predefined.
    next_round: u32,
    next_private: u32,
    /// Fresh proposals that came back unused.
    returned: Vec<u32>,
    recycled: Runs,
    recycled_private: Vec<u32>,
    live: HashSet<u32>,
}

impl ContextIds {
    /// The ids of process `owner` of `owners`.
    pub fn new(owner: u32, owners: u32) -> Self {
        Self::with_limit(owner, owners, IDS_MAX)
    }

    fn with_limit(owner: u32, owners: u32, ids_max: u32) -> Self {
        debug_assert!(owner < owners && ids_max <= IDS_MAX);
        ContextIds {
            state: Mutex::new(State {
                owner,
                owners,
                ids_max,
                next_round: 1,
                next_private: 1,
                returned: Vec::new(),
                recycled: Runs::default(),
                recycled_private: Vec::new(),
                live: HashSet::from([CommId::WORLD.0, CommId::SELF.0]),
            }),
        }
    }

    /// Has no id from `ids_max` up proposed from now on.
    pub fn limit(&self, ids_max: u32) {
        self.lock().ids_max = ids_max.min(IDS_MAX);
    }

    /// Takes an id for a communicator this process leads, and claims it here.
    ///
    /// # Errors
    /// `NoMem` when all ids this process owns are in use.
    pub fn propose(&self) -> Result<Proposal> {
        let mut state = self.lock();
        let (id, is_recycled) = if let Some(id) = state.returned.pop() {
            (id, false)
        } else if let Some(id) = state.next_fresh() {
            (id, false)
        } else if let Some(id) = state.take_recycled() {
            (id, true)
        } else {
            return ErrorClass::NoMem.fail(format!(
                "no context id is left for a new communicator: this process leads {} live ones",
                state.next_round - 1
            ));
        };
        state.live.insert(id);
        Ok(Proposal { id: CommId(id), is_recycled })
    }

    /// Takes an id for a communicator with this process as its only member.
    ///
    /// # Errors
    /// `NoMem` when all are in use.
    pub fn propose_private(&self) -> Result<CommId> {
        let mut state = self.lock();
        let id = match state.recycled_private.pop() {
            Some(id) => id,
            None if state.next_private < state.ids_max => {
                state.next_private += 1;
                PRIVATE | (state.next_private - 1)
            }
            None => return ErrorClass::NoMem.fail("no context id is left for a communicator of one process"),
        };
        state.live.insert(id);
        Ok(CommId(id))
    }

    /// Marks another's id as live here; false (and nothing marked) if it is live here already.
    pub fn claim(&self, id: CommId) -> bool {
        self.lock().live.insert(id.0)
    }

    /// Gives back a proposal that no communicator was made of.
    pub fn withdraw(&self, proposal: Proposal) {
        let mut state = self.lock();
        state.live.remove(&proposal.id.0);
        if proposal.is_recycled {
            state.recycle(proposal.id.0);
        } else {
            state.returned.push(proposal.id.0);
        }
    }

    /// The communicator is gone here; its owner may propose the id again.
    pub fn release(&self, id: CommId) {
        let mut state = self.lock();
        if !state.live.remove(&id.0) {
            return;
        }
        if id.is_private() {
            state.recycled_private.push(id.0);
        } else if id.0 % state.owners == state.owner {
            state.recycle(id.0);
        }
    }

    /// Number of communicators live here.
    pub fn live_count(&self) -> usize {
        self.lock().live.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A queue of numbers that mostly come in ascending order: as runs, so that a program that makes and
/// frees communicators all day keeps a few words.
#[derive(Debug, Default)]
struct Runs(VecDeque<(u32, u32)>);

impl Runs {
    fn push(&mut self, number: u32) {
        match self.0.back_mut() {
            Some((first, count)) if *first + *count == number => *count += 1,
            _ => self.0.push_back((number, 1)),
        }
    }

    fn pop(&mut self) -> Option<u32> {
        let (first, count) = self.0.front_mut()?;
        let number = *first;
        (*first, *count) = (number + 1, *count - 1);
        if *count == 0 {
            self.0.pop_front();
        }
        Some(number)
    }
}

impl State {
    /// Queues an id of ours by its round.
    fn recycle(&mut self, id: u32) {
        let round = id / self.owners;
        self.recycled.push(round);
    }

    fn take_recycled(&mut self) -> Option<u32> {
        let round = self.recycled.pop()?;
        Some(round * self.owners + self.owner)
    }

    fn next_fresh(&mut self) -> Option<u32> {
        let id = u64::from(self.next_round) * u64::from(self.owners) + u64::from(self.owner);
        if id >= u64::from(self.ids_max) {
            return None;
        }
        self.next_round += 1;
        u32::try_from(id).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids of a few processes, and a creation as the leader and the members perform it.
    struct Processes(Vec<ContextIds>);

    impl Processes {
        fn new(count: u32, ids_max: u32) -> Self {
            Processes((0..count).map(|p| ContextIds::with_limit(p, count, ids_max)).collect())
        }

        /// A communicator of `members`; also how often an id was refused.
        fn create(&self, members: &[usize]) -> Option<(CommId, u32)> {
            let leader = &self.0[members[0]];
            let mut refused = 0;
            loop {
                let proposal = leader.propose().ok()?;
                let claimed: Vec<_> = members[1..].iter().filter(|m| self.0[**m].claim(proposal.id)).collect();
                if claimed.len() == members.len() - 1 {
                    return Some((proposal.id, refused));
                }
                assert!(proposal.is_recycled, "a fresh id is never refused");
                refused += 1;
                assert!(refused < 1000, "somebody frees eventually");
                // A claim that did not lead to a communicator is taken back.
                claimed.iter().for_each(|m| self.0[**m].release(proposal.id));
                leader.withdraw(proposal);
            }
        }
    }

    #[test]
    fn overlapping_creations_never_share_an_id() {
        let processes = Processes::new(3, IDS_MAX);
        let mut seen = HashSet::new();
        for members in [[0, 1], [1, 2], [2, 0], [0, 2], [1, 0]].iter().cycle().take(5000) {
            let (id, refused) = processes.create(members).unwrap();
            assert!(seen.insert(id) && id != CommId::WORLD && !id.is_private());
            assert_eq!(refused, 0);
        }
    }

    #[test]
    fn an_id_is_recycled_only_when_all_members_have_freed_it() {
        let processes = Processes::new(2, 6); // ids 0..6, of which process 0 owns 2 and 4
        let (first, _) = processes.create(&[0, 1]).unwrap();
        let (second, _) = processes.create(&[0, 1]).unwrap();
        assert!(processes.create(&[0, 1]).is_none(), "both ids of process 0 are live");
        processes.0[0].release(first);
        processes.0[0].release(second);
        processes.0[1].release(second);
        // Process 1 still holds the first one, so it is refused once.
        assert_eq!(processes.create(&[0, 1]), Some((second, 1)));
        processes.0[1].release(first);
        assert_eq!(processes.create(&[0, 1]), Some((first, 0)));
    }

    #[test]
    fn many_communicators_and_a_million_lives() {
        let ids = ContextIds::new(1, 2);
        let live: Vec<_> = (0..200_000).map(|_| ids.propose().unwrap()).collect();
        assert_eq!(ids.live_count(), 200_002);
        live.iter().for_each(|p| ids.release(p.id));
        let ids = ContextIds::with_limit(0, 2, 100);
        for _ in 0..1_000_000 {
            let proposal = ids.propose().unwrap();
            ids.release(proposal.id);
        }
        assert_eq!(ids.live_count(), 2);
    }

    #[test]
    fn what_is_freed_in_turn_costs_no_memory() {
        let ids = ContextIds::new(2, 3);
        let first = ids.propose().unwrap().id;
        for _ in 0..10_000 {
            ids.release(ids.propose().unwrap().id);
        }
        assert_eq!(ids.lock().recycled.0.len(), 1);
        ids.release(first);
        assert_eq!(ids.lock().recycled.0.len(), 2);
    }

    #[test]
    fn runs_are_a_queue() {
        let mut runs = Runs::default();
        let mut queue = VecDeque::new();
        let mut state = 7_u32;
        for _ in 0..10_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if state >> 30 == 0 {
                assert_eq!(runs.pop(), queue.pop_front());
            } else {
                let number = (state >> 20) % 5;
                runs.push(number);
                queue.push_back(number);
            }
        }
        while let Some(number) = queue.pop_front() {
            assert_eq!(runs.pop(), Some(number));
        }
        assert_eq!(runs.pop(), None);
    }

    #[test]
    fn an_unused_proposal_stays_fresh() {
        let ids = ContextIds::new(0, 4);
        let proposal = ids.propose().unwrap();
        ids.withdraw(proposal);
        assert_eq!(ids.propose().unwrap(), proposal);
        assert!(!proposal.is_recycled);
    }

    #[test]
    fn private_ids_are_apart() {
        let ids = ContextIds::with_limit(0, 1, 3);
        let first = ids.propose_private().unwrap();
        let second = ids.propose_private().unwrap();
        assert!(first.is_private() && second.is_private() && first != second && first != CommId::SELF);
        assert!(ids.propose_private().is_err());
        ids.release(first);
        assert_eq!(ids.propose_private().unwrap(), first);
    }
}
