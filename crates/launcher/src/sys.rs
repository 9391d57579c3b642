//! The only unsafe code of the launcher: signals as a descriptor, the guard's fork, and what a child
//! does between fork and exec.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::CpuSet;

/// What a rank does before its program is executed.
pub(crate) struct ChildSetup {
    /// Its end of the PMI socket, which survives exec.
    pub pmi: RawFd,
    /// The limit of open files it shall have.
    pub open_files: Rlimit,
    /// Processors it is bound to.
    pub place: Option<CpuSet>,
    /// Signals it shall begin with blocked: those that were blocked when we began.
    pub signal_mask: SignalMask,
    /// Who starts it; if that is gone already, it does not begin.
    pub parent: Pid,
}

/// A set of blocked signals.
#[derive(Clone, Copy)]
pub(crate) struct SignalMask(libc::sigset_t);

/// Starts the command so that it dies with the calling thread.
pub(crate) fn spawn(command: &mut Command, setup: ChildSetup) -> io::Result<Child> {
    let before_exec = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // Had the parent died before the line above, nobody would ever tell us.
        if rustix::process::getppid() != Some(setup.parent) {
            return Err(io::Error::from(rustix::io::Errno::SRCH));
        }
        rustix::process::setrlimit(Resource::Nofile, setup.open_files)?;
        if let Some(place) = &setup.place {
            rustix::thread::sched_setaffinity(None, place)?;
        }
        // SAFETY: the descriptor is open in the parent, which keeps it until after the fork, so it is open here.
        let pmi = unsafe { BorrowedFd::borrow_raw(setup.pmi) };
        rustix::io::fcntl_setfd(pmi, rustix::io::FdFlags::empty())?;
        // SAFETY: the set was filled in by the kernel; the old mask is not asked for.
        let failed =
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const setup.signal_mask.0, std::ptr::null_mut()) };
        if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
    };
    // SAFETY: the closure makes system calls only; it neither allocates nor locks, so it may run after a fork.
    unsafe { command.pre_exec(before_exec) };
    command.spawn()
}

/// Blocks the signals for this thread and hands them out through a descriptor instead; also returns
/// the mask as it was.
pub(crate) fn signals_as_descriptor(signals: &[Signal]) -> io::Result<(OwnedFd, SignalMask)> {
    // SAFETY: a signal set is plain data; it is initialised by the next call before use.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is a valid place to write to.
    unsafe { libc::sigemptyset(&raw mut set) };
    for signal in signals {
        // SAFETY: the set is initialised and the number is that of a signal.
        unsafe { libc::sigaddset(&raw mut set, signal.as_raw()) };
    }
    let mut before = set;
    // SAFETY: both sets are initialised; the second is overwritten with the mask as it was.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    // SAFETY: SIGCHLD gets its default action, which a parent may have taken away; no handler is installed.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    // SAFETY: the set is initialised; a new descriptor is asked for.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok((fd, SignalMask(before)))
}

/// Forks a process that runs `body` and nothing else, with `kept` as its only descriptor.
pub(crate) fn fork_alone(kept: OwnedFd, body: impl FnOnce(OwnedFd)) -> io::Result<Pid> {
    // SAFETY: this process has one thread, so the child may use the allocator and all of std.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => {
            close_all_but(kept.as_raw_fd());
            body(kept);
            // SAFETY: ends the child at once; nothing of the parent's (buffers, destructors) is run twice.
            unsafe { libc::_exit(0) }
        }
        1.. => Pid::from_raw(pid).ok_or_else(|| io::Error::other("the kernel gave process number 0")),
        _ => Err(io::Error::last_os_error()),
    }
}

fn close_all_but(kept: RawFd) {
    let Ok(kept) = libc::c_uint::try_from(kept) else { return };
    let ranges = [(0, kept.checked_sub(1)), (kept + 1, Some(libc::c_uint::MAX))];
    for (first, last) in ranges {
        if let Some(last) = last {
            // SAFETY: the child has a table of its own and uses none of these descriptors. An old kernel
            // refuses; then the child merely keeps them open as long as it lives.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}
