//! File descriptors that whoever started this process left open for it.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// The stream that the launcher left open as number `fd`; from now on it is ours alone and is closed on exec.
///
/// # Errors
/// When no such descriptor is open.
pub fn inherited_stream(fd: RawFd) -> io::Result<UnixStream> {
    // SAFETY: a query with integer arguments.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the descriptor is open, and a launcher that names it in our environment has handed it over: nothing
    // else in this process knows the number.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(UnixStream::from(owned))
}
