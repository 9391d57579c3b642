//! An installation that was moved, to a name with a space, still works by itself.

use super::mpi::Job;
use super::{Case, Verdict, Workshop, programs};
use crate::command::{Program, exists};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// The moved installation's wrappers, launcher, library and pkg-config file.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("relocation/compile-and-run", compile_and_run).quick(true),
        Case::that_may_skip("relocation/pkg-config", pkg_config),
        Case::new("relocation/through-links", through_links),
        Case::new("relocation/without-wrapper", without_wrapper),
    ]
}

/// A copy of the installation that nothing else refers to.
fn moved(workshop: &Workshop) -> Result<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir()?;
    let place = folder.path().canonicalize()?.join("moved here");
    Program::new("cp").arg("-a").arg(workshop.installation()?).arg(&place).run_successfully()?;
    Ok((folder, place))
}

fn compile_and_run(workshop: &Workshop) -> Result<()> {
    let (folder, place) = moved(workshop)?;
    let program = folder.path().join("hello");
    programs::compile(|name| Program::new(place.join("bin").join(name)), "hello", &program)?;
    runs(&program, &place, &place.join("bin"))?;
    Job::launched(Program::new(&program)).run_saying("No Errors").map(drop)
}

fn pkg_config(workshop: &Workshop) -> Result<Verdict> {
    if !exists("pkg-config") {
        return Ok(Verdict::Skipped("there is no pkg-config here".to_owned()));
    }
    let (folder, place) = moved(workshop)?;
    let simple = folder.path().canonicalize()?.join("moved");
    std::fs::rename(&place, &simple)?; // what pkg-config prints is for a shell: no spaces here
    let script = "cc -o \"$1\" \"$2\" $(pkg-config --cflags --libs ferrovia)";
    let program = folder.path().join("hello");
    Program::new("sh")
        .args(["-c", script, "sh"])
        .arg(&program)
        .arg(crate::paths::root().join("tests/c/hello.c"))
        .env("PKG_CONFIG_PATH", simple.join("lib/pkgconfig"))
        .run_successfully()?;
    runs(&program, &simple, &simple.join("bin"))?;
    Ok(Verdict::Passed)
}

/// Wrappers and launcher called through symbolic links elsewhere.
fn through_links(workshop: &Workshop) -> Result<()> {
    let (folder, place) = moved(workshop)?;
    let links = folder.path().join("links");
    std::fs::create_dir(&links)?;
    for name in ["mpicc", "mpicxx", "mpiexec"] {
        std::os::unix::fs::symlink(place.join("bin").join(name), links.join(name))?;
    }
    let program = folder.path().join("hello");
    programs::compile(|name| Program::new(links.join(name)), "hello", &program)?;
    runs(&program, &place, &links)
}

/// Compiled as makefiles do that know folders and the name of the library, and no wrapper.
fn without_wrapper(workshop: &Workshop) -> Result<()> {
    let (folder, place) = moved(workshop)?;
    for library in ["mpi", "mpi_abi"] {
        let program = folder.path().join(library);
        Program::new("cc")
            .arg("-o")
            .arg(&program)
            .arg(crate::paths::root().join("tests/c/hello.c"))
            .arg(format!("-I{}", place.join("include").display()))
            .arg(format!("-L{}", place.join("lib").display()))
            .arg(format!("-Wl,-rpath,{}", place.join("lib").display()))
            .arg(format!("-l{library}"))
            .run_successfully()?;
        runs(&program, &place, &place.join("bin"))?;
    }
    Ok(())
}

/// The program uses the library under `prefix` and no other, and runs on two ranks by the launcher in `launchers`.
fn runs(program: &Path, prefix: &Path, launchers: &Path) -> Result<()> {
    let finished = Program::new("ldd").arg(program).env_remove("LD_LIBRARY_PATH").run_successfully()?;
    let library = prefix.join("lib");
    let found = finished
        .stdout
        .lines()
        .any(|line| line.contains("libmpi_abi.so.1") && line.contains(&*library.to_string_lossy()));
    if !found {
        bail!("{} should use the library in {}\n{}", program.display(), library.display(), finished.report());
    }
    let launched = Program::new(launchers.join("mpiexec")).args(["-n", "2"]).arg(program);
    Job::launched(launched).run_saying("No Errors").map(drop)
}
