//! A socket that speaks lines, with deadlines.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::{LineBuffer, PmiError};

/// How long a client waits for its launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For the answer to a question.
    pub reply: Duration,
    /// For a barrier; `None` waits until the launcher answers or goes away, which is right where ranks
    /// may start minutes apart.
    pub barrier: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { reply: Duration::from_secs(60), barrier: None }
    }
}

/// The client's end of the connection.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: OwnedFd,
    received: LineBuffer,
}

impl Wire {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, received: LineBuffer::new() }
    }

    /// Sends all bytes or fails; never raises SIGPIPE.
    pub(crate) fn send(&mut self, mut bytes: &[u8], timeout: Duration, doing: &str) -> Result<(), PmiError> {
        let deadline = Some((Instant::now() + timeout, timeout));
        while !bytes.is_empty() {
            match send(&self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, deadline, doing)?,
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(PmiError::Closed { doing: doing.to_owned() }),
                Err(errno) => return Err(PmiError::Io { doing: doing.to_owned(), source: errno.into() }),
            }
        }
        Ok(())
    }

    /// The next line, waited for at most `timeout`.
    pub(crate) fn line(&mut self, timeout: Option<Duration>, doing: &str) -> Result<String, PmiError> {
        let deadline = timeout.map(|timeout| (Instant::now() + timeout, timeout));
        let mut bytes = [0; 4096];
        loop {
            if let Some(line) = self.received.next_line()? {
                return Ok(line);
            }
            self.wait(PollFlags::IN, deadline, doing)?;
            match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((_, 0)) | Err(Errno::CONNRESET) => return Err(PmiError::Closed { doing: doing.to_owned() }),
                Ok((_, count)) => self.received.push(&bytes[..count.min(bytes.len())]),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(PmiError::Io { doing: doing.to_owned(), source: errno.into() }),
            }
        }
    }

    fn wait(&self, flags: PollFlags, deadline: Option<(Instant, Duration)>, doing: &str) -> Result<(), PmiError> {
        loop {
            let remaining = match deadline {
                None => None,
                Some((end, waited)) => match end.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => Some(left),
                    _ => return Err(PmiError::Timeout { doing: doing.to_owned(), waited }),
                },
            };
            let timespec = remaining.and_then(|left| Timespec::try_from(left).ok());
            let mut interest = [PollFd::from_borrowed_fd(self.socket.as_fd(), flags)];
            match poll(&mut interest, timespec.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(PmiError::Io { doing: doing.to_owned(), source: errno.into() }),
            }
        }
    }
}
