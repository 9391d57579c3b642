//! Which processes share a host: as the launcher says, and in groups that are no larger than the settings want them.

use std::collections::BTreeMap;

/// The hosts of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hosts {
    /// By rank: its host, as the launcher numbers them.
    nodes: Vec<u32>,
    /// By rank: the lowest rank of those it shares memory with.
    firsts: Vec<u32>,
}

impl Hosts {
    /// `nodes` says on which host each rank is. Of each host, so many ranks at a time (0: all) are treated as a host of
    /// their own.
    pub(crate) fn new(nodes: Vec<u32>, ranks_max: u32) -> Self {
        let mut open: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        let firsts = (0..).zip(&nodes).map(|(rank, node)| {
            let (first, count) = open.entry(*node).or_insert((rank, 0));
            if ranks_max > 0 && *count == ranks_max {
                (*first, *count) = (rank, 0);
            }
            *count += 1;
            *first
        });
        Self { firsts: firsts.collect(), nodes }
    }

    /// The same hosts with another limit.
    pub(crate) fn limited(&self, ranks_max: u32) -> Self {
        Self::new(self.nodes.clone(), ranks_max)
    }

    /// True if not all ranks share memory.
    pub(crate) fn are_several(&self) -> bool {
        self.firsts.iter().any(|first| *first != 0)
    }

    /// The ranks with which `rank` shares memory, itself included, in ascending order.
    pub(crate) fn mates(&self, rank: u32) -> Vec<u32> {
        let of = |rank: u32| self.firsts.get(rank as usize).copied().unwrap_or(rank);
        (0..self.firsts.len() as u32).filter(|other| of(*other) == of(rank)).collect()
    }

    /// The lowest rank with which `rank` shares memory.
    pub(crate) fn first_mate(&self, rank: u32) -> u32 {
        self.firsts.get(rank as usize).copied().unwrap_or(rank)
    }

    /// The first rank that is really on another host than `rank`.
    pub(crate) fn first_elsewhere(&self, rank: u32) -> Option<u32> {
        let node = self.nodes.get(rank as usize)?;
        (0..).zip(&self.nodes).find(|(_, other)| *other != node).map(|(other, _)| other)
    }

    /// Ranks that share the cores of `rank`, itself included.
    pub(crate) fn ranks_beside(&self, rank: u32) -> u32 {
        let node = self.nodes.get(rank as usize);
        self.nodes.iter().filter(|other| Some(*other) == node).count() as u32
    }

    /// Ranks on the host with the most of them.
    pub(crate) fn ranks_at_most(&self) -> u32 {
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        self.nodes.iter().for_each(|node| *counts.entry(*node).or_default() += 1);
        counts.into_values().max().unwrap_or(0)
    }
}

/// Ranks in ascending order as people write them: `0-2, 5`.
pub(crate) fn ranges(ranks: &[u32]) -> String {
    let follows = |one: &u32, next: &u32| one + 1 == *next;
    let text = |run: &[u32]| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    ranks.chunk_by(follows).map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_host_are_mates_whatever_their_order() {
        let hosts = Hosts::new(vec![0, 1, 0, 1, 1], 0);
        assert!(hosts.are_several());
        assert_eq!((hosts.mates(0), hosts.mates(4)), (vec![0, 2], vec![1, 3, 4]));
        assert_eq!((hosts.first_mate(2), hosts.first_mate(3)), (0, 1));
        assert_eq!((hosts.first_elsewhere(0), hosts.first_elsewhere(1)), (Some(1), Some(0)));
        assert_eq!((hosts.ranks_beside(0), hosts.ranks_at_most()), (2, 3));
        let one = Hosts::new(vec![3; 4], 0);
        assert!(!one.are_several() && one.first_elsewhere(2).is_none());
        assert!(!Hosts::new(vec![0], 1).are_several(), "a process alone");
    }

    #[test]
    fn a_host_is_treated_as_several_if_wanted() {
        let hosts = Hosts::new(vec![0, 0, 1, 0, 1, 0, 0], 2);
        assert_eq!([0, 2, 3, 6].map(|rank| hosts.mates(rank)), [vec![0, 1], vec![2, 4], vec![3, 5], vec![6]]);
        assert_eq!(hosts.ranks_beside(6), 5, "cores are what they are");
        assert_eq!(Hosts::new(vec![0; 3], 1).first_elsewhere(0), None, "and so are networks");
    }

    #[test]
    fn ranks_are_written_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!((ranges(&[]), ranges(&[4])), (String::new(), "4".to_owned()));
    }
}
