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
    pub span: Span,
    pub bytes: Placed<Bytes>,
    pub signature: Signature,
    /// The one predefined type of all leaves, if there is but one.
    pub uniform: Option<Basic>,
}

/// How much data there is, and where it begins and ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub size: u64,
    /// A power of two.
    pub alignment: u64,
    pub true_lb: i64,
    pub true_ub: i64,
    /// Where the data ends, and the padding of parts at places that break their alignment.
    pub end: i64,
}

/// The predefined types of the leaves, in type-map order.
#[derive(Clone, Debug)]
pub(crate) enum Signature {
    /// All of one type without gaps, so that the layout of the bytes says it all.
    Uniform(Basic),
    /// Anything else.
    Mixed(Placed<Run>),
}

/// `count` copies, the first at `displacement`, each `stride_bytes` after the one before.
#[derive(Clone, Copy)]
pub(crate) struct Loop {
    pub displacement: i64,
    pub count: u64,
    pub stride_bytes: i64,
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
        let span = Span { size, alignment, true_lb: 0, true_ub, end: true_ub };
        Shape { data: Some(Data { span, bytes, signature, uniform: Some(basic) }), marks: None }
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
            (None, Some(data)) => Ok((data.span.true_lb, data.span.padded_end()?)),
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

    /// As [`Shape::looped`], of one loop.
    ///
    /// # Errors
    /// As there.
    pub fn repeated(&self, displacement: i64, count: u64, stride_bytes: i64) -> Result<Shape, TypeError> {
        self.looped([Loop { displacement, count, stride_bytes }])
    }

