//! Seeing when addresses of this process come to mean other memory.
//!
//! Whoever keeps something about memory that it does not own (pages that an adapter has pinned) must hear when the
//! program unmaps, moves or empties it. Linux tells that to the owner of a `userfaultfd`: the system call that changes
//! the map waits until the event has been read. No fault is ever caught: ranges are registered for write protection,
//! and nothing is protected.
//!
//! ```text
//!   program                     watcher (a thread that sleeps)
//!   munmap ── event ──▶ ……      wakes; sequence becomes odd; reads
//!   goes on         ◀── read ── notes the range; sequence becomes even
//!   asks: odd? waits. even and as before? nothing has changed. else: takes the ranges
//! ```
//! The sequence is odd *before* the read that lets the program go on. So whoever asks after its `munmap` has returned
//! finds it odd or further: a change whose end the program has seen is never missed.
//!
//! The watcher neither allocates nor frees: either could change the map and would wait for itself. Hence the standard
//! library's mutex, which is one word and never grows a list of those who wait. It takes no signals. A child that is
//! forked has no watch over its copy, and its calls wait for nobody.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::signals::without_signals;

/// Changes noted before they are asked for; more count as a change of everything.
const NOTED_MAX: usize = 64;

const PAGE_BYTES: u64 = 4096;

/// A watch over ranges of this process's memory.
pub struct AddressWatch {
    descriptor: Arc<OwnedFd>,
    stop: OwnedFd,
    noted: Arc<Noted>,
    /// The sequence when changes were taken last.
    seen: u64,
    watcher: Option<JoinHandle<()>>,
}

/// What the watcher has read.
struct Noted {
    /// Odd while an event is being read and noted.
    sequence: AtomicU64,
    ranges: Mutex<Ranges>,
}

#[derive(Clone, Copy)]
struct Ranges {
    count: usize,
    ranges: [(u64, u64); NOTED_MAX],
    /// There was no room: anything may have changed.
    overflowed: bool,
}

