//! Groups: ordered sets of processes.
//!
//! A group is immutable and local; every operation of the standard makes a new one. Members are
//! kept as a formula where there is one, so that the group of a communicator of 10⁵ processes
//! costs a few words.
//!
//! **Invariants**
//! - A process occurs at most once.
//! - Every group knows which process asks, so its rank is a field, not a search.
//!
//! MPI: §7.3
//!
//! ```
//! use mpi_core::group::{Comparison, Group};
//! let world = Group::identity(8, 2);
//! let even = world.range_incl(&[[0, 7, 2]]).unwrap();
//! assert_eq!((even.size(), even.rank()), (4, Some(1)));
//! assert_eq!(even.translate_rank(3, &world).unwrap(), 6);
//! let odd = world.difference(&even);
//! assert_eq!(world.compare(&even.union(&odd)), Comparison::Similar);
//! ```

mod members;

use std::collections::HashSet;
use std::sync::Arc;

use engine::PeerId;

use crate::constants::{PROC_NULL, UNDEFINED};
use crate::error::{ErrorClass, Result};
use crate::session::Session;
use members::Members;

/// How two groups compare.
///
/// MPI: §7.3.1 `MPI_Group_compare`
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Comparison {
    /// The same processes in the same order.
    Identical,
    /// The same processes in another order.
    Similar,
    /// Different processes.
    Unequal,
}

/// An ordered set of processes, as one process sees it.
#[derive(Debug)]
pub struct Group {
    members: Members,
    /// The process that asks; `None` in the empty group that belongs to nobody.
    me: Option<PeerId>,
    rank: Option<u32>,
    /// Where the group comes from, if not from the world model.
    session: Option<Arc<Session>>,
}

impl Group {
    /// The group without members: `MPI_GROUP_EMPTY`.
    pub fn empty() -> Self {
        Group { members: Members::EMPTY, me: None, rank: None, session: None }
    }

    /// Processes 0 to `size - 1` in order, as process `me` sees them.
    pub fn identity(size: u32, me: PeerId) -> Self {
        Group::seen_by(Some(me), Members::strided(0, 1, size))
    }

    /// The processes `peers`, which differ from each other, as process `me` sees them.
    pub fn new(peers: Vec<PeerId>, me: PeerId) -> Self {
        Group::seen_by(Some(me), Members::explicit(peers))
    }

    fn seen_by(me: Option<PeerId>, members: Members) -> Self {
        let rank = me.and_then(|peer| members.rank_of(peer));
        Group { members, me, rank, session: None }
    }

    /// The same group as one made from `session`.
    pub(crate) fn made_from(self, session: Arc<Session>) -> Self {
        Group { session: Some(session), ..self }
    }

    /// The session this group was made from, directly or by way of others.
    pub fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    /// The processes `peers`, which differ from each other, as a group made from this one.
    pub(crate) fn of_peers(&self, peers: Vec<PeerId>) -> Self {
        self.of(Members::explicit(peers))
    }

    fn of(&self, members: Members) -> Self {
        Group { session: self.session.clone(), ..Group::seen_by(self.me, members) }
    }

    /// A group made from this one and another.
    fn of_both(&self, other: &Group, peers: Vec<PeerId>) -> Self {
        let session = self.session.as_ref().or(other.session.as_ref()).cloned();
        Group { session, ..Group::seen_by(self.me.or(other.me), Members::explicit(peers)) }
    }

    /// Number of processes.
    #[inline]
    pub fn size(&self) -> u32 {
        self.members.len()
    }

    /// Rank of the process that asks; `None` if it is no member.
    #[inline]
    pub fn rank(&self) -> Option<u32> {
        self.rank
    }

    /// True if rank *r* is process *r* for all ranks.
    #[inline]
    pub fn is_identity(&self) -> bool {
        self.members.is_identity()
    }

    /// The process that has `rank`.
    ///
    /// # Panics
    /// When there is no such rank.
    #[inline]
    pub fn peer(&self, rank: u32) -> PeerId {
        assert!(rank < self.size(), "rank {rank} in a group of {}", self.size());
        self.members.at(rank)
    }

    /// The rank of a process, if it is a member.
    #[inline]
    pub fn rank_of(&self, peer: PeerId) -> Option<u32> {
        self.members.rank_of(peer)
    }

