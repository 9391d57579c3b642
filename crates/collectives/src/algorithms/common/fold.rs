//! Making a power of two of the ranks: pairs at the lower end act as one.
//!
//! ```text
//! p = 6: vertices   0     1    2  3        ranks 0 and 2 fold into 1 and 3, take no part,
//!        ranks    0->1  2->3   4  5        and hear the result in the end
//! ```
//!
//! Vertices are in rank order and stand for consecutive ranks, so orders of operands are kept.
//!
//! Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
//! Operations in MPICH", IJHPCA 19(1), 2005, §4.5.

use crate::algorithms::common::power_of_two_below;
use crate::builder::Builder;
use crate::data::Place;

/// The role of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Hands its input to this rank and later takes the result from it.
    Idle {
        /// The active half of the pair.
        partner: u32,
    },
    /// Takes part.
    Active {
        /// Its number.
        vertex: u32,
        /// The idle rank it also stands for; one lower.
        partner: Option<u32>,
    },
}

/// A communicator folded to a power of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fold {
    pub(crate) vertices: u32,
    pairs: u32,
}

impl Fold {
    pub(crate) fn new(size: u32) -> Fold {
        let vertices = power_of_two_below(size);
        Fold { vertices, pairs: size - vertices }
    }

    pub(crate) fn of(b: &Builder) -> Fold {
        Fold::new(b.size())
    }

    pub(crate) fn role(&self, place: Place) -> Role {
        let rank = place.rank;
        if rank >= 2 * self.pairs {
            Role::Active { vertex: rank - self.pairs, partner: None }
        } else if rank.is_multiple_of(2) {
            Role::Idle { partner: rank + 1 }
        } else {
            Role::Active { vertex: rank / 2, partner: Some(rank - 1) }
        }
    }

    /// Vertices that stand for two ranks: the lowest.
    pub(crate) fn pairs(&self) -> u32 {
        self.pairs
    }

    /// The active rank of a vertex.
    pub(crate) fn rank(&self, vertex: u32) -> u32 {
        if vertex < self.pairs { 2 * vertex + 1 } else { vertex + self.pairs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vertex_has_its_rank() {
        for size in 1..40 {
            let fold = Fold::new(size);
            for vertex in 0..fold.vertices {
                let place = Place { rank: fold.rank(vertex), size };
                assert!(matches!(fold.role(place), Role::Active { vertex: v, .. } if v == vertex));
            }
        }
    }
}
