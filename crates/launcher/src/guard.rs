//! A process that outlives us for a moment, should we be killed outright, and ends what is left of the job.
//!
//! Ranks die with us by themselves, but what they have started does not. The guard holds one end of a
//! pipe; when the other end closes without a word, it ends every process that carries the job's mark
//! in its environment.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};

use crate::job::JOB_VARIABLE;
use crate::{LaunchError, sys, tree};

/// The guard, seen from the launcher; killed when dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    pid: Pid,
    _pipe: OwnedFd,
}

impl Guard {
    /// Starts a guard for the job. The process must have one thread only.
    pub fn start(job: &str) -> Result<Self, LaunchError> {
        let doing = "cannot start the process that cleans up";
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| LaunchError::system(doing, error))?;
        let job = job.to_owned();
        let pid =
            sys::fork_alone(theirs, |pipe| watch(pipe, &job)).map_err(|error| LaunchError::system(doing, error))?;
        Ok(Self { pid, _pipe: ours })
    }

    /// Its process number.
    pub fn pid(&self) -> Pid {
        self.pid
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It may be dead already, which is as good.
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty());
    }
}

fn watch(pipe: OwnedFd, job: &str) {
    // Not in the launcher's group: whoever kills that must not kill us. Not by its name either.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"mpi-guard");
    let mut pipe = std::fs::File::from(pipe);
    loop {
        match pipe.read(&mut [0]) {
            Ok(0) => break,
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => break,
            _ => {}
        }
    }
    const ROUND_COUNT_MAX: u32 = 500;
    for _ in 0..ROUND_COUNT_MAX {
        let left = marked(job);
        if left.is_empty() {
            break;
        }
        for pid in left {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Living processes whose environment carries the job's mark.
fn marked(job: &str) -> Vec<Pid> {
    tree::all_processes()
        .into_iter()
        .filter(|pid| {
            std::fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).is_ok_and(|environ| carries(&environ, job))
        })
        .collect()
}

/// True if the environment's mark names the job, alone or among the jobs it is nested in.
fn carries(environ: &[u8], job: &str) -> bool {
    environ
        .split(|byte| *byte == 0)
        .filter_map(|entry| entry.strip_prefix(JOB_VARIABLE.as_bytes())?.strip_prefix(b"="))
        .any(|marks| marks.split(|byte| *byte == b'.').any(|mark| mark == job.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_whole_words() {
        let check = |environ: &str, expected| assert_eq!(carries(environ.as_bytes(), "1a-b"), expected, "{environ:?}");
        check("A=1\0FERROVIA_JOB=1a-b\0B=2\0", true);
        check("FERROVIA_JOB=other.1a-b.inner\0", true);
        check("FERROVIA_JOB=1a-bc\0", false);
        check("XFERROVIA_JOB=1a-b\0", false);
        check("FERROVIA_JOB=\0FERROVIA_JOBS=1a-b\0", false);
        check("", false);
    }
}
