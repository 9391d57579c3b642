//! A type map in closed form: size, bounds, layout and signature, and how they combine.
//!
//! Bounds follow the standard: the lower and upper bound of a type without explicit bounds come from its data, the
//! upper one rounded so that the extent is a multiple of the strictest alignment; explicit bounds
//! (`MPI_Type_create_resized`, arrays) stick, and then only they count. What the standard leaves without meaning is a
//! part at a place that breaks its alignment: such a part occupies its whole extent, as it would in an array of it, so
//! that the whole is never narrower than its parts side by side. MPI: §5.1.1, §5.1.7

use crate::basic::Basic;
use crate::error::TypeError;
use crate::layout::{Bytes, Placed, Run, Sequencer, Tree};

/// A type map. Either part may be missing: no data (zero counts), no explicit bounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    pub data: Option<Data>,
    /// Explicit lower and upper bound.
    pub marks: Option<(i64, i64)>,
}

/// The part of a type map that holds data.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub size: u64,
    /// A power of two.
    pub alignment: u64,
    pub true_lb: i64,
    pub true_ub: i64,
    /// Where the data ends, and the padding of parts at places that break their alignment.
    pub end: i64,
    pub bytes: Placed<Bytes>,
    pub signature: Signature,
    /// The one predefined type of all leaves, if there is but one.
    pub uniform: Option<Basic>,
}

/// The predefined types of the leaves, in type-map order.
#[derive(Clone, Debug)]
pub(crate) enum Signature {
    /// All of one type without gaps, so that the layout of the bytes says it all.
    Uniform(Basic),
    /// Anything else.
    Mixed(Placed<Run>),
}

/// `count` copies of `shape`, each at its extent, the first at `displacement`.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    pub displacement: i64,
    pub count: u64,
    pub shape: &'a Shape,
}

impl Shape {
    /// One element of a predefined type.
    pub fn basic(basic: Basic) -> Shape {
        let size = basic.size();
        let run = Placed::leaf(0, Run { basic, count: 1 });
        let (true_ub, bytes, signature) = match (basic.pair_parts(), basic.pair_index_displacement()) {
            (Some((value, index)), Some(displacement)) => {
                let mut parts = Sequencer::new();
                parts.push(Placed::leaf(0, Bytes(value.size())));
                parts.push(Placed::leaf(displacement, Bytes(index.size())));
                let bytes = parts.finish().ok().flatten().expect("two leaves are neither nothing nor too deep");
                (displacement + index.size() as i64, bytes, Signature::Mixed(run))
            }
            _ => (size as i64, Placed::leaf(0, Bytes(size)), Signature::Uniform(basic)),
        };
        let signature = if basic.extent() as u64 == size { Signature::Uniform(basic) } else { signature };
        let alignment = basic.alignment();
        debug_assert!(alignment.is_power_of_two());
        let data = Data { size, alignment, true_lb: 0, true_ub, end: true_ub, bytes, signature, uniform: Some(basic) };
        Shape { data: Some(data), marks: None }
    }

    /// True if the type map has no entry at all.
    pub fn is_empty(&self) -> bool {
        self.data.is_none() && self.marks.is_none()
    }

    /// Lower and upper bound.
    ///
    /// # Errors
    /// [`TypeError::Overflow`]
    pub fn bounds(&self) -> Result<(i64, i64), TypeError> {
        match (self.marks, &self.data) {
            (Some(marks), _) => Ok(marks),
            (None, None) => Ok((0, 0)),
            (None, Some(data)) => Ok((data.true_lb, data.padded_end()?)),
        }
    }

    /// The distance from one element to the next.
    ///
    /// # Errors
    /// [`TypeError::Overflow`]
    pub fn extent(&self) -> Result<i64, TypeError> {
        self.lb_and_extent().map(|(_, extent)| extent)
    }

    /// The lower bound, and the distance from one element to the next.
    ///
    /// # Errors
    /// [`TypeError::Overflow`]
    pub fn lb_and_extent(&self) -> Result<(i64, i64), TypeError> {
        let (lb, ub) = self.bounds()?;
        Ok((lb, sub(ub, lb, "extent")?))
    }

    /// The same data with explicit bounds.
    ///
    /// # Errors
    /// [`TypeError::Overflow`]
    pub fn with_bounds(&self, lb: i64, extent: i64) -> Result<Shape, TypeError> {
        let ub = add(lb, extent, "upper bound")?;
        Ok(Shape { data: self.data.clone(), marks: Some((lb, ub)) })
    }

