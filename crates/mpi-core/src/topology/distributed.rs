//! Graphs of which each process knows the edges that end at it.
//!
//! Whoever names an edge that begins and ends elsewhere has to tell both ends. Each process sends one
//! packet to every other, with the edges that leave and that reach it, and takes the packets in order
//! of the sender's rank: both ends of an edge see edges between the same two ranks in the same order,
//! which is how messages along them are told apart.
//!
//! MPI: §8.5.4

use collectives::Neighbours;

use crate::error::{ErrorClass, Result};

/// Edges from or to one process, at their other ends.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Edges {
    /// Ranks at the other end.
    pub ranks: Vec<i32>,
    /// As many weights; `None` in a graph without weights.
    pub weights: Option<Vec<i32>>,
}

/// The edges that end at one process.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Adjacent {
    /// From whom they come.
    pub sources: Edges,
    /// Where they go.
    pub destinations: Edges,
}

/// One process's part of a distributed graph.
#[derive(Clone, Debug)]
pub struct Distributed {
    adjacent: Adjacent,
    neighbours: Neighbours,
}

impl Distributed {
    /// The part of a process that knows its edges, which [`Edges::check`] has passed.
    pub(super) fn new(adjacent: Adjacent) -> Distributed {
        let ranks = |edges: &Edges| edges.ranks.iter().map(|rank| *rank as u32).collect::<Vec<_>>();
        let neighbours = Neighbours::graph(&ranks(&adjacent.sources), &ranks(&adjacent.destinations));
        Distributed { adjacent, neighbours }
    }

    /// The edges that reach this process.
    pub fn sources(&self) -> &Edges {
        &self.adjacent.sources
    }

    /// The edges that leave this process.
    pub fn destinations(&self) -> &Edges {
        &self.adjacent.destinations
    }

    /// True if edges have weights.
    pub fn is_weighted(&self) -> bool {
        self.adjacent.sources.weights.is_some()
    }

    /// Who sends to this process and whom it sends to.
    pub fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }
}

impl Edges {
    /// Number of edges that processes of these degrees have.
    ///
    /// # Errors
    /// `Arg` for a negative degree.
    pub fn count(degrees: &[i32]) -> Result<usize> {
        let count =
            |(place, degree): (usize, &i32)| usize::try_from(*degree).map_err(|_| negative_degree(place, *degree));
        degrees.iter().enumerate().map(count).sum()
    }

    /// That all ends are ranks below `size` and no weight is negative; `name` is the parameter's.
    ///
    /// # Errors
    /// `Rank` or `Arg`.
    pub fn check(&self, name: &str, size: u32) -> Result<()> {
        for (at, &rank) in self.ranks.iter().enumerate() {
            check_rank(name, at, rank, size)?;
        }
        check_weights(self.weights.as_deref().unwrap_or_default())
    }
}

/// Edges named by one process, wherever they begin and end: what each process is told of them.
pub(super) struct Told {
    packets: Vec<Packet>,
    is_weighted: bool,
}

#[derive(Clone, Default)]
struct Packet {
    /// Destination and weight of edges that leave the process told.
    leaving: Vec<(i32, i32)>,
    /// Source and weight of edges that reach it.
    reaching: Vec<(i32, i32)>,
}

impl Told {
    /// Source *i* of `sources` has the next `degrees[i]` of `destinations`.
    ///
    /// # Errors
    /// `Rank` for an end that is no rank below `size`, `Arg` for a negative degree or weight.
    pub fn new(sources: &[i32], degrees: &[i32], destinations: &Edges, size: u32) -> Result<Told> {
        destinations.check("destinations", size)?;
        let mut packets = vec![Packet::default(); size as usize];
        let mut at = 0;
        for (place, (&source, &degree)) in sources.iter().zip(degrees).enumerate() {
            check_rank("sources", place, source, size)?;
            let end = at + usize::try_from(degree).map_err(|_| negative_degree(place, degree))?;
            for edge in at..end {
                let destination = destinations.ranks[edge];
                let weight = destinations.weights.as_ref().map_or(0, |weights| weights[edge]);
                packets[source as usize].leaving.push((destination, weight));
                packets[destination as usize].reaching.push((source, weight));
            }
            at = end;
        }
        Ok(Told { packets, is_weighted: destinations.weights.is_some() })
    }

    /// What to send to each process.
    pub fn encode(&self) -> Vec<Vec<u8>> {
        self.packets.iter().map(Packet::encode).collect()
    }

    /// The edges of this process, from what all others have sent to it.
    ///
    /// # Errors
    /// `Intern` for a packet that is none.
    pub fn gather(&self, packets: &[Vec<u8>], size: u32) -> Result<Adjacent> {
        let (mut sources, mut destinations) = (self.no_edges(), self.no_edges());
        for bytes in packets {
            let packet = Packet::decode(bytes, size)
                .ok_or_else(|| ErrorClass::Intern.error("creating a distributed graph: a packet makes no sense"))?;
            for (list, edges) in [(&packet.reaching, &mut sources), (&packet.leaving, &mut destinations)] {
                edges.ranks.extend(list.iter().map(|(rank, _)| rank));
                if let Some(weights) = &mut edges.weights {
                    weights.extend(list.iter().map(|(_, weight)| weight));
                }
            }
        }
        Ok(Adjacent { sources, destinations })
    }

    fn no_edges(&self) -> Edges {
        Edges { ranks: Vec::new(), weights: self.is_weighted.then(Vec::new) }
    }
}

