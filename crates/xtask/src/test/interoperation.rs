//! Other MPIs beside ours: their launcher with our programs, our launcher with theirs, and one
//! binary over either library, which is what a standard ABI is for.

use super::mpi::Job;
use super::{Case, Verdict, Workshop, programs};
use crate::command::{Finished, Program};
use crate::paths;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

/// Programs that use every way a message can take, and that find no error in any of the libraries.
const PROGRAMS: [&str; 6] = ["hello", "ping", "coll_basic", "sendrecv", "group", "coll_nonblocking"];

/// Exit status of `two_hosts.sh` where no hosts can be made.
const NO_HOSTS: i32 = 77;

/// Peers are MPICH (Hydra) and Intel MPI; both know the standard ABI.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("interoperation/hydra-starts-ours", |workshop| {
            their_launcher(workshop, "mpich/bin/mpiexec", &[1, 2, 4])
        }),
        Case::that_may_skip("interoperation/intel-starts-ours", intel_launcher),
        Case::that_may_skip("interoperation/two-hosts", two_hosts),
        Case::new("interoperation/ours-starts-mpich", ours_starts_mpich),
        Case::new("interoperation/their-binary-our-library", their_binary_our_library),
        Case::new("interoperation/our-binary-their-library", |workshop| our_binary(workshop, "mpich")),
        Case::that_may_skip("interoperation/our-binary-intel-library", |workshop| match intel_runs(workshop)? {
            Verdict::Passed => our_binary(workshop, "impi-rt").map(|()| Verdict::Passed),
            skipped => Ok(skipped),
        }),
    ]
}

/// Installs the peers under the user's cache folder, unless they are there.
pub fn install_peers() -> Result<PathBuf> {
    let home = std::env::var_os("HOME").context("HOME is not set")?;
    let folder = PathBuf::from(home).join(".cache/ferrovia-peers");
    println!("Installing the peer libraries under {} (only once)", folder.display());
    Program::new(paths::root().join("tools/install-peers.sh"))
        .arg(&folder)
        .limit(Duration::from_secs(900))
        .run_successfully()?;
    Ok(folder)
}

fn their_launcher(workshop: &Workshop, launcher: &str, rank_counts: &[u32]) -> Result<()> {
    let launcher = workshop.peers()?.join(launcher);
    for name in PROGRAMS {
        let program = workshop.program(name)?;
        for ranks in rank_counts {
            Job::launched(Program::new(&launcher).arg("-n").arg(ranks.to_string()).arg(&program))
                .with(|command| command.env_remove("LD_LIBRARY_PATH"))
                .run_saying("No Errors")?;
        }
    }
    Ok(())
}

fn intel_launcher(workshop: &Workshop) -> Result<Verdict> {
    match intel_runs(workshop)? {
        Verdict::Passed => their_launcher(workshop, "impi-rt/bin/mpiexec", &[2]).map(|()| Verdict::Passed),
        skipped => Ok(skipped),
    }
}

