//! Starting one rank: its pipes, its socket, its environment.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};

use crate::job::{Plan, Program};
use crate::{LaunchError, sys};

/// Our ends of a started rank.
#[derive(Debug)]
pub(crate) struct Started {
    pub pid: Pid,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    pub pmi: OwnedFd,
}

/// How things were when we began, which the ranks get back.
pub(crate) struct Before {
    /// The limit of open files.
    pub open_files: Rlimit,
    /// Blocked signals.
    pub signal_mask: sys::SignalMask,
}

/// What a rank reads as its standard input.
#[derive(Debug)]
pub(crate) enum RankInput {
    /// Nothing.
    Empty,
    /// Our own standard input.
    Ours,
    /// A pipe that we fill.
    Pipe(OwnedFd),
}

/// Makes room for three descriptors a rank; returns the limit that the ranks shall have, which is the
/// one we were given.
pub(crate) fn raise_open_files(rank_count: u32) -> Result<Rlimit, LaunchError> {
    const OURS: u64 = 20;
    let given = getrlimit(Resource::Nofile);
    let needed = u64::from(rank_count) * 3 + OURS;
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if enough(given.current) {
        return Ok(given);
    }
    if !enough(given.maximum) {
        let limit = given.maximum.unwrap_or(u64::MAX);
        return Err(LaunchError::Usage(format!(
            "{rank_count} ranks need {needed} open files, the limit is {limit}; \
             raise it (ulimit -Hn, as root) or start fewer ranks"
        )));
    }
    let raised = Rlimit { current: Some(needed), maximum: given.maximum };
    setrlimit(Resource::Nofile, raised)
        .map_err(|error| LaunchError::system("cannot raise the limit of open files", error))?;
    Ok(given)
}

/// Starts a rank. Call it on the thread that lives as long as the job: the rank dies with it.
pub(crate) fn start(
    plan: &Plan,
    program: &Program,
    rank: u32,
    appnum: u32,
    input: RankInput,
    before: &Before,
) -> Result<Started, LaunchError> {
    let doing = || format!("cannot start rank {rank} ({})", program.shown());
    let failed = |errno: rustix::io::Errno| LaunchError::system(doing(), errno);
    let (stdout, their_stdout) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
    let (stderr, their_stderr) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
    let (pmi, their_pmi) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
    for ours in [&stdout, &stderr, &pmi] {
        rustix::io::ioctl_fionbio(ours, true).map_err(failed)?;
    }
    let mut command = Command::new(&program.path);
    command
        .arg0(&program.args[0])
        .args(&program.args[1..])
        .env_clear()
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .env("PMI_FD", their_pmi.as_raw_fd().to_string())
        .env("PMI_RANK", rank.to_string())
        .env("PMI_SIZE", plan.rank_count.to_string())
        .env("PMI_SPAWNED", "0")
        .env("PMI_APPNUM", appnum.to_string())
        .env("MPI_LOCALRANKID", rank.to_string())
        .env("MPI_LOCALNRANKS", plan.rank_count.to_string())
        .stdin(match input {
            RankInput::Empty => Stdio::null(),
            RankInput::Ours => Stdio::inherit(),
            RankInput::Pipe(pipe) => Stdio::from(pipe),
        })
        .stdout(Stdio::from(their_stdout))
        .stderr(Stdio::from(their_stderr))
        .process_group(0);
    if let Some(dir) = &program.dir {
        command.current_dir(dir);
    }
    let place = (!plan.places.is_empty()).then(|| plan.places[rank as usize % plan.places.len()]);
    let setup = sys::ChildSetup {
        pmi: their_pmi.as_raw_fd(),
        open_files: before.open_files,
        place,
        signal_mask: before.signal_mask,
        parent: rustix::process::getpid(),
    };
    let child = sys::spawn(&mut command, setup).map_err(|error| LaunchError::system(doing(), error))?;
    Ok(Started { pid: Pid::from_child(&child), stdout, stderr, pmi })
}
