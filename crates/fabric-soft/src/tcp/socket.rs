//! Sockets, and bytes to and from ranges that were promised.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use base::memory::{ReadRange, WriteRange};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use smallvec::SmallVec;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);
/// Connections the kernel keeps for us until they are accepted.
const BACKLOG: i32 = 128;

fn open(address: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    rustix::net::socket_with(family, SocketType::STREAM, FLAGS, None)
}

/// A socket that listens at `address`, and the address with its port.
pub(super) fn listen(address: &SocketAddr) -> rustix::io::Result<(OwnedFd, SocketAddr)> {
    let socket = open(address)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    let bound = rustix::net::getsockname(&socket)?;
    Ok((socket, SocketAddr::try_from(bound)?))
}

/// The next connection that somebody made; `None` if there is none.
pub(super) fn accept(listener: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
    match rustix::net::accept_with(listener, FLAGS) {
        Ok(socket) => Ok(Some(socket)),
        // Who hung up before being accepted is nobody.
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if there is no room for one more socket, where there was one if another was closed.
pub(super) fn is_short(why: Errno) -> bool {
    matches!(why, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
}

/// A connection that begins to be made.
pub(super) fn dial(address: &SocketAddr) -> rustix::io::Result<OwnedFd> {
    let socket = open(address)?;
    match rustix::net::connect(&socket, address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Why a dialled connection was not made.
pub(super) fn outcome(socket: &OwnedFd) -> rustix::io::Result<()> {
    sockopt::socket_error(socket)?
}

/// Small packets at once; a host that vanished is noticed after about `patience` while nothing is under way to it.
pub(super) fn tune(socket: &OwnedFd, patience: Duration) -> rustix::io::Result<()> {
    /// Questions without an answer.
    const ASKED: u32 = 5;
    let seconds = |part: Duration| Duration::from_secs(part.as_secs().max(1));
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_tcp_keepidle(socket, seconds(patience / 2))?;
    sockopt::set_tcp_keepintvl(socket, seconds(patience / (2 * ASKED)))?;
    sockopt::set_tcp_keepcnt(socket, ASKED)?;
    sockopt::set_socket_keepalive(socket, true)
}

/// True if the other host has had something to acknowledge for `patience` and has not. One that has no room because its
/// process does not read answers all the same.
pub(super) fn is_unanswered(socket: &OwnedFd, patience: Duration) -> bool {
    // SAFETY: the structure is integers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the structure and its length live through the call, which writes no more than the length says.
    let told = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut len) };
    told == 0 && info.tcpi_unacked > 0 && u128::from(info.tcpi_last_ack_recv) > patience.as_millis()
}

/// Closing will reset the connection; what is on its way is lost.
pub(super) fn close_hard(socket: &OwnedFd) {
    // A socket that is broken already needs no more.
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

fn vectors(parts: impl Iterator<Item = (usize, usize)>) -> SmallVec<[libc::iovec; 32]> {
    parts.map(|(address, len)| libc::iovec { iov_base: address as *mut libc::c_void, iov_len: len }).collect()
}

/// Writes what the kernel takes of `bytes`; `None` if it takes nothing now.
pub(super) fn send_bytes(socket: &OwnedFd, bytes: &[u8]) -> io::Result<Option<usize>> {
    moved(|| rustix::net::send(socket, bytes, SendFlags::NOSIGNAL))
}

/// Writes what the kernel takes of `parts`; `None` if it takes nothing now.
pub(super) fn send(socket: &OwnedFd, parts: &[ReadRange]) -> io::Result<Option<usize>> {
    let mut vectors = vectors(parts.iter().map(|part| (part.address(), part.len_bytes())));
    // SAFETY: a message header is integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = vectors.len() as _;
    retry(|| {
        // SAFETY: the vectors live through the call and name ranges that were promised to be readable.
        unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) }
    })
}

/// Reads what has come into `space`, which is not empty; `None` if nothing has; 0 at the end.
pub(super) fn receive_bytes(socket: BorrowedFd<'_>, space: &mut [u8]) -> io::Result<Option<usize>> {
    moved(|| rustix::net::recv(socket, &mut *space, RecvFlags::empty()).map(|(count, _)| count))
}

/// Reads what has come into `parts`, which are not empty; `None` if nothing has; 0 at the end.
pub(super) fn receive(socket: BorrowedFd<'_>, parts: &[WriteRange]) -> io::Result<Option<usize>> {
    let vectors = vectors(parts.iter().map(|part| (part.address(), part.len_bytes())));
    retry(|| {
        // SAFETY: the vectors live through the call and name ranges that are this link's to write.
        unsafe { libc::readv(socket.as_raw_fd(), vectors.as_ptr(), vectors.len() as libc::c_int) }
    })
}

/// As [`moved`], of a call that tells by a negative number that it failed.
fn retry(mut step: impl FnMut() -> isize) -> io::Result<Option<usize>> {
    moved(|| {
        usize::try_from(step()).map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    })
}

/// The bytes that a call has moved; `None` if it would have to wait.
fn moved(mut step: impl FnMut() -> Result<usize, Errno>) -> io::Result<Option<usize>> {
    loop {
        match step() {
            Ok(count) => return Ok(Some(count)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}
