//! How the data of a type is cut into blocks: what the choice of a scheme looks at.
//!
//! Paper: datatypes §6

use std::collections::BTreeMap;

use crate::layout::{Bytes, Tree};

/// The blocks of consecutive bytes in one element of a datatype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockStatistics {
    /// How many there are.
    pub count: u64,
    /// Their average length in bytes, rounded down.
    pub average_bytes: u64,
    /// The length in bytes that half of them do not exceed.
    pub median_bytes: u64,
}

impl BlockStatistics {
    pub(crate) fn of(tree: &Tree<Bytes>) -> BlockStatistics {
        let mut counts = BTreeMap::new();
        count_blocks(tree, 1, &mut counts);
        let count: u64 = counts.values().sum();
        let mut seen = 0;
        let median = counts.iter().find(|(_, number)| {
            seen += **number;
            seen >= count.div_ceil(2)
        });
        let median_bytes = median.map_or(0, |(bytes, _)| *bytes);
        BlockStatistics { count, average_bytes: tree.packed_bytes() / count.max(1), median_bytes }
    }
}

/// Adds the blocks of `times` copies of `tree` to the numbers of blocks by length.
fn count_blocks(tree: &Tree<Bytes>, times: u64, counts: &mut BTreeMap<u64, u64>) {
    let mut add = |bytes: u64, more: u64| *counts.entry(bytes).or_default() += more;
    match tree {
        Tree::Leaf(Bytes(bytes)) => add(*bytes, times),
        // A loop of n turns holds at least n bytes, so that no number of blocks exceeds the size, which fits.
        Tree::Strided(node) => count_blocks(&node.child, times * node.count, counts),
        Tree::Blocks(node) => add(node.leaf.0, times * node.displacements.len() as u64),
        Tree::Pieces(node) => node.pieces.iter().for_each(|piece| add(piece.leaf.0, times)),
        Tree::Parts(node) => node.parts.iter().for_each(|part| count_blocks(&part.tree, times, counts)),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Basic, Datatype};

    #[test]
    fn blocks_are_counted_by_length() {
        let int = Datatype::predefined(Basic::Int);
        let cases = [
            (Datatype::vector(128, 3, 10, &int), (128, 12, 12)),
            (Datatype::vector(128, 10, 10, &int), (1, 5120, 5120)),
            (Datatype::indexed(&[1, 1, 1, 100], &[0, 2, 4, 6], &int), (4, 103, 4)),
            (Datatype::indexed(&[1, 100, 100], &[0, 2, 200], &int), (3, 268, 400)),
        ];
        for (datatype, (count, average, median)) in cases {
            let seen = datatype.expect("small").blocks().expect("there is data");
            assert_eq!((seen.count, seen.average_bytes, seen.median_bytes), (count, average, median));
        }
        assert_eq!(Datatype::contiguous(0, &int).expect("nothing").blocks(), None);
    }
}
