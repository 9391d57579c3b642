//! File descriptors that whoever started this process left open for it.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// What the launcher left open as number `fd`; from now on it is ours alone and is closed on exec.
///
/// # Errors
/// When no such descriptor is open.
pub fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a query with integer arguments.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the descriptor is open, and a launcher that names it in our environment has handed it over: nothing
    // else in this process knows the number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