    /// This in loops, the innermost first. It becomes what it is in one go: a shape is long, and moving one takes longer than
    /// computing it.
    ///
    /// # Errors
    /// [`TypeError::Overflow`], [`TypeError::TooDeep`]
    #[inline(always)]
    pub fn looped<const N: usize>(&self, loops: [Loop; N]) -> Result<Shape, TypeError> {
        let mut marks = self.marks;
        let Some(data) = &self.data else {
            for one in loops {
                if marks.is_none() || one.count == 0 {
                    return Ok(Shape::default());
                }
                marks = one.marks(one.turns()?, marks)?;
            }
            return Ok(Shape { data: None, marks });
        };
        let mut span = data.span;
        let mut bytes = data.bytes.clone();
        let mut signature = data.signature.clone();
        for one in loops {
            if one.count == 0 {
                return Ok(Shape::default());
            }
            let turns = one.turns()?;
            marks = one.marks(turns, marks)?;
            span = span.repeated(one, turns)?;
            bytes.repeat(one.displacement, one.count, one.stride_bytes)?;
            if let Signature::Mixed(runs) = &mut signature {
                runs.repeat(one.displacement, one.count, one.stride_bytes)?;
            }
        }
        Ok(Shape { data: Some(Data { span, bytes, signature, uniform: data.uniform }), marks })
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
            let one = Loop { displacement: block.displacement, count: block.count, stride_bytes: extent };
            let turns = one.turns()?;
            if let Some((lb, ub)) = one.marks(turns, block.shape.marks)? {
                marks = Some(marks.map_or((lb, ub), |(l, u)| (l.min(lb), u.max(ub))));
            }
            if let Some(data) = &block.shape.data {
                let next = Sum {
                    span: data.span.turned(one, turns)?,
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
        let Some(Sum { span, uniform, gapless }) = sum else { return Ok(Shape { data: None, marks }) };
        span.check()?;
        let bytes = sequence_trees(blocks.clone(), |data| data.bytes.clone())?;
        let signature = match uniform {
            Some(basic) if gapless => Signature::Uniform(basic),
            _ => Signature::Mixed(sequence_trees(blocks, Data::runs)?),
        };
        Ok(Shape { data: Some(Data { span, bytes, signature, uniform }), marks })
    }
}

impl Loop {
    /// The least and the greatest displacement of a turn.
    #[inline]
    fn turns(&self) -> Result<(i64, i64), TypeError> {
        let what = "displacement";
        let steps = i64::try_from(self.count - 1).map_err(|_| TypeError::Overflow { what })?;
        let last = steps.checked_mul(self.stride_bytes).and_then(|way| way.checked_add(self.displacement));
        let last = last.ok_or(TypeError::Overflow { what })?;
        Ok((self.displacement.min(last), self.displacement.max(last)))
    }

    /// The explicit bounds of all turns.
    #[inline]
    fn marks(&self, (low, high): (i64, i64), marks: Option<(i64, i64)>) -> Result<Option<(i64, i64)>, TypeError> {
        let Some((lb, ub)) = marks else { return Ok(None) };
        Ok(Some((add(low, lb, "lower bound")?, add(high, ub, "upper bound")?)))
    }
}

impl Span {
    /// All turns of a loop, which are given, too.
    #[inline]
    fn repeated(&self, one: Loop, turns: (i64, i64)) -> Result<Span, TypeError> {
        let all = self.turned(one, turns)?;
        all.check()?;
        Ok(all)
    }

    /// As [`Span::repeated`], without a look at what it comes to.
    #[inline]
    fn turned(&self, one: Loop, (low, high): (i64, i64)) -> Result<Span, TypeError> {
        Ok(Span {
            size: packed(self.size, one.count)?,
            alignment: self.alignment,
            true_lb: add(low, self.true_lb, "true lower bound")?,
            true_ub: add(high, self.true_ub, "true upper bound")?,
            end: self.end_of_turns(one, (low, high))?,
        })
    }

    /// Refuses data that reaches further than a number of bytes says.
    #[inline]
    fn check(&self) -> Result<(), TypeError> {
        sub(self.end, self.true_lb, "true extent").map(drop)
    }

    /// Where an element ends in an array of this type.
    fn padded_end(&self) -> Result<i64, TypeError> {
        let extent = sub(self.end, self.true_lb, "extent")? as u64;
        let padding = self.alignment - 1;
        let extent = extent.checked_add(padding).and_then(|extent| i64::try_from(extent & !padding).ok());
        add(self.true_lb, extent.ok_or(TypeError::Overflow { what: "extent" })?, "upper bound")
    }

    /// The greatest end of all turns, of which those that break their alignment bring their padding.
    #[inline]
    fn end_of_turns(&self, one: Loop, (low, high): (i64, i64)) -> Result<i64, TypeError> {
        let greatest = add(high, self.end, "true upper bound")?;
        let padded = self.padded_end()?;
        if self.is_aligned(one.displacement) && (one.count == 1 || self.is_aligned(one.stride_bytes)) {
            return Ok(greatest);
        }
        self.end_with_padding(greatest, padded, one, (low, high))
    }

    #[cold]
    fn end_with_padding(
        &self,
        mut greatest: i64,
        padded: i64,
        one: Loop,
        (low, high): (i64, i64),
    ) -> Result<i64, TypeError> {
        let (alignment, step) = (self.alignment as i64, one.stride_bytes.unsigned_abs().max(1));
        // A copy one alignment below the highest ends below it even with its padding.
        for way in (low..=high).rev().step_by(step as usize).take_while(|way| *way > high.saturating_sub(alignment)) {
            if !self.is_aligned(way) {
                greatest = greatest.max(add(way, padded, "upper bound")?);
            }
        }
        Ok(greatest)
    }

    fn is_aligned(&self, way: i64) -> bool {
        way & (self.alignment as i64 - 1) == 0
    }
}

impl Data {
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
    span: Span,
    uniform: Option<Basic>,
    gapless: bool,
}

impl Sum {
    fn with(self, next: Sum) -> Result<Sum, TypeError> {
        let size = self.span.size.checked_add(next.span.size).filter(|size| i64::try_from(*size).is_ok());
        Ok(Sum {
            span: Span {
                size: size.ok_or(TypeError::Overflow { what: "size" })?,
                alignment: self.span.alignment.max(next.span.alignment),
                true_lb: self.span.true_lb.min(next.span.true_lb),
                true_ub: self.span.true_ub.max(next.span.true_ub),
                end: self.span.end.max(next.span.end),
            },
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
        Tree::Comb(comb) => {
            elements_in_run(&Run { basic: comb.leaf.basic, count: comb.leaf.count * comb.count }, bytes)
        }
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