/// Two ranks on each of two hosts, which are network namespaces with a cable between them.
fn two_hosts(workshop: &Workshop) -> Result<Verdict> {
    let (hydra, library) = (workshop.peers()?.join("mpich/bin/mpiexec.hydra"), workshop.installation()?.join("lib"));
    let hosts = |command: &[&OsStr], interfaces: &str, rendezvous: &str| -> Result<Finished> {
        let script = Program::new(paths::root().join("tests/tools/two_hosts.sh"));
        let program = script.arg(&hydra).arg("2").args(command).env("LD_LIBRARY_PATH", &library);
        let program = program.env("FERROVIA_LOG", "info").env("FERROVIA_TCP_INTERFACES", interfaces);
        Job::launched(program.env("FERROVIA_RENDEZVOUS", rendezvous).env("FERROVIA_STATS", "1")).run()
    };
    let usual =
        ["hello", "random", "coll_random", "threads", "cancel", "wildcards", "probe"].map(|name| (name, "auto"));
    let by_tuples = ["ordering", "random", "wildcards"].map(|name| (name, "tupleq"));
    for (name, rendezvous) in usual.into_iter().chain(by_tuples) {
        let finished = hosts(&[workshop.program(name)?.as_os_str()], "auto", rendezvous)?;
        if finished.code() == Some(NO_HOSTS) {
            return Ok(Verdict::Skipped(finished.stderr.trim().to_owned()));
        }
        let said = finished.said();
        let ways = |ranks| format!("device shm+tcp, 4 processes: shm among ranks {ranks}, tcp to the others");
        let is_mixed = said.contains(&ways("0-1")) && said.contains(&ways("2-3"));
        let goes_its_way = rendezvous == "auto" || said.contains("tuple sends");
        if !finished.success() || !said.contains("No Errors") || !is_mixed || !goes_its_way {
            let expected = "expected a successful end, \"No Errors\", shared memory on the hosts and sockets between \
                            them, and sends to tuple queues where they are asked for";
            return Err(finished.complain(expected));
        }
    }
    // Hydra may drop what ranks say when one of them fails; the first to fail has always said why.
    let (folder, program) = (tempfile::tempdir()?, workshop.program("hello")?);
    let (said, script) = (folder.path().join("said"), folder.path().join("hello.sh"));
    std::fs::write(&script, format!("exec '{}' 2>>'{}'\n", program.display(), said.display()))?;
    for _ in 0..10 {
        let unreachable = hosts(&["sh".as_ref(), script.as_os_str()], "lo", "auto")?;
        let said = std::fs::read_to_string(&said)?;
        if unreachable.success() || !said.contains("runs on another host") {
            let wanted = "expected to be told that the other host is out of reach, not";
            return Err(unreachable.complain(format!("{wanted} {said:?}")));
        }
        std::fs::remove_file(folder.path().join("said"))?;
    }
    Ok(Verdict::Passed)
}

/// Whether Intel's launcher runs here at all; the reason if not.
fn intel_runs(workshop: &Workshop) -> Result<Verdict> {
    let launcher = workshop.peers()?.join("impi-rt/bin/mpiexec");
    let trial = Program::new(launcher).args(["-n", "1", "true"]).limit(Duration::from_secs(60)).run();
    match trial {
        Ok(finished) if finished.success() => Ok(Verdict::Passed),
        Ok(finished) => Ok(Verdict::Skipped(format!("its launcher does not run here: {}", finished.stderr.trim()))),
        Err(error) => Ok(Verdict::Skipped(format!("{error:#}"))),
    }
}

/// A program compiled by MPICH's wrapper for the standard ABI.
fn theirs(workshop: &Workshop, name: &str) -> Result<PathBuf> {
    let mpich = workshop.peers()?.join("mpich/bin");
    let place = paths::target().join("programs/mpich").join(name);
    programs::compile(|wrapper| Program::new(mpich.join(format!("{wrapper}_abi"))), name, &place)?;
    Ok(place)
}

fn ours_starts_mpich(workshop: &Workshop) -> Result<()> {
    workshop.installation()?;
    let library = workshop.peers()?.join("mpich/lib");
    for name in PROGRAMS {
        let program = theirs(workshop, name)?;
        Job::of(2).with(|command| command.arg(&program).env("LD_LIBRARY_PATH", &library)).run_saying("No Errors")?;
    }
    Ok(())
}

fn their_binary_our_library(workshop: &Workshop) -> Result<()> {
    let library = workshop.installation()?.join("lib");
    for name in PROGRAMS {
        let program = theirs(workshop, name)?;
        Job::of(2).with(|command| command.arg(&program).env("LD_LIBRARY_PATH", &library)).run_saying("No Errors")?;
    }
    Ok(())
}

/// Programs of ours over the library of a peer, started by its launcher.
fn our_binary(workshop: &Workshop, peer: &str) -> Result<()> {
    let peer = workshop.peers()?.join(peer);
    for name in PROGRAMS {
        let program = workshop.program(name)?;
        Job::launched(Program::new(peer.join("bin/mpiexec")).args(["-n", "2"]).arg(&program))
            .with(|command| command.env("LD_LIBRARY_PATH", peer.join("lib")))
            .run_saying("No Errors")?;
    }
    Ok(())
}
