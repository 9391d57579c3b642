//! User memory seen through a datatype: [`SendBuf`] to read from, [`RecvBuf`] to write to.
//!
//! A buffer is made once, at the face, by an unsafe constructor; everything after that is safe. Memory whose data is one
//! stretch of bytes (all predefined types but a few pairs, and most derived ones of one block) is held as address and
//! length alone. Anything else keeps its datatype and is packed and unpacked from any byte on.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use crate::copy::{DOWNWARDS_RUNS_MAX, List, Pack, Segment, Unpack, UnpackDownwards, Visitor, walk_strided};
use crate::datatype::Datatype;
use crate::memory::{Block, span};
use crate::streaming::{LONG_BLOCK_BYTES, PackStreaming, pack_by_way_of_near};

/// Packed bytes that one step of [`RecvBuf::copy_from`] moves when neither side is contiguous.
const BOUNCE_BYTES: usize = 16 * 1024;

/// Memory that may be read, seen through a datatype.
#[derive(Clone, Debug)]
pub struct SendBuf(View);

/// Memory that may be written, seen through a datatype.
#[derive(Debug)]
pub struct RecvBuf(View);

/// Consecutive memory that may be written: what a [`RecvBuf`] is made of where it is put, so that the common case is
/// handed on in two registers.
#[derive(Debug)]
pub struct RecvBytes {
    start: *mut u8,
    len_bytes: u64,
}

impl RecvBytes {
    /// `len_bytes` bytes at `start`.
    ///
    /// # Safety
    /// As [`RecvBuf::new`], for the buffer that is made of this.
    #[inline]
    pub unsafe fn new(start: *mut u8, len_bytes: u64) -> Self {
        RecvBytes { start, len_bytes }
    }

    /// The memory itself.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        if self.len_bytes == 0 {
            return &mut [];
        }
        // SAFETY: vouched for by whoever called `new`; `&mut self` keeps this value's other uses away.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len_bytes as usize) }
    }
}

impl From<RecvBytes> for RecvBuf {
    #[inline]
    fn from(bytes: RecvBytes) -> RecvBuf {
        RecvBuf(View::bytes(bytes.start, bytes.len_bytes))
    }
}

/// A [`SendBuf`] that lends its datatype: for a use that is over at once. Counting the uses of a datatype takes as long as
/// packing a short message, or several times that while stores to another core are under way.
#[derive(Debug)]
pub struct LentSendBuf<'a> {
    buf: ManuallyDrop<SendBuf>,
    datatype: PhantomData<&'a Arc<Datatype>>,
}

impl<'a> LentSendBuf<'a> {
    /// As [`SendBuf::new`].
    ///
    /// # Safety
    /// As [`SendBuf::new`]; clones and slices of what this derefs to count, too.
    #[inline]
    pub unsafe fn new(ptr: *const u8, count: u64, datatype: &'a Arc<Datatype>) -> Self {
        if datatype.is_contiguous() && !ptr.is_null() {
            // SAFETY: promised by the caller.
            return unsafe { LentSendBuf::bytes(ptr, count.saturating_mul(datatype.size())) };
        }
        // SAFETY: the second owner that this makes is never dropped, and gone before the borrow of the first one ends;
        // clones of it are counted.
        let lend = |datatype: &Arc<Datatype>| unsafe { std::ptr::read(datatype) };
        let view = View::general(ptr.cast_mut(), count, datatype, lend);
        LentSendBuf { buf: ManuallyDrop::new(SendBuf(view)), datatype: PhantomData }
    }

    /// As [`SendBuf::bytes`]: nothing is lent then, nor looked at when it goes.
    ///
    /// # Safety
    /// As [`SendBuf::new`].
    #[inline]
    pub unsafe fn bytes(ptr: *const u8, len_bytes: u64) -> Self {
        let view = View::bytes(ptr.cast_mut(), len_bytes);
        LentSendBuf { buf: ManuallyDrop::new(SendBuf(view)), datatype: PhantomData }
    }
}

impl Deref for LentSendBuf<'_> {
    type Target = SendBuf;

    #[inline]
    fn deref(&self) -> &SendBuf {
        &self.buf
    }
}

/// What both kinds of buffer are.
#[derive(Clone, Debug)]
struct View {
    /// The data if it is consecutive, else where displacement 0 of the first element lies.
    start: *mut u8,
    len_bytes: u64,
    more: More,
}

