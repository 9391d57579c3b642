//! Walking a layout, and moving bytes between user memory and packed form.
//!
//! [`walk`] starts at any packed byte and stops when its visitor has no more room. It only computes addresses; what
//! touches memory are the visitors [`Pack`] and [`Unpack`].

use crate::layout::{Blocks, Bytes, Tree};

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
        Tree::Strided(node) => walk_strided(&node.child, node.count, node.stride_bytes, user, skip, visitor),
        Tree::Blocks(node) => walk_blocks(node, user, skip, visitor),
        Tree::Pieces(node) if skip == 0 && tree.packed_bytes() <= visitor.room() => {
            for piece in &node.pieces {
                visitor.run(user.wrapping_offset(piece.displacement as isize), piece.leaf.0);
            }
        }
        Tree::Pieces(node) => {
            let first = node.pieces.partition_point(|piece| piece.end_bytes <= skip);
            let mut rest = skip - first.checked_sub(1).map_or(0, |before| node.pieces[before].end_bytes);
            for piece in &node.pieces[first..] {
                if visitor.room() == 0 {
                    break;
                }
                walk_leaf(piece.leaf.0, user.wrapping_offset(piece.displacement as isize), rest, visitor);
                rest = 0;
            }
        }
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
    if let Tree::Leaf(_) = child {
        let left = count - turn;
        let room = visitor.room();
        let whole = if u128::from(left) * u128::from(each) <= u128::from(room) { left } else { room / each };
        visitor.runs(turn_address(user, stride_bytes, turn), stride_bytes, each, whole);
        turn += whole;
    }
    while turn < count && visitor.room() > 0 {
        walk(child, turn_address(user, stride_bytes, turn), 0, visitor);
        turn += 1;
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

impl Visitor for Pack<'_> {
    #[inline]
    fn room(&self) -> u64 {
        (self.to.len() - self.done) as u64
    }

    #[inline]
    fn run(&mut self, user: *mut u8, bytes: u64) {
        let to = &mut self.to[self.done..][..bytes as usize];
        // SAFETY: `user` is readable for `bytes` bytes by the contract of `new`; `to` was just sliced to that length
        // and, being a unique borrow, does not overlap it.
        unsafe { copy(user, to.as_mut_ptr(), to.len()) };
        self.done += to.len();
    }

    fn runs(&mut self, user: *mut u8, stride_bytes: i64, bytes: u64, count: u64) {
        let to = &mut self.to[self.done..][..(bytes * count) as usize];
        let copy = match bytes {
            1 => gather::<1>,
            2 => gather::<2>,
            4 => gather::<4>,
            8 => gather::<8>,
            12 => gather::<12>,
            16 => gather::<16>,
            24 => gather::<24>,
            32 => gather::<32>,
            _ => return (0..count).for_each(|turn| self.run(turn_address(user, stride_bytes, turn), bytes)),
        };
        // SAFETY: the `count` runs are readable by the contract of `new`, and `to` holds exactly that many.
        unsafe { copy(user, stride_bytes, to) };
        self.done += (bytes * count) as usize;
    }

    fn blocks(&mut self, user: *mut u8, displacements: &[i64], bytes: u64) {
        let to = &mut self.to[self.done..][..bytes as usize * displacements.len()];
        let copy = match bytes {
            1 => gather_blocks::<1>,
            2 => gather_blocks::<2>,
            4 => gather_blocks::<4>,
            8 => gather_blocks::<8>,
            16 => gather_blocks::<16>,
            _ => {
                let at = |displacement: &i64| user.wrapping_offset(*displacement as isize);
                return displacements.iter().for_each(|displacement| self.run(at(displacement), bytes));
            }
        };
        // SAFETY: the runs are readable by the contract of `new`, and `to` holds exactly that many.
        unsafe { copy(user, displacements, to) };
        self.done += to.len();
    }
}