impl Packet {
    /// Number of leaving edges, then all edges.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = (self.leaving.len() as u64).to_le_bytes().to_vec();
        for (rank, weight) in self.leaving.iter().chain(&self.reaching) {
            bytes.extend(rank.to_le_bytes());
            bytes.extend(weight.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8], size: u32) -> Option<Packet> {
        let (head, edges) = bytes.split_first_chunk::<8>()?;
        let (edges, rest) = edges.as_chunks::<8>();
        let edge = |bytes: &[u8; 8]| {
            let [a, b, c, d, e, f, g, h] = *bytes;
            let rank = i32::from_le_bytes([a, b, c, d]);
            (0..size as i32).contains(&rank).then_some((rank, i32::from_le_bytes([e, f, g, h])))
        };
        let mut leaving: Vec<_> = edges.iter().map(edge).collect::<Option<_>>()?;
        let leaving_count = usize::try_from(u64::from_le_bytes(*head)).ok()?;
        if !rest.is_empty() || leaving_count > leaving.len() {
            return None;
        }
        let reaching = leaving.split_off(leaving_count);
        Some(Packet { leaving, reaching })
    }
}

fn check_rank(name: &str, at: usize, rank: i32, size: u32) -> Result<()> {
    if (0..size as i32).contains(&rank) {
        return Ok(());
    }
    ErrorClass::Rank.fail(format!("{name}[{at}] = {rank} is not a rank of a communicator of {size}"))
}

fn check_weights(weights: &[i32]) -> Result<()> {
    match weights.iter().enumerate().find(|(_, weight)| **weight < 0) {
        None => Ok(()),
        Some((at, weight)) => ErrorClass::Arg.fail(format!("weight number {at} = {weight} is negative")),
    }
}

fn negative_degree(place: usize, degree: i32) -> crate::Error {
    ErrorClass::Arg.error(format!("degrees[{place}] = {degree} is negative"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edges(ranks: &[i32], weights: Option<&[i32]>) -> Edges {
        Edges { ranks: ranks.to_vec(), weights: weights.map(<[i32]>::to_vec) }
    }

    /// What each process learns when each names these edges.
    fn told(named: &[Told], size: u32) -> Vec<Adjacent> {
        let packets: Vec<_> = named.iter().map(Told::encode).collect();
        let arriving = |to: usize| packets.iter().map(|from| from[to].clone()).collect::<Vec<_>>();
        (0..size as usize).map(|to| named[to].gather(&arriving(to), size).unwrap()).collect()
    }

    #[test]
    fn edges_named_by_anybody_reach_both_ends() {
        // Process 0 names 0→1 (weight 5) and 1→1 (6); process 1 names 1→0 (7), 0→1 (8) and 0→1 (9).
        let named = [
            Told::new(&[0, 1], &[1, 1], &edges(&[1, 1], Some(&[5, 6])), 2).unwrap(),
            Told::new(&[1, 0], &[1, 2], &edges(&[0, 1, 1], Some(&[7, 8, 9])), 2).unwrap(),
        ];
        let learnt = told(&named, 2);
        assert_eq!(learnt[0].destinations, edges(&[1, 1, 1], Some(&[5, 8, 9])));
        assert_eq!(learnt[0].sources, edges(&[1], Some(&[7])));
        assert_eq!(learnt[1].destinations, edges(&[1, 0], Some(&[6, 7])));
        assert_eq!(learnt[1].sources, edges(&[0, 1, 0, 0], Some(&[5, 6, 8, 9])));
    }

    #[test]
    fn what_is_no_graph_is_refused() {
        let class = |result: Result<Told>| result.err().map(|error| error.class);
        assert_eq!(class(Told::new(&[2], &[1], &edges(&[0], None), 2)), Some(ErrorClass::Rank));
        assert_eq!(class(Told::new(&[0], &[1], &edges(&[-1], None), 2)), Some(ErrorClass::Rank));
        assert_eq!(class(Told::new(&[0], &[-1], &edges(&[], None), 2)), Some(ErrorClass::Arg));
        assert_eq!(class(Told::new(&[0], &[1], &edges(&[0], Some(&[-4])), 2)), Some(ErrorClass::Arg));
    }

    #[test]
    fn packets_from_elsewhere_are_checked() {
        let good = Packet { leaving: vec![(1, 7)], reaching: vec![(0, -1), (2, 0)] }.encode();
        assert!(Packet::decode(&good, 3).is_some_and(|p| p.leaving.len() == 1 && p.reaching.len() == 2));
        assert!(Packet::decode(&good, 2).is_none(), "a rank that does not exist");
        assert!(Packet::decode(&good[..good.len() - 1], 3).is_none());
        assert!(Packet::decode(&good[..7], 3).is_none());
        let mut long = good.clone();
        long[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Packet::decode(&long, 3).is_none());
    }

    proptest! {
        #[test]
        fn whatever_comes_names_ranks_there_are_or_is_refused(
            edges in proptest::collection::vec((-1i32..4, any::<i32>()), 0..6),
            leaving in prop_oneof![0u64..8, any::<u64>()],
            cut in 0usize..4,
        ) {
            let mut bytes = leaving.to_le_bytes().to_vec();
            bytes.extend(edges.iter().flat_map(|(rank, weight)| [rank.to_le_bytes(), weight.to_le_bytes()].concat()));
            bytes.truncate(bytes.len() - cut);
            let is_sound = cut == 0 && leaving <= edges.len() as u64 && edges.iter().all(|(rank, _)| (0..3).contains(rank));
            match Packet::decode(&bytes, 3) {
                Some(packet) => prop_assert_eq!(packet.encode(), bytes),
                None => prop_assert!(!is_sound),
            }
        }
    }
}