/// What few buffers need: kept apart, because every message carries its buffer along.
#[derive(Clone, Debug)]
enum More {
    /// Consecutive memory of the user.
    Nothing,
    /// Consecutive memory that is not the user's, and who keeps it.
    Kept(Arc<Block>),
    /// Whole elements in memory of the user whose data is not consecutive.
    Elements(Arc<Datatype>),
    /// Other elements whose data is not consecutive: a part of them, or memory that is not the user's.
    Part(Box<Part>),
}

const _: () = assert!(size_of::<View>() == 32);

/// See [`More::Part`].
#[derive(Clone, Debug)]
struct Part {
    /// Keeps memory that is not the user's.
    owner: Option<Arc<Block>>,
    datatype: Arc<Datatype>,
    count: u64,
    /// Packed bytes before the first that belongs to this view.
    skip_bytes: u64,
}

/// What a view of either of the two kinds whose data is not consecutive is of.
#[derive(Clone, Copy)]
struct Scattered<'a> {
    datatype: &'a Arc<Datatype>,
    count: u64,
    skip_bytes: u64,
}

// SAFETY: whoever made the buffer vouched that the memory is valid until the buffer is gone, on whichever thread that is.
unsafe impl Send for SendBuf {}
// SAFETY: all that a `SendBuf` gives is read, and nothing writes there while it lives.
unsafe impl Sync for SendBuf {}
// SAFETY: as for `SendBuf`; a `RecvBuf` is moved between threads, not shared.
unsafe impl Send for RecvBuf {}

impl SendBuf {
    /// `count` elements of `datatype` at `ptr`; a null `ptr` means that displacements are absolute addresses.
    ///
    /// # Safety
    /// The memory the elements describe must be readable, and nothing may write to it, until this value and all its
    /// clones and slices are dropped.
    #[inline]
    pub unsafe fn new(ptr: *const u8, count: u64, datatype: &Arc<Datatype>) -> Self {
        SendBuf(View::new(ptr.cast_mut(), count, datatype))
    }

    /// Consecutive bytes.
    ///
    /// # Safety
    /// As [`SendBuf::new`].
    #[inline]
    pub unsafe fn bytes(ptr: *const u8, len_bytes: u64) -> Self {
        SendBuf(View::bytes(ptr.cast_mut(), len_bytes))
    }

    /// No data at all.
    #[inline]
    pub fn empty() -> Self {
        SendBuf(View::bytes(std::ptr::null_mut(), 0))
    }

    /// Bytes that the buffer owns.
    pub fn from_owned(bytes: Box<[u8]>) -> Self {
        SendBuf(View::owned(bytes))
    }

    /// Bytes of data.
    #[inline]
    pub fn len_bytes(&self) -> u64 {
        self.0.len_bytes
    }

    /// The data, if it is consecutive in memory.
    #[inline]
    pub fn as_contiguous(&self) -> Option<&[u8]> {
        self.0.as_slice()
    }

    /// Where consecutive data begins.
    #[inline]
    pub fn address(&self) -> Option<usize> {
        self.0.address()
    }

    /// Copies packed bytes from `offset_bytes` on into `dst` and returns how many; fewer than asked for only at the end.
    #[inline]
    pub fn pack_at(&self, offset_bytes: u64, dst: &mut [u8]) -> usize {
        self.0.pack_at(offset_bytes, dst)
    }

    /// As [`SendBuf::pack_at`], past the caches: for memory that another core reads next ([`base::streaming`]). Consecutive data
    /// is copied there with less ado by [`base::streaming::copy`].
    pub fn pack_streaming_at(&self, offset_bytes: u64, dst: &mut [u8]) -> usize {
        self.0.pack_streaming_at(offset_bytes, dst)
    }

    /// Whole elements whose data is not consecutive, if that is what this is.
    pub fn scattered(&self) -> Option<ScatteredData<'_>> {
        self.0.scattered_data()
    }

    /// Lists the stretches of memory from the packed byte `offset_bytes` on, as many as fit, and returns how many.
    pub fn segments_at(&self, offset_bytes: u64, segments: &mut [Segment]) -> usize {
        self.0.segments_at(offset_bytes, segments)
    }

    /// The packed bytes `offset_bytes..offset_bytes + len_bytes`, shortened to what there is.
    pub fn slice(&self, offset_bytes: u64, len_bytes: u64) -> SendBuf {
        SendBuf(self.0.slice(offset_bytes, len_bytes))
    }

    pub(crate) fn kept_by(self, owner: Arc<Block>) -> Self {
        SendBuf(self.0.kept_by(owner))
    }

    pub(crate) fn elements(&self, datatype: &Datatype) -> Option<Elements> {
        self.0.elements(datatype)
    }
}

