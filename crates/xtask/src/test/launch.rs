//! The launcher: what processes are given, what comes back, and how a job ends.

use super::mpi::Job;
use super::{Case, Workshop};
use crate::command::{Finished, Program};
use crate::install::installed;
use anyhow::{Result, bail};
use rustix::process::{Signal, kill_process};
use std::collections::BTreeSet;
use std::time::Duration;

/// Every test of the launcher.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("launch/arguments-and-directory", arguments_and_directory).quick(true),
        Case::new("launch/environment", environment),
        Case::new("launch/initial-errhandler", initial_errhandler),
        Case::new("launch/several-programs", several_programs).quick(true),
        Case::new("launch/standard-input", standard_input),
        Case::new("launch/output-whole-and-complete", |workshop| output(workshop, false)).quick(true),
        Case::new("launch/output-complete-at-abort", |workshop| output(workshop, true)),
        Case::new("launch/tagged-output", tagged_output),
        Case::new("launch/other-programs", other_programs),
        Case::new("launch/exit-status", exit_status),
        Case::new("launch/program-not-found", program_not_found),
        Case::new("launch/terminated", |workshop| ended_by(workshop, Signal::TERM)),
        Case::new("launch/interrupted", |workshop| ended_by(workshop, Signal::INT)),
        Case::new("launch/killed", |workshop| ended_by(workshop, Signal::KILL)).quick(true),
        Case::new("launch/mpirun", |workshop| {
            let hello = workshop.program("hello")?;
            Job::launched(installed("mpirun").args(["-np", "2"]).arg(hello)).run_saying("No Errors").map(drop)
        }),
        Case::new("launch/variables-without-server", variables_without_server),
        Case::new("launch/many-starts", many_starts),
        Case::new("launch/two-jobs-at-once", two_jobs_at_once),
        Case::new("launch/a-job-inside-a-job", nested),
    ]
}

/// Lines of `surroundings`, in order of rank.
fn surroundings(finished: &Finished) -> Vec<String> {
    let mut lines: Vec<String> =
        finished.stdout.lines().filter(|line| line.starts_with("rank=")).map(str::to_owned).collect();
    lines.sort();
    lines
}

fn arguments_and_directory(workshop: &Workshop) -> Result<()> {
    let program = workshop.program("surroundings")?;
    let folder = tempfile::tempdir()?;
    let folder = folder.path().canonicalize()?;
    let finished = Job::launched(installed("mpiexec").args(["-n", "2", "-wdir"]).arg(&folder).arg(&program))
        .with(|command| command.args(["two words", "-n", "*", ""]))
        .run_saying("No Errors")?;
    let wanted = format!("directory={} stdin=0 args=[two words][-n][*][]", folder.display());
    expect_all(&finished, &surroundings(&finished), 2, &wanted)
}

fn environment(workshop: &Workshop) -> Result<()> {
    let program = workshop.program("surroundings")?;
    let given =
        Job::launched(installed("mpiexec").args(["-n", "2", "-env", "SURROUNDINGS_VALUE", "a b=c"]).arg(&program))
            .run_saying("No Errors")?;
    expect_all(&given, &surroundings(&given), 2, "value=a b=c ")?;
    let exported = Job::launched(installed("mpiexec").args(["-n", "2", "-x", "SURROUNDINGS_VALUE=x"]).arg(&program))
        .run_saying("No Errors")?;
    expect_all(&exported, &surroundings(&exported), 2, "value=x ")?;
    let inherited = Job::launched(installed("mpiexec").args(["-n", "2"]).arg(&program))
        .with(|command| command.env("SURROUNDINGS_VALUE", "mine"))
        .run_saying("No Errors")?;
    expect_all(&inherited, &surroundings(&inherited), 2, "value=mine ")
}