impl Noted {
    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        // Nothing panics under the lock, and ranges are whole at any moment.
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ranges {
    const NONE: Self = Self { count: 0, ranges: [(0, 0); NOTED_MAX], overflowed: false };

    fn note(&mut self, start: u64, end: u64) {
        match self.ranges.get_mut(self.count) {
            Some(range) => {
                *range = (start, end);
                self.count += 1;
            }
            None => self.overflowed = true,
        }
    }
}

impl AddressWatch {
    /// Starts watching; nothing is watched yet.
    ///
    /// # Errors
    /// When the system does not offer this, or not to us.
    pub fn start() -> io::Result<Self> {
        let descriptor = Arc::new(open()?);
        // SAFETY: makes a descriptor; no memory is involved.
        let stop = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })?;
        let noted = Arc::new(Noted { sequence: AtomicU64::new(0), ranges: Mutex::new(Ranges::NONE) });
        let (shared, wake, notes) = (Arc::clone(&descriptor), stop.as_raw_fd(), Arc::clone(&noted));
        let watcher = without_signals(|| {
            std::thread::Builder::new()
                .name("ferrovia-watch".into())
                .spawn(move || attend(shared.as_raw_fd(), wake, &notes))
        })?;
        Ok(Self { descriptor, stop, noted, seen: 0, watcher: Some(watcher) })
    }

    /// From now on changes of the pages of these bytes are seen; false if the system does not offer that for this kind
    /// of memory (a mapped file, memory that somebody else watches).
    pub fn watch(&mut self, address: u64, len_bytes: u64) -> bool {
        let mut request = Register { range: pages(address, len_bytes), mode: REGISTER_WRITE_PROTECT, offered: 0 };
        // SAFETY: the kernel reads and fills `request`, which has the layout it expects. Pages registered so behave as
        // before: none is write-protected.
        unsafe { libc::ioctl(self.descriptor.as_raw_fd(), UFFDIO_REGISTER, &raw mut request) == 0 }
    }

    /// Changes of these pages need not be seen any more. What is not mapped any more is no error.
    pub fn unwatch(&mut self, address: u64, len_bytes: u64) {
        let range = pages(address, len_bytes);
        // SAFETY: the kernel reads `range`, which has the layout it expects.
        unsafe { libc::ioctl(self.descriptor.as_raw_fd(), UFFDIO_UNREGISTER, &raw const range) };
    }

    /// Tells every range (first byte, byte after the last) that has changed since this was asked last; waits while one
    /// is being noted.
    #[inline]
    pub fn take_changes(&mut self, changed: &mut dyn FnMut(u64, u64)) {
        // Acquire pairs with the release of the watcher: what it noted is seen.
        if self.noted.sequence.load(Ordering::Acquire) != self.seen {
            self.take_noted(changed);
        }
    }

    #[cold]
    fn take_noted(&mut self, changed: &mut dyn FnMut(u64, u64)) {
        loop {
            let before = self.noted.sequence.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                // Copied, so that whatever `changed` does (it may free memory) does not hold the watcher up.
                let ranges = mem::replace(&mut *self.noted.ranges(), Ranges::NONE);
                if self.noted.sequence.load(Ordering::Acquire) == before {
                    self.seen = before;
                }
                ranges.ranges[..ranges.count].iter().for_each(|(start, end)| changed(*start, *end));
                if ranges.overflowed {
                    changed(0, u64::MAX);
                }
                if self.seen == before {
                    return;
                }
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for AddressWatch {
    fn drop(&mut self) {
        let one = 1u64;
        // SAFETY: eight bytes of this frame are written to a descriptor of ours.
        unsafe { libc::write(self.stop.as_raw_fd(), (&raw const one).cast(), 8) };
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

/// The watcher: reads events until it is told to stop.
fn attend(descriptor: RawFd, stop: RawFd, noted: &Noted) {
    let mut polled = [
        libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 },
        libc::pollfd { fd: stop, events: libc::POLLIN, revents: 0 },
    ];
    loop {
        // SAFETY: two entries of this frame.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) };
        if ready < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted || polled[1].revents != 0 {
            return;
        }
        if ready > 0 {
            noted.sequence.fetch_add(1, Ordering::AcqRel);
            while let Some((start, end)) = read_change(descriptor) {
                noted.ranges().note(start, end);
            }
            // Release: the ranges are seen by whoever sees the even number.
            noted.sequence.fetch_add(1, Ordering::Release);
        }
    }
}

/// The next change; `None` when there is none now.
fn read_change(descriptor: RawFd) -> Option<(u64, u64)> {
    loop {
        let mut message = Message::default();
        // SAFETY: the kernel fills `message`, which is as long as its messages are.
        let got = unsafe { libc::read(descriptor, (&raw mut message).cast(), size_of::<Message>()) };
        if got != size_of::<Message>() as isize {
            return None;
        }
        match message.event {
            EVENT_REMAP => return Some((message.first, message.first.saturating_add(message.third))),
            EVENT_REMOVE | EVENT_UNMAP => return Some((message.first, message.second)),
            _ => {}
        }
    }
}

const UFFDIO_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
const UFFDIO_UNREGISTER: libc::Ioctl = 0x8010_aa01_u32 as libc::Ioctl;
const API_VERSION: u64 = 0xaa;
/// Without this flag only privileged processes get one; with it, faults of the kernel are not caught, nor are any here.
const USER_MODE_ONLY: i32 = 1;
const FEATURE_EVENT_REMAP: u64 = 1 << 2;
const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
const FEATURE_EVENT_UNMAP: u64 = 1 << 6;
const REGISTER_WRITE_PROTECT: u64 = 2;
const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;

#[repr(C)]
struct Api {
    version: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Pages {
    start: u64,
    len_bytes: u64,
}

#[repr(C)]
struct Register {
    range: Pages,
    mode: u64,
    offered: u64,
}

/// One event: old address, new address, length of a move; start and end of the others.
#[repr(C)]
#[derive(Default)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    first: u64,
    second: u64,
    third: u64,
}

const _: () = assert!(size_of::<Message>() == 32 && size_of::<Register>() == 32 && size_of::<Api>() == 24);

/// The whole pages round these bytes.
fn pages(address: u64, len_bytes: u64) -> Pages {
    let start = address & !(PAGE_BYTES - 1);
    let end = address.saturating_add(len_bytes.max(1)).checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX);
    Pages { start, len_bytes: end - start }
}

fn open() -> io::Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
    // SAFETY: makes a descriptor; no memory is involved.
    let descriptor = owned(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) } as i32)?;
    let features = FEATURE_EVENT_UNMAP | FEATURE_EVENT_REMAP | FEATURE_EVENT_REMOVE;
    let mut api = Api { version: API_VERSION, features, ioctls: 0 };
    // SAFETY: the kernel reads and fills `api`, which has the layout it expects.
    if unsafe { libc::ioctl(descriptor.as_raw_fd(), UFFDIO_API, &raw mut api) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(descriptor)
}