impl RecvBuf {
    /// `count` elements of `datatype` at `ptr`; a null `ptr` means that displacements are absolute addresses.
    ///
    /// # Safety
    /// The memory the elements describe must be readable and writable, and nothing else may use it, until this value and
    /// all its slices are dropped.
    #[inline]
    pub unsafe fn new(ptr: *mut u8, count: u64, datatype: &Arc<Datatype>) -> Self {
        RecvBuf(View::new(ptr, count, datatype))
    }

    /// Consecutive bytes.
    ///
    /// # Safety
    /// As [`RecvBuf::new`].
    #[inline]
    pub unsafe fn bytes(ptr: *mut u8, len_bytes: u64) -> Self {
        // SAFETY: promised by the caller.
        unsafe { RecvBytes::new(ptr, len_bytes) }.into()
    }

    /// True if it is consecutive memory of the user's, for which nothing is to be done when it goes.
    #[inline]
    pub fn is_plain(&self) -> bool {
        matches!(self.0.more, More::Nothing)
    }

    /// Room for no data at all.
    #[inline]
    pub fn empty() -> Self {
        RecvBuf(View::bytes(std::ptr::null_mut(), 0))
    }

    /// Bytes that the buffer owns; [`RecvBuf::into_owned`] gives them back.
    pub fn from_owned(bytes: Box<[u8]>) -> Self {
        RecvBuf(View::owned(bytes))
    }

    /// The bytes given to [`RecvBuf::from_owned`], unless slices or readers of them are still around.
    pub fn into_owned(self) -> Option<Box<[u8]>> {
        match self.0.more {
            More::Kept(block) => Arc::into_inner(block)?.into_bytes(),
            More::Nothing | More::Elements(_) | More::Part(_) => None,
        }
    }

    /// Bytes of data there is room for.
    #[inline]
    pub fn len_bytes(&self) -> u64 {
        self.0.len_bytes
    }

    /// The memory, if it is consecutive.
    #[inline]
    pub fn as_contiguous(&self) -> Option<&[u8]> {
        self.0.as_slice()
    }

    /// The memory, if it is consecutive.
    #[inline]
    pub fn contiguous_mut(&mut self) -> Option<&mut [u8]> {
        let len = self.0.contiguous_len()?;
        if len == 0 {
            return Some(&mut []);
        }
        // SAFETY: consecutive memory of `len` bytes, vouched for by the constructor; `&mut self` keeps this view's other
        // uses away.
        Some(unsafe { std::slice::from_raw_parts_mut(self.0.start, len) })
    }

    /// Where consecutive memory begins.
    #[inline]
    pub fn address(&self) -> Option<usize> {
        self.0.address()
    }

    /// Writes `src` as the packed bytes from `offset_bytes` on and returns how many were taken; fewer than given only at
    /// the end. Elements may be written in parts.
    pub fn unpack_at(&mut self, offset_bytes: u64, src: &[u8]) -> usize {
        self.0.unpack_at(offset_bytes, src)
    }

    /// As [`RecvBuf::unpack_at`], from the end of `src` on if that is in few pieces: see [`base::copy::copy_downwards`].
    pub fn unpack_downwards_at(&mut self, offset_bytes: u64, src: &[u8]) -> usize {
        let take = self.0.left(offset_bytes, src.len());
        match self.contiguous_mut() {
            Some(space) if take > 0 => {
                base::copy::copy_downwards(&mut space[offset_bytes as usize..][..take], &src[..take]);
                take
            }
            Some(_) => 0,
            None => self.0.scatter_downwards_at(offset_bytes, &src[..take]),
        }
    }

