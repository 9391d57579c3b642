//! Walking a layout, and moving bytes between user memory and packed form.
//!
//! [`walk`] starts at any packed byte and stops when its visitor has no more room. It only computes addresses; what
//! touches memory are the visitors [`Pack`] and [`Unpack`].

use crate::kernel;
use crate::layout::{Blocks, Bytes, Piece, Tree};

/// Most pieces of an element that are handed to a visitor as one pattern.
const PATTERN_MAX: usize = 16;

/// Packed bytes of the elements that are copied piece by piece: few enough that what one piece's loop brings into the
/// first-level cache is there for the next.
const TILE_BYTES: u64 = 4096;

/// Most runs of what is unpacked from its end on.
pub(crate) const DOWNWARDS_RUNS_MAX: usize = 64;

/// One run of consecutive bytes in each of many equal elements.
#[derive(Clone, Copy, Default)]
pub(crate) struct Stretch {
    displacement: i64,
    /// Packed bytes of the element before this run.
    offset: u64,
    bytes: u64,
}

/// Equal elements at a stride, seen as the runs that each of them consists of.
#[derive(Clone, Copy)]
pub(crate) struct Pattern<'a> {
    runs: &'a [Stretch],
    stride_bytes: i64,
    /// Packed bytes of an element.
    each: u64,
    count: u64,
}

/// Receives the runs of user memory that a walk passes, in packed order.
pub(crate) trait Visitor {
    /// Bytes this visitor can still take.
    fn room(&self) -> u64;

    /// `bytes` (at most [`Self::room`]) consecutive bytes at `user`.
    fn run(&mut self, user: *mut u8, bytes: u64);

    /// `count` runs of `bytes` each, `stride_bytes` apart; together at most [`Self::room`].
    fn runs(&mut self, user: *mut u8, stride_bytes: i64, bytes: u64, count: u64) {
        for turn in 0..count {
            self.run(turn_address(user, stride_bytes, turn), bytes);
        }
    }

    /// Elements of a few runs each, the first at `user`; together at most [`Self::room`].
    fn elements(&mut self, user: *mut u8, pattern: Pattern<'_>) {
        for turn in 0..pattern.count {
            if self.room() == 0 {
                return;
            }
            let element = turn_address(user, pattern.stride_bytes, turn);
            for run in pattern.runs {
                self.run(element.wrapping_offset(run.displacement as isize), run.bytes);
            }
        }
    }

    /// Runs of several lengths, at irregular displacements from `user`, `bytes` together, which is at most [`Self::room`].
    fn pieces(&mut self, user: *mut u8, pieces: &[Piece<Bytes>], _bytes: u64) {
        for piece in pieces {
            self.run(user.wrapping_offset(piece.displacement as isize), piece.leaf.0);
        }
    }

    /// Runs of `bytes` each, at irregular displacements from `user`; together at most [`Self::room`].
    fn blocks(&mut self, user: *mut u8, displacements: &[i64], bytes: u64) {
        for displacement in displacements {
            self.run(user.wrapping_offset(*displacement as isize), bytes);
        }
    }
}

/// Visits the packed bytes of `tree`, whose first leaf is at `user`, from the byte `skip` on, as far as there is room.
pub(crate) fn walk<V: Visitor>(tree: &Tree<Bytes>, user: *mut u8, skip: u64, visitor: &mut V) {
    match tree {
        Tree::Leaf(leaf) => walk_leaf(leaf.0, user, skip, visitor),
        Tree::Comb(comb) => walk_strided(&Tree::Leaf(comb.leaf), comb.count, comb.stride_bytes, user, skip, visitor),
        Tree::Strided(node) => walk_strided(&node.child, node.count, node.stride_bytes, user, skip, visitor),
        Tree::Blocks(node) => walk_blocks(node, user, skip, visitor),
        Tree::Pieces(node) => walk_pieces(&node.pieces, user, skip, visitor),
        Tree::Parts(node) => {
            let first = node.parts.partition_point(|part| part.end_bytes <= skip);
            let mut rest = skip - first.checked_sub(1).map_or(0, |before| node.parts[before].end_bytes);
            for part in &node.parts[first..] {
                if visitor.room() == 0 {
                    break;
                }
                walk(&part.tree, user.wrapping_offset(part.displacement as isize), rest, visitor);
                rest = 0;
            }
        }
    }
}

