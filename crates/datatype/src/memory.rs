//! Memory that many buffers are carved from: the user's, and temporary memory of our own.

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::buffer::{LentSendBuf, RecvBuf, RecvBytes, SendBuf};
use crate::datatype::Datatype;
use crate::error::TypeError;

/// Temporary memory starts as aligned as any predefined type or vector unit needs.
const SCRATCH_ALIGNMENT: usize = 64;

/// Readable memory around a base address, from which a collective call carves the pieces it sends.
#[derive(Clone, Debug)]
pub struct UserMemory {
    base: *mut u8,
    owner: Option<Arc<Block>>,
}

/// Writable memory around a base address, from which a collective call carves the pieces it receives into and reads
/// back.
#[derive(Clone, Debug)]
pub struct UserMemoryMut {
    base: *mut u8,
    owner: Option<Arc<Block>>,
}

/// Memory of either kind.
pub trait Memory {
    /// The address of displacement 0.
    fn base(&self) -> usize;

    /// The address of the first byte of data of the first of `count` elements at `displacement_bytes` from the base, if
    /// there is any data.
    #[inline]
    fn first_byte(&self, displacement_bytes: i64, count: u64, datatype: &Datatype) -> Option<usize> {
        let offset_bytes = displacement_bytes.wrapping_add(datatype.true_lb());
        (count > 0 && datatype.size() > 0).then(|| self.base().wrapping_add_signed(offset_bytes as isize))
    }
}

impl Memory for UserMemory {
    #[inline]
    fn base(&self) -> usize {
        self.base.addr()
    }
}

impl Memory for UserMemoryMut {
    #[inline]
    fn base(&self) -> usize {
        self.base.addr()
    }
}

// SAFETY: whoever made the value vouched for the memory until it is gone, on whichever thread that is.
unsafe impl Send for UserMemory {}
// SAFETY: as for `UserMemory`.
unsafe impl Send for UserMemoryMut {}
// SAFETY: a shared value does what a clone of it does on the other thread: it tells where buffers lie.
unsafe impl Sync for UserMemory {}
// SAFETY: as for `UserMemory`.
unsafe impl Sync for UserMemoryMut {}

impl UserMemory {
    /// The user's send buffer at `base`; a null `base` means that displacements are absolute addresses.
    ///
    /// # Safety
    /// All memory that the described call may read must be readable, and the user must not write to it, until this value,
    /// its clones and all buffers carved from it are dropped.
    #[inline]
    pub unsafe fn new(base: *const u8) -> Self {
        UserMemory { base: base.cast_mut(), owner: None }
    }

    /// `count` elements of `datatype` at `displacement_bytes` from the base.
    ///
    /// # Panics
    /// If this is temporary memory and the elements lie outside of it.
    #[inline]
    pub fn send(&self, displacement_bytes: i64, count: u64, datatype: &Arc<Datatype>) -> SendBuf {
        let at = place(self.base, self.owner.as_deref(), displacement_bytes, count, datatype);
        // Two makings, so that the frequent one is made where it is to be.
        let Some(owner) = &self.owner else {
            // SAFETY: within the memory that the maker of this value vouched for.
            return unsafe { SendBuf::new(at, count, datatype) };
        };
        // SAFETY: checked to lie in our own block.
        unsafe { SendBuf::new(at, count, datatype) }.kept_by(Arc::clone(owner))
    }
}

impl UserMemoryMut {
    /// Copies `count` elements of `datatype` that begin where `source` does to where this does.
    #[inline(always)]
    pub fn copy_from(&self, source: &UserMemory, count: u64, datatype: &Arc<Datatype>) {
        let is_temporary = self.owner.is_some() || source.owner.is_some();
        if is_temporary || !datatype.is_contiguous() || self.base.is_null() || source.base.is_null() {
            self.recv(0, count, datatype).copy_from(&source.send(0, count, datatype));
            return;
        }
        // The common case on its own: nothing is made that would have to be dropped.
        let len_bytes = count.saturating_mul(datatype.size());
        // SAFETY: within the memory that the maker of this value vouched for.
        let mut into = unsafe { RecvBytes::new(self.base, len_bytes) };
        // SAFETY: the same of the other.
        let from = unsafe { LentSendBuf::bytes(source.base, len_bytes) };
        base::copy::copy(into.as_mut_slice(), from.as_contiguous().expect("bytes are consecutive"));
    }