impl Visitor for Unpack<'_> {
    #[inline]
    fn room(&self) -> u64 {
        (self.from.len() - self.done) as u64
    }

    #[inline]
    fn run(&mut self, user: *mut u8, bytes: u64) {
        let from = &self.from[self.done..][..bytes as usize];
        // SAFETY: `user` is writable for `bytes` bytes by the contract of `new` and used by nothing else, hence does
        // not overlap `from`, which was just sliced to that length.
        unsafe { copy(from.as_ptr(), user, from.len()) };
        self.done += from.len();
    }

    fn runs(&mut self, user: *mut u8, stride_bytes: i64, bytes: u64, count: u64) {
        let from = &self.from[self.done..][..(bytes * count) as usize];
        let copy = match bytes {
            1 => scatter::<1>,
            2 => scatter::<2>,
            4 => scatter::<4>,
            8 => scatter::<8>,
            12 => scatter::<12>,
            16 => scatter::<16>,
            24 => scatter::<24>,
            32 => scatter::<32>,
            _ => return (0..count).for_each(|turn| self.run(turn_address(user, stride_bytes, turn), bytes)),
        };
        // SAFETY: the `count` runs are writable by the contract of `new`, and `from` holds exactly that many.
        unsafe { copy(user, stride_bytes, from) };
        self.done += (bytes * count) as usize;
    }

    fn blocks(&mut self, user: *mut u8, displacements: &[i64], bytes: u64) {
        let from = &self.from[self.done..][..bytes as usize * displacements.len()];
        let copy = match bytes {
            1 => scatter_blocks::<1>,
            2 => scatter_blocks::<2>,
            4 => scatter_blocks::<4>,
            8 => scatter_blocks::<8>,
            16 => scatter_blocks::<16>,
            _ => {
                let at = |displacement: &i64| user.wrapping_offset(*displacement as isize);
                return displacements.iter().for_each(|displacement| self.run(at(displacement), bytes));
            }
        };
        // SAFETY: the runs are writable by the contract of `new`, and `from` holds exactly that many.
        unsafe { copy(user, displacements, from) };
        self.done += from.len();
    }
}

/// Fills `to` with blocks of `N` bytes.
///
/// # Safety
/// Each of the `to.len() / N` blocks, `stride_bytes` apart, must be readable and written by nothing meanwhile.
unsafe fn gather<const N: usize>(user: *mut u8, stride_bytes: i64, to: &mut [u8]) {
    let mut from = user;
    for block in to.as_chunks_mut::<N>().0 {
        // SAFETY: this block is readable by this function's contract; a byte array needs no alignment.
        *block = unsafe { from.cast::<[u8; N]>().read() };
        from = from.wrapping_offset(stride_bytes as isize);
    }
}

/// Empties `from` in blocks of `N` bytes.
///
/// # Safety
/// Each of the `from.len() / N` blocks, `stride_bytes` apart, must be writable and used by nothing else meanwhile.
unsafe fn scatter<const N: usize>(user: *mut u8, stride_bytes: i64, from: &[u8]) {
    let mut to = user;
    for block in from.as_chunks::<N>().0 {
        // SAFETY: this block is writable by this function's contract; a byte array needs no alignment.
        unsafe { to.cast::<[u8; N]>().write(*block) };
        to = to.wrapping_offset(stride_bytes as isize);
    }
}

/// Fills `to` with one block of `N` bytes for each displacement.
///
/// # Safety
/// Each of the blocks must be readable and written by nothing meanwhile.
unsafe fn gather_blocks<const N: usize>(user: *mut u8, displacements: &[i64], to: &mut [u8]) {
    for (block, displacement) in to.as_chunks_mut::<N>().0.iter_mut().zip(displacements) {
        let from = user.wrapping_offset(*displacement as isize).cast::<[u8; N]>();
        // SAFETY: this block is readable by this function's contract; a byte array needs no alignment.
        *block = unsafe { from.read() };
    }
}

/// Empties `from`, one block of `N` bytes for each displacement.
///
/// # Safety
/// Each of the blocks must be writable and used by nothing else meanwhile.
unsafe fn scatter_blocks<const N: usize>(user: *mut u8, displacements: &[i64], from: &[u8]) {
    for (block, displacement) in from.as_chunks::<N>().0.iter().zip(displacements) {
        let to = user.wrapping_offset(*displacement as isize).cast::<[u8; N]>();
        // SAFETY: this block is writable by this function's contract; a byte array needs no alignment.
        unsafe { to.write(*block) };
    }
}

/// Copies `len` bytes; for the sizes of single numbers without calling a function.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    match len {
        // SAFETY: the caller's promise, for these four and the last one.
        4 => unsafe { std::ptr::copy_nonoverlapping(from, to, 4) },
        // SAFETY: as above.
        8 => unsafe { std::ptr::copy_nonoverlapping(from, to, 8) },
        // SAFETY: as above.
        12 => unsafe { std::ptr::copy_nonoverlapping(from, to, 12) },
        // SAFETY: as above.
        16 => unsafe { std::ptr::copy_nonoverlapping(from, to, 16) },
        // SAFETY: as above.
        _ => unsafe { std::ptr::copy_nonoverlapping(from, to, len) },
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
}
