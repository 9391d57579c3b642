//! Cross-memory attach: one copy straight between two processes, the peer's processor not involved.

use base::memory::{ReadRange, WriteRange};
use fabric::{DirectCopyError, LocalPieces, RemotePiece};

/// Pieces of a side in one system call.
const LIST_MAX: usize = 256;

/// Bytes of a detour at a time: they stay near the processor.
const DETOUR_BYTES: usize = 32 << 10;

/// Copies `len` bytes at `remote` of process `pid` to `local`.
///
/// # Safety
/// `len` bytes at `local` are writable and nobody else touches them.
pub(super) unsafe fn read(pid: i32, local: usize, remote: u64, len: usize) -> Result<(), DirectCopyError> {
    let remote = remote as usize;
    // SAFETY: what is written is this function's to write: by its contract, or a detour.
    let attach = |mine, theirs, len| unsafe { attach(libc::process_vm_readv, pid, mine, theirs, len) };
    if !base::copy::are_places_in_conflict(remote, local, len) {
        return transfer(len, |done| attach(local + done, remote + done, len - done));
    }
    let mut detour = Detour::new();
    transfer(len, |done| {
        let place = detour.at_place_of(remote + done);
        let moved = attach(place.expose_provenance(), remote + done, DETOUR_BYTES.min(len - done));
        if moved > 0 {
            // SAFETY: the kernel has just written so many bytes of the detour; those at `local` are this function's.
            unsafe { base::copy::copy_raw(place, (local + done) as *mut u8, moved as usize) };
        }
        moved
    })
}

/// Copies `len` bytes at `local` to `remote` of process `pid`.
///
/// # Safety
/// `len` bytes at `local` are readable.
pub(super) unsafe fn write(pid: i32, local: usize, remote: u64, len: usize) -> Result<(), DirectCopyError> {
    let remote = remote as usize;
    // SAFETY: what is read is there: by this function's contract, or a detour that has been filled so far.
    let attach = |mine, theirs, len| unsafe { attach(libc::process_vm_writev, pid, mine, theirs, len) };
    if !base::copy::are_places_in_conflict(local, remote, len) {
        return transfer(len, |done| attach(local + done, remote + done, len - done));
    }
    let mut detour = Detour::new();
    transfer(len, |done| {
        let (place, step) = (detour.at_place_of(remote + done), DETOUR_BYTES.min(len - done));
        // SAFETY: so many bytes at `local` are readable, and the detour has room for them.
        unsafe { base::copy::copy_raw((local + done) as *const u8, place, step) };
        attach(place.expose_provenance(), remote + done, step)
    })
}

/// Memory in between, for what the kernel copies slowly from place to place (see [`base::copy`]). Lists of pieces go
/// without: few of their pieces are so long, and in conflict.
struct Detour(Vec<std::mem::MaybeUninit<u8>>);

impl Detour {
    fn new() -> Self {
        Self(Vec::with_capacity(DETOUR_BYTES + base::copy::PAGE_BYTES))
    }

    /// [`DETOUR_BYTES`] bytes, which begin where `address` does in its page.
    fn at_place_of(&mut self, address: usize) -> *mut u8 {
        let start: *mut u8 = self.0.as_mut_ptr().cast();
        start.wrapping_add(address.wrapping_sub(start.addr()) % base::copy::PAGE_BYTES)
    }
}

