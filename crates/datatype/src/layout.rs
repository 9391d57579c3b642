//! Normalised layouts: where the data of a type lies, as nested strided loops over leaves.
//!
//! A tree is generic over its leaf: [`Bytes`] for copying, [`Run`] where the types of the elements matter. Building
//! normalises: neighbouring leaves join, a loop that leaves no gaps becomes a leaf, equally spaced equal parts become a
//! loop. No node stores one entry for each repetition of a regular pattern. Any packed offset is found in
//! O(depth + log blocks).
//!
//! Displacements are held where parts differ; a child of a loop starts at displacement 0 of its turn.

use std::sync::Arc;

use crate::basic::Basic;
use crate::error::TypeError;

/// How deep layouts may nest; walking them recurses.
pub(crate) const LAYOUT_DEPTH_MAX: u32 = 256;

/// Leaves of several lengths are held as equal shorter ones, whose loop takes a fraction of the time, if those are no longer
/// than so many bytes and no more than so many times as many.
const EQUAL_MAX_BYTES: u64 = 64;
const EQUAL_MAX_TIMES: u64 = 2;

/// Small children are spliced into their parents so that leaves can join across their borders.
const SPLICE_MAX: usize = 16;

/// A stretch of memory that a tree treats as one.
pub(crate) trait Leaf: Copy + PartialEq {
    /// Bytes of data.
    fn packed_bytes(&self) -> u64;
    /// Bytes of memory from the start of this leaf to where one that joins it would start.
    fn span_bytes(&self) -> u64;
    /// This leaf with `next` directly behind it, where both can be one.
    fn join(self, next: Self) -> Option<Self>;
    /// This leaf `count` times, back to back.
    fn times(self, count: u64) -> Self;
    /// The longest leaf of which both are a multiple, where there is one.
    fn common(self, other: Self) -> Option<Self>;
}

/// A number of consecutive bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub u64);

impl Leaf for Bytes {
    #[inline]
    fn packed_bytes(&self) -> u64 {
        self.0
    }
    fn span_bytes(&self) -> u64 {
        self.0
    }
    fn join(self, next: Self) -> Option<Self> {
        Some(Bytes(self.0 + next.0))
    }
    fn times(self, count: u64) -> Self {
        Bytes(self.0 * count)
    }
    fn common(self, other: Self) -> Option<Self> {
        Some(Bytes(greatest_divisor(self.0, other.0)))
    }
}

/// An array of `count` elements of a predefined type, each at its extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub basic: Basic,
    pub count: u64,
}

impl Leaf for Run {
    fn packed_bytes(&self) -> u64 {
        self.basic.size() * self.count
    }
    fn span_bytes(&self) -> u64 {
        self.basic.extent() as u64 * self.count
    }
    fn join(self, next: Self) -> Option<Self> {
        (self.basic == next.basic).then_some(Run { basic: self.basic, count: self.count + next.count })
    }
    fn times(self, count: u64) -> Self {
        Run { basic: self.basic, count: self.count * count }
    }
    fn common(self, other: Self) -> Option<Self> {
        let count = greatest_divisor(self.count, other.count);
        (self.basic == other.basic).then_some(Run { basic: self.basic, count })
    }
}

/// The greatest common divisor.
fn greatest_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

/// A layout relative to its own first leaf; never empty.
#[derive(Clone, Debug)]
pub(crate) enum Tree<L> {
    /// One leaf.
    Leaf(L),
    /// The same leaf again and again: most of what programs make, so it is held in place.
    Comb(Comb<L>),
    /// The same child, which is no leaf, again and again.
    Strided(Arc<Strided<L>>),
    /// The same leaf at irregular displacements.
    Blocks(Arc<Blocks<L>>),
    /// Different leaves.
    Pieces(Arc<Pieces<L>>),
    /// Different children.
    Parts(Arc<Parts<L>>),
}

/// See [`Tree::Comb`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Comb<L> {
    pub count: u64,
    pub stride_bytes: i64,
    pub leaf: L,
}

/// See [`Tree::Strided`].
#[derive(Debug)]
pub(crate) struct Strided<L> {
    pub count: u64,
    pub stride_bytes: i64,
    pub child: Tree<L>,
    packed_bytes: u64,
    depth: u32,
}

/// See [`Tree::Blocks`].
#[derive(Debug)]
pub(crate) struct Blocks<L> {
    pub leaf: L,
    pub displacements: Box<[i64]>,
    packed_bytes: u64,
}

