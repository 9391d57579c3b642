//! A terminal as standard input: only we may read it, so its bytes are passed on to one rank.
//!
//! Anything but a terminal is handed to the rank itself and costs nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

/// Our terminal and the pipe to the rank that reads it.
#[derive(Debug)]
pub(crate) struct Input {
    pipe: OwnedFd,
    queue: Vec<u8>,
    at_end: bool,
}

/// What the event loop shall watch for next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The terminal.
    Terminal,
    /// Room in the pipe.
    Pipe,
    /// Neither, until the job is in the foreground again.
    Nothing,
    /// The input has ended.
    Over,
}

impl Input {
    /// Passes on to the given pipe, which must be in non-blocking mode.
    pub fn new(pipe: OwnedFd) -> Self {
        Self { pipe, queue: Vec::new(), at_end: false }
    }

    /// The pipe to the rank.
    pub fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Reads what was typed and passes it on.
    pub fn read(&mut self, terminal: BorrowedFd<'_>) -> Next {
        let mut bytes = [0; 4096];
        match rustix::io::read(terminal, &mut bytes) {
            Ok(0) => self.at_end = true,
            Ok(count) => self.queue.extend_from_slice(&bytes[..count]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A background job must not read from its terminal.
            Err(Errno::IO) => return Next::Nothing,
            Err(_) => self.at_end = true,
        }
        self.write()
    }

    /// Passes on what waits.
    pub fn write(&mut self) -> Next {
        while !self.queue.is_empty() {
            match rustix::io::write(&self.pipe, &self.queue) {
                Ok(count) => drop(self.queue.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Next::Pipe,
                Err(_) => return Next::Over,
            }
        }
        if self.at_end { Next::Over } else { Next::Terminal }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    #[test]
    fn bytes_pass_and_the_end_too() {
        let (typed, keyboard) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (rank, pipe) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let mut input = Input::new(pipe);
        rustix::io::write(&keyboard, b"two\nlines\n").unwrap();
        assert_eq!(input.read(typed.as_fd()), Next::Terminal);
        drop(keyboard);
        assert_eq!(input.read(typed.as_fd()), Next::Over);
        drop(input);
        let mut bytes = [0; 64];
        let count = rustix::io::read(&rank, &mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"two\nlines\n");
        assert_eq!(rustix::io::read(&rank, &mut bytes).unwrap(), 0);
    }

    #[test]
    fn a_rank_that_does_not_read_holds_the_typist_back() {
        let (typed, keyboard) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (rank, pipe) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let mut input = Input::new(pipe);
        let next = loop {
            rustix::io::write(&keyboard, &[b'x'; 4096]).unwrap();
            let next = input.read(typed.as_fd());
            if next != Next::Terminal {
                break next;
            }
        };
        assert_eq!(next, Next::Pipe);
        drop(rank);
        assert_eq!(input.write(), Next::Over);
    }
}
