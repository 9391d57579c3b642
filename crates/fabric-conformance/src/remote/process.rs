//! Another process on this machine: this test program once more, for one of its tests.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use super::Remote;
use crate::side::PATIENCE;

/// In the environment of a process that serves.
const SERVES: &str = "FABRIC_CONFORMANCE_SERVES";

/// Starts this test program with its test `name` alone, which serves [`parent`]. The process ends with the last
/// [`Remote`] of it.
///
/// # Errors
/// When the system refuses.
pub fn start(name: &str) -> io::Result<Remote> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(PATIENCE))?;
    let child = Command::new(std::env::current_exe()?)
        .args([name, "--exact", "--nocapture"])
        .env(SERVES, "1")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()?;
    Ok(Remote::new(Other { stream: ours, child }))
}

/// In a process that was started so: the stream to the one that has started it. `None` where the tests are run as usual.
///
/// # Errors
/// When the system refuses.
pub fn parent() -> io::Result<Option<UnixStream>> {
    match std::env::var_os(SERVES) {
        Some(_) => Ok(Some(io::stdin().as_fd().try_clone_to_owned()?.into())),
        None => Ok(None),
    }
}

/// The stream to a process, which ends with it.
struct Other {
    stream: UnixStream,
    child: Child,
}

impl Read for Other {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }
}

impl Write for Other {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It finds its stream closed, as it does when this process is killed; it may have ended before, or hang.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
