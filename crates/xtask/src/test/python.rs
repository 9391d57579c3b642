//! mpi4py from PyPI, built from its source distribution against the installed `mpicc`, and its own test suite, run as
//! `tests/python/mpi4py.txt` says.

use super::mpi::Job;
use super::{Case, list};
use crate::command::Program;
use crate::paths;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MPI4PY: &str = "mpi4py==4.1.2";
/// What builds it, and what its tests use where it is there.
const PACKAGES: [&str; 7] = ["setuptools", "wheel", "cython", "numpy", "cffi", "pyyaml", "dill"];

/// A virtual environment with mpi4py, and the suite that came with it.
#[derive(Clone)]
pub struct Environment {
    /// The interpreter.
    pub python: PathBuf,
    suite: PathBuf,
}

/// One case per line and rank count.
pub fn cases() -> Result<Vec<Case>> {
    let mut cases = vec![Case::new("python/build", |workshop| workshop.python().map(drop))];
    let (left_out, run): (Vec<_>, Vec<_>) = list()?.into_iter().partition(|entry| entry.name == "-");
    for entry in run {
        let limit = Duration::from_secs(entry.last("limit").map_or(Ok(120), str::parse)?);
        let around = entry.has("no_files").then(|| paths::root().join("tests/python/no_files.py"));
        let at_least: u32 = entry.last("at_least").map_or(Ok(1), str::parse)?;
        for ranks in entry.ranks() {
            let arguments = match entry.name.as_str() {
                "all" => left_out.iter().flat_map(|entry| excluding(entry, ranks)).flatten().collect(),
                module => vec![module.to_owned()],
            };
            let around = around.clone();
            let case = Case::new(format!("python/{}-{ranks}", entry.name), move |workshop| {
                let environment = workshop.python()?;
                let finished = Job::of(ranks)
                    .with(|command| command.arg(&environment.python).args(&around))
                    .with(|command| command.arg(environment.suite.join("main.py")).arg("-q").args(&arguments))
                    .with(|command| command.limit(limit))
                    .run()?;
                let counts = counts(&finished.stderr);
                if !finished.success() || !finished.stderr.contains("\nOK") {
                    return Err(finished.complain("the tests did not all pass"));
                }
                if counts.len() != ranks as usize || counts.iter().any(|count| *count < at_least) {
                    return Err(finished.complain(format!("{ranks} ranks ran {counts:?} tests, not {at_least} each")));
                }
                Ok(())
            });
            cases.push(case.quick(entry.has("quick")));
        }
    }
    Ok(cases)
}

/// How the suite is run.
pub fn list() -> Result<Vec<list::Entry>> {
    list::read(&paths::root().join("tests/python/mpi4py.txt"))
}

/// The arguments by which the suite's main program leaves out what an entry says, if that is for so many `ranks`.
fn excluding(entry: &list::Entry, ranks: u32) -> Option<[String; 2]> {
    let pattern = entry.words.first().filter(|_| entry.ranks().is_empty() || entry.ranks().contains(&ranks))?;
    Some(match pattern.starts_with("test_") {
        true => ["-e".to_owned(), format!("^{pattern}[.]py")],
        false => ["-x".to_owned(), pattern.clone()],
    })
}

/// The numbers in the lines `Ran NUMBER tests in …`, one of each rank.
fn counts(output: &str) -> Vec<u32> {
    let count = |line: &str| line.strip_prefix("Ran ")?.split(' ').next()?.parse().ok();
    output.lines().filter_map(count).collect()
}

/// Makes the environment; the slow build of mpi4py happens again only when `mpi.h` or `mpicc` changed.
pub fn prepare() -> Result<Environment> {
    let prefix = paths::prefix();
    let folder = paths::cache().join("python");
    let python = folder.join("venv/bin/python");
    let suite = folder.join("mpi4py-4.1.2/test");
    let built_with = folder.join("built-with");
    let stamp = stamp(&prefix)?;
    if !python.is_file() || fs::read_to_string(&built_with).ok().as_deref() != Some(&stamp) {
        fs::create_dir_all(&folder)?;
        println!("Building {MPI4PY} against the installed mpicc (some minutes, only when mpi.h changes)");
        if !python.is_file() {
            Program::new("python3").args(["-m", "venv"]).arg(folder.join("venv")).run_successfully()?;
        }
        pip(&python).args(["install", "-q"]).args(PACKAGES).run_successfully()?;
        let source = source(&python, &folder)?;
        pip(&python)
            .args(["install", "-q", "--force-reinstall", "--no-deps", "--no-build-isolation", "--no-cache-dir"])
            .arg(source)
            .env("MPICC", prefix.join("bin/mpicc"))
            .env("MPI4PY_BUILD_MPIABI", "1")
            .env("CFLAGS", "-O0")
            .limit(Duration::from_secs(900))
            .run_successfully()?;
        fs::write(&built_with, stamp)?;
    }
    Ok(Environment { python, suite })
}

/// The source distribution, fetched and unpacked (for its test suite).
fn source(python: &Path, folder: &Path) -> Result<PathBuf> {
    let archive = folder.join("mpi4py-4.1.2.tar.gz");
    if !archive.is_file() {
        pip(python)
            .args(["download", "-q", "--no-deps", "--no-build-isolation", "--no-binary=mpi4py", "-d"])
            .arg(folder)
            .arg(MPI4PY)
            .run_successfully()?;
    }
    Program::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(folder).run_successfully()?;
    Ok(archive)
}

fn pip(python: &Path) -> Program {
    Program::new(python).args(["-m", "pip", "--disable-pip-version-check"])
}

/// What the build depends on: the header's content and the wrapper's place.
fn stamp(prefix: &Path) -> Result<String> {
    let header = prefix.join("include/mpi.h");
    let text = fs::read(&header).with_context(|| format!("cannot read {}", header.display()))?;
    let hash = text
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    Ok(format!("{MPI4PY} {} {hash:016x} {}", prefix.display(), PACKAGES.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_and_left_out() {
        assert_eq!(counts("x\nRan 12 tests in 0.1s\n\nOK\nRan 1 test in 2s\nRan away\n"), [12, 1]);
        let left_out = list::parse("- test_io files\n- TestMyFile files\n- test_op 3 5 local\n").unwrap();
        let on =
            |ranks| -> Vec<String> { left_out.iter().flat_map(|entry| excluding(entry, ranks)).flatten().collect() };
        assert_eq!(on(1), ["-e", "^test_io[.]py", "-x", "TestMyFile"]);
        assert_eq!(on(5), ["-e", "^test_io[.]py", "-x", "TestMyFile", "-e", "^test_op[.]py"]);
        let entries = list().unwrap();
        let whole = entries.iter().filter(|entry| entry.name == "all").flat_map(list::Entry::ranks);
        assert_eq!(whole.collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    }
}
