//! `mpiexec`: starts the ranks of a job on this machine, serves them PMI-1, carries their output, and
//! sees to it that nothing is left of them afterwards.
//!
//! Floor: face. Uses `pmi`; knows nothing of MPI itself, so it starts any program, and any MPI
//! library that speaks PMI-1.
//!
//! **Invariants**
//!
//! - **Nothing stays behind.** Ranks die with us (parent-death signal), their descendants are adopted
//!   (child subreaper) and ended before we leave; should we be killed outright, a guard process finds
//!   whatever carries the job's mark and ends it.
//! - **Output is complete and its lines whole**: a line of one rank is never torn by another's, bytes
//!   after the last newline arrive too, and no byte is changed.
//! - **A failure is one line and one exit code**: those of the rank that failed first.
//! - **One thread, asleep while ranks run**: an epoll loop over pipes, sockets and a signalfd.
//! - **Unsafe code lives in `sys` alone.**
//!
//! A rank needs three descriptors of ours (two pipes, one socket); the soft limit is raised to the
//! hard one for ourselves and restored for the ranks.
//!
//! Deliberately absent: starting ranks on other machines (clusters have launchers for that; our library
//! speaks to them), a daemon, shells, temporary files.
//!
//! # Example
//! ```no_run
//! use std::process::ExitCode;
//! let code = launcher::main(["mpiexec", "-n", "2", "true"].map(Into::into));
//! assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS));
//! ```

mod binding;
mod death;
mod guard;
mod hosts;
mod job;
mod options;
mod output;
mod sink;
mod spawn;
mod stdin;
mod supervisor;
mod sys;
mod tree;

use std::ffi::OsString;
use std::process::ExitCode;

/// Why a job could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The command line asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// The program does not exist; the text says where it was looked for.
    #[error("{0}")]
    NotFound(String),
    /// The program is there but cannot be executed.
    #[error("{0}")]
    NotExecutable(String),
    /// The system refused something.
    #[error("{doing}: {source}")]
    System {
        /// What was being done.
        doing: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl LaunchError {
    fn system(doing: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::System { doing: doing.into(), source: source.into() }
    }

    /// Exit code in the tradition of shells.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::NotFound(_) => 127,
            Self::NotExecutable(_) => 126,
            Self::System { .. } => 1,
        }
    }
}

/// Runs `mpiexec` with the given command line, program name included, and returns its exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let request = match options::parse(args) {
        Ok(request) => request,
        Err(options::ParseError::Clap(error)) => {
            // Help and version arrive here too, with exit code 0. A closed pipe is no reason to complain.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
        Err(options::ParseError::Launch(error)) => return refuse(&error),
    };
    match job::Plan::new(&request).and_then(|plan| supervisor::run(&plan)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &LaunchError) -> ExitCode {
    eprintln!("mpiexec: {error}");
    ExitCode::from(error.exit_code())
}
