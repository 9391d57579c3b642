//! How the members of a group are kept: as a formula where there is one, else as a list whose
//! reverse is hashed once somebody asks for it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use engine::PeerId;

/// Up to this many members a list is searched from the front instead of hashed.
const SEARCH_MAX: usize = 8;

/// Distinct processes in an order.
#[derive(Clone, Debug)]
pub(super) enum Members {
    /// `first + rank * stride`; the stride is 1 where there is at most one member.
    Strided { first: u32, stride: i32, count: u32 },
    /// Any order.
    Listed(Arc<Listed>),
}

#[derive(Debug)]
pub(super) struct Listed {
    peers: Box<[PeerId]>,
    ranks: OnceLock<HashMap<PeerId, u32>>,
}

impl Members {
    pub(super) const EMPTY: Members = Members::Strided { first: 0, stride: 1, count: 0 };

    pub(super) fn strided(first: u32, stride: i32, count: u32) -> Self {
        match count {
            0 => Members::EMPTY,
            1 => Members::Strided { first, stride: 1, count },
            _ => Members::Strided { first, stride, count },
        }
    }

    /// The shortest form of a list.
    pub(super) fn explicit(peers: Vec<PeerId>) -> Self {
        let count = u32::try_from(peers.len()).expect("there are at most 2^32 processes");
        match peers[..] {
            [] => Members::EMPTY,
            [only] => Members::strided(only, 1, 1),
            [first, second, ..] => {
                let step = i64::from(second) - i64::from(first);
                let even = |pair: &[PeerId]| i64::from(pair[1]) - i64::from(pair[0]) == step;
                match i32::try_from(step) {
                    Ok(stride) if peers.windows(2).all(even) => Members::strided(first, stride, count),
                    _ => Members::Listed(Arc::new(Listed { peers: peers.into(), ranks: OnceLock::new() })),
                }
            }
        }
    }

    #[inline]
    pub(super) fn len(&self) -> u32 {
        match self {
            Members::Strided { count, .. } => *count,
            Members::Listed(list) => list.peers.len() as u32,
        }
    }

    #[inline]
    pub(super) fn is_identity(&self) -> bool {
        matches!(self, Members::Strided { first: 0, stride: 1, .. })
    }

    /// The member of this rank, which exists.
    #[inline]
    pub(super) fn at(&self, rank: u32) -> PeerId {
        match self {
            Members::Strided { first, stride, .. } => {
                (i64::from(*first) + i64::from(rank) * i64::from(*stride)) as PeerId
            }
            Members::Listed(list) => list.peers[rank as usize],
        }
    }

    #[inline]
    pub(super) fn rank_of(&self, peer: PeerId) -> Option<u32> {
        match self {
            Members::Strided { first, stride, count } => {
                let (distance, stride) = (i64::from(peer) - i64::from(*first), i64::from(*stride));
                let rank = distance / stride;
                let is_member = distance % stride == 0 && (0..i64::from(*count)).contains(&rank);
                is_member.then_some(rank as u32)
            }
            Members::Listed(list) => list.rank_of(peer),
        }
    }

    /// The members of ranks `first`, `first + stride`, and so on; all of them exist.
    pub(super) fn slice(&self, first: u32, stride: i32, count: u32) -> Self {
        if let Members::Strided { stride: inner, .. } = self
            && let Some(combined) = inner.checked_mul(stride)
        {
            return Members::strided(self.at(first), combined, count);
        }
        let rank = |step: u32| (i64::from(first) + i64::from(step) * i64::from(stride)) as u32;
        Members::explicit((0..count).map(|step| self.at(rank(step))).collect())
    }

    /// True if both are the same without looking at the members.
    pub(super) fn is_same_formula(&self, other: &Members) -> bool {
        match (self, other) {
            (
                Members::Strided { first, stride, count },
                Members::Strided { first: other_first, stride: other_stride, count: other_count },
            ) => (first, stride, count) == (other_first, other_stride, other_count),
            (Members::Listed(list), Members::Listed(other)) => Arc::ptr_eq(list, other),
            _ => false,
        }
    }
}

impl Listed {
    fn rank_of(&self, peer: PeerId) -> Option<u32> {
        if self.peers.len() <= SEARCH_MAX {
            return self.peers.iter().position(|member| *member == peer).map(|rank| rank as u32);
        }
        let by_peer = || self.peers.iter().zip(0..).map(|(peer, rank)| (*peer, rank)).collect();
        self.ranks.get_or_init(by_peer).get(&peer).copied()
    }
}
