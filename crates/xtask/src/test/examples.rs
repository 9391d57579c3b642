//! Every example, run on one to four ranks: in C built as its first line says, in Rust as tests are built, and one
//! of them as a release. That of the fabric runs by itself.

use super::mpi::Job;
use super::{Case, Workshop};
use crate::command::Program;
use crate::install::installed;
use crate::paths;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One case per example in C, Rust and Python.
pub fn cases() -> Result<Vec<Case>> {
    let mut cases = vec![Case::new("examples/c/heat-same-picture", same_picture)];
    for source in sources("examples/c", "c")? {
        let name = stem(&source);
        cases.push(Case::new(format!("examples/c/{name}"), move |workshop| {
            let program = compiled(workshop, &source)?;
            on_all_counts(&program)
        }));
    }
    for source in sources("crates/ferrovia/examples", "rs")? {
        let name = stem(&source);
        cases.push(Case::new(format!("examples/rust/{name}"), move |workshop| {
            workshop.installation()?;
            on_all_counts(&workshop.rust_examples()?.join(stem(&source)))
        }));
    }
    // As its user builds it.
    cases.push(Case::new("examples/rust/nonblocking-release", |workshop| {
        workshop.installation()?;
        on_all_counts(&rust_example("nonblocking")?)
    }));
    cases.push(Case::new("examples/rust/remote_write", |workshop| {
        let finished = Program::new(workshop.rust_examples()?.join("remote_write")).run()?;
        if !finished.success() || !finished.stdout.contains("found 42") {
            return Err(finished.complain("one process should write into the memory of another"));
        }
        Ok(())
    }));
    for source in sources("examples/python", "py")? {
        cases.push(Case::new(format!("examples/python/{}", stem(&source)), move |workshop| {
            let python = workshop.python()?.python;
            for ranks in 1..=4 {
                let finished = Job::of(ranks).with(|command| command.arg(&python).arg(&source)).run()?;
                let speaks_everywhere = stem(&source) == "hello";
                if !finished.success() || speaks_everywhere && finished.stdout.lines().count() != ranks as usize {
                    return Err(finished.complain(format!("the example should end well on {ranks} ranks")));
                }
            }
            Ok(())
        }));
    }
    Ok(cases)
}

/// The folder of the Rust examples, all built as tests are: with debug assertions, beside what `cargo/test` has built.
pub fn build_rust() -> Result<PathBuf> {
    Program::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--workspace", "--examples", "--quiet"])
        .limit(Duration::from_secs(900))
        .run_successfully()?;
    Ok(paths::target().join("debug/examples"))
}

/// A Rust example of the `ferrovia` crate, built in release mode.
pub fn rust_example(name: &str) -> Result<PathBuf> {
    Program::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--quiet", "--package=ferrovia", "--example", name])
        .args(crate::install::TARGETS)
        .limit(Duration::from_secs(900))
        .run_successfully()?;
    Ok(paths::target().join("release/examples").join(name))
}

/// Splitting the plate between ranks changes nothing of the picture.
fn same_picture(workshop: &Workshop) -> Result<()> {
    let program = compiled(workshop, &paths::root().join("examples/c/heat.c"))?;
    let folder = tempfile::tempdir()?;
    let mut pictures = Vec::new();
    for ranks in [1, 2, 3, 4, 6] {
        let picture = folder.path().join(format!("{ranks}.png"));
        let finished = Job::of(ranks).with(|command| command.arg(&program).arg(&picture)).run()?;
        if !finished.success() {
            return Err(finished.complain("the example should end well"));
        }
        pictures.push(fs::read(&picture).with_context(|| finished.report())?);
    }
    if pictures.iter().any(|picture| picture != &pictures[0]) {
        bail!("the picture depends on the number of ranks");
    }
    Ok(())
}

fn compiled(workshop: &Workshop, source: &Path) -> Result<PathBuf> {
    workshop.installation()?;
    let program = paths::target().join("programs/examples").join(stem(source));
    fs::create_dir_all(program.parent().unwrap_or(&program))?;
    installed("mpicc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(source)
        .arg("-lm")
        .run_successfully()?;
    Ok(program)
}

/// Runs in a folder of its own, where an example may leave files.
fn on_all_counts(program: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    for ranks in 1..=4 {
        let finished = Job::of(ranks).with(|command| command.arg(program).folder(folder.path())).run()?;
        if !finished.success() {
            return Err(finished.complain(format!("the example should end well on {ranks} ranks")));
        }
    }
    Ok(())
}

fn sources(folder: &str, extension: &str) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(paths::root().join(folder)) else { return Ok(Vec::new()) };
    let mut sources: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    sources.retain(|path| path.extension().is_some_and(|found| found == extension));
    sources.sort();
    Ok(sources)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