/// Visits `count` copies of `child`, `stride_bytes` apart, from the packed byte `skip` on.
pub(crate) fn walk_strided<V: Visitor>(
    child: &Tree<Bytes>,
    count: u64,
    stride_bytes: i64,
    user: *mut u8,
    skip: u64,
    visitor: &mut V,
) {
    let each = child.packed_bytes();
    let (mut turn, rest) = divide(skip, each);
    if turn >= count {
        return;
    }
    if rest > 0 {
        walk(child, turn_address(user, stride_bytes, turn), rest, visitor);
        turn += 1;
    }
    let (left, room) = (count - turn, visitor.room());
    let whole = if u128::from(left) * u128::from(each) <= u128::from(room) { left } else { room / each };
    if let Tree::Leaf(_) = child {
        visitor.runs(turn_address(user, stride_bytes, turn), stride_bytes, each, whole);
        turn += whole;
    } else if whole > 1 && !is_long_loop(child) {
        let mut runs = [Stretch::default(); PATTERN_MAX];
        if let Some(used) = list_runs(child, 0, &mut runs, 0) {
            let pattern = Pattern { runs: &runs[..used], stride_bytes, each, count: whole };
            visitor.elements(turn_address(user, stride_bytes, turn), pattern);
            turn += whole;
        }
    }
    while turn < count && visitor.room() > 0 {
        walk(child, turn_address(user, stride_bytes, turn), 0, visitor);
        turn += 1;
    }
}

/// True for a loop over so many runs that it is best done as it stands.
fn is_long_loop(tree: &Tree<Bytes>) -> bool {
    matches!(tree, Tree::Comb(comb) if comb.count >= 8)
}

/// Lists the runs of `tree` behind the `used` that are listed already; how many there are then, or `None` if that is more
/// than fit.
fn list_runs(tree: &Tree<Bytes>, displacement: i64, runs: &mut [Stretch; PATTERN_MAX], used: usize) -> Option<usize> {
    match tree {
        Tree::Leaf(Bytes(bytes)) => {
            let offset = used.checked_sub(1).map_or(0, |last| runs[last].offset + runs[last].bytes);
            *runs.get_mut(used)? = Stretch { displacement, offset, bytes: *bytes };
            Some(used + 1)
        }
        Tree::Comb(comb) if comb.count > PATTERN_MAX as u64 => None,
        Tree::Comb(comb) => {
            let leaf = Tree::Leaf(comb.leaf);
            let at = |turn| displacement + turn * comb.stride_bytes;
            (0..comb.count as i64).try_fold(used, |used, turn| list_runs(&leaf, at(turn), runs, used))
        }
        Tree::Strided(node) if node.count > PATTERN_MAX as u64 => None,
        Tree::Strided(node) => (0..node.count as i64)
            .try_fold(used, |used, turn| list_runs(&node.child, displacement + turn * node.stride_bytes, runs, used)),
        Tree::Blocks(node) => {
            let leaf = Tree::Leaf(node.leaf);
            node.displacements.iter().try_fold(used, |used, at| list_runs(&leaf, displacement + at, runs, used))
        }
        Tree::Pieces(node) => node.pieces.iter().try_fold(used, |used, piece| {
            list_runs(&Tree::Leaf(piece.leaf), displacement + piece.displacement, runs, used)
        }),
        Tree::Parts(node) => node
            .parts
            .iter()
            .try_fold(used, |used, part| list_runs(&part.tree, displacement + part.displacement, runs, used)),
    }
}

fn walk_blocks<V: Visitor>(node: &Blocks<Bytes>, user: *mut u8, skip: u64, visitor: &mut V) {
    let each = node.leaf.0;
    let (first, rest) = divide(skip, each);
    let Some(mut left) = node.displacements.get(first as usize..) else { return };
    let at = |displacement: &i64| user.wrapping_offset(*displacement as isize);
    if rest > 0
        && let Some((first, others)) = left.split_first()
    {
        walk_leaf(each, at(first), rest, visitor);
        left = others;
    }
    let whole = (left.len() as u64).min(visitor.room() / each);
    let (whole, left) = left.split_at(whole as usize);
    visitor.blocks(user, whole, each);
    if let Some(last) = left.first().filter(|_| visitor.room() > 0) {
        walk_leaf(each, at(last), 0, visitor);
    }
}

