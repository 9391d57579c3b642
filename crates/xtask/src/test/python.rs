//! mpi4py from PyPI, built from its source distribution against the installed `mpicc`, and the modules
//! of its own test suite that `tests/python/mpi4py.txt` puts in scope.

use super::mpi::Job;
use super::{Case, list};
use crate::command::Program;
use crate::paths;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MPI4PY: &str = "mpi4py==4.1.2";
const BUILD_TOOLS: [&str; 4] = ["setuptools", "wheel", "cython", "numpy"];

/// A virtual environment with mpi4py, and the suite that came with it.
#[derive(Clone)]
pub struct Environment {
    /// The interpreter.
    pub python: PathBuf,
    suite: PathBuf,
}

/// One case per module and rank count.
pub fn cases() -> Result<Vec<Case>> {
    let mut cases = vec![Case::new("python/build", |workshop| workshop.python().map(drop))];
    for entry in list::read(&paths::root().join("tests/python/mpi4py.txt"))? {
        if entry.name == "-" {
            continue; // out of scope; the line says why
        }
        let limit = Duration::from_secs(entry.last("limit").map_or(Ok(120), str::parse)?);
        let skips: Vec<String> = entry.all("without").map(str::to_owned).collect();
        for ranks in entry.ranks() {
            let (module, skips) = (entry.name.clone(), skips.clone());
            let case = Case::new(format!("python/{module}-{ranks}"), move |workshop| {
                let environment = workshop.python()?;
                let excluded = skips.iter().flat_map(|name| ["-x", name.as_str()]);
                let finished = Job::of(ranks)
                    .with(|command| command.arg(&environment.python).arg(environment.suite.join("main.py")).arg("-q"))
                    .with(|command| command.args(excluded).arg(&module).limit(limit))
                    .run()?;
                if finished.success() && finished.stderr.contains("\nOK") {
                    return Ok(());
                }
                Err(finished.complain("the module's own tests did not all pass"))
            });
            cases.push(case.quick(entry.has("quick")));
        }
    }
    Ok(cases)
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
            pip(&python).args(["install", "-q"]).args(BUILD_TOOLS).run_successfully()?;
        }
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
    Ok(format!("{MPI4PY} {} {hash:016x}", prefix.display()))
}