    /// The processes in order of rank.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        (0..self.size()).map(|rank| self.members.at(rank))
    }

    /// The rank that member `rank` of this group has in `other`: `MPI_UNDEFINED` if none,
    /// `MPI_PROC_NULL` for itself.
    ///
    /// # Errors
    /// `Rank` when this group has no such rank.
    ///
    /// MPI: §7.3.1 `MPI_Group_translate_ranks`
    pub fn translate_rank(&self, rank: i32, other: &Group) -> Result<i32> {
        if rank == PROC_NULL {
            return Ok(PROC_NULL);
        }
        let peer = self.members.at(self.valid_rank(rank)?);
        Ok(other.rank_of(peer).map_or(UNDEFINED, |rank| rank as i32))
    }

    /// Compares members and their order.
    ///
    /// MPI: §7.3.1 `MPI_Group_compare`
    pub fn compare(&self, other: &Group) -> Comparison {
        if self.size() != other.size() {
            return Comparison::Unequal;
        }
        if self.members.is_same_formula(&other.members) || self.peers().eq(other.peers()) {
            return Comparison::Identical;
        }
        match self.peers().all(|peer| other.rank_of(peer).is_some()) {
            true => Comparison::Similar,
            false => Comparison::Unequal,
        }
    }

    /// All members of this group, followed by those of `other` that are not in this one.
    ///
    /// MPI: §7.3.2 `MPI_Group_union`
    pub fn union(&self, other: &Group) -> Group {
        let added = other.peers().filter(|peer| self.rank_of(*peer).is_none());
        let peers = self.peers().chain(added).collect();
        self.of_both(other, peers)
    }

    /// The members that are in `other` too, in the order of this group.
    ///
    /// MPI: §7.3.2 `MPI_Group_intersection`
    pub fn intersection(&self, other: &Group) -> Group {
        let common = self.peers().filter(|peer| other.rank_of(*peer).is_some());
        self.of_both(other, common.collect())
    }

    /// The members that are not in `other`, in the order of this group.
    ///
    /// MPI: §7.3.2 `MPI_Group_difference`
    pub fn difference(&self, other: &Group) -> Group {
        let rest = self.peers().filter(|peer| other.rank_of(*peer).is_none());
        self.of_both(other, rest.collect())
    }

    /// The members with the given ranks, in the order given.
    ///
    /// # Errors
    /// `Rank` when a rank does not exist or is given twice.
    ///
    /// MPI: §7.3.2 `MPI_Group_incl`
    pub fn incl(&self, ranks: &[i32]) -> Result<Group> {
        let ranks = self.distinct_ranks(ranks.iter().copied())?;
        let peers = ranks.into_iter().map(|rank| self.members.at(rank)).collect();
        Ok(self.of(Members::explicit(peers)))
    }

    /// The members with ranks other than the given ones.
    ///
    /// # Errors
    /// `Rank` when a rank does not exist or is given twice.
    ///
    /// MPI: §7.3.2 `MPI_Group_excl`
    pub fn excl(&self, ranks: &[i32]) -> Result<Group> {
        let excluded = self.distinct_ranks(ranks.iter().copied())?;
        Ok(self.without(excluded))
    }

    /// The members with the ranks of the ranges `[first, last, stride]`, in the order given.
    ///
    /// # Errors
    /// `Rank` when a rank does not exist or is given twice, `Arg` for a stride of zero or one that
    /// leads away from the last rank.
    ///
    /// MPI: §7.3.2 `MPI_Group_range_incl`
    pub fn range_incl(&self, ranges: &[[i32; 3]]) -> Result<Group> {
        if let [range] = ranges {
            let ranks = self.valid_range(range)?;
            return Ok(self.of(self.members.slice(ranks.first as u32, ranks.stride, ranks.count)));
        }
        let ranks = self.distinct_ranks_of(ranges)?;
        let peers = ranks.into_iter().map(|rank| self.members.at(rank)).collect();
        Ok(self.of(Members::explicit(peers)))
    }

    /// The members with ranks outside the ranges `[first, last, stride]`.
    ///
    /// # Errors
    /// As [`Group::range_incl`].
    ///
    /// MPI: §7.3.2 `MPI_Group_range_excl`
    pub fn range_excl(&self, ranges: &[[i32; 3]]) -> Result<Group> {
        let excluded = self.distinct_ranks_of(ranges)?;
        Ok(self.without(excluded))
    }

    fn without(&self, excluded: Vec<u32>) -> Group {
        if excluded.is_empty() {
            return self.of(self.members.clone());
        }
        let mut stays = vec![true; self.size() as usize];
        for rank in excluded {
            stays[rank as usize] = false;
        }
        let kept = self.peers().zip(stays).filter_map(|(peer, stays)| stays.then_some(peer));
        self.of(Members::explicit(kept.collect()))
    }

    fn valid_rank(&self, rank: i32) -> Result<u32> {
        match u32::try_from(rank) {
            Ok(valid) if valid < self.size() => Ok(valid),
            _ => ErrorClass::Rank.fail(format!("the group of {} processes has no rank {rank}", self.size())),
        }
    }

    fn distinct_ranks(&self, ranks: impl Iterator<Item = i32>) -> Result<Vec<u32>> {
        let mut seen = HashSet::new();
        let mut distinct = Vec::new();
        for rank in ranks {
            let valid = self.valid_rank(rank)?;
            if !seen.insert(valid) {
                return ErrorClass::Rank.fail(format!("rank {rank} is given twice"));
            }
            distinct.push(valid);
        }
        Ok(distinct)
    }

    fn distinct_ranks_of(&self, ranges: &[[i32; 3]]) -> Result<Vec<u32>> {
        let ranges = ranges.iter().map(|range| self.valid_range(range)).collect::<Result<Vec<_>>>()?;
        self.distinct_ranks(ranges.iter().flat_map(RankRange::ranks))
    }

    fn valid_range(&self, &[first, last, stride]: &[i32; 3]) -> Result<RankRange> {
        self.valid_rank(first)?;
        let leads_away = (stride > 0 && first > last) || (stride < 0 && first < last);
        if stride == 0 || leads_away {
            return ErrorClass::Arg
                .fail(format!("the range from {first} to {last} cannot be walked with a stride of {stride}"));
        }
        let steps = (i64::from(last) - i64::from(first)) / i64::from(stride);
        let end = i64::from(first) + steps * i64::from(stride);
        // Between the first rank and the last, so it fits.
        self.valid_rank(end as i32)?;
        Ok(RankRange { first, stride, count: steps as u32 + 1 })
    }
}

/// A range all of whose ranks exist.
struct RankRange {
    first: i32,
    stride: i32,
    count: u32,
}

impl RankRange {
    fn ranks(&self) -> impl Iterator<Item = i32> + use<> {
        let (first, stride) = (i64::from(self.first), i64::from(self.stride));
        (0..i64::from(self.count)).map(move |step| (first + step * stride) as i32)
    }
}

#[cfg(test)]
mod tests;
