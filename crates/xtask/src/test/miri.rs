//! Undefined behaviour, looked for by miri in the unit tests of all crates that share memory or point into the user's.
//!
//! Which of Rust's rules are promised (`ARCHITECTURE.md`, unsafe): Stacked Borrows everywhere, and strict provenance where
//! no address arrives as a number. What miri cannot do (mapping, sockets, forks, assembly) its tests leave out by
//! themselves, with `#[cfg_attr(miri, ignore = "why")]`.

use super::Verdict;
use crate::command::{Finished, Program, exists};
use crate::paths;
use anyhow::{Result, bail};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Tests of one crate that are run by one interpreter, one after the other.
struct Suite {
    package: &'static str,
    /// What of it, as cargo's words.
    words: &'static [&'static str],
    flags: &'static [&'static str],
    /// Tests that this comes to at least: names that match none would pass.
    least: usize,
}

/// Payloads end anywhere in words that were flags before, and this interpreter cannot follow a part of an atomic word that
/// was overwritten through its stores' buffers. Races are found all the same, and orders of memory are loom's business.
const MIXED: &str = "-Zmiri-disable-weak-memory-emulation";
const STRICT: &str = "-Zmiri-strict-provenance";
/// Addresses travel as numbers between processes, in descriptors, on top of `MPI_BOTTOM`.
const EXPOSED: &str = "-Zmiri-permissive-provenance";

/// No file of the system is read: who asks is told that it may not.
const CLOSED: &str = "-Zmiri-isolation-error=hide";
/// Some memory is never freed: what a device may still write to, or a process that a test has let die.
const KEPT: &str = "-Zmiri-ignore-leaks";

/// The longest first. Where not all of a crate can be run, the words are parts of its tests' names.
const SUITES: &[Suite] = &[
    Suite { package: "lockfree", words: &["--lib"], flags: &[STRICT, MIXED, KEPT], least: 25 },
    // Those that reach user memory; what is proved of types and their wire form is proved in safe code.
    Suite {
        package: "datatype",
        words: &[
            "--lib",
            "--test=constructors",
            "--test=oracle",
            "--",
            "kernel::",
            "range::",
            "packing_from",
            "addresses",
            "lent",
        ],
        flags: &[EXPOSED],
        least: 4,
    },
    // The rules of `fabric`, on the adapter in software and over shared memory.
    Suite {
        package: "fabric-soft",
        words: &["--test", "conformance", "--", "loopback", "shm_staged", "shm_in_mapped"],
        flags: &[EXPOSED, MIXED, CLOSED, KEPT],
        least: 3,
    },
    Suite {
        package: "fabric-soft",
        words: &["--lib", "--", "copying", "adapter::", "keys_bounds"],
        flags: &[EXPOSED, MIXED, CLOSED],
        least: 4,
    },
    Suite {
        package: "vipl",
        words: &[
            "--lib",
            "--",
            "channel::",
            "directory::",
            "nothing_outside",
            "dma::",
            "shapes::",
            "link::",
            "objects::",
        ],
        flags: &[EXPOSED, MIXED, CLOSED],
        least: 6,
    },
    Suite { package: "base", words: &["--lib"], flags: &[EXPOSED], least: 6 },
];

/// What is said where something is wrong for certain.
const WRONG: [&str; 2] = ["Undefined Behavior", "test result: FAILED"];

/// Cases of each property that does not say how many; a full run takes them in their hundreds.
const PROPERTY_CASES: &str = "4";

/// Runs them all, several at a time.
pub fn run() -> Result<Verdict> {
    if let Err(error) = prepare() {
        let why = format!("{error:#}");
        return Ok(Verdict::Skipped(format!("no miri: {}", why.lines().next().unwrap_or_default())));
    }
    let (next, ends) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || {
        while let Some(suite) = SUITES.get(next.fetch_add(1, Ordering::Relaxed)) {
            let began = Instant::now();
            let end = suite.program().run().map(|finished| End::of(&finished, suite.least));
            let (words, seconds) = (suite.words.join(" "), began.elapsed().as_secs_f64());
            println!("  {seconds:5.0} s  {}  {} {words}", End::word(&end), suite.package);
            ends.lock().expect("no worker panics").push(end);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(SUITES.len()) {
            scope.spawn(worker);
        }
    });
    verdict(ends.into_inner().expect("no worker panicked").into_iter().collect::<Result<Vec<_>>>()?)
}

impl Suite {
    fn program(&self) -> Program {
        let flags = [self.flags, &["-Zmiri-env-forward=PROPTEST_CASES"]].concat().join(" ");
        let program = miri(&["test", "--package", self.package]).args(self.words);
        program.env("MIRIFLAGS", flags).env("PROPTEST_CASES", PROPERTY_CASES)
    }
}

/// What the tests of one crate came to.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Passed,
    /// The compiler or the interpreter gave up on something that is not known to be wrong.
    NotTried(String),
    Failed(String),
}

