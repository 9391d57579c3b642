//! Graphs that every process knows as a whole.
//!
//! MPI: §8.5.3

use collectives::Neighbours;

use crate::error::{ErrorClass, Result};

/// A graph, seen by one of its processes.
#[derive(Clone, Debug)]
pub struct Graph {
    index: Box<[i32]>,
    edges: Box<[i32]>,
    neighbours: Neighbours,
}

impl Graph {
    /// Number of nodes and edges of the graph whose node *i* has the neighbours
    /// `edges[index[i - 1]..index[i]]`.
    ///
    /// # Errors
    /// `Topology` for more nodes than `size`, or decreasing numbers in `index`.
    pub fn check(index: &[i32], size: u32) -> Result<(u32, usize)> {
        let node_count = u32::try_from(index.len()).unwrap_or(u32::MAX);
        if node_count > size {
            return ErrorClass::Topology
                .fail(format!("nnodes = {node_count} is more than the {size} processes of the communicator"));
        }
        let mut before = 0;
        for (at, &end) in index.iter().enumerate() {
            if end < before {
                return ErrorClass::Topology
                    .fail(format!("index[{at}] = {end} is below {before}, where the node begins"));
            }
            before = end;
        }
        Ok((node_count, before as usize))
    }

    /// That all `edges` lead to nodes.
    ///
    /// # Errors
    /// `Topology` otherwise.
    pub fn check_edges(edges: &[i32], node_count: u32) -> Result<()> {
        match edges.iter().enumerate().find(|(_, end)| !(0..node_count as i32).contains(*end)) {
            None => Ok(()),
            Some((at, end)) => {
                ErrorClass::Topology.fail(format!("edges[{at}] = {end} is not a node of a graph of {node_count}"))
            }
        }
    }

    /// The graph as the process with `rank` sees it.
    pub(super) fn new(index: &[i32], edges: &[i32], rank: u32) -> Graph {
        let mut graph = Graph { index: index.into(), edges: edges.into(), neighbours: Neighbours::graph(&[], &[]) };
        let own: Vec<u32> = graph.range(rank as usize).iter().map(|end| *end as u32).collect();
        graph.neighbours = Neighbours::graph(&own, &own);
        graph
    }

    /// Where the neighbours of each node end in [`Graph::edges`].
    pub fn index(&self) -> &[i32] {
        &self.index
    }

    /// The neighbours of all nodes, one node after the other.
    pub fn edges(&self) -> &[i32] {
        &self.edges
    }

    /// The neighbours of this process.
    pub fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// The neighbours of `rank`.
    ///
    /// # Errors
    /// `Rank` when the graph has no such node.
    ///
    /// MPI: §8.5.5 `MPI_Graph_neighbors`
    pub fn neighbours_of(&self, rank: i32) -> Result<&[i32]> {
        match usize::try_from(rank) {
            Ok(rank) if rank < self.index.len() => Ok(self.range(rank)),
            _ => ErrorClass::Rank.fail(format!("rank = {rank} is not a node of a graph of {}", self.index.len())),
        }
    }

    fn range(&self, rank: usize) -> &[i32] {
        let start = if rank == 0 { 0 } else { self.index[rank - 1] };
        &self.edges[start as usize..self.index[rank] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard() {
        let (index, edges) = ([2, 3, 4, 6], [1, 3, 0, 3, 0, 2]);
        assert_eq!(Graph::check(&index, 4).unwrap(), (4, 6));
        Graph::check_edges(&edges, 4).unwrap();
        let graph = Graph::new(&index, &edges, 3);
        let expected: [&[i32]; 4] = [&[1, 3], &[0], &[3], &[0, 2]];
        for (rank, expected) in (0..).zip(expected) {
            assert_eq!(graph.neighbours_of(rank).unwrap(), expected);
        }
        assert_eq!(graph.neighbours_of(4).unwrap_err().class, ErrorClass::Rank);
        assert_eq!(graph.neighbours().sources().len(), 2);
    }

    #[test]
    fn what_is_no_graph_is_refused() {
        assert!(Graph::check(&[1, 2, 3], 2).is_err());
        assert!(Graph::check(&[2, 1], 2).is_err());
        assert!(Graph::check(&[-1], 2).is_err());
        assert!(Graph::check_edges(&[0, 2], 2).is_err());
        assert!(Graph::check_edges(&[-1], 2).is_err());
        assert_eq!(Graph::check(&[], 2).unwrap(), (0, 0));
    }
}
