//! Layouts as one process tells them to another: a message's bytes can then be copied from where they lie to where they
//! belong by either side.
//!
//! ```text
//!   words of 64 bits, in the byte order of the host:
//!   layout = hash of all that follows, extent, displacement, tree
//!   tree   = 1, bytes                                  consecutive bytes
//!          | 2, count, stride, tree                    the same again and again
//!          | 3, bytes, n, n displacements              equal runs at irregular places
//!          | 4, n, n × (displacement, bytes)           different runs
//!          | 5, n, n × (displacement, tree)            different parts
//! ```
//! What comes from a peer is parsed: sizes that are zero or too large, places beyond 64 bits, trees that are too deep or
//! do not end where the words end are refused, and so is whatever does not have the hash it claims.
//!
//! Paper: datatypes §5.4.2

use std::sync::Arc;

use crate::copy::{List, Segment, walk_strided};
use crate::datatype::Datatype;
use crate::layout::{Blocks, Bytes, LAYOUT_DEPTH_MAX, Parts, Piece, Pieces, Placed, Tree, strided};

const LEAF: u64 = 1;
const STRIDED: u64 = 2;
const BLOCKS: u64 = 3;
const PIECES: u64 = 4;
const PARTS: u64 = 5;

/// Where the data of one element of a datatype lies, apart from the types of its numbers.
#[derive(Clone, Debug)]
pub struct Layout {
    bytes: Placed<Bytes>,
    size: u64,
    extent: i64,
    block_count: u64,
}

/// Why bytes are not a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// They end too early, or go on behind the end.
    #[error("the description of a layout has the wrong length")]
    Length,
    /// They were damaged, or changed while they were read.
    #[error("the description of a layout does not have the hash it claims")]
    Hash,
    /// A number means nothing at its place.
    #[error("the description of a layout holds {0}, which means nothing there")]
    Word(u64),
    /// A size or a place does not fit 64 bits.
    #[error("a layout is described whose size or bounds do not fit 64 bits")]
    Overflow,
    /// Loops lie in loops without end.
    #[error("a layout is described that nests more than {LAYOUT_DEPTH_MAX} deep")]
    TooDeep,
}

impl Layout {
    /// The layout of a datatype; `None` if it holds no data.
    pub fn of(datatype: &Datatype) -> Option<Layout> {
        let data = datatype.shape().data.as_ref()?;
        let (extent, block_count) = (datatype.extent(), datatype.block_count());
        Some(Layout { bytes: data.bytes.clone(), size: data.span.size, extent, block_count })
    }

    /// Bytes of data in one element.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Blocks of consecutive bytes in one element.
    pub fn block_count(&self) -> u64 {
        self.block_count
    }

    /// The layout in wire form.
    pub fn encode(&self) -> Box<[u8]> {
        let mut words = vec![0, self.extent as u64, self.bytes.displacement as u64];
        encode_tree(&self.bytes.tree, &mut words);
        words[0] = hash(&words[1..]);
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// Understands a wire form, or refuses it.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(wire: &[u8]) -> Result<Layout, LayoutError> {
        let (words, []) = wire.as_chunks::<8>() else { return Err(LayoutError::Length) };
        let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let [claimed, described @ ..] = words.as_slice() else { return Err(LayoutError::Length) };
        if hash(described) != *claimed {
            return Err(LayoutError::Hash);
        }
        let mut words = Words(described);
        let (extent, displacement) = (words.next()? as i64, words.next()? as i64);
        let parsed = words.tree(0)?;
        if !words.0.is_empty() {
            return Err(LayoutError::Length);
        }
        let shifted = |at: i64| at.checked_add(displacement).ok_or(LayoutError::Overflow);
        shifted(parsed.low)?;
        shifted(parsed.high)?;
        let block_count = parsed.tree.block_count();
        Ok(Layout { bytes: Placed { displacement, tree: parsed.tree }, size: parsed.size, extent, block_count })
    }