fn owned(descriptor: i32) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    const LEN_BYTES: usize = 4 * PAGE_BYTES as usize;

    /// Pages of this process, mapped anew at `address` if that is not 0.
    fn map(address: usize) -> usize {
        let fixed = if address == 0 { 0 } else { libc::MAP_FIXED };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
        // SAFETY: fresh pages, or pages of this test replaced.
        let mapped =
            unsafe { libc::mmap(address as *mut _, LEN_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        assert_ne!(mapped, libc::MAP_FAILED);
        mapped as usize
    }

    fn unmap(address: usize) {
        // SAFETY: pages of this test that nobody uses.
        assert_eq!(unsafe { libc::munmap(address as *mut _, LEN_BYTES) }, 0);
    }

    fn changes(watch: &mut AddressWatch) -> Vec<(u64, u64)> {
        let mut changes = Vec::new();
        watch.take_changes(&mut |start, end| changes.push((start, end)));
        changes
    }

    fn watch() -> Option<AddressWatch> {
        AddressWatch::start().inspect_err(|why| println!("skipped: no userfaultfd here: {why}")).ok()
    }

    #[test]
    fn unmapping_replacing_emptying_and_moving_are_seen_at_once() {
        let Some(mut watch) = watch() else { return };
        let mut address = map(0);
        for round in 0..10_000 {
            let whole = (address as u64, (address + LEN_BYTES) as u64);
            assert!(watch.watch(address as u64 + 100, LEN_BYTES as u64 - 200), "round {round}");
            assert_eq!(changes(&mut watch), [], "round {round}");
            match round % 3 {
                0 => unmap(address),
                1 => assert_eq!(map(address), address),
                _ => {
                    // SAFETY: pages of this test that nobody uses.
                    let emptied = unsafe { libc::madvise(address as *mut _, LEN_BYTES, libc::MADV_DONTNEED) };
                    assert_eq!(emptied, 0);
                }
            }
            assert_eq!(changes(&mut watch), [whole], "round {round}");
            watch.unwatch(address as u64, LEN_BYTES as u64);
            if round % 3 == 0 {
                // Most often the same place; other threads of this process map memory, too.
                address = map(0);
            }
            assert_eq!(map(address), address);
            assert_eq!(changes(&mut watch), [], "nobody watches: round {round}");
        }
        let whole = (address as u64, (address + LEN_BYTES) as u64);
        assert!(watch.watch(address as u64, LEN_BYTES as u64));
        // SAFETY: pages of this test; they may go anywhere.
        let moved = unsafe { libc::mremap(address as *mut _, LEN_BYTES, 16 * LEN_BYTES, libc::MREMAP_MAYMOVE) };
        assert_ne!(moved, libc::MAP_FAILED);
        if moved as usize != address {
            assert!(changes(&mut watch).contains(&whole));
        }
    }

    #[test]
    fn more_changes_than_are_noted_count_as_a_change_of_everything() {
        let Some(mut watch) = watch() else { return };
        for _ in 0..=NOTED_MAX {
            let address = map(0);
            assert!(watch.watch(address as u64, LEN_BYTES as u64));
            unmap(address);
        }
        let changes = changes(&mut watch);
        assert_eq!((changes.len(), changes.last()), (NOTED_MAX + 1, Some(&(0, u64::MAX))));
    }

    /// A child unmaps its copy without waiting for anybody, and nothing is told to the parent.
    #[test]
    fn a_forked_child_is_not_watched() {
        let Some(mut watch) = watch() else { return };
        let address = map(0);
        assert!(watch.watch(address as u64, LEN_BYTES as u64));
        // SAFETY: the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the child's copy of pages of this test.
            let refused = unsafe { libc::munmap(address as *mut _, LEN_BYTES) };
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(refused) };
        }
        let mut status = -1;
        // SAFETY: `status` is of this frame.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(changes(&mut watch), []);
        unmap(address);
        assert_eq!(changes(&mut watch).len(), 1);
    }
}