    /// `count` copies, the first at `displacement`, each `stride_bytes` after the one before.
    ///
    /// # Errors
    /// [`TypeError::Overflow`], [`TypeError::TooDeep`]
    pub fn repeated(&self, displacement: i64, count: u64, stride_bytes: i64) -> Result<Shape, TypeError> {
        if count == 0 || self.is_empty() {
            return Ok(Shape::default());
        }
        let (low, high) = turns(displacement, count, stride_bytes)?;
        let marks = match self.marks {
            Some((lb, ub)) => Some((add(low, lb, "lower bound")?, add(high, ub, "upper bound")?)),
            None => None,
        };
        let Some(data) = &self.data else { return Ok(Shape { data: None, marks }) };
        let size = packed(data.size, count)?;
        let true_lb = add(low, data.true_lb, "true lower bound")?;
        let true_ub = add(high, data.true_ub, "true upper bound")?;
        let end = data.end_of_turns(displacement, count, stride_bytes)?;
        sub(end, true_lb, "true extent")?;
        let bytes = data.bytes.repeated(count, stride_bytes)?.shifted(displacement);
        let signature = match &data.signature {
            Signature::Uniform(basic) => Signature::Uniform(*basic),
            Signature::Mixed(runs) => Signature::Mixed(runs.repeated(count, stride_bytes)?.shifted(displacement)),
        };
        let data = Data { size, true_lb, true_ub, end, bytes, signature, ..*data };
        Ok(Shape { data: Some(data), marks })
    }

    /// The blocks one after the other.
    ///
    /// # Errors
    /// [`TypeError::Overflow`], [`TypeError::TooDeep`]
    pub fn sequence<'a>(blocks: impl Iterator<Item = Block<'a>> + Clone) -> Result<Shape, TypeError> {
        let blocks = blocks.filter(|block| block.count > 0 && !block.shape.is_empty());
        let mut marks: Option<(i64, i64)> = None;
        let mut sum: Option<Sum> = None;
        for block in blocks.clone() {
            let extent = block.shape.extent()?;
            let (low, high) = turns(block.displacement, block.count, extent)?;
            if let Some((lb, ub)) = block.shape.marks {
                let (lb, ub) = (add(low, lb, "lower bound")?, add(high, ub, "upper bound")?);
                marks = Some(marks.map_or((lb, ub), |(l, u)| (l.min(lb), u.max(ub))));
            }
            if let Some(data) = &block.shape.data {
                let next = Sum {
                    size: packed(data.size, block.count)?,
                    alignment: data.alignment,
                    true_lb: add(low, data.true_lb, "true lower bound")?,
                    true_ub: add(high, data.true_ub, "true upper bound")?,
                    end: data.end_of_turns(block.displacement, block.count, extent)?,
                    uniform: data.uniform,
                    gapless: matches!(data.signature, Signature::Uniform(_)),
                };
                sum = Some(match sum {
                    Some(sum) => sum.with(next)?,
                    None => next,
                });
            }
        }
        if let Some((lb, ub)) = marks {
            sub(ub, lb, "extent")?;
        }
        let Some(sum) = sum else { return Ok(Shape { data: None, marks }) };
        sub(sum.end, sum.true_lb, "true extent")?;
        let bytes = sequence_trees(blocks.clone(), |data| data.bytes.clone())?;
        let signature = match sum.uniform {
            Some(basic) if sum.gapless => Signature::Uniform(basic),
            _ => Signature::Mixed(sequence_trees(blocks, Data::runs)?),
        };
        let Sum { size, alignment, true_lb, true_ub, end, uniform, .. } = sum;
        let data = Data { size, alignment, true_lb, true_ub, end, bytes, signature, uniform };
        Ok(Shape { data: Some(data), marks })
    }
}

impl Data {
    /// Where an element ends in an array of this type.
    fn padded_end(&self) -> Result<i64, TypeError> {
        let extent = sub(self.end, self.true_lb, "extent")? as u64;
        let padding = self.alignment - 1;
        let extent = extent.checked_add(padding).and_then(|extent| i64::try_from(extent & !padding).ok());
        add(self.true_lb, extent.ok_or(TypeError::Overflow { what: "extent" })?, "upper bound")
    }

    /// The greatest end of `count` copies, of which those that break their alignment bring their padding.
    fn end_of_turns(&self, displacement: i64, count: u64, stride_bytes: i64) -> Result<i64, TypeError> {
        let (low, high) = turns(displacement, count, stride_bytes)?;
        let mut greatest = add(high, self.end, "true upper bound")?;
        let (alignment, step) = (self.alignment as i64, stride_bytes.unsigned_abs().max(1));
        let padded = self.padded_end()?;
        let is_aligned = |way: i64| way & (alignment - 1) == 0;
        if is_aligned(displacement) && (count == 1 || is_aligned(stride_bytes)) {
            return Ok(greatest);
        }
        // A copy one alignment below the highest ends below it even with its padding.
        for way in (low..=high).rev().step_by(step as usize).take_while(|way| *way > high.saturating_sub(alignment)) {
            if !is_aligned(way) {
                greatest = greatest.max(add(way, padded, "upper bound")?);
            }
        }
        Ok(greatest)
    }

    /// The layout as runs of predefined types.
    pub fn runs(&self) -> Placed<Run> {
        match &self.signature {
            Signature::Mixed(runs) => runs.clone(),
            Signature::Uniform(basic) => Placed {
                displacement: self.bytes.displacement,
                tree: self.bytes.tree.map(&|Bytes(bytes)| Run { basic: *basic, count: bytes / basic.size() }),
            },
        }
    }
}