    /// Lists where the data of `count` elements lies, the first element's displacement 0 being at `origin`, from the packed
    /// byte `offset_bytes` on, at most `left_bytes` of them and as many as fit; returns how many were listed.
    pub fn segments_at(
        &self,
        origin: u64,
        count: u64,
        offset_bytes: u64,
        left_bytes: u64,
        segments: &mut [Segment],
    ) -> usize {
        let total = self.size.saturating_mul(count);
        let left = left_bytes.min(total.saturating_sub(offset_bytes));
        if left == 0 {
            return 0;
        }
        let first = (origin as usize).wrapping_add_signed(self.bytes.displacement as isize);
        let mut list = List::new(segments, left);
        // The addresses are another process's: nothing here looks at what lies there.
        let user = std::ptr::without_provenance_mut(first);
        walk_strided(&self.bytes.tree, count, self.extent, user, offset_bytes, &mut list);
        list.used()
    }
}

fn encode_tree(tree: &Tree<Bytes>, words: &mut Vec<u64>) {
    match tree {
        Tree::Leaf(Bytes(bytes)) => words.extend([LEAF, *bytes]),
        Tree::Comb(comb) => words.extend([STRIDED, comb.count, comb.stride_bytes as u64, LEAF, comb.leaf.0]),
        Tree::Strided(node) => {
            words.extend([STRIDED, node.count, node.stride_bytes as u64]);
            encode_tree(&node.child, words);
        }
        Tree::Blocks(node) => {
            words.extend([BLOCKS, node.leaf.0, node.displacements.len() as u64]);
            words.extend(node.displacements.iter().map(|at| *at as u64));
        }
        Tree::Pieces(node) => {
            words.extend([PIECES, node.pieces.len() as u64]);
            words.extend(node.pieces.iter().flat_map(|piece| [piece.displacement as u64, piece.leaf.0]));
        }
        Tree::Parts(node) => {
            words.extend([PARTS, node.parts.len() as u64]);
            for part in &node.parts {
                words.push(part.displacement as u64);
                encode_tree(&part.tree, words);
            }
        }
    }
}

/// FNV-1a over words: finds damage and tells layouts apart; it is no defence against who wants them to collide.
fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        let mixed = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        mixed ^ (mixed >> 29)
    })
}

/// The words that have not been read.
struct Words<'a>(&'a [u64]);

/// A tree with its size and the places of its first and last byte, relative to where it is put.
struct Parsed {
    tree: Tree<Bytes>,
    size: u64,
    low: i64,
    high: i64,
}