fn walk_pieces<V: Visitor>(pieces: &[Piece<Bytes>], user: *mut u8, skip: u64, visitor: &mut V) {
    let at = |piece: &Piece<Bytes>| user.wrapping_offset(piece.displacement as isize);
    let first = if skip == 0 { 0 } else { pieces.partition_point(|piece| piece.end_bytes <= skip) };
    let Some(mut left) = pieces.get(first..) else { return };
    let mut done = first.checked_sub(1).map_or(0, |before| pieces[before].end_bytes);
    if skip > done
        && let Some((first, others)) = left.split_first()
    {
        walk_leaf(first.leaf.0, at(first), skip - done, visitor);
        (done, left) = (first.end_bytes, others);
    }
    let room = visitor.room();
    let whole = match left.last() {
        Some(last) if last.end_bytes - done <= room => left.len(),
        _ => left.partition_point(|piece| piece.end_bytes - done <= room),
    };
    let (whole, left) = left.split_at(whole);
    if let Some(last) = whole.last() {
        visitor.pieces(user, whole, last.end_bytes - done);
    }
    if let Some(last) = left.first().filter(|_| visitor.room() > 0) {
        walk_leaf(last.leaf.0, at(last), 0, visitor);
    }
}

#[inline]
fn walk_leaf<V: Visitor>(bytes: u64, user: *mut u8, skip: u64, visitor: &mut V) {
    let take = (bytes - skip).min(visitor.room());
    visitor.run(user.wrapping_add(skip as usize), take);
}

/// Quotient and remainder, without a division where a walk starts at the beginning.
#[inline]
fn divide(skip: u64, each: u64) -> (u64, u64) {
    if skip == 0 { (0, 0) } else { (skip / each, skip % each) }
}

#[inline]
fn turn_address(user: *mut u8, stride_bytes: i64, turn: u64) -> *mut u8 {
    user.wrapping_offset(stride_bytes.wrapping_mul(turn as i64) as isize)
}

/// Gathers user memory into a slice.
pub(crate) struct Pack<'a> {
    to: &'a mut [u8],
    done: usize,
}

/// Scatters a slice into user memory.
pub(crate) struct Unpack<'a> {
    from: &'a [u8],
    done: usize,
}

/// Scatters a slice into user memory from its end on (see [`base::copy::copy_downwards`]), if that is few runs: they are
/// listed, for a walk passes them from the beginning on.
pub(crate) struct UnpackDownwards<'a> {
    from: &'a [u8],
    runs: [(*mut u8, usize); DOWNWARDS_RUNS_MAX],
    used: usize,
    listed: usize,
}

impl<'a> Pack<'a> {
    /// A visitor that fills `to`.
    ///
    /// # Safety
    /// Every run it is handed must be readable memory that nothing writes meanwhile.
    pub unsafe fn new(to: &'a mut [u8]) -> Self {
        Pack { to, done: 0 }
    }

    /// Bytes moved so far.
    pub fn done(&self) -> usize {
        self.done
    }
}

impl<'a> Unpack<'a> {
    /// A visitor that empties `from`.
    ///
    /// # Safety
    /// Every run it is handed must be writable memory that nothing else uses meanwhile.
    pub unsafe fn new(from: &'a [u8]) -> Self {
        Unpack { from, done: 0 }
    }

    /// Bytes moved so far.
    pub fn done(&self) -> usize {
        self.done
    }
}

impl<'a> UnpackDownwards<'a> {
    /// A visitor of where `from` is to go.
    pub fn new(from: &'a [u8]) -> Self {
        UnpackDownwards { from, runs: [(std::ptr::null_mut(), 0); DOWNWARDS_RUNS_MAX], used: 0, listed: 0 }
    }

