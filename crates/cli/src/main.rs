//! `ferrovia`: tells what is installed, how it is set, what it can do, and what stands in its way here.
//!
//! Floor: faces. Reads the registry of settings from `base`, and asks the installed library about itself.
//!
//! **Invariants**
//! - What it says about the library comes from the library it found, not from this program's own build.
//! - It changes nothing and joins no job; only `ferrovia bench` starts any.
//!
//! Deliberately absent: launching (`mpiexec` does that); measuring itself (`bench` does that).

mod doctor;
mod fabric;
mod info;
mod library;
mod protocols;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "ferrovia", version, about = "What this installation of Ferrovia is and can do")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Version, library and settings
    Info(info::Options),
    /// Measure MPI libraries beside each other and the machine's floor, compare runs, write reports
    Bench(Box<bench::Options>),
    /// Look for what would slow programs down or stop them on this machine
    Doctor,
}

fn main() -> ExitCode {
    let task = Arguments::parse().task;
    if !matches!(&task, Task::Bench(options) if options.measures()) {
        end_with_the_reader();
    }
    let result = match task {
        Task::Info(options) => info::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Doctor => doctor::run(),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ferrovia: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A reader that has seen enough (`ferrovia info --config | head`) ends this program quietly, as it does others. Not
/// while something is measured: there a job or a connection that ends is an error to be told.
fn end_with_the_reader() {
    // SAFETY: there is one thread so far, and the default action has no handler that could be called at a wrong time.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