impl Words<'_> {
    fn next(&mut self) -> Result<u64, LayoutError> {
        let (first, rest) = self.0.split_first().ok_or(LayoutError::Length)?;
        self.0 = rest;
        Ok(*first)
    }

    /// A number of entries of which each takes at least `words_each` words: a promise of more than there is ends here.
    fn entries(&mut self, words_each: u64) -> Result<u64, LayoutError> {
        match self.next()? {
            0 => Err(LayoutError::Word(0)),
            count if count > self.0.len() as u64 / words_each => Err(LayoutError::Length),
            count => Ok(count),
        }
    }

    /// A number of bytes.
    fn bytes(&mut self) -> Result<u64, LayoutError> {
        match self.next()? {
            0 => Err(LayoutError::Word(0)),
            bytes if bytes > i64::MAX as u64 => Err(LayoutError::Overflow),
            bytes => Ok(bytes),
        }
    }

    fn tree(&mut self, depth: u32) -> Result<Parsed, LayoutError> {
        if depth > LAYOUT_DEPTH_MAX {
            return Err(LayoutError::TooDeep);
        }
        match self.next()? {
            LEAF => {
                let bytes = self.bytes()?;
                Ok(Parsed { tree: Tree::Leaf(Bytes(bytes)), size: bytes, low: 0, high: bytes as i64 })
            }
            STRIDED => self.strided(depth),
            BLOCKS => self.blocks(),
            PIECES => self.pieces(),
            PARTS => self.parts(depth),
            other => Err(LayoutError::Word(other)),
        }
    }

    fn strided(&mut self, depth: u32) -> Result<Parsed, LayoutError> {
        let (count, stride_bytes) = (self.bytes()?, self.next()? as i64);
        let child = self.tree(depth + 1)?;
        let last = (count as i64 - 1).checked_mul(stride_bytes).ok_or(LayoutError::Overflow)?;
        let size = child.size.checked_mul(count).filter(|size| *size <= i64::MAX as u64);
        let size = size.ok_or(LayoutError::Overflow)?;
        let low = child.low.checked_add(last.min(0)).ok_or(LayoutError::Overflow)?;
        let high = child.high.checked_add(last.max(0)).ok_or(LayoutError::Overflow)?;
        let tree = strided(count, stride_bytes, child.tree).map_err(|_| LayoutError::TooDeep)?;
        Ok(Parsed { tree, size, low, high })
    }

    fn blocks(&mut self) -> Result<Parsed, LayoutError> {
        let bytes = self.bytes()?;
        let count = self.entries(1)?;
        let mut sum = Sum::default();
        let displacements = (0..count)
            .map(|_| {
                let at = self.next()? as i64;
                sum.add(at, 0, bytes as i64, bytes)?;
                Ok(at)
            })
            .collect::<Result<Box<[i64]>, LayoutError>>()?;
        Ok(sum.parsed(Tree::Blocks(Arc::new(Blocks::new(Bytes(bytes), displacements)))))
    }

    fn pieces(&mut self) -> Result<Parsed, LayoutError> {
        let mut sum = Sum::default();
        let pieces = (0..self.entries(2)?)
            .map(|_| {
                let (displacement, bytes) = (self.next()? as i64, self.bytes()?);
                sum.add(displacement, 0, bytes as i64, bytes)?;
                Ok(Piece { displacement, end_bytes: sum.size, leaf: Bytes(bytes) })
            })
            .collect::<Result<Box<[_]>, LayoutError>>()?;
        Ok(sum.parsed(Tree::Pieces(Arc::new(Pieces { pieces }))))
    }

    fn parts(&mut self, depth: u32) -> Result<Parsed, LayoutError> {
        let mut sum = Sum::default();
        let parts = (0..self.entries(3)?)
            .map(|_| {
                let displacement = self.next()? as i64;
                let part = self.tree(depth + 1)?;
                sum.add(displacement, part.low, part.high, part.size)?;
                Ok(Placed { displacement, tree: part.tree })
            })
            .collect::<Result<Vec<_>, LayoutError>>()?;
        let parts = Parts::new(parts).map_err(|_| LayoutError::TooDeep)?;
        Ok(sum.parsed(Tree::Parts(Arc::new(parts))))
    }
}

/// Size and bounds of what has been read of a node.
#[derive(Default)]
struct Sum {
    size: u64,
    bounds: Option<(i64, i64)>,
}

impl Sum {
    fn add(&mut self, displacement: i64, low: i64, high: i64, size: u64) -> Result<(), LayoutError> {
        let low = displacement.checked_add(low).ok_or(LayoutError::Overflow)?;
        let high = displacement.checked_add(high).ok_or(LayoutError::Overflow)?;
        let size = self.size.checked_add(size).filter(|size| *size <= i64::MAX as u64);
        self.size = size.ok_or(LayoutError::Overflow)?;
        self.bounds = Some(self.bounds.map_or((low, high), |(l, h)| (l.min(low), h.max(high))));
        Ok(())
    }

    fn parsed(self, tree: Tree<Bytes>) -> Parsed {
        let (low, high) = self.bounds.unwrap_or((0, 0));
        Parsed { tree, size: self.size, low, high }
    }
}
