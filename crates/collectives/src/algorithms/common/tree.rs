//! Trees over ranks, numbered from the root: rank `root + v` round the ring is vertex `v`.

use smallvec::SmallVec;

use crate::builder::{Builder, ring};

/// Parent and children of one rank.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) parent: Option<u32>,
    /// Largest subtree first.
    pub(crate) children: SmallVec<[u32; 16]>,
}

impl Tree {
    /// Vertex `v` hangs below `v` with its lowest set bit cleared; subtrees are consecutive.
    pub(crate) fn binomial(b: &Builder, root: u32) -> Tree {
        let vertex = vertex(b, root);
        // The root stands above all bits.
        let lowest_bit = if vertex == 0 { b.size().next_power_of_two() } else { vertex & vertex.wrapping_neg() };
        let mut children = SmallVec::new();
        let mut bit = lowest_bit >> 1;
        while bit > 0 {
            if vertex + bit < b.size() {
                children.push(rank(b, root, vertex + bit));
            }
            bit >>= 1;
        }
        let parent = (vertex > 0).then(|| rank(b, root, vertex & (vertex - 1)));
        Tree { parent, children }
    }

    /// Vertex `v` has the children `2v + 1` and `2v + 2`.
    pub(crate) fn binary(b: &Builder, root: u32) -> Tree {
        let vertex = vertex(b, root);
        let below = [u64::from(vertex) * 2 + 1, u64::from(vertex) * 2 + 2];
        let children = below.into_iter().filter(|&v| v < u64::from(b.size()));
        Tree {
            parent: (vertex > 0).then(|| rank(b, root, (vertex - 1) / 2)),
            children: children.map(|v| rank(b, root, v as u32)).collect(),
        }
    }

    /// Vertex `v` hangs below `v - 1`.
    pub(crate) fn chain(b: &Builder, root: u32) -> Tree {
        let vertex = vertex(b, root);
        Tree {
            parent: (vertex > 0).then(|| rank(b, root, vertex - 1)),
            children: (vertex + 1 < b.size()).then(|| rank(b, root, vertex + 1)).into_iter().collect(),
        }
    }

    /// All hang below the root.
    pub(crate) fn flat(b: &Builder, root: u32) -> Tree {
        let at_root = b.rank() == root;
        let children = if at_root { (1..b.size()).map(|v| rank(b, root, v)).collect() } else { SmallVec::new() };
        Tree { parent: (!at_root).then_some(root), children }
    }
}

/// This rank's vertex.
pub(crate) fn vertex(b: &Builder, root: u32) -> u32 {
    ring(b.rank(), -i64::from(root), b.size())
}

/// The rank of a vertex.
pub(crate) fn rank(b: &Builder, root: u32, vertex: u32) -> u32 {
    ring(root, i64::from(vertex), b.size())
}