/// The handler that ranks begin with is chosen when they are started.
fn initial_errhandler(workshop: &Workshop) -> Result<()> {
    let program = workshop.program("initial_errhandler")?;
    let handler = "-initial-errhandler";
    Job::launched(installed("mpiexec").args(["-n", "2", handler, "mpi_errors_return"]).arg(&program))
        .run_saying("No Errors")?;
    let fatal = Job::of(1).with(|command| command.args([handler, "mpi_errors_are_fatal"]).arg(&program)).run()?;
    if fatal.success() || !fatal.said().contains("MPI_Comm_rank") {
        return Err(fatal.complain("the first error should have ended the program"));
    }
    let unknown = Job::of(1).with(|command| command.args([handler, "none"]).arg(&program)).run()?;
    if unknown.success() || !unknown.said().contains("mpi_errors_abort") {
        return Err(unknown.complain("the handlers that there are should have been named"));
    }
    Ok(())
}

fn several_programs(workshop: &Workshop) -> Result<()> {
    let program = workshop.program("surroundings")?;
    let finished = Job::launched(installed("mpiexec").args(["-n", "1"]).arg(&program).arg("first"))
        .with(|command| command.args([":", "-n", "2"]).arg(&program).args(["second", "half"]))
        .run_saying("No Errors")?;
    let lines = surroundings(&finished);
    let right = lines.len() == 3
        && lines[0].starts_with("rank=0 size=3 appnum=0")
        && lines[0].ends_with("[first]")
        && lines[1..].iter().all(|line| line.contains("appnum=1") && line.ends_with("[second][half]"));
    if right { Ok(()) } else { Err(finished.complain("three ranks of two programs were expected")) }
}

fn standard_input(workshop: &Workshop) -> Result<()> {
    let program = workshop.program("surroundings")?;
    let finished = Job::of(3)
        .with(|command| command.arg(&program).arg("read").input(vec![b'x'; 300_000]))
        .run_saying("No Errors")?;
    let lines = surroundings(&finished);
    let right =
        lines.len() == 3 && lines[0].contains("stdin=300000") && lines[1..].iter().all(|line| line.contains("stdin=0"));
    if right { Ok(()) } else { Err(finished.complain("all of the input should come to rank 0, none to the others")) }
}

/// Every line of every rank arrives once and unbroken, even if the job is aborted right after.
fn output(workshop: &Workshop, abort: bool) -> Result<()> {
    const RANKS: u32 = 4;
    const LINES: usize = 3000;
    let program = workshop.program("output")?;
    let finished = Job::of(RANKS).with(|command| command.arg(&program).args(abort.then_some("abort"))).run()?;
    if finished.code() != Some(if abort { 9 } else { 0 }) {
        return Err(finished.complain("the exit status is wrong"));
    }
    let out: BTreeSet<&str> = finished.stdout.lines().collect();
    for rank in 0..RANKS {
        for number in 0..LINES {
            let line = format!("out {rank} {number} {}|", ".".repeat(number % 60));
            if !out.contains(line.as_str()) {
                return Err(finished.complain(format!("a line is missing or broken: {line}")));
            }
        }
        let last = format!("last words of {rank} without a newline");
        if !finished.stdout.contains(&last) {
            return Err(finished.complain(format!("what has no newline is missing: {last}")));
        }
        let errors =
            finished.stderr.lines().filter(|line| line.starts_with(&format!("err {rank} ")) && line.ends_with('|'));
        if errors.count() != LINES / 10 {
            return Err(finished.complain("standard error is not complete"));
        }
    }
    Ok(())
}

fn tagged_output(workshop: &Workshop) -> Result<()> {
    let program = workshop.program("surroundings")?;
    let finished = Job::launched(installed("mpiexec").args(["-n", "3", "--tag-output"]).arg(&program)).run()?;
    for rank in 0..3 {
        let named = |line: &str| line.split_once("rank=").is_some_and(|(tag, _)| tag.contains(&rank.to_string()));
        if !finished.stdout.lines().any(|line| line.contains(&format!("rank={rank} ")) && named(line)) {
            return Err(finished.complain(format!("the line of rank {rank} is not tagged with its rank")));
        }
    }
    Ok(())
}

fn other_programs(workshop: &Workshop) -> Result<()> {
    workshop.installation()?;
    let finished = Job::of(3).with(|command| command.args(["echo", "not an MPI program"])).run()?;
    if finished.success() && finished.stdout.matches("not an MPI program\n").count() == 3 {
        return Ok(());
    }
    Err(finished.complain("expected three lines"))
}

