//! The HPC Challenge benchmark, judged by its own verification.

use super::{installed, source};
use crate::command::Program;
use crate::test::Workshop;
use crate::test::mpi::Job;
use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The build description HPL asks for; `@MPICC@` and `@BLAS@` are filled in.
const MAKE: &str = include_str!("../../../../../tests/hpcc/Make.ferrovia");
const INPUT: &str = include_str!("../../../../../tests/hpcc/hpccinf.txt");
const BLAS_PACKAGE: &str = "libopenblas-serial-dev";

/// Builds it and runs it on four ranks.
pub fn test(workshop: &Workshop, prefix: &Path) -> Result<()> {
    run(&build(workshop, prefix)?)
}

fn build(workshop: &Workshop, prefix: &Path) -> Result<PathBuf> {
    let folder = source(workshop, "hpcc", "hpcc", &[])?;
    let blas = Program::new("find")
        .arg(installed(workshop, BLAS_PACKAGE)?)
        .args(["-name", "libopenblas.a"])
        .run_successfully()?;
    let Some(blas) = blas.stdout.lines().next() else { bail!("the package {BLAS_PACKAGE} has no libopenblas.a") };
    let make = MAKE.replace("@MPICC@", &prefix.join("bin/mpicc").to_string_lossy()).replace("@BLAS@", blas);
    fs::write(folder.join("hpl/Make.ferrovia"), make)?;
    Program::new("make").args(["-j2", "arch=ferrovia"]).folder(&folder).run_successfully()?;
    Ok(folder.join("hpcc"))
}

fn run(program: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("hpccinf.txt"), INPUT)?;
    let finished =
        Job::of(4).with(|command| command.arg(program).folder(folder.path()).limit(Duration::from_secs(180))).run()?;
    let report = fs::read_to_string(folder.path().join("hpccoutf.txt")).unwrap_or_default();
    let tail = || report.lines().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n");
    if !finished.success() {
        return Err(finished.complain(format!("hpcc did not end well; the end of its report:\n{}", tail())));
    }
    let said = |text: &str| report.lines().any(|line| line.trim() == text);
    for verdict in [
        "Success=1",
        "MPIRandomAccess_LCG_Errors=0",
        "MPIRandomAccess_Errors=0",
        "PTRANS_residual=0",
        "5 tests completed and passed residual checks.",
        "0 tests completed and failed residual checks.",
        "1 tests completed and passed residual checks,",
    ] {
        if !said(verdict) {
            bail!("hpcc's report lacks {verdict:?}; its end:\n{}", tail());
        }
    }
    if report.contains("FAILED")
        || report.lines().any(|line| line.contains("Node(s) with error") && !line.ends_with(" 0"))
    {
        bail!("hpcc found errors; the end of its report:\n{}", tail());
    }
    Ok(())
}