    /// The user's receive buffer at `base`; a null `base` means that displacements are absolute addresses.
    ///
    /// # Safety
    /// All memory that the described call may read or write must be valid for that, and the user must not touch it, until
    /// this value, its clones and all buffers carved from it are dropped.
    #[inline]
    pub unsafe fn new(base: *mut u8) -> Self {
        UserMemoryMut { base, owner: None }
    }

    /// `count` elements of `datatype` at `displacement_bytes` from the base, to read.
    ///
    /// # Panics
    /// As [`UserMemory::send`].
    #[inline]
    pub fn send(&self, displacement_bytes: i64, count: u64, datatype: &Arc<Datatype>) -> SendBuf {
        self.reader().send(displacement_bytes, count, datatype)
    }

    /// `count` elements of `datatype` at `displacement_bytes` from the base, to write.
    ///
    /// Buffers that are in use at the same time should not overlap, as the calls that they serve require.
    ///
    /// # Panics
    /// As [`UserMemory::send`].
    #[inline]
    pub fn recv(&self, displacement_bytes: i64, count: u64, datatype: &Arc<Datatype>) -> RecvBuf {
        let at = place(self.base, self.owner.as_deref(), displacement_bytes, count, datatype);
        // As for sending.
        let Some(owner) = &self.owner else {
            // SAFETY: within the memory that the maker of this value vouched for.
            return unsafe { RecvBuf::new(at, count, datatype) };
        };
        // SAFETY: checked to lie in our own block.
        unsafe { RecvBuf::new(at, count, datatype) }.kept_by(Arc::clone(owner))
    }

    /// The same memory, to read only.
    pub fn reader(&self) -> UserMemory {
        UserMemory { base: self.base, owner: self.owner.clone() }
    }
}

/// Temporary memory laid out for elements of a datatype, gaps and negative displacements included.
///
/// Buffers and memories taken from it keep it alive.
#[derive(Debug)]
pub struct Scratch {
    memory: UserMemoryMut,
    datatype: Arc<Datatype>,
    count: u64,
}

impl Scratch {
    /// Memory of arbitrary content for `count` elements.
    ///
    /// # Errors
    /// [`TypeError::Overflow`] if the elements span more than the address space.
    pub fn new(count: u64, datatype: &Arc<Datatype>) -> Result<Scratch, TypeError> {
        let too_big = TypeError::Overflow { what: "temporary memory" };
        let (low, high) = span(count, datatype).ok_or(too_big.clone())?;
        // Displacement 0 keeps the alignment of the block, so that user functions find their elements aligned.
        let low = low - low.rem_euclid(SCRATCH_ALIGNMENT as i64);
        let len = high.checked_sub(low).and_then(|len| usize::try_from(len).ok()).ok_or(too_big.clone())?;
        let layout = Layout::from_size_align(len, SCRATCH_ALIGNMENT).map_err(|_| too_big)?;
        let block = Block::new(layout);
        let base = block.start().wrapping_offset(-low as isize);
        let memory = UserMemoryMut { base, owner: Some(Arc::new(block)) };
        Ok(Scratch { memory, datatype: Arc::clone(datatype), count })
    }

    /// All elements, to read.
    pub fn send(&self) -> SendBuf {
        self.memory.send(0, self.count, &self.datatype)
    }

    /// All elements, to write.
    pub fn recv(&mut self) -> RecvBuf {
        self.memory.recv(0, self.count, &self.datatype)
    }

    /// The memory with displacement 0 at the first element.
    pub fn memory(&self) -> &UserMemoryMut {
        &self.memory
    }

