//! `cargo xtask demo`: install, then the examples in C, Python and Rust, each command shown.

use crate::install::{self, installed};
use crate::paths;
use anyhow::{Result, bail};
use std::fs;
use std::time::Duration;

/// The examples, built and run on four ranks.
pub fn run() -> Result<()> {
    install::run(&paths::prefix())?;
    let folder = paths::target().join("demo");
    fs::create_dir_all(&folder)?;
    let mpiexec = || installed("mpiexec").args(["-n", "4"]).limit(Duration::from_secs(120));

    title("Hello in C");
    let hello = folder.join("hello");
    installed("mpicc").arg("examples/c/hello.c").arg("-o").arg(&hello).run_openly()?;
    mpiexec().arg(&hello).run_openly()?;

    title("Heat diffusion in C, on a grid shared by four ranks");
    let (heat, picture) = (folder.join("heat"), folder.join("heat.png"));
    let _ = fs::remove_file(&picture);
    installed("mpicc").args(["-O2", "examples/c/heat.c", "-lm", "-o"]).arg(&heat).run_openly()?;
    mpiexec().arg(&heat).arg(&picture).run_openly()?;

    title("Rust, through the ferrovia crate");
    mpiexec().arg(crate::test::rust_example("hello")?).run_openly()?;

    title("Python, with mpi4py");
    match crate::test::python_with_mpi4py() {
        Ok(python) => mpiexec().arg(python).arg("examples/python/hello.py").run_openly()?,
        Err(error) => println!("skipped, since mpi4py could not be built here:\n{error:#}"),
    }

    if fs::read(&picture).is_ok_and(|bytes| bytes.starts_with(b"\x89PNG")) {
        println!("\nThe heat picture is in {}", paths::shown(&picture));
        Ok(())
    } else {
        bail!("the heat example wrote no picture to {}", picture.display())
    }
}

fn title(text: &str) {
    println!("\n=== {text}");
}
