//! `ferrovia doctor`: what would slow programs down or stop them here, and what to do about it.

use crate::library::Library;
use anyhow::Result;
use rustix::process::{Resource, getrlimit};
use std::net::ToSocketAddrs;
use std::process::ExitCode;

/// One thing looked at.
struct Finding {
    state: State,
    what: String,
    advice: &'static str,
}

enum State {
    Fine,
    /// Works, with something lost.
    Notice,
    /// Does not work.
    Wrong,
}

/// Prints the findings; fails if something does not work.
///
/// # Errors
/// None so far; every failure to look is a finding.
pub fn run() -> Result<ExitCode> {
    let findings = [library(), cores(), cross_memory(), locked_memory(), descriptors(), host_name()];
    for finding in &findings {
        let mark = match finding.state {
            State::Fine => "fine  ",
            State::Notice => "notice",
            State::Wrong => "WRONG ",
        };
        println!("{mark}  {}", finding.what);
        if !matches!(finding.state, State::Fine) {
            println!("        {}", finding.advice);
        }
    }
    let wrong = findings.iter().any(|finding| matches!(finding.state, State::Wrong));
    Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn fine(what: impl Into<String>) -> Finding {
    Finding { state: State::Fine, what: what.into(), advice: "" }
}

fn library() -> Finding {
    match Library::beside_this_program().and_then(|library| library.version()) {
        Ok(version) => fine(format!("the library loads: {}", version.lines().next().unwrap_or_default())),
        Err(error) => Finding {
            state: State::Wrong,
            what: format!("{error:#}"),
            advice: "Install again: cargo xtask install --prefix DIR",
        },
    }
}

fn cores() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match cores {
        1 => Finding {
            state: State::Notice,
            what: "this process may use one core".to_owned(),
            advice: "Ranks take turns; every message costs a change of process.",
        },
        cores => fine(format!("{cores} cores")),
    }
}

fn cross_memory() -> Finding {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "2" | "3" if !rustix::process::geteuid().is_root() => Finding {
            state: State::Notice,
            what: format!("the kernel refuses cross-memory attach (ptrace_scope is {})", scope.trim()),
            advice: "Large messages are staged, in two copies; sysctl kernel.yama.ptrace_scope=1 permits it.",
        },
        _ => fine("the kernel's settings permit cross-memory attach (a container's profile may still refuse it)"),
    }
}

fn locked_memory() -> Finding {
    match getrlimit(Resource::Memlock).current {
        Some(bytes) => fine(format!("{} KiB may be locked in memory; shared memory needs none", bytes >> 10)),
        None => fine("any amount of memory may be locked"),
    }
}

fn descriptors() -> Finding {
    const FEW: u64 = 32;
    match getrlimit(Resource::Nofile).current {
        Some(count) if count < FEW => Finding {
            state: State::Notice,
            what: format!("a process may open {count} files only"),
            advice: "Raise it: ulimit -n 1024",
        },
        Some(count) => fine(format!("a process may open {count} files")),
        None => fine("a process may open any number of files"),
    }
}

fn host_name() -> Finding {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match (name.as_str(), 0).to_socket_addrs() {
        Ok(_) => fine(format!("the host name {name} resolves")),
        Err(_) => Finding {
            state: State::Notice,
            what: format!("the host name {name} does not resolve"),
            advice: "Nothing to do: processes of one host do not need it.",
        },
    }
}