    /// Whole elements whose data is not consecutive, if that is what this is.
    pub fn scattered(&self) -> Option<ScatteredData<'_>> {
        self.0.scattered_data()
    }

    /// Reads back what [`RecvBuf::unpack_at`] wrote.
    pub fn pack_at(&self, offset_bytes: u64, dst: &mut [u8]) -> usize {
        self.0.pack_at(offset_bytes, dst)
    }

    /// Lists the stretches of memory from the packed byte `offset_bytes` on, as many as fit, and returns how many.
    pub fn segments_at(&self, offset_bytes: u64, segments: &mut [Segment]) -> usize {
        self.0.segments_at(offset_bytes, segments)
    }

    /// The packed bytes `offset_bytes..offset_bytes + len_bytes`, shortened to what there is.
    ///
    /// Slices of one buffer may be filled independently; those in flight together should not overlap.
    pub fn slice(&mut self, offset_bytes: u64, len_bytes: u64) -> RecvBuf {
        RecvBuf(self.0.slice(offset_bytes, len_bytes))
    }

    /// The same memory to read from, for as long as nothing is written to it.
    pub fn reader(&self) -> SendBuf {
        SendBuf(self.0.clone())
    }

    /// Copies as many packed bytes as both sides have, and returns how many.
    #[inline]
    pub fn copy_from(&mut self, source: &SendBuf) -> u64 {
        match (source.as_contiguous(), self.contiguous_mut()) {
            (Some(bytes), Some(room)) => {
                let len = bytes.len().min(room.len());
                base::copy::copy(&mut room[..len], &bytes[..len]);
                len as u64
            }
            (Some(bytes), None) => self.unpack_at(0, bytes) as u64,
            (None, Some(room)) => source.pack_at(0, room) as u64,
            (None, None) => self.copy_by_pieces(source),
        }
    }

    #[inline(never)]
    fn copy_by_pieces(&mut self, source: &SendBuf) -> u64 {
        let mut bounce = [0; BOUNCE_BYTES];
        let mut done = 0;
        loop {
            let read = source.pack_at(done, &mut bounce);
            let written = self.unpack_at(done, &bounce[..read]);
            done += written as u64;
            if written == 0 || written < read {
                return done;
            }
        }
    }

    pub(crate) fn kept_by(self, owner: Arc<Block>) -> Self {
        RecvBuf(self.0.kept_by(owner))
    }

    pub(crate) fn elements(&self, datatype: &Datatype) -> Option<Elements> {
        self.0.elements(datatype)
    }
}

/// Whole elements of a datatype whose data is not consecutive.
#[derive(Clone, Copy, Debug)]
pub struct ScatteredData<'a> {
    /// Of what type they are.
    pub datatype: &'a Arc<Datatype>,
    /// How many there are.
    pub count: u64,
    /// The address of displacement 0 of the first one.
    pub origin: usize,
    /// Where the first byte of data lies.
    pub start: usize,
    /// Bytes of memory from there to the end of the last byte of data.
    pub span_bytes: usize,
}

impl ScatteredData<'_> {
    /// Blocks of consecutive bytes that all elements consist of.
    pub fn block_count(&self) -> u64 {
        self.datatype.block_count().saturating_mul(self.count)
    }
}

/// The elements of a datatype in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elements {
    /// Displacement 0 of the first element.
    pub origin: *mut u8,
    pub count: u64,
}

impl Scattered<'_> {
    /// Bytes of a block on average.
    fn block_bytes(self) -> u64 {
        self.datatype.size() / self.datatype.block_count().max(1)
    }

    /// The same in the user's memory.
    fn to_part(self) -> Part {
        let Scattered { datatype, count, skip_bytes } = self;
        Part { owner: None, datatype: Arc::clone(datatype), count, skip_bytes }
    }
}

impl View {
    #[inline]
    fn new(ptr: *mut u8, count: u64, datatype: &Arc<Datatype>) -> View {
        if datatype.is_contiguous() && !ptr.is_null() {
            return View::bytes(ptr, count.saturating_mul(datatype.size()));
        }
        View::general(ptr, count, datatype, Arc::clone)
    }

    /// As [`View::new`] for any data; `keep` makes what the view holds of a datatype whose data is not consecutive.
    #[inline(never)]
    fn general(
        ptr: *mut u8,
        count: u64,
        datatype: &Arc<Datatype>,
        keep: impl FnOnce(&Arc<Datatype>) -> Arc<Datatype>,
    ) -> View {
        // Integers become pointers only here: absolute addresses on top of MPI_BOTTOM.
        let origin = if ptr.is_null() { std::ptr::with_exposed_provenance_mut(0) } else { ptr };
        let len_bytes = count.saturating_mul(datatype.size());
        let back_to_back = count == 1 || datatype.extent() == datatype.size() as i64;
        match datatype.single_run() {
            _ if len_bytes == 0 => View::bytes(ptr, 0),
            Some(displacement) if back_to_back => View::bytes(origin.wrapping_offset(displacement as isize), len_bytes),
            _ => View { start: origin, len_bytes, more: More::Elements(keep(datatype)) },
        }
    }

