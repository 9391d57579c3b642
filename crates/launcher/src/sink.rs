//! Our own standard output and error: bytes wait here until the reader takes them, and we never block.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;

/// Past so many waiting bytes no more output is read from the ranks.
const QUEUE_BYTES_HIGH: usize = 1 << 20;

/// Where merged output goes.
#[derive(Debug)]
pub(crate) struct Sink {
    fd: OwnedFd,
    kind: Kind,
    queue: Vec<u8>,
    written: usize,
    /// A person looks at it.
    pub is_terminal: bool,
    /// It is registered for readiness.
    pub watched: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A description of our own in non-blocking mode.
    NonBlocking,
    /// A socket, which can be asked not to block call by call.
    Socket,
    /// A file, or something that cannot be opened anew; writes may block.
    Blocking,
}

/// How far a flush has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Nothing waits any more.
    Done,
    /// The reader is slow.
    Blocked,
    /// The reader is gone, or the disk is full.
    Failed(Errno),
}

impl Sink {
    /// Wraps a standard stream without changing how others see it.
    pub fn new(stream: BorrowedFd<'_>) -> Result<Self, Errno> {
        let file_type = rustix::fs::fstat(stream).map(|stat| FileType::from_raw_mode(stat.st_mode))?;
        let is_terminal = rustix::termios::isatty(stream);
        let reopened = matches!(file_type, FileType::Fifo | FileType::CharacterDevice).then(|| {
            use std::os::fd::AsRawFd;
            let path = format!("/proc/self/fd/{}", stream.as_raw_fd());
            rustix::fs::open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
        });
        let (fd, kind) = match reopened {
            Some(Ok(fd)) => (fd, Kind::NonBlocking),
            _ => {
                let kind = if file_type == FileType::Socket { Kind::Socket } else { Kind::Blocking };
                (rustix::io::fcntl_dupfd_cloexec(stream, 3)?, kind)
            }
        };
        Ok(Self { fd, kind, queue: Vec::new(), written: 0, is_terminal, watched: false })
    }

    /// The bytes that wait; more may be appended.
    pub fn queue(&mut self) -> &mut Vec<u8> {
        &mut self.queue
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// True if the ranks should be held back.
    pub fn is_full(&self) -> bool {
        self.queue.len() - self.written > QUEUE_BYTES_HIGH
    }

    /// Writes as much as the reader takes.
    pub fn flush(&mut self) -> Flush {
        while self.written < self.queue.len() {
            let waiting = &self.queue[self.written..];
            let written = match self.kind {
                Kind::Socket => rustix::net::send(&self.fd, waiting, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
                Kind::NonBlocking | Kind::Blocking => rustix::io::write(&self.fd, waiting),
            };
            match written {
                Ok(count) => self.written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.queue.drain(..self.written);
                    self.written = 0;
                    return Flush::Blocked;
                }
                Err(errno) => {
                    self.discard();
                    return Flush::Failed(errno);
                }
            }
        }
        self.discard();
        Flush::Done
    }

    /// Forgets what waits.
    pub fn discard(&mut self) {
        self.written = 0;
        self.queue.clear();
        self.queue.shrink_to(QUEUE_BYTES_HIGH);
    }
}

impl AsFd for Sink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