impl End {
    /// Of a run of at least so many tests.
    fn of(finished: &Finished, least: usize) -> Self {
        let said = finished.said();
        let passed = passed_count(&said);
        let is_wrong = said.lines().find(|line| WRONG.iter().any(|tell| line.contains(tell)));
        match (finished.success(), reason_not_to_try(&said)) {
            (true, _) if passed < least => {
                Self::Failed(format!("{passed} tests passed, of at least {least}\n{}", finished.report()))
            }
            (true, _) => Self::Passed,
            (false, Some(why)) if is_wrong.is_none() => Self::NotTried(why),
            // It works a thousand times as long as the tests themselves, and longer on a busy machine.
            (false, _) if is_wrong.is_none() && finished.outlived_its_limit() => Self::NotTried(finished.report()),
            // What is wrong comes before a trace that may be longer than what a report shows.
            (false, _) => Self::Failed(format!("{}\n{}", is_wrong.unwrap_or_default(), finished.report())),
        }
    }

    fn word(end: &Result<Self>) -> &'static str {
        match end {
            Ok(Self::Passed) => "passed",
            Ok(Self::NotTried(_)) => "not tried",
            Ok(Self::Failed(_)) | Err(_) => "failed",
        }
    }
}

/// What the harnesses of several test programs counted.
fn passed_count(said: &str) -> usize {
    said.lines()
        .filter_map(|line| line.trim().strip_prefix("test result: ok. ")?.split_once(" passed"))
        .filter_map(|(count, _)| count.parse::<usize>().ok())
        .sum()
}

/// A nightly that is older or newer than what this was written for may break, or not know a library we use: its line says
/// so. Our own crates have to compile.
fn reason_not_to_try(said: &str) -> Option<String> {
    let ours = |line: &str| SUITES.iter().any(|suite| line.contains(&format!("could not compile `{}`", suite.package)));
    let tells = ["could not compile", "the compiler unexpectedly panicked", "requires rustc"];
    let mut lines = said.lines().filter(|line| !ours(line));
    lines.find(|line| tells.iter().any(|tell| line.contains(tell))).map(|line| line.trim().to_owned())
}

fn verdict(ends: Vec<End>) -> Result<Verdict> {
    let failed: Vec<&str> =
        ends.iter().filter_map(|end| if let End::Failed(why) = end { Some(&**why) } else { None }).collect();
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    let not_tried = ends.into_iter().find_map(|end| if let End::NotTried(why) = end { Some(why) } else { None });
    Ok(not_tried.map_or(Verdict::Passed, |why| Verdict::Skipped(format!("not all of it was run: {why}"))))
}

/// Sees to the standard library as miri wants it. What toolchains there are is the user's business.
fn prepare() -> Result<()> {
    if !exists("rustup") {
        bail!("there is no rustup to ask for a nightly toolchain");
    }
    if !nightly(&["cargo", "miri", "--version"]).run()?.success() {
        bail!("`rustup toolchain install nightly --component miri,rust-src` brings it");
    }
    miri(&["setup"]).run_successfully()?;
    Ok(())
}

fn nightly(words: &[&str]) -> Program {
    Program::new("rustup").args(["run", "nightly"]).args(words)
}

fn miri(words: &[&str]) -> Program {
    let program = nightly(&["cargo", "miri"]).args(words).limit(Duration::from_secs(900));
    program.env("CARGO_TARGET_DIR", paths::target().join("miri"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undefined_behaviour_fails_and_a_miri_that_breaks_does_not() {
        let end_of = |least, script: &str| End::of(&Program::new("sh").args(["-c", script]).run().unwrap(), least);
        let end = |script: &str| end_of(0, script);
        let found = || end("echo 'error: Undefined Behavior: out-of-bounds' >&2; exit 1");
        let broken = || end("echo 'error: the compiler unexpectedly panicked. This is a bug' >&2; exit 1");
        assert!(matches!(found(), End::Failed(why) if why.contains("out-of-bounds")));
        assert!(matches!(broken(), End::NotTried(why) if why.contains("panicked")));
        assert_eq!(end("echo error[E0433] in a test that prints it"), End::Passed);
        assert!(matches!(end("echo 'error: could not compile `libc`' >&2; exit 1"), End::NotTried(_)));
        assert!(matches!(end("echo 'error: could not compile `lockfree` (lib)' >&2; exit 1"), End::Failed(_)));
        let both = "echo 'the compiler unexpectedly panicked'; echo 'error: Undefined Behavior: x' >&2; exit 1";
        assert!(matches!(end(both), End::Failed(_)));
        let counted = "echo 'test result: ok. 3 passed; 0 failed'; echo 'test result: ok. 1 passed; 0 failed'";
        assert_eq!(end_of(4, counted), End::Passed);
        assert!(matches!(end_of(5, counted), End::Failed(_)));
        assert!(verdict(vec![End::Passed, broken(), found()]).is_err());
        assert!(matches!(verdict(vec![End::Passed, broken()]), Ok(Verdict::Skipped(_))));
        assert!(matches!(verdict(vec![End::Passed]), Ok(Verdict::Passed)));
    }
}