fn exit_status(workshop: &Workshop) -> Result<()> {
    workshop.installation()?;
    for status in [0, 1, 42, 255] {
        let script = format!("exit {status}");
        let finished = Job::of(2).with(|command| command.args(["sh", "-c", &script])).run()?;
        if finished.code() != Some(status) {
            return Err(finished.complain(format!("expected status {status}")));
        }
    }
    Ok(())
}

fn program_not_found(workshop: &Workshop) -> Result<()> {
    workshop.installation()?;
    let finished = Job::of(2).with(|command| command.arg("./no-such-program")).run()?;
    if finished.success() || !finished.stderr.contains("no-such-program") {
        return Err(finished.complain("expected a message that names the program"));
    }
    Ok(())
}

/// The launcher gets a signal; in the end nothing of the job is left, however it died.
fn ended_by(workshop: &Workshop, signal: Signal) -> Result<()> {
    let program = workshop.program("sleeper")?;
    // Whoever runs the tests in the background ignores the interrupt, and that is inherited: begin afresh.
    let fresh = |command: Program| command.arg(&program).under(["env", "--default-signal=INT"]);
    let (mut running, mark) = Job::of(4).with(fresh).start()?;
    running.wait_for_output("all there")?;
    if mark.count() < 5 {
        bail!("a launcher and four ranks should be there, {} are", mark.count());
    }
    kill_process(running.pid(), signal)?;
    let finished = running.finish()?;
    if finished.success() || finished.outlived_its_limit() {
        return Err(finished.complain("the launcher should end at once, with a status other than 0"));
    }
    mark.gone().map_err(|error| finished.complain(error))
}

/// Half a launcher's environment is an error of one line, never a world of one.
fn variables_without_server(workshop: &Workshop) -> Result<()> {
    let hello = workshop.program("hello")?;
    for variables in [
        vec![("PMI_RANK", "0"), ("PMI_SIZE", "2")],
        vec![("PMI_FD", "77"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")],
        vec![("PMI_PORT", "127.0.0.1:1"), ("PMI_ID", "0")],
    ] {
        let mut program = Program::new(&hello).limit(Duration::from_secs(30));
        for (name, value) in &variables {
            program = program.env(name, value);
        }
        let finished = program.run()?;
        let names_one = variables.iter().any(|(name, _)| finished.stderr.contains(name));
        if finished.code().is_none_or(|code| code == 0) || finished.stdout.contains("No Errors") || !names_one {
            return Err(finished.complain("expected an error that names the variable"));
        }
    }
    Ok(())
}

/// Starting up is a race between ranks; it is run many times.
fn many_starts(workshop: &Workshop) -> Result<()> {
    let hello = workshop.program("hello")?;
    for _ in 0..40 {
        Job::of(5).with(|command| command.arg(&hello)).run_saying("No Errors")?;
    }
    Ok(())
}

/// Two worlds on one host do not see each other.
fn two_jobs_at_once(workshop: &Workshop) -> Result<()> {
    let program = workshop.program("random")?;
    let start = || Job::of(3).with(|command| command.arg(&program)).start();
    let jobs = [start()?, start()?];
    for (running, mark) in jobs {
        let finished = running.finish()?;
        mark.gone().map_err(|error| finished.complain(error))?;
        if !finished.success() || !finished.stdout.contains("No Errors") {
            return Err(finished.complain("one of two jobs failed"));
        }
    }
    Ok(())
}

/// A rank that is a script may itself start a job; its world is its own.
fn nested(workshop: &Workshop) -> Result<()> {
    let hello = workshop.program("hello")?;
    let inner = installed("mpiexec").args(["-n", "2"]).arg(hello).shown();
    let finished = Job::of(2).with(|command| command.args(["sh", "-c", &inner])).run()?;
    if finished.success() && finished.stdout.matches("No Errors").count() == 2 {
        return Ok(());
    }
    Err(finished.complain("two worlds of two ranks were expected"))
}

fn expect_all(finished: &Finished, lines: &[String], count: usize, wanted: &str) -> Result<()> {
    if lines.len() == count && lines.iter().all(|line| line.contains(wanted)) {
        return Ok(());
    }
    Err(finished.complain(format!("{count} lines with {wanted:?} were expected")))
}