    /// Empties the slice; false, with nothing done, if it is more runs than fit the list.
    ///
    /// # Safety
    /// Every run that was visited must be writable memory that nothing else uses meanwhile.
    pub unsafe fn copy(&self) -> bool {
        let mut end = self.from.len();
        if self.listed < end {
            return false;
        }
        for (user, bytes) in self.runs[..self.used].iter().rev() {
            end -= bytes;
            let from = self.from[end..][..*bytes].as_ptr();
            // SAFETY: the run is writable and used by nothing else by the contract, hence does not overlap `from`, which
            // was just sliced to its length.
            unsafe { base::copy::copy_raw_downwards(from, *user, *bytes) };
        }
        true
    }
}

impl Pack<'_> {
    /// The next `bytes` bytes of the target.
    #[inline]
    fn take(&mut self, bytes: u64) -> *mut u8 {
        let to = self.to[self.done..][..bytes as usize].as_mut_ptr();
        self.done += bytes as usize;
        to
    }
}

impl Unpack<'_> {
    /// The next `bytes` bytes of the source.
    #[inline]
    fn take(&mut self, bytes: u64) -> *const u8 {
        let from = self.from[self.done..][..bytes as usize].as_ptr();
        self.done += bytes as usize;
        from
    }
}

impl Visitor for Pack<'_> {
    #[inline]
    fn room(&self) -> u64 {
        (self.to.len() - self.done) as u64
    }

    #[inline]
    fn run(&mut self, user: *mut u8, bytes: u64) {
        let to = self.take(bytes);
        // SAFETY: `user` is readable for `bytes` bytes by the contract of `new`; `to` was just taken out of a unique
        // borrow, which does not overlap it.
        unsafe { kernel::copy(user, to, bytes) };
    }

    fn runs(&mut self, user: *mut u8, stride_bytes: i64, bytes: u64, count: u64) {
        let to = self.take(bytes * count);
        // SAFETY: the `count` runs are readable by the contract of `new`, and `to` holds exactly that many.
        unsafe { kernel::strided(user, stride_bytes, to, bytes as i64, bytes, count) };
    }

    fn elements(&mut self, user: *mut u8, pattern: Pattern<'_>) {
        let to = self.take(pattern.each * pattern.count);
        pattern.by_tiles(|run, first, count| {
            let from = turn_address(user, pattern.stride_bytes, first).wrapping_offset(run.displacement as isize);
            let to = to.wrapping_add((first * pattern.each + run.offset) as usize);
            // SAFETY: as for `runs`: one run of each of `count` elements, and its place in the packed ones.
            unsafe { kernel::strided(from, pattern.stride_bytes, to, pattern.each as i64, run.bytes, count) };
        });
    }

    fn blocks(&mut self, user: *mut u8, displacements: &[i64], bytes: u64) {
        let to = self.take(bytes * displacements.len() as u64);
        // SAFETY: the runs are readable by the contract of `new`, and `to` holds exactly that many.
        unsafe { kernel::gather(user, displacements, to, bytes) };
    }

    fn pieces(&mut self, user: *mut u8, pieces: &[Piece<Bytes>], bytes: u64) {
        let mut to = self.take(bytes);
        for piece in pieces {
            let from = user.wrapping_offset(piece.displacement as isize);
            // SAFETY: the run is readable by the contract of `new`, and `to` has room for all runs together.
            unsafe { kernel::copy(from, to, piece.leaf.0) };
            to = to.wrapping_add(piece.leaf.0 as usize);
        }
    }
}

