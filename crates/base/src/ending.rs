//! How a process ends before its time, wherever it is then.
//!
//! Programs call `MPI_Abort` in handlers of signals: in the middle of a call of ours, or of `malloc`, and once more while the
//! process is ending already, for a launcher sends a signal to all who live. So nothing takes memory from the heap, or waits
//! for ever for a lock, until the launcher has been told; what the program wants done at the end comes after that.

use std::fmt;
use std::io::IoSlice;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use crate::gate::thread_mark;

/// Which thread ends the process (0: none), and with which code.
static THREAD: AtomicUsize = AtomicUsize::new(0);
static CODE: AtomicI32 = AtomicI32::new(0);

/// If this thread is ending the process and is asked to once more, by the handler of a signal or by what the program wants
/// done at the end: is through with it. What C's streams still hold is written, and the code is the first one.
pub fn go_on() {
    // Relaxed: only this thread ever stores its own mark.
    if THREAD.load(Ordering::Relaxed) == thread_mark() {
        // SAFETY: the locks of all streams may be taken again by the thread that has them.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        // SAFETY: it needs nothing of the process.
        unsafe { libc::_exit(CODE.load(Ordering::Relaxed)) }
    }
}

/// As [`std::process::exit`], or, where that is under way, as [`go_on`].
pub fn exit(code: i32) -> ! {
    go_on();
    CODE.store(code, Ordering::Relaxed);
    // Release: the handler of a signal that sees the mark sees the code.
    let _ = THREAD.compare_exchange(0, thread_mark(), Ordering::Release, Ordering::Relaxed);
    // Another thread that does this at the same time stops there.
    std::process::exit(code)
}

/// Writes a line to standard error, at once: whoever is killed meanwhile has said all of it or nothing.
pub fn say(line: &str) {
    let parts = [IoSlice::new(line.as_bytes()), IoSlice::new(b"\n")];
    // If nobody listens there is nobody to tell.
    let _ = rustix::io::writev(rustix::stdio::stderr(), &parts);
}

/// A text that takes no memory from the heap; what does not fit is cut off.
pub struct Words {
    bytes: [u8; 512],
    len_bytes: usize,
}

impl Words {
    /// What `arguments` say.
    pub fn of(arguments: fmt::Arguments<'_>) -> Self {
        let mut words = Self { bytes: [0; 512], len_bytes: 0 };
        // Full is all that it can be.
        let _ = fmt::write(&mut words, arguments);
        words
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len_bytes]).unwrap_or_default()
    }
}

impl fmt::Write for Words {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.len_bytes;
        let taken = &text.as_bytes()[..text.floor_char_boundary(room)];
        self.bytes[self.len_bytes..][..taken.len()].copy_from_slice(taken);
        self.len_bytes += taken.len();
        if taken.len() < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_off_between_characters() {
        assert_eq!(Words::of(format_args!("rank {}", 7)).as_str(), "rank 7");
        let long = "é".repeat(300);
        assert_eq!(Words::of(format_args!("x{long}")).as_str(), format!("x{}", "é".repeat(255)));
        assert_eq!(Words::of(format_args!("{}{}", "a".repeat(512), "b")).as_str(), "a".repeat(512));
    }
}