/// Copies what lies at `from` in process `pid` to `to`, as far as both go.
///
/// # Safety
/// All of `to` is writable and nobody else touches it.
pub(super) unsafe fn scatter(pid: i32, from: &[RemotePiece], to: &[WriteRange]) -> Result<(), DirectCopyError> {
    if let ([from], [to]) = (from, to) {
        let len_bytes = from.len_bytes.min(to.len_bytes() as u64) as usize;
        // SAFETY: the caller's promise.
        return unsafe { read(pid, to.address(), from.address, len_bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe { copy_lists(pid, LocalPieces::To(to), from, LIST_MAX) }.map(drop)
}

/// Copies all of `from` to what begins at `to` in process `pid`.
///
/// # Safety
/// All of `from` is readable.
pub(super) unsafe fn gather_to(pid: i32, from: &[ReadRange], to: u64) -> Result<(), DirectCopyError> {
    if let [from] = from {
        // SAFETY: the caller's promise.
        return unsafe { write(pid, from.address(), to, from.len_bytes()) };
    }
    let len_bytes = from.iter().map(|range| range.len_bytes() as u64).sum();
    let to = [RemotePiece { address: to, len_bytes }];
    // SAFETY: the caller's promise.
    unsafe { copy_lists(pid, LocalPieces::From(from), &to, LIST_MAX) }.map(drop)
}

/// Copies between `local` and `remote` of process `pid`, as many bytes here as there, at most `list_max` pieces of a side at
/// once.
///
/// # Safety
/// All of `local` is readable; if it is copied to, it is writable and nobody else touches it.
pub(super) unsafe fn copy_pieces(
    pid: i32,
    local: LocalPieces<'_>,
    remote: &[RemotePiece],
    list_max: usize,
) -> Result<(), DirectCopyError> {
    // SAFETY: the caller's promise.
    let are_even = unsafe { copy_lists(pid, local, remote, list_max) }?;
    if are_even { Ok(()) } else { Err(DirectCopyError::AccessError) }
}

/// The same as far as both go; true if they end together.
///
/// # Safety
/// As [`copy_pieces`].
unsafe fn copy_lists(
    pid: i32,
    local: LocalPieces<'_>,
    remote: &[RemotePiece],
    list_max: usize,
) -> Result<bool, DirectCopyError> {
    let step = |attach: Attach| {
        move |mine: &[libc::iovec], theirs: &[libc::iovec]| {
            let (mine_count, theirs_count) = (mine.len() as u64, theirs.len() as u64);
            // SAFETY: `mine` may be used so by the outer function's contract; `theirs` is checked by the kernel.
            unsafe { attach(pid, mine.as_ptr(), mine_count, theirs.as_ptr(), theirs_count, 0) }
        }
    };
    match local {
        LocalPieces::From(ranges) => {
            let mine = Pieces::new(ranges, |range: ReadRange| (range.address(), range.len_bytes()));
            transfer_pieces(mine, remote, list_max, step(libc::process_vm_writev))
        }
        LocalPieces::To(ranges) => {
            let mine = Pieces::new(ranges, |range: WriteRange| (range.address(), range.len_bytes()));
            transfer_pieces(mine, remote, list_max, step(libc::process_vm_readv))
        }
    }
}

/// The system call, one way or the other.
type Attach = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

/// One piece of each side.
///
/// # Safety
/// `len` bytes at `mine` may be used as `call` does; those at `theirs` are checked by the kernel.
unsafe fn attach(call: Attach, pid: i32, mine: usize, theirs: usize, len: usize) -> isize {
    let (mine, theirs) = vectors(mine, theirs, len);
    // SAFETY: the caller's promise.
    unsafe { call(pid, &mine, 1, &theirs, 1, 0) }
}

/// What is left of one side of a copy.
struct Pieces<'a, T, F> {
    pieces: &'a [T],
    /// Bytes of the first piece that are done.
    done: usize,
    place: F,
}

impl<'a, T: Copy, F: Fn(T) -> (usize, usize)> Pieces<'a, T, F> {
    fn new(pieces: &'a [T], place: F) -> Self {
        Self { pieces, done: 0, place }
    }

    /// Lists what comes next; how many pieces that is.
    fn list(&self, vectors: &mut [libc::iovec]) -> usize {
        let mut done = self.done;
        for (vector, piece) in vectors.iter_mut().zip(self.pieces) {
            let (address, len) = (self.place)(*piece);
            *vector = libc::iovec { iov_base: (address + done) as *mut libc::c_void, iov_len: len - done };
            done = 0;
        }
        vectors.len().min(self.pieces.len())
    }

    fn advance(&mut self, bytes: usize) {
        self.done += bytes;
        while let Some((first, rest)) = self.pieces.split_first() {
            let (_, len) = (self.place)(*first);
            if self.done < len {
                break;
            }
            self.done -= len;
            self.pieces = rest;
        }
    }
}

fn transfer_pieces<T: Copy>(
    mut mine: Pieces<'_, T, impl Fn(T) -> (usize, usize)>,
    remote: &[RemotePiece],
    list_max: usize,
    step: impl Fn(&[libc::iovec], &[libc::iovec]) -> isize,
) -> Result<bool, DirectCopyError> {
    let mut theirs = Pieces::new(remote, |piece: RemotePiece| (piece.address as usize, piece.len_bytes as usize));
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let (mut here, mut there) = ([nothing; LIST_MAX], [nothing; LIST_MAX]);
    let list_max = list_max.clamp(1, LIST_MAX);
    // So that neither side begins with an empty piece: every step moves something then.
    mine.advance(0);
    theirs.advance(0);
    while !mine.pieces.is_empty() && !theirs.pieces.is_empty() {
        let (here_count, there_count) = (mine.list(&mut here[..list_max]), theirs.list(&mut there[..list_max]));
        let moved = step(&here[..here_count], &there[..there_count]);
        let moved = moved_bytes(moved)?;
        mine.advance(moved);
        theirs.advance(moved);
    }
    Ok(mine.pieces.is_empty() && theirs.pieces.is_empty())
}

/// Bytes that a system call for more than none has moved; none if it is to be repeated.
fn moved_bytes(returned: isize) -> Result<usize, DirectCopyError> {
    match returned {
        1.. => Ok(returned as usize),
        // It was not refused, so there is no reason to be read, and asking again brings nothing else.
        0 => Err(DirectCopyError::AccessError),
        _ => match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => Ok(0),
            Some(libc::EPERM | libc::ENOSYS | libc::EACCES) => Err(DirectCopyError::Refused),
            Some(libc::ESRCH) => Err(DirectCopyError::PeerGone),
            _ => Err(DirectCopyError::AccessError),
        },
    }
}

/// Whether the kernel allows cross-memory attach at all; the reason if not.
pub fn probe() -> Result<(), String> {
    let from = 0x5au8;
    let mut to = 0u8;
    let (mine, theirs) = (&raw mut to as usize, &raw const from as usize);
    // SAFETY: both ranges are one byte on this stack frame.
    let moved = unsafe { attach(libc::process_vm_readv, std::process::id() as i32, mine, theirs, 1) };
    if moved == 1 && to == from {
        return Ok(());
    }
    Err(format!("process_vm_readv is refused here: {}", std::io::Error::last_os_error()))
}

/// Lets processes of the same user attach although ptrace scope 1 (Yama) would not.
pub(super) fn allow_peers() {
    // SAFETY: a request with integer arguments; where Yama is absent it fails and nothing is changed.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

fn vectors(local: usize, remote: usize, len: usize) -> (libc::iovec, libc::iovec) {
    (
        libc::iovec { iov_base: local as *mut libc::c_void, iov_len: len },
        libc::iovec { iov_base: remote as *mut libc::c_void, iov_len: len },
    )
}

fn transfer(len: usize, mut step: impl FnMut(usize) -> isize) -> Result<(), DirectCopyError> {
    let mut done = 0;
    while done < len {
        done += moved_bytes(step(done))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cut_differently_on_both_sides_are_copied_whole() {
        let me = std::process::id() as i32;
        let source: Vec<u8> = (0..9000u32).map(|at| (at * 13 + at / 256) as u8).collect();
        for (mine, theirs, list_max) in [(7usize, 3usize, 1usize), (1, 600, 64), (512, 5, 1000), (3, 3, 2)] {
            let mut target = vec![0u8; 9000];
            let to: Vec<WriteRange> = target
                .chunks_mut(mine)
                // SAFETY: the chunk lives through the copy and is touched by nothing else.
                .map(|chunk| unsafe { WriteRange::new(chunk.as_mut_ptr(), chunk.len()) })
                .collect();
            let from: Vec<RemotePiece> = source
                .chunks(theirs)
                .map(|chunk| RemotePiece { address: chunk.as_ptr() as u64, len_bytes: chunk.len() as u64 })
                .collect();
            // SAFETY: the ranges are parts of the target, which nothing else touches.
            let outcome = unsafe { copy_pieces(me, LocalPieces::To(&to), &from, list_max) };
            if outcome == Err(DirectCopyError::Refused) {
                eprintln!("skipped: the kernel refuses cross-memory attach");
                return;
            }
            assert_eq!(outcome, Ok(()));
            assert!(target == source, "pieces of {mine} and {theirs}, {list_max} at once");
            // SAFETY: as above; here the target is shorter than the source.
            let uneven = unsafe { copy_pieces(me, LocalPieces::To(&to[1..]), &from, list_max) };
            assert_eq!(uneven, Err(DirectCopyError::AccessError));
        }
    }

    #[test]
    fn places_in_conflict_are_copied_whole_and_nothing_beside_them() {
        if let Err(why) = probe() {
            return eprintln!("skipped: {why}");
        }
        const LEN: usize = 2 * DETOUR_BYTES + 5000;
        let me = std::process::id() as i32;
        let source: Vec<u8> = (0..LEN + 8192).map(|at| (at * 13 + at / 256) as u8).collect();
        let mut target = vec![0xaa; LEN + 8192];
        let mut conflicts = 0;
        for behind in [0, 1, 16, 31, 32, 4095] {
            // So that the target's place in its page is so far behind the source's.
            let from = 64;
            let apart = (source.as_ptr().addr() + from + behind).wrapping_sub(target.as_ptr().addr());
            let into = 32 + (apart - 32) % base::copy::PAGE_BYTES;
            let whole = into..into + LEN;
            conflicts += usize::from(base::copy::are_places_in_conflict(
                source.as_ptr().addr() + from,
                target.as_ptr().addr() + into,
                LEN,
            ));
            for is_read in [true, false] {
                target.fill(0xaa);
                let (theirs, mine) = (source.as_ptr().addr() + from, target.as_mut_ptr().addr() + into);
                // SAFETY: both lie within their vectors, and the target is touched by nothing else.
                let outcome = unsafe {
                    match is_read {
                        true => read(me, mine, theirs as u64, LEN),
                        false => write(me, theirs, mine as u64, LEN),
                    }
                };
                assert_eq!(outcome, Ok(()));
                assert!(target[whole.clone()] == source[from..from + LEN], "{behind} behind, {is_read}");
                assert!(target[..into].iter().chain(&target[whole.end..]).all(|byte| *byte == 0xaa));
            }
        }
        assert_eq!(conflicts, if cfg!(target_arch = "x86_64") { 3 } else { 0 }, "1, 16 and 31 bytes");
    }

    /// Nor is what an earlier system call has left behind taken for its reason.
    #[test]
    fn pieces_without_bytes_are_passed_over() {
        if let Err(why) = probe() {
            return eprintln!("skipped: {why}");
        }
        let me = std::process::id() as i32;
        let source = *b"abcdef";
        for left_over in [libc::EPERM, libc::EINTR] {
            let mut target = [0u8; 6];
            // SAFETY: parts of the target, which nothing else touches.
            let to = [(0, 0), (0, 0), (0, 2), (2, 0), (2, 4), (6, 0)]
                .map(|(at, len): (usize, usize)| unsafe { WriteRange::new(target.as_mut_ptr().wrapping_add(at), len) });
            let from = [(0, 0), (0, 3), (3, 0), (3, 0), (3, 3), (6, 0)]
                .map(|(at, len_bytes)| RemotePiece { address: source.as_ptr() as u64 + at, len_bytes });
            // SAFETY: this thread's own.
            unsafe { *libc::__errno_location() = left_over };
            // SAFETY: the ranges are parts of the target, which nothing else touches.
            let outcome = unsafe { copy_pieces(me, LocalPieces::To(&to), &from, 1) };
            assert_eq!((outcome, target), (Ok(()), source));
        }
    }
}
