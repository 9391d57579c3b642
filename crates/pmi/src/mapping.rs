//! Which rank lives on which node: the launcher's `PMI_process_mapping`.

use crate::PmiError;
use crate::error::shortened;

/// Most blocks a mapping may have.
const BLOCK_COUNT_MAX: usize = 1 << 16;

/// A mapping in vector notation, `(vector,(first_node,node_count,ranks_per_node),…)`.
///
/// Ranks are dealt out block by block; where the blocks end before the ranks do, they begin again.
///
/// ```
/// let mapping = pmi::ProcessMapping::parse("(vector,(0,2,2))").unwrap();
/// assert_eq!(mapping.nodes(4), [0, 0, 1, 1]);
/// assert_eq!(mapping.node_local_ranks(3, 4), [2, 3]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessMapping {
    blocks: Vec<Block>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    first_node: u32,
    node_count: u32,
    ranks_per_node: u32,
}

impl ProcessMapping {
    /// All ranks on one node.
    pub fn one_node(rank_count: u32) -> Self {
        Self { blocks: vec![Block { first_node: 0, node_count: 1, ranks_per_node: rank_count.max(1) }] }
    }

    /// Reads the notation.
    ///
    /// # Errors
    /// Anything but a vector of at least one block with non-zero counts.
    pub fn parse(text: &str) -> Result<Self, PmiError> {
        let bad = |problem| PmiError::BadMapping { text: shortened(text), problem };
        let compact: String = text.chars().filter(|character| !character.is_whitespace()).collect();
        let inner = compact
            .strip_prefix("(vector,")
            .and_then(|rest| rest.strip_suffix(')'))
            .ok_or_else(|| bad("it is not of the form (vector,(a,b,c),…)"))?;
        let inner =
            inner.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).ok_or_else(|| bad("it has no blocks"))?;
        let mut blocks = Vec::new();
        for block in inner.split("),(") {
            if blocks.len() == BLOCK_COUNT_MAX {
                return Err(bad("it has too many blocks"));
            }
            let mut numbers = block.split(',').map(str::parse::<u32>);
            let (Some(Ok(first_node)), Some(Ok(node_count)), Some(Ok(ranks_per_node)), None) =
                (numbers.next(), numbers.next(), numbers.next(), numbers.next())
            else {
                return Err(bad("a block is not three numbers"));
            };
            if node_count == 0 || ranks_per_node == 0 || first_node.checked_add(node_count).is_none() {
                return Err(bad("a block's counts are out of range"));
            }
            blocks.push(Block { first_node, node_count, ranks_per_node });
        }
        Ok(Self { blocks })
    }

    /// The node of each of `rank_count` ranks.
    pub fn nodes(&self, rank_count: u32) -> Vec<u32> {
        let once = self.blocks.iter().flat_map(|block| {
            (block.first_node..block.first_node + block.node_count)
                .flat_map(|node| std::iter::repeat_n(node, block.ranks_per_node as usize))
        });
        once.cycle().take(rank_count as usize).collect()
    }

    /// The ranks on the node of `rank`, itself included, in ascending order; empty for a rank that is
    /// not below `rank_count`.
    pub fn node_local_ranks(&self, rank: u32, rank_count: u32) -> Vec<u32> {
        let nodes = self.nodes(rank_count);
        let Some(&mine) = nodes.get(rank as usize) else { return Vec::new() };
        (0..rank_count).zip(nodes).filter(|(_, node)| *node == mine).map(|(rank, _)| rank).collect()
    }
}

impl std::fmt::Display for ProcessMapping {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("(vector")?;
        for block in &self.blocks {
            write!(out, ",({},{},{})", block.first_node, block.node_count, block.ranks_per_node)?;
        }
        out.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_mappings() {
        let check = |text: &str, rank_count, expected: &[u32]| {
            assert_eq!(ProcessMapping::parse(text).unwrap().nodes(rank_count), expected, "{text}");
        };
        check("(vector,(0,1,4))", 4, &[0, 0, 0, 0]);
        check("(vector, (0,2,1))", 5, &[0, 1, 0, 1, 0]);
        check("(vector,(0,1,1),(1,2,2))", 5, &[0, 1, 1, 2, 2]);
        check("(vector,(0,1,1000000))", 2, &[0, 0]);
    }

    #[test]
    fn malformed_mappings() {
        for text in [
            "",
            "(vector)",
            "(vector,)",
            "(matrix,(0,1,1))",
            "(vector,(0,1))",
            "(vector,(0,0,1))",
            "(vector,(0,1,0))",
            "(vector,(4294967295,1,1))",
            "(vector,(0,1,1)",
            "(vector,(0,1,1),)",
            "(vector,(0,1,1,1))",
            "(vector,(-1,1,1))",
        ] {
            assert!(ProcessMapping::parse(text).is_err(), "{text:?} was accepted");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "\\(?(vector)?[(),0-9 ]{0,60}") {
            if let Ok(mapping) = ProcessMapping::parse(&text) {
                let _ = mapping.node_local_ranks(2, 9);
            }
        }

        #[test]
        fn display_is_read_back(blocks in prop::collection::vec((0u32..9, 1u32..5, 1u32..5), 1..6)) {
            let blocks = blocks
                .into_iter()
                .map(|(first_node, node_count, ranks_per_node)| Block { first_node, node_count, ranks_per_node })
                .collect();
            let mapping = ProcessMapping { blocks };
            prop_assert_eq!(ProcessMapping::parse(&mapping.to_string()).unwrap(), mapping);
        }
    }
}