/// What the blocks of a sequence add up to.
struct Sum {
    size: u64,
    alignment: u64,
    true_lb: i64,
    true_ub: i64,
    end: i64,
    uniform: Option<Basic>,
    gapless: bool,
}

impl Sum {
    fn with(self, next: Sum) -> Result<Sum, TypeError> {
        let size = self.size.checked_add(next.size).filter(|size| i64::try_from(*size).is_ok());
        Ok(Sum {
            size: size.ok_or(TypeError::Overflow { what: "size" })?,
            alignment: self.alignment.max(next.alignment),
            true_lb: self.true_lb.min(next.true_lb),
            true_ub: self.true_ub.max(next.true_ub),
            end: self.end.max(next.end),
            uniform: self.uniform.filter(|_| self.uniform == next.uniform),
            gapless: self.gapless && next.gapless,
        })
    }
}

/// Lays the blocks' trees in order; the tree of a block like the one before is made only once.
fn sequence_trees<'a, L: crate::layout::Leaf>(
    blocks: impl Iterator<Item = Block<'a>>,
    tree_of: impl Fn(&Data) -> Placed<L>,
) -> Result<Placed<L>, TypeError> {
    let mut sequencer = Sequencer::new();
    let mut last: Option<(Block<'a>, Placed<L>)> = None;
    for block in blocks {
        let Some(data) = &block.shape.data else { continue };
        let placed = match last.take() {
            Some((before, placed)) if std::ptr::eq(before.shape, block.shape) && before.count == block.count => placed,
            _ => tree_of(data).repeated(block.count, block.shape.extent()?)?,
        };
        sequencer.push(placed.clone().shifted(block.displacement));
        last = Some((block, placed));
    }
    let whole = sequencer.finish()?;
    Ok(whole.expect("only called when some block holds data"))
}

/// The least and the greatest displacement of `count` turns.
fn turns(displacement: i64, count: u64, stride_bytes: i64) -> Result<(i64, i64), TypeError> {
    let what = "displacement";
    let steps = i64::try_from(count - 1).map_err(|_| TypeError::Overflow { what })?;
    let last = steps.checked_mul(stride_bytes).and_then(|way| way.checked_add(displacement));
    let last = last.ok_or(TypeError::Overflow { what })?;
    Ok((displacement.min(last), displacement.max(last)))
}

fn packed(size: u64, count: u64) -> Result<u64, TypeError> {
    let size = size.checked_mul(count).filter(|size| i64::try_from(*size).is_ok());
    size.ok_or(TypeError::Overflow { what: "size" })
}

fn add(a: i64, b: i64, what: &'static str) -> Result<i64, TypeError> {
    a.checked_add(b).ok_or(TypeError::Overflow { what })
}

fn sub(a: i64, b: i64, what: &'static str) -> Result<i64, TypeError> {
    a.checked_sub(b).ok_or(TypeError::Overflow { what })
}

/// The number of elements of predefined types (two for a pair) in the first `bytes` packed bytes of a tree, or `None` if
/// they end inside an element.
pub(crate) fn elements_in(tree: &Tree<Run>, bytes: u64) -> Option<u64> {
    match tree {
        Tree::Leaf(run) => elements_in_run(run, bytes),
        Tree::Strided(node) => {
            let each = node.child.packed_bytes();
            let whole = if bytes < each { 0 } else { elements_in(&node.child, each)? };
            Some(bytes / each * whole + elements_in(&node.child, bytes % each)?)
        }
        Tree::Blocks(node) => elements_in_run(
            &Run { basic: node.leaf.basic, count: node.leaf.count * node.displacements.len() as u64 },
            bytes,
        ),
        Tree::Pieces(node) => sum_parts(bytes, node.pieces.iter().map(|p| p.end_bytes), |index, bytes| {
            elements_in_run(&node.pieces[index].leaf, bytes)
        }),
        Tree::Parts(node) => sum_parts(bytes, node.parts.iter().map(|p| p.end_bytes), |index, bytes| {
            elements_in(&node.parts[index].tree, bytes)
        }),
    }
}

fn sum_parts(bytes: u64, ends: impl Iterator<Item = u64>, elements: impl Fn(usize, u64) -> Option<u64>) -> Option<u64> {
    let (mut begin, mut sum) = (0, 0);
    for (index, end) in ends.enumerate() {
        if begin >= bytes {
            break;
        }
        sum += elements(index, bytes.min(end) - begin)?;
        begin = end;
    }
    Some(sum)
}

fn elements_in_run(run: &Run, bytes: u64) -> Option<u64> {
    let size = run.basic.size();
    let (whole, rest) = (bytes / size, bytes % size);
    match run.basic.pair_parts() {
        Some((value, _)) if rest == value.size() => Some(2 * whole + 1),
        Some(_) => (rest == 0).then_some(2 * whole),
        None => (rest == 0).then_some(whole),
    }
}