/// See [`Tree::Pieces`].
#[derive(Debug)]
pub(crate) struct Pieces<L> {
    pub pieces: Box<[Piece<L>]>,
}

/// One leaf of several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<L> {
    pub displacement: i64,
    /// Packed bytes up to and including this leaf.
    pub end_bytes: u64,
    pub leaf: L,
}

/// See [`Tree::Parts`].
#[derive(Debug)]
pub(crate) struct Parts<L> {
    pub parts: Box<[Part<L>]>,
    depth: u32,
}

/// One child of several.
#[derive(Debug)]
pub(crate) struct Part<L> {
    pub displacement: i64,
    /// Packed bytes up to and including this child.
    pub end_bytes: u64,
    pub tree: Tree<L>,
}

/// A tree and where its first leaf begins.
#[derive(Clone, Debug)]
pub(crate) struct Placed<L> {
    pub displacement: i64,
    pub tree: Tree<L>,
}

impl Tree<Bytes> {
    /// Blocks of consecutive bytes. Paper: datatypes §6
    pub fn block_count(&self) -> u64 {
        match self {
            Tree::Leaf(_) => 1,
            Tree::Comb(comb) => comb.count,
            // A loop of n turns holds at least n bytes, so that no number of blocks exceeds the size, which fits.
            Tree::Strided(node) => node.count * node.child.block_count(),
            Tree::Blocks(node) => node.displacements.len() as u64,
            Tree::Pieces(node) => node.pieces.len() as u64,
            Tree::Parts(node) => node.parts.iter().map(|part| part.tree.block_count()).sum(),
        }
    }
}

impl<L: Leaf> Tree<L> {
    /// Bytes of data.
    #[inline]
    pub fn packed_bytes(&self) -> u64 {
        match self {
            Tree::Leaf(leaf) => leaf.packed_bytes(),
            Tree::Comb(comb) => comb.leaf.packed_bytes() * comb.count,
            Tree::Strided(node) => node.packed_bytes,
            Tree::Blocks(node) => node.packed_bytes,
            Tree::Pieces(node) => node.pieces.last().map_or(0, |piece| piece.end_bytes),
            Tree::Parts(node) => node.parts.last().map_or(0, |part| part.end_bytes),
        }
    }

    fn depth(&self) -> u32 {
        match self {
            Tree::Leaf(_) => 0,
            Tree::Strided(node) => node.depth,
            Tree::Comb(_) | Tree::Blocks(_) | Tree::Pieces(_) => 1,
            Tree::Parts(node) => node.depth,
        }
    }

