//! MPICH's own tests, which others wrote for another library: programs that say whether they have found errors.

use super::source;
use crate::command::Program;
use crate::install::installed;
use crate::paths;
use crate::test::mpi::Job;
use crate::test::{Workshop, list};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Which folders of them are run, and which programs are left out.
pub fn list() -> Result<Vec<list::Entry>> {
    list::read(&paths::root().join("tests/mpich/list.txt"))
}

/// Builds and runs them, folder after folder.
pub fn test(workshop: &Workshop, prefix: &Path) -> Result<()> {
    let folder = source(workshop, "mpich", "mpich", &["*/test/mpi"])?.join("test/mpi");
    let build = |program: &str, folder: &Path| Program::new(program).folder(folder).limit(Duration::from_secs(600));
    build("./configure", &folder)
        .args([
            "--disable-fortran",
            "--disable-cxx",
            "--disable-spawn",
            "--disable-romio",
            "--disable-dependency-tracking",
        ])
        .arg(format!("--with-mpi={}", prefix.display()))
        .arg(format!("CC={}", prefix.join("bin/mpicc").display()))
        // They are compiled once and run for a moment.
        .arg("CFLAGS=-O0")
        .run_successfully()?;
    for part in ["dtpools", "util"] {
        build("make", &folder.join(part)).args(["-j2", "all"]).run_successfully()?;
    }
    let (left_out, folders): (Vec<_>, Vec<_>) = list()?.into_iter().partition(|entry| entry.name == "-");
    let left_out: Vec<&str> = left_out.iter().filter_map(|entry| entry.words.first()).map(String::as_str).collect();
    let mut failed = Vec::new();
    for entry in &folders {
        let here = folder.join(&entry.name);
        let all = fs::read_to_string(here.join("testlist")).with_context(|| format!("in {}", here.display()))?;
        let chosen = chosen(&all, |program| left_out.contains(&format!("{}/{program}", entry.name).as_str()));
        let mut programs: Vec<&str> = chosen.iter().filter_map(|line| line.split_whitespace().next()).collect();
        programs.sort_unstable();
        programs.dedup();
        build("make", &here).arg("-j2").args(&programs).run_successfully()?;
        fs::write(here.join("chosen"), chosen.join("\n") + "\n")?;
        let report = run(&folder, &here)?;
        failed.extend(
            report.lines().filter(|line| line.starts_with("not ok")).map(|line| format!("{}: {line}", entry.name)),
        );
        let passed = report.lines().filter(|line| line.starts_with("ok")).count();
        if failed.is_empty() && passed != chosen.len() {
            bail!("{}: {passed} of {} tests have run:\n{report}", entry.name, chosen.len());
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
}

/// The lines of a list of tests that are neither left out nor known to fail over MPICH.
fn chosen(all: &str, is_left_out: impl Fn(&str) -> bool) -> Vec<&str> {
    let lines = all.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .filter(|line| !line.contains("xfail=") && !is_left_out(line.split_whitespace().next().unwrap_or(line)))
        .collect()
}

/// Runs the chosen tests of a folder, and returns what is reported of each.
fn run(suite: &Path, folder: &Path) -> Result<String> {
    let report = folder.join("report.tap");
    let runner = Program::new(suite.join("runtests"))
        .args(["-srcdir=.", "-tests=chosen"])
        .arg(format!("-mpiexec={}", installed("mpiexec").shown()))
        .arg(format!("-tapfile={}", report.display()))
        .env("MPITEST_TIMEOUT", "120")
        .folder(folder);
    // Whoever fails is in the report; what is left behind by any of them is an error.
    Job::launched(runner).with(|runner| runner.limit(Duration::from_secs(600))).run()?;
    fs::read_to_string(&report).with_context(|| format!("no report in {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_not_chosen() {
        let all = "# all\nping 2 arg=-n=1\n\nping 4\n pong 2\nbad 2 xfail=ticket1\n";
        assert_eq!(chosen(all, |program| program == "pong"), ["ping 2 arg=-n=1", "ping 4"]);
    }

    #[test]
    fn every_program_that_is_left_out_is_of_a_folder_that_is_run() {
        let (left_out, folders): (Vec<_>, Vec<_>) = list().unwrap().into_iter().partition(|entry| entry.name == "-");
        for entry in &left_out {
            assert!(entry.words.len() > 1, "{entry:?} says why");
            let (folder, _) = entry.words[0].rsplit_once('/').unwrap();
            assert!(folders.iter().any(|other| other.name == folder), "{entry:?}");
        }
    }
}
