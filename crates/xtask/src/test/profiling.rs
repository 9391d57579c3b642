//! A profiling tool in front of the library, preloaded and linked: it sees the program's calls and no others.

use super::mpi::Job;
use super::{Case, Workshop};
use crate::install::installed;
use crate::paths;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// How many processes the counted program is started with.
const RANKS: u32 = 3;

/// Both ways of putting a tool in front.
pub fn cases() -> Vec<Case> {
    vec![Case::new("profiling/preloaded", preloaded), Case::new("profiling/linked", linked)]
}

fn preloaded(workshop: &Workshop) -> Result<()> {
    let folder = folder(workshop)?;
    let (tool, program) = (tool(&folder)?, folder.join("counted"));
    compile(&program, &[])?;
    let plain = Job::of(RANKS).with(|command| command.arg(&program)).run()?;
    if !plain.success() || !plain.stdout.is_empty() {
        return Err(plain.complain("without a tool the program says nothing"));
    }
    counts(Job::of(RANKS).with(|command| command.arg("env").arg(preload(&tool)).arg(&program)))
}

fn linked(workshop: &Workshop) -> Result<()> {
    let folder = folder(workshop)?;
    let (tool, program) = (tool(&folder)?, folder.join("counted-linked"));
    let run_path = format!("-Wl,-rpath,{}", folder.display());
    compile(&program, &[tool.to_string_lossy().as_ref(), &run_path])?;
    counts(Job::of(RANKS).with(|command| command.arg(&program)))
}

fn preload(tool: &Path) -> String {
    format!("LD_PRELOAD={}", tool.display())
}

/// The numbers of calls that `tests/tools/counted.c` makes.
fn counts(job: Job) -> Result<()> {
    let finished = job.run()?;
    let lines = [
        "rank 0: 5 sends of 200 bytes, 1 receives, 3 reductions, 5 waits",
        "rank 1: 6 sends of 224 bytes, 0 receives, 3 reductions, 5 waits",
        "rank 2: 5 sends of 200 bytes, 0 receives, 3 reductions, 5 waits",
    ];
    let said: Vec<&str> = finished.stdout.lines().collect();
    if !finished.success() || said.len() != lines.len() || lines.iter().any(|line| !said.contains(line)) {
        return Err(finished.complain(format!("expected just these lines: {lines:#?}")));
    }
    Ok(())
}

fn folder(workshop: &Workshop) -> Result<PathBuf> {
    workshop.installation()?;
    let folder = paths::target().join("programs/profiling");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn tool(folder: &Path) -> Result<PathBuf> {
    let place = folder.join("libcount.so");
    let source = paths::root().join("tests/tools/count.c");
    installed("mpicc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
        .arg(&place)
        .arg(source)
        .run_successfully()?;
    if !place.is_file() {
        bail!("{} was not made", place.display());
    }
    Ok(place)
}

/// The counted program, with `more` before the library on the command line.
fn compile(place: &Path, more: &[&str]) -> Result<()> {
    let source = paths::root().join("tests/tools/counted.c");
    let compiler = installed("mpicc").args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(place).arg(source);
    compiler.args(more).run_successfully()?;
    Ok(())
}