    /// True only if both lay out the same bytes in the same way; false may be wrong for large equal trees.
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Tree::Leaf(a), Tree::Leaf(b)) => a == b,
            (Tree::Comb(a), Tree::Comb(b)) => a == b,
            (Tree::Strided(a), Tree::Strided(b)) => {
                Arc::ptr_eq(a, b) || (a.count == b.count && a.stride_bytes == b.stride_bytes && a.child.same(&b.child))
            }
            (Tree::Blocks(a), Tree::Blocks(b)) => Arc::ptr_eq(a, b),
            (Tree::Pieces(a), Tree::Pieces(b)) => Arc::ptr_eq(a, b),
            (Tree::Parts(a), Tree::Parts(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// The same layout over other leaves; `convert` must keep the sizes.
    pub fn map<M: Leaf>(&self, convert: &impl Fn(L) -> M) -> Tree<M> {
        match self {
            Tree::Leaf(leaf) => Tree::Leaf(convert(*leaf)),
            Tree::Comb(comb) => {
                Tree::Comb(Comb { count: comb.count, stride_bytes: comb.stride_bytes, leaf: convert(comb.leaf) })
            }
            Tree::Strided(node) => Tree::Strided(Arc::new(Strided {
                count: node.count,
                stride_bytes: node.stride_bytes,
                child: node.child.map(convert),
                packed_bytes: node.packed_bytes,
                depth: node.depth,
            })),
            Tree::Blocks(node) => Tree::Blocks(Arc::new(Blocks {
                leaf: convert(node.leaf),
                displacements: node.displacements.clone(),
                packed_bytes: node.packed_bytes,
            })),
            Tree::Pieces(node) => {
                let convert_piece = |piece: &Piece<L>| Piece {
                    displacement: piece.displacement,
                    end_bytes: piece.end_bytes,
                    leaf: convert(piece.leaf),
                };
                Tree::Pieces(Arc::new(Pieces { pieces: node.pieces.iter().map(convert_piece).collect() }))
            }
            Tree::Parts(node) => {
                let convert_part = |part: &Part<L>| Part {
                    displacement: part.displacement,
                    end_bytes: part.end_bytes,
                    tree: part.tree.map(convert),
                };
                let parts = node.parts.iter().map(convert_part).collect();
                Tree::Parts(Arc::new(Parts { parts, depth: node.depth }))
            }
        }
    }
}

impl<L: Leaf> Placed<L> {
    /// One leaf at `displacement`.
    pub fn leaf(displacement: i64, leaf: L) -> Self {
        Placed { displacement, tree: Tree::Leaf(leaf) }
    }

    /// The same further on by `displacement` bytes.
    pub fn shifted(self, displacement: i64) -> Self {
        Placed { displacement: self.displacement + displacement, ..self }
    }

    /// `count` (at least 1) copies, each `stride_bytes` after the one before.
    ///
    /// # Errors
    /// [`TypeError::TooDeep`]
    pub fn repeated(&self, count: u64, stride_bytes: i64) -> Result<Self, TypeError> {
        let mut placed = self.clone();
        placed.repeat(0, count, stride_bytes)?;
        Ok(placed)
    }

    /// Becomes [`Placed::repeated`], further on by `displacement` bytes.
    ///
    /// # Errors
    /// [`TypeError::TooDeep`]
    #[inline]
    pub fn repeat(&mut self, displacement: i64, count: u64, stride_bytes: i64) -> Result<(), TypeError> {
        self.displacement += displacement;
        if count == 1 {
            return Ok(());
        }
        self.tree = match &self.tree {
            Tree::Leaf(leaf) if stride_bytes >= 0 && leaf.span_bytes() == stride_bytes as u64 => {
                Tree::Leaf(leaf.times(count))
            }
            Tree::Leaf(leaf) => Tree::Comb(Comb { count, stride_bytes, leaf: *leaf }),
            Tree::Comb(inner) if inner.stride_bytes.checked_mul(inner.count as i64) == Some(stride_bytes) => {
                Tree::Comb(Comb { count: inner.count * count, ..*inner })
            }
            Tree::Strided(inner) if inner.stride_bytes.checked_mul(inner.count as i64) == Some(stride_bytes) => {
                strided(inner.count * count, inner.stride_bytes, inner.child.clone())?
            }
            tree => strided(count, stride_bytes, tree.clone())?,
        };
        Ok(())
    }
}

impl<L: Leaf> Blocks<L> {
    /// The same leaf at each of `displacements`; the caller knows that the whole size fits.
    pub fn new(leaf: L, displacements: Box<[i64]>) -> Self {
        Blocks { leaf, packed_bytes: leaf.packed_bytes() * displacements.len() as u64, displacements }
    }
}

impl<L: Leaf> Parts<L> {
    /// Children at their displacements; the caller knows that the whole size fits.
    ///
    /// # Errors
    /// [`TypeError::TooDeep`]
    pub fn new(placed: Vec<Placed<L>>) -> Result<Self, TypeError> {
        let depth = deeper(placed.iter().map(|p| p.tree.depth()).max().unwrap_or(0))?;
        let mut end_bytes = 0;
        let part = |p: Placed<L>| {
            end_bytes += p.tree.packed_bytes();
            Part { displacement: p.displacement, end_bytes, tree: p.tree }
        };
        Ok(Parts { parts: placed.into_iter().map(part).collect(), depth })
    }
}

/// `count` times the same child; the caller knows that the whole size fits.
///
/// # Errors
/// [`TypeError::TooDeep`]
pub(crate) fn strided<L: Leaf>(count: u64, stride_bytes: i64, child: Tree<L>) -> Result<Tree<L>, TypeError> {
    if let Tree::Leaf(leaf) = child {
        return Ok(Tree::Comb(Comb { count, stride_bytes, leaf }));
    }
    let depth = deeper(child.depth())?;
    let packed_bytes = child.packed_bytes() * count;
    Ok(Tree::Strided(Arc::new(Strided { count, stride_bytes, child, packed_bytes, depth })))
}

fn deeper(depth: u32) -> Result<u32, TypeError> {
    let depth = depth + 1;
    if depth > LAYOUT_DEPTH_MAX {
        return Err(TypeError::TooDeep { depth, depth_max: LAYOUT_DEPTH_MAX });
    }
    Ok(depth)
}

/// Puts placed trees one after the other, in type-map order, into one.
pub(crate) struct Sequencer<L> {
    placed: Vec<Placed<L>>,
}

impl<L: Leaf> Sequencer<L> {
    pub fn new() -> Self {
        Sequencer { placed: Vec::new() }
    }

    /// Appends a layout.
    pub fn push(&mut self, next: Placed<L>) {
        match &next.tree {
            Tree::Pieces(node) if node.pieces.len() <= SPLICE_MAX => {
                for piece in &node.pieces {
                    self.push(Placed::leaf(next.displacement + piece.displacement, piece.leaf));
                }
            }
            Tree::Blocks(node) if node.displacements.len() <= SPLICE_MAX => {
                for displacement in &node.displacements {
                    self.push(Placed::leaf(next.displacement + displacement, node.leaf));
                }
            }
            Tree::Parts(node) if node.parts.len() <= SPLICE_MAX => {
                for part in &node.parts {
                    self.push(Placed { displacement: next.displacement + part.displacement, tree: part.tree.clone() });
                }
            }
            Tree::Leaf(leaf) => self.push_leaf(next.displacement, *leaf),
            _ => self.placed.push(next),
        }
    }

    /// The whole; `None` if nothing was pushed.
    ///
    /// # Errors
    /// [`TypeError::TooDeep`]
    pub fn finish(self) -> Result<Option<Placed<L>>, TypeError> {
        let placed = self.placed;
        let [first, rest @ ..] = placed.as_slice() else { return Ok(None) };
        let Some(second) = rest.first() else { return Ok(placed.into_iter().next()) };
        let displacement = first.displacement;
        let stride_bytes = second.displacement.wrapping_sub(displacement);
        let alike = rest.iter().all(|next| next.tree.same(&first.tree));
        let regular =
            alike && placed.windows(2).all(|w| w[1].displacement.checked_sub(w[0].displacement) == Some(stride_bytes));
        if regular {
            return first.repeated(placed.len() as u64, stride_bytes).map(Some);
        }
        let relative = |at: &Placed<L>| at.displacement - displacement;
        let tree = match &first.tree {
            Tree::Leaf(leaf) if alike => {
                Tree::Blocks(Arc::new(Blocks::new(*leaf, placed.iter().map(relative).collect())))
            }
            _ => match leaves(&placed, displacement) {
                Some(pieces) => match equal_leaves(&pieces) {
                    Some(blocks) => Tree::Blocks(Arc::new(blocks)),
                    None => Tree::Pieces(Arc::new(Pieces { pieces })),
                },
                None => {
                    let relative = |p: Placed<L>| p.shifted(-displacement);
                    Tree::Parts(Arc::new(Parts::new(placed.into_iter().map(relative).collect())?))
                }
            },
        };
        Ok(Some(Placed { displacement, tree }))
    }

    fn push_leaf(&mut self, displacement: i64, leaf: L) {
        if let Some(Placed { displacement: at, tree: Tree::Leaf(last) }) = self.placed.last_mut()
            && at.checked_add_unsigned(last.span_bytes()) == Some(displacement)
            && let Some(joined) = last.join(leaf)
        {
            *last = joined;
            return;
        }
        self.placed.push(Placed::leaf(displacement, leaf));
    }
}

fn leaves<L: Leaf>(placed: &[Placed<L>], displacement: i64) -> Option<Box<[Piece<L>]>> {
    let mut end_bytes = 0;
    placed
        .iter()
        .map(|p| match &p.tree {
            Tree::Leaf(leaf) => {
                end_bytes += leaf.packed_bytes();
                Some(Piece { displacement: p.displacement - displacement, end_bytes, leaf: *leaf })
            }
            _ => None,
        })
        .collect()
}

/// The same as equal leaves, where that pays.
fn equal_leaves<L: Leaf>(pieces: &[Piece<L>]) -> Option<Blocks<L>> {
    let (first, rest) = pieces.split_first()?;
    let leaf = rest.iter().try_fold(first.leaf, |common, piece| common.common(piece.leaf))?;
    let (each, all) = (leaf.packed_bytes(), pieces.last()?.end_bytes);
    if each > EQUAL_MAX_BYTES || all / each > pieces.len() as u64 * EQUAL_MAX_TIMES {
        return None;
    }
    let step = leaf.span_bytes() as i64;
    let parts = |piece: &Piece<L>| {
        let displacement = piece.displacement;
        (0..piece.leaf.packed_bytes() / each).map(move |part| displacement + part as i64 * step)
    };
    Some(Blocks::new(leaf, pieces.iter().flat_map(parts).collect()))
}
