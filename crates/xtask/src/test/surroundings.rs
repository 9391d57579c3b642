//! Surroundings in which programs must still run: as root, crowded, without shared memory folder,
//! network, name, locked memory, descriptors, or permission to copy from each other's memory.

use super::mpi::Job;
use super::{Case, Verdict, Workshop};
use crate::command::{Program, exists};
use crate::paths;
use anyhow::Result;
use std::path::PathBuf;
use std::time::Duration;

/// Programs that use every way a message can take.
const PROGRAMS: [&str; 4] = ["hello", "ping", "random", "coll_basic"];

/// Every kind of surroundings.
pub fn cases() -> Vec<Case> {
    vec![
        Case::that_may_skip("surroundings/as-root", as_root),
        Case::that_may_skip("surroundings/more-ranks-than-cores", |workshop| {
            let cores: Vec<&str> = vec!["taskset", "-c", "0,1"];
            under(workshop, &cores, 8, &["random", "coll_basic", "outstanding"])
        }),
        Case::that_may_skip("surroundings/one-core", |workshop| {
            under(workshop, &["taskset", "-c", "0"], 4, &["random", "coll_reduce"])
        })
        .quick(true),
        Case::that_may_skip("surroundings/uneven-cores", uneven_cores).quick(true),
        Case::that_may_skip("surroundings/unequal-settings", unequal_settings).quick(true),
        Case::that_may_skip("surroundings/no-dev-shm", |workshop| {
            let script = "mount -t tmpfs -o ro,size=4k none /dev/shm && ! touch /dev/shm/x 2>/dev/null && exec \"$@\"";
            unshared(workshop, "-m", script)
        })
        .quick(true),
        Case::that_may_skip("surroundings/loopback-down", |workshop| unshared(workshop, "-n", "exec \"$@\"")),
        Case::that_may_skip("surroundings/unresolvable-hostname", |workshop| {
            unshared(workshop, "-u", "hostname no-such-host.invalid && exec \"$@\"")
        }),
        Case::that_may_skip("surroundings/no-locked-memory", no_locked_memory),
        Case::that_may_skip("surroundings/64-descriptors", |workshop| {
            under(workshop, &["sh", "-c", "ulimit -n 64 && exec \"$@\"", "sh"], 4, &PROGRAMS)
        })
        .quick(true),
        Case::that_may_skip("surroundings/no-cross-memory-attach", |workshop| {
            let refuse = refuse()?;
            under(workshop, &[&refuse.to_string_lossy(), "process_vm_readv,process_vm_writev"], 4, &PROGRAMS)
        })
        .quick(true),
        Case::that_may_skip("surroundings/empty-environment", |workshop| {
            under(workshop, &["env", "-i", "PATH=/usr/bin:/bin"], 2, &["hello", "ping"])
        }),
        Case::that_may_skip("surroundings/valgrind", valgrind).quick(true),
        Case::that_may_skip("surroundings/closed-standard-input", |workshop| {
            under(workshop, &["sh", "-c", "exec \"$@\" <&-", "sh"], 2, &["hello"])
        }),
    ]
}

/// Runs programs with `words` in front of mpiexec.
fn under(workshop: &Workshop, words: &[&str], ranks: u32, programs: &[&str]) -> Result<Verdict> {
    for name in programs {
        let program = workshop.program(name)?;
        Job::of(ranks)
            .with(|command| command.arg(program).under(words).limit(Duration::from_secs(120)))
            .run_saying("No Errors")?;
    }
    Ok(Verdict::Passed)
}

/// The first process may run on one core, the others on all: they choose the same algorithms all the same.
fn uneven_cores(workshop: &Workshop) -> Result<Verdict> {
    let script = "test \"$PMI_RANK\" = 0 && exec taskset -c 0 \"$@\"; exec \"$@\"";
    for name in ["coll_boards", "coll_reduce"] {
        let program = workshop.program(name)?;
        Job::of(2)
            .with(|command| command.args(["sh", "-c", script, "sh"]).arg(program).limit(Duration::from_secs(120)))
            .run_saying("No Errors")?;
    }
    Ok(Verdict::Passed)
}

