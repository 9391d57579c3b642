//! What a person working on Ferrovia types: `cargo xtask {install,test,demo,bench,performance,tidy,docs,ci}`.
//!
//! Floor: faces. Uses no other crate of the workspace; it builds and runs them as a user would.
//!
//! **Invariants**
//! - Everything a command needs beyond a Rust toolchain, a C compiler and Python it fetches itself,
//!   into `target/` and `.cache/`, never into the system.
//! - Every program it starts has a time limit; what it started is gone when it returns.
//! - What is tested stands in plain data under `tests/`; this crate only runs it.
//!
//! Deliberately absent: anything the library itself needs to build (`cargo build` alone works).

#![forbid(unsafe_code)]

mod bench;
mod ci;
mod command;
mod demo;
mod docs;
mod install;
mod paths;
mod performance;
mod test;
mod tidy;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Build, install, test and check Ferrovia")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build in release mode and install programs, library, header and pkg-config file
    Install {
        /// Where to install; the result can be moved afterwards
        #[arg(long, default_value = "target/prefix")]
        prefix: PathBuf,
    },
    /// Install into target/prefix, then build and run the C, Python and Rust examples
    Demo,
    /// Run the tests: cargo's, C programs, launcher, surroundings, other MPIs, mpi4py, hpcc, FFTW
    Test(test::Options),
    /// Compare Ferrovia with MPICH, Intel MPI and Open MPI in one run
    Bench(bench::Options),
    /// Measure, and write docs/PERFORMANCE.md or docs/PAPERS.md
    Performance(performance::Options),
    /// Check what can be checked without running anything: floors, forms, lengths, words
    Tidy,
    /// Write docs/CONFIG.md and docs/CONFORMANCE.md from the registry, the library and the test lists
    Docs,
    /// Formatting, clippy, tidy and all tests, as the continuous integration does
    Ci,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Install { prefix } => install::run(&prefix),
        Task::Demo => demo::run(),
        Task::Test(options) => test::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Performance(options) => performance::run(&options),
        Task::Tidy => tidy::run(),
        Task::Docs => docs::run(),
        Task::Ci => ci::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