    #[inline]
    fn bytes(start: *mut u8, len_bytes: u64) -> View {
        View { start, len_bytes, more: More::Nothing }
    }

    /// The same in memory that is not the user's.
    fn kept_by(mut self, owner: Arc<Block>) -> View {
        self.more = match self.scattered() {
            Some(scattered) => More::Part(Box::new(Part { owner: Some(owner), ..scattered.to_part() })),
            None => More::Kept(owner),
        };
        self
    }

    #[inline]
    fn is_consecutive(&self) -> bool {
        matches!(self.more, More::Nothing | More::Kept(_))
    }

    #[inline]
    fn scattered(&self) -> Option<Scattered<'_>> {
        match &self.more {
            More::Nothing | More::Kept(_) => None,
            More::Elements(datatype) => {
                let size = datatype.size();
                let count = if self.len_bytes == size { 1 } else { self.len_bytes / size };
                Some(Scattered { datatype, count, skip_bytes: 0 })
            }
            More::Part(part) => {
                let Part { datatype, count, skip_bytes, .. } = &**part;
                Some(Scattered { datatype, count: *count, skip_bytes: *skip_bytes })
            }
        }
    }

    fn owned(bytes: Box<[u8]>) -> View {
        let len_bytes = bytes.len() as u64;
        let block = Arc::new(Block::from_bytes(bytes));
        View { start: block.start(), len_bytes, more: More::Kept(block) }
    }

    #[inline]
    fn contiguous_len(&self) -> Option<usize> {
        self.is_consecutive().then_some(self.len_bytes as usize)
    }

    #[inline]
    fn as_slice(&self) -> Option<&[u8]> {
        let len = self.contiguous_len()?;
        if len == 0 {
            return Some(&[]);
        }
        // SAFETY: consecutive memory of `len` bytes that is readable and not written to while this view is, vouched for
        // by whoever made it.
        Some(unsafe { std::slice::from_raw_parts(self.start, len) })
    }

    fn address(&self) -> Option<usize> {
        self.contiguous_len().map(|_| self.start.expose_provenance())
    }

    fn pack_at(&self, offset_bytes: u64, dst: &mut [u8]) -> usize {
        let take = self.left(offset_bytes, dst.len());
        let to = &mut dst[..take];
        if let Some(bytes) = self.as_slice() {
            if take > 0 {
                base::copy::copy(to, &bytes[offset_bytes as usize..][..take]);
            }
            return take;
        }
        // SAFETY: a walk over this view passes only memory its maker vouched for.
        let mut pack = unsafe { Pack::new(to) };
        self.walk(offset_bytes, &mut pack);
        pack.done()
    }

    #[inline(never)]
    fn pack_streaming_at(&self, offset_bytes: u64, dst: &mut [u8]) -> usize {
        let take = self.left(offset_bytes, dst.len());
        let to = &mut dst[..take];
        let block_bytes = self.scattered().map_or(0, |scattered| scattered.block_bytes());
        if take < base::streaming::MIN_BYTES || block_bytes < LONG_BLOCK_BYTES {
            pack_by_way_of_near(to, |done, near| {
                self.pack_at(offset_bytes + done, near);
            });
            return take;
        }
        // SAFETY: a walk over this view passes only memory its maker vouched for.
        let mut pack = unsafe { PackStreaming::new(to) };
        self.walk(offset_bytes, &mut pack);
        pack.finish()
    }

    fn unpack_at(&mut self, offset_bytes: u64, src: &[u8]) -> usize {
        let take = self.left(offset_bytes, src.len());
        // SAFETY: a walk over this view passes only memory its maker vouched for; only a `RecvBuf` gets here.
        let mut unpack = unsafe { Unpack::new(&src[..take]) };
        if !self.is_consecutive() {
            self.walk(offset_bytes, &mut unpack);
        } else if take > 0 {
            unpack.run(self.start.wrapping_add(offset_bytes as usize), take as u64);
        }
        unpack.done()
    }

    /// As [`RecvBuf::unpack_downwards_at`] where the data is not consecutive and has as many bytes as `src`.
    fn scatter_downwards_at(&mut self, offset_bytes: u64, src: &[u8]) -> usize {
        let block_bytes = self.scattered().map_or(0, |scattered| scattered.block_bytes()).max(1);
        if src.len() as u64 / block_bytes >= DOWNWARDS_RUNS_MAX as u64 {
            return self.unpack_at(offset_bytes, src);
        }
        let mut unpack = UnpackDownwards::new(src);
        self.walk(offset_bytes, &mut unpack);
        // SAFETY: what was visited is memory that this view's maker vouched for; only a `RecvBuf` gets here.
        if unsafe { unpack.copy() } { src.len() } else { self.unpack_at(offset_bytes, src) }
    }

    fn segments_at(&self, offset_bytes: u64, segments: &mut [Segment]) -> usize {
        let left = self.len_bytes.saturating_sub(offset_bytes);
        if left == 0 {
            return 0;
        }
        let mut list = List::new(segments, left);
        if self.is_consecutive() {
            list.run(self.start.wrapping_add(offset_bytes as usize), left);
        } else {
            self.walk(offset_bytes, &mut list);
        }
        list.used()
    }

    fn scattered_data(&self) -> Option<ScatteredData<'_>> {
        let Scattered { datatype, count, skip_bytes } = self.scattered()?;
        if skip_bytes > 0 || self.len_bytes != count.checked_mul(datatype.size())? {
            return None;
        }
        let (low, high) = span(count, datatype)?;
        let origin = self.start.expose_provenance();
        let span_bytes = usize::try_from(high - low).ok()?;
        Some(ScatteredData { datatype, count, origin, start: origin.wrapping_add_signed(low as isize), span_bytes })
    }

    fn slice(&self, offset_bytes: u64, len_bytes: u64) -> View {
        let offset_bytes = offset_bytes.min(self.len_bytes);
        let len_bytes = len_bytes.min(self.len_bytes - offset_bytes);
        let Some(scattered) = self.scattered() else {
            return View { start: self.start.wrapping_add(offset_bytes as usize), len_bytes, more: self.more.clone() };
        };
        let owner = if let More::Part(part) = &self.more { part.owner.clone() } else { None };
        let skip_bytes = scattered.skip_bytes + offset_bytes;
        let part = Part { owner, skip_bytes, ..scattered.to_part() };
        View { start: self.start, len_bytes, more: More::Part(Box::new(part)) }
    }

    /// Bytes from `offset_bytes` on, at most `wanted`.
    fn left(&self, offset_bytes: u64, wanted: usize) -> usize {
        let left = self.len_bytes.saturating_sub(offset_bytes);
        usize::try_from(left).unwrap_or(usize::MAX).min(wanted)
    }

    fn walk<V: Visitor>(&self, offset_bytes: u64, visitor: &mut V) {
        let Some(Scattered { datatype, count, skip_bytes }) = self.scattered() else { return };
        let Some(data) = &datatype.shape().data else { return };
        let user = self.start.wrapping_offset(data.bytes.displacement as isize);
        walk_strided(&data.bytes.tree, count, datatype.extent(), user, skip_bytes + offset_bytes, visitor);
    }

    /// The memory as elements of `datatype`, if that is what it holds.
    fn elements(&self, datatype: &Datatype) -> Option<Elements> {
        if self.len_bytes == 0 {
            return Some(Elements { origin: self.start, count: 0 });
        }
        let count = datatype.count_in(self.len_bytes)? as u64;
        let origin = match self.scattered() {
            Some(scattered) => {
                let (first, rest) = (scattered.skip_bytes / datatype.size(), scattered.skip_bytes % datatype.size());
                let alike = std::ptr::eq(&**scattered.datatype, datatype) && rest == 0;
                alike.then(|| self.start.wrapping_offset((datatype.extent() * first as i64) as isize))?
            }
            None => {
                let back_to_back = count == 1 || datatype.extent() == datatype.size() as i64;
                let displacement = datatype.single_run().filter(|_| back_to_back)?;
                self.start.wrapping_offset(-displacement as isize)
            }
        };
        Some(Elements { origin, count })
    }
}