impl Visitor for Unpack<'_> {
    #[inline]
    fn room(&self) -> u64 {
        (self.from.len() - self.done) as u64
    }

    #[inline]
    fn run(&mut self, user: *mut u8, bytes: u64) {
        let from = self.take(bytes);
        // SAFETY: `user` is writable for `bytes` bytes by the contract of `new` and used by nothing else, hence does
        // not overlap `from`, which was just sliced to that length.
        unsafe { kernel::copy(from, user, bytes) };
    }

    fn runs(&mut self, user: *mut u8, stride_bytes: i64, bytes: u64, count: u64) {
        let from = self.take(bytes * count);
        // SAFETY: the `count` runs are writable by the contract of `new`, and `from` holds exactly that many.
        unsafe { kernel::strided(from, bytes as i64, user, stride_bytes, bytes, count) };
    }

    fn elements(&mut self, user: *mut u8, pattern: Pattern<'_>) {
        let from = self.take(pattern.each * pattern.count);
        pattern.by_tiles(|run, first, count| {
            let to = turn_address(user, pattern.stride_bytes, first).wrapping_offset(run.displacement as isize);
            let from = from.wrapping_add((first * pattern.each + run.offset) as usize);
            // SAFETY: as for `runs`: one run of each of `count` elements, and its place in the packed ones.
            unsafe { kernel::strided(from, pattern.each as i64, to, pattern.stride_bytes, run.bytes, count) };
        });
    }

    fn blocks(&mut self, user: *mut u8, displacements: &[i64], bytes: u64) {
        let from = self.take(bytes * displacements.len() as u64);
        // SAFETY: the runs are writable by the contract of `new`, and `from` holds exactly that many.
        unsafe { kernel::scatter(from, user, displacements, bytes) };
    }

    fn pieces(&mut self, user: *mut u8, pieces: &[Piece<Bytes>], bytes: u64) {
        let mut from = self.take(bytes);
        for piece in pieces {
            let to = user.wrapping_offset(piece.displacement as isize);
            // SAFETY: the run is writable by the contract of `new`, and `from` has all runs together.
            unsafe { kernel::copy(from, to, piece.leaf.0) };
            from = from.wrapping_add(piece.leaf.0 as usize);
        }
    }
}

impl Visitor for UnpackDownwards<'_> {
    fn room(&self) -> u64 {
        if self.used < self.runs.len() { (self.from.len() - self.listed) as u64 } else { 0 }
    }

    fn run(&mut self, user: *mut u8, bytes: u64) {
        if let Some(run) = self.runs.get_mut(self.used) {
            *run = (user, bytes as usize);
            self.used += 1;
            self.listed += bytes as usize;
        }
    }
}

impl Pattern<'_> {
    /// Calls `copy` with a run, the first of some elements and how many they are, until all runs of all elements are done.
    #[inline]
    fn by_tiles(&self, mut copy: impl FnMut(&Stretch, u64, u64)) {
        let tile = (TILE_BYTES / self.each).max(8);
        for first in (0..self.count).step_by(tile as usize) {
            for run in self.runs {
                copy(run, first, tile.min(self.count - first));
            }
        }
    }
}

/// A stretch of consecutive user memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins.
    pub address: usize,
    /// How long it is.
    pub len_bytes: u64,
}

/// Lists runs instead of moving them.
pub(crate) struct List<'a> {
    segments: &'a mut [Segment],
    used: usize,
    left_bytes: u64,
}

impl<'a> List<'a> {
    /// A visitor that lists at most `left_bytes` bytes.
    pub fn new(segments: &'a mut [Segment], left_bytes: u64) -> Self {
        List { segments, used: 0, left_bytes }
    }

    /// Segments listed so far.
    pub fn used(&self) -> usize {
        self.used
    }
}

impl Visitor for List<'_> {
    fn room(&self) -> u64 {
        if self.used < self.segments.len() { self.left_bytes } else { 0 }
    }

    fn run(&mut self, user: *mut u8, bytes: u64) {
        if let Some(segment) = self.segments.get_mut(self.used) {
            *segment = Segment { address: user.expose_provenance(), len_bytes: bytes };
            self.used += 1;
            self.left_bytes -= bytes;
        }
    }

    fn runs(&mut self, user: *mut u8, stride_bytes: i64, bytes: u64, count: u64) {
        let free = (self.segments.len() - self.used) as u64;
        for turn in 0..count.min(free) {
            self.run(turn_address(user, stride_bytes, turn), bytes);
        }
    }

    fn blocks(&mut self, user: *mut u8, displacements: &[i64], bytes: u64) {
        let free = self.segments.len() - self.used;
        for displacement in &displacements[..displacements.len().min(free)] {
            self.run(user.wrapping_offset(*displacement as isize), bytes);
        }
    }
}
