//! Handing the segment to the other processes of the host.
//!
//! ```text
//!   first process                         others
//!   bind @ferrovia-…, publish the name
//!   ─────────────── barrier of the process manager ───────────────
//!   accept: same user? ── descriptor ──▶  map, close
//!                      ── bells ───────▶  keep
//! ```
//! Bells, where the segment has some, come in further messages; the last of a row ends with another byte than the others.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use fabric::FabricError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::sealed::system;
use super::segment::{Segment, Shape};

/// How long a process waits for its peers while joining.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Descriptors in one message; the system takes 253 at most.
const DESCRIPTORS_MAX: usize = 128;
/// What the last message of a row says, and those before it.
const LAST: u8 = b'F';
const MORE: u8 = b'M';
const PUBLISH: &str = "offering the shared segment (Unix socket)";
const JOIN: &str = "fetching the shared segment (Unix socket)";

/// Waits for the other processes of the host and hands each the segment.
pub struct SegmentServer {
    socket: OwnedFd,
    segment: Segment,
}

impl SegmentServer {
    /// Listens under a name nobody else has; `unique` makes it so (job and process).
    ///
    /// # Errors
    /// When the system refuses a socket.
    pub fn bind(segment: Segment, unique: &str) -> Result<(Self, String), FabricError> {
        let socket = unix_socket(PUBLISH)?;
        let name = format!("ferrovia-{unique}");
        rustix::net::bind(&socket, &abstract_name(&name, PUBLISH)?).map_err(|error| system(PUBLISH, error))?;
        let backlog = i32::try_from(segment.shape().process_count).unwrap_or(i32::MAX);
        rustix::net::listen(&socket, backlog).map_err(|error| system(PUBLISH, error))?;
        Ok((Self { socket, segment }, name))
    }

    /// Serves `count` processes and closes everything but the mapping.
    ///
    /// # Errors
    /// When they do not come, or the system refuses.
    pub fn serve(mut self, count: u32) -> Result<Segment, FabricError> {
        let deadline = Instant::now() + JOIN_TIMEOUT;
        let mut served = 0;
        while served < count {
            wait_readable(&self.socket, deadline, PUBLISH)?;
            let peer =
                rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC).map_err(|error| system(PUBLISH, error))?;
            let credentials = rustix::net::sockopt::socket_peercred(&peer).map_err(|error| system(PUBLISH, error))?;
            if credentials.uid != rustix::process::geteuid() {
                continue;
            }
            self.hand_over(&peer)?;
            served += 1;
        }
        self.segment.close_fd();
        Ok(self.segment)
    }

    fn hand_over(&self, peer: &OwnedFd) -> Result<(), FabricError> {
        let segment = self.segment.fd().expect("the server keeps the descriptor open until all are served");
        let bells = self.segment.bells().map_or(&[][..], |bells| bells);
        let all: Vec<_> = std::iter::once(segment).chain(bells.iter().map(AsFd::as_fd)).collect();
        let parts = all.chunks(DESCRIPTORS_MAX);
        for (number, fds) in (1..=parts.len()).zip(parts.clone()) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(fds));
            let end = [if number == parts.len() { LAST } else { MORE }];
            rustix::net::sendmsg(peer, &[IoSlice::new(&end)], &mut control, SendFlags::NOSIGNAL)
                .map_err(|error| system(PUBLISH, error))?;
        }
        Ok(())
    }
}

/// Fetches the segment that another process offers under `name`.
///
/// # Errors
/// When nobody listens there, it belongs to another user, or it does not fit `shape`.
pub fn join(name: &str, shape: Shape) -> Result<Segment, FabricError> {
    let socket = unix_socket(JOIN)?;
    rustix::net::connect(&socket, &abstract_name(name, JOIN)?).map_err(|error| system(JOIN, error))?;
    let server = rustix::net::sockopt::socket_peercred(&socket).map_err(|error| system(JOIN, error))?;
    if server.uid != rustix::process::geteuid() {
        return Err(refused("it is offered by another user"));
    }
    let mut fds = fetch(&socket, 1 + shape.process_count as usize)?.into_iter();
    let segment = fds.next().ok_or_else(|| refused("no descriptor came with the answer"))?;
    Segment::attach(segment, fds.collect(), shape)
}

/// The descriptors of a row of messages, of which there may be so many.
fn fetch(socket: &OwnedFd, count_max: usize) -> Result<Vec<OwnedFd>, FabricError> {
    let deadline = Instant::now() + JOIN_TIMEOUT;
    let mut all = Vec::new();
    loop {
        wait_readable(socket, deadline, JOIN)?;
        let mut end = [0u8; 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let message =
            rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut end)], &mut control, RecvFlags::CMSG_CLOEXEC);
        let received = message.map_err(|error| system(JOIN, error))?.bytes;
        let before = all.len();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                all.extend(fds);
            }
        }
        // Each message brings some, so that a row ends.
        if received == 0 || all.len() == before || all.len() > count_max {
            return Err(refused("the answer makes no sense"));
        }
        if end[0] != MORE {
            return Ok(all);
        }
    }
}

fn refused(reason: &str) -> FabricError {
    FabricError::System { operation: JOIN, reason: reason.into() }
}

fn unix_socket(operation: &'static str) -> Result<OwnedFd, FabricError> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|error| system(operation, error))
}

fn abstract_name(name: &str, operation: &'static str) -> Result<SocketAddrUnix, FabricError> {
    SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(|error| system(operation, error))
}

fn wait_readable(fd: &impl AsFd, deadline: Instant, operation: &'static str) -> Result<(), FabricError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&limit)) {
            Ok(0) => {
                let reason = format!("the other processes did not come within {} s", JOIN_TIMEOUT.as_secs());
                return Err(FabricError::System { operation, reason });
            }
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(system(operation, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A socket on which so many descriptors and a byte have come, again and again.
    fn told(messages: &[(usize, u8)]) -> OwnedFd {
        let kind = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC);
        let (reader, writer) = rustix::net::socketpair(kind.0, kind.1, kind.2, None).unwrap();
        for (count, end) in messages {
            let null = std::fs::File::open("/dev/null").unwrap();
            let fds = vec![null.as_fd(); *count];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() {
                assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
            }
            rustix::net::sendmsg(&writer, &[IoSlice::new(&[*end])], &mut control, SendFlags::NOSIGNAL).unwrap();
        }
        reader
    }

    proptest! {
        #[test]
        fn a_row_of_messages_is_taken_up_to_its_end_or_refused(
            mut messages in prop::collection::vec((0..4usize, prop::sample::select(vec![MORE, LAST, 0])), 0..6),
            count_max in 0..8usize,
        ) {
            let found = fetch(&told(&messages), count_max).map(|fds| fds.len());
            let is_last = |message: &(usize, u8)| message.1 != MORE;
            let row = messages.iter().position(is_last).map(|last| { messages.truncate(last + 1); &messages });
            let count = row.map(|row| row.iter().map(|(count, _)| count).sum::<usize>());
            let expected = count.filter(|count| *count <= count_max && messages.iter().all(|(count, _)| *count > 0));
            prop_assert_eq!(found.ok(), expected);
        }
    }

    #[test]
    fn who_never_comes_to_an_end_is_refused() {
        assert!(fetch(&told(&[(0, MORE); 100]), 8).is_err());
        let error = fetch(&told(&[(1, MORE), (0, MORE)]), 8).unwrap_err();
        assert!(error.to_string().contains("makes no sense"), "{error}");
    }
}