/// What the first process sends eagerly is less than what the others do: each takes what the others send.
fn unequal_settings(workshop: &Workshop) -> Result<Verdict> {
    for device in ["shm", "shm-verbs", "tcp"] {
        let script = format!(
            "test \"$PMI_RANK\" = 0 && export FERROVIA_EAGER_MAX=1000; export FERROVIA_DEVICE={device}; exec \"$@\""
        );
        for name in ["ping", "random"] {
            let program = workshop.program(name)?;
            Job::of(2)
                .with(|command| command.args(["sh", "-c", &script, "sh"]).arg(program).limit(Duration::from_secs(120)))
                .run_saying("No Errors")?;
        }
    }
    Ok(Verdict::Passed)
}

/// Ranks under valgrind, which sees neither a fault nor a use of memory that was never written, although the other rank
/// writes some of it.
fn valgrind(workshop: &Workshop) -> Result<Verdict> {
    if !exists("valgrind") {
        return Ok(Verdict::Skipped("valgrind is not installed".to_owned()));
    }
    let usual = ("FERROVIA_LARGE_COPY", "auto");
    let others = [("FERROVIA_LARGE_COPY", "both"), ("FERROVIA_RENDEZVOUS", "tupleq")];
    let names = ["environment", "random", "coll_basic"].map(|name| (name, usual));
    let others = others.map(|setting| ("coll_basic", setting));
    let devices = ["shm-verbs", "tcp"].map(|device| ("FERROVIA_DEVICE", device));
    let over_devices = ["random", "coll_basic"].into_iter().flat_map(|name| devices.map(|device| (name, device)));
    for (name, (variable, value)) in names.into_iter().chain(others).chain(over_devices) {
        let program = workshop.program(name)?;
        Job::of(2)
            .with(|command| command.args(["valgrind", "-q", "--error-exitcode=9"]).arg(program).env(variable, value))
            .run_saying("No Errors")?;
    }
    Ok(Verdict::Passed)
}

/// Runs the programs in namespaces of their own, prepared by a shell script that ends in `exec "$@"`.
fn unshared(workshop: &Workshop, namespaces: &str, script: &str) -> Result<Verdict> {
    let user = if is_root() { "" } else { "r" };
    let flags = format!("{namespaces}{user}");
    let words = ["unshare", &flags, "sh", "-c", script, "sh"];
    let trial = Program::new("true").under(words).limit(Duration::from_secs(10)).run();
    match trial {
        Ok(finished) if finished.success() => under(workshop, &words, 4, &PROGRAMS),
        Ok(finished) => {
            Ok(Verdict::Skipped(format!("unshare {flags} is not permitted here: {}", finished.stderr.trim())))
        }
        Err(error) => Ok(Verdict::Skipped(format!("{error:#}"))),
    }
}

fn as_root(workshop: &Workshop) -> Result<Verdict> {
    if is_root() { under(workshop, &["env"], 4, &PROGRAMS) } else { unshared(workshop, "-U", "exec \"$@\"") }
}

/// No locked memory at all; root may lock regardless, so root gives that capability up first.
fn no_locked_memory(workshop: &Workshop) -> Result<Verdict> {
    let limited = ["sh", "-c", "ulimit -l 0 && exec \"$@\"", "sh"];
    let mut words: Vec<&str> = limited.to_vec();
    if is_root() {
        words.extend(["setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock"]);
    }
    under(workshop, &words, 4, &PROGRAMS)
}

/// The program that makes system calls fail for what it starts.
fn refuse() -> Result<PathBuf> {
    let place = paths::target().join("programs/refuse");
    std::fs::create_dir_all(place.parent().unwrap_or(&place))?;
    Program::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&place)
        .arg(paths::root().join("tests/tools/refuse.c"))
        .run_successfully()?;
    Ok(place)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