    /// The datatype of the elements.
    pub fn datatype(&self) -> &Arc<Datatype> {
        &self.datatype
    }

    /// The number of elements.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// True while buffers or memories taken from it are around.
    pub fn is_shared(&self) -> bool {
        self.memory.owner.as_ref().is_some_and(|block| Arc::strong_count(block) > 1)
    }
}

/// Memory of our own.
#[derive(Debug)]
pub(crate) struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block is plain memory that this value owns.
unsafe impl Send for Block {}
// SAFETY: a shared `Block` only tells its address; access goes through buffers, under their rules.
unsafe impl Sync for Block {}

impl Block {
    pub fn from_bytes(bytes: Box<[u8]>) -> Block {
        let layout = Layout::for_value(&*bytes);
        let start = NonNull::from(Box::leak(bytes)).cast();
        Block { start, layout }
    }

    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The bytes again, if they came from a box.
    pub fn into_bytes(self) -> Option<Box<[u8]>> {
        if self.layout.align() != 1 {
            return None;
        }
        let block = std::mem::ManuallyDrop::new(self);
        let bytes = std::ptr::slice_from_raw_parts_mut(block.start.as_ptr(), block.layout.size());
        // SAFETY: only `from_bytes` makes a block of alignment 1; it leaked exactly this box, and the block's own drop
        // does not run.
        Some(unsafe { Box::from_raw(bytes) })
    }

    /// Memory with some content; clearing what a collective call overwrites at once would cost as much as the call.
    fn new(layout: Layout) -> Block {
        if layout.size() == 0 {
            return Block { start: NonNull::<Aligned>::dangling().cast(), layout };
        }
        // SAFETY: the layout is not of size zero.
        let start = unsafe { if cfg!(miri) { alloc::alloc_zeroed(layout) } else { alloc::alloc(layout) } };
        let start = NonNull::new(start).unwrap_or_else(|| alloc::handle_alloc_error(layout));
        // SAFETY: an empty instruction; to the compiler it may write to the memory it is handed, so what is there from
        // now on counts as written: bytes of arbitrary but fixed value, which is what they are.
        #[cfg(not(miri))]
        unsafe {
            std::arch::asm!("/* {0} */", in(reg) start.as_ptr(), options(nostack, preserves_flags));
        }
        Block { start, layout }
    }

    fn contains(&self, start: *mut u8, len: i128) -> bool {
        let offset = start.addr() as i128 - self.start.addr().get() as i128;
        offset >= 0 && offset + len <= self.layout.size() as i128
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: allocated by the global allocator with this layout, by `new` or by the box of `from_bytes`.
            unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

#[repr(align(64))]
struct Aligned;

/// The address of displacement 0, once the elements are known to lie in the block, if there is one.
#[inline]
fn place(base: *mut u8, owner: Option<&Block>, displacement_bytes: i64, count: u64, datatype: &Datatype) -> *mut u8 {
    let at = base.wrapping_offset(displacement_bytes as isize);
    if let Some(block) = owner
        && count > 0
        && datatype.size() > 0
    {
        let (low, high) = span(count, datatype).expect("elements in memory span no more than the address space");
        let inside = block.contains(at.wrapping_offset(low as isize), i128::from(high) - i128::from(low));
        assert!(inside, "{count} elements at displacement {displacement_bytes} lie outside of the temporary memory");
    }
    at
}

/// The displacements of the first byte of data of `count` elements and of the one behind the last.
pub(crate) fn span(count: u64, datatype: &Datatype) -> Option<(i64, i64)> {
    if count == 0 || datatype.size() == 0 {
        return Some((0, 0));
    }
    let way = datatype.extent().checked_mul(i64::try_from(count - 1).ok()?)?;
    let low = datatype.true_lb().checked_add(way.min(0))?;
    let high = datatype.true_lb().checked_add(datatype.true_extent())?.checked_add(way.max(0))?;
    high.checked_sub(low)?;
    Some((low, high))
}
