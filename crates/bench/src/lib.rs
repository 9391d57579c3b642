//! `ferrovia bench`: what every layer costs, beside its rivals and its floor, in one run.
//!
//! Floor: faces. MPI libraries it starts as a user would; devices it opens through `boot`.
//!
//! The programs that are timed are C over the standard ABI (`bench/programs`), so that the same binary runs on any
//! library; they take samples and judge nothing. What is run stands in suites (`bench/suites`, TOML). This crate plans
//! the run ([`plan`]), starts each process ([`job`]), turns samples into records ([`record`], format in
//! `bench/schema.json`), and reads records to show, compare and draw them.
//!
//! **Invariants**
//! - Libraries take turns within a run, in an order drawn from a recorded seed, so that what happens to the machine
//!   happens to all of them.
//! - Nothing is thrown away silently: warm-up samples are counted, outliers are counted and kept, failures are records.
//! - The unit of evidence is the process: samples of one process are not independent, so intervals and tests of
//!   significance rest on the medians of processes.
//! - A payload is checked before and after it is timed; a job with a wrong byte has no result.
//!
//! - Only [`fabric`] times anything in this process, and only its `private` module makes a promise about memory.
//!
//! Deliberately absent: building libraries, installing peers; tests between hosts.
//!
//! ```
//! let suite = bench::suite::Suite::builtin(bench::suite::Level::Mpi).unwrap();
//! assert_eq!(suite.choose(&["latency".to_owned()]).unwrap().len(), 1);
//! ```

#![deny(unsafe_code)]

pub mod compare;
pub mod environment;
pub mod fabric;
pub mod job;
pub mod journal;
pub mod library;
pub mod measure;
pub mod pace;
pub mod paper;
pub mod plan;
pub mod programs;
pub mod record;
pub mod report;
pub mod rounds;
pub mod statistics;
pub mod suite;
pub mod table;

use anyhow::Result;
use std::process::ExitCode;

/// What `ferrovia bench` is asked to do.
#[derive(clap::Args)]
pub struct Options {
    #[command(subcommand)]
    task: Task,
}

impl Options {
    /// True if processes are started or connections made, not only files read.
    pub fn measures(&self) -> bool {
        matches!(
            self.task,
            Task::Mpi(_) | Task::App(_) | Task::Fabric(_) | Task::FabricEnd | Task::ProviderEnd { .. } | Task::Paper(_)
        )
    }
}

#[derive(clap::Subcommand)]
enum Task {
    /// What can be measured
    List(suite::ListOptions),
    /// Measure MPI libraries
    Mpi(measure::Options),
    /// Measure application kernels on MPI libraries
    App(measure::Options),
    /// Measure the verbs of a device, without MPI
    Fabric(fabric::Options),
    /// The other end of such a measurement, which `fabric` starts by itself
    #[command(name = fabric::TASK, hide = true)]
    FabricEnd,
    /// The same for the VI Provider Library
    #[command(name = fabric::PROVIDER_END, hide = true)]
    ProviderEnd {
        /// What it does, as JSON
        task: String,
    },
    /// Set the figures of a paper beside those measured here
    Paper(paper::Options),
    /// Say whether B is slower or faster than A; ends with 1 if it is slower, 2 if the records cannot decide
    Compare(compare::Options),
    /// Draw a page, or write Markdown, from records
    Report(report::Options),
}

/// Does what the options ask for.
///
/// # Errors
/// If something is named that does not exist, or a file cannot be read or written.
pub fn run(options: &Options) -> Result<ExitCode> {
    match &options.task {
        Task::List(options) => suite::list(options),
        Task::Mpi(options) => measure::run(suite::Level::Mpi, options),
        Task::App(options) => measure::run(suite::Level::App, options),
        Task::Fabric(options) => fabric::run(options),
        Task::FabricEnd => fabric::live().map(|()| ExitCode::SUCCESS),
        Task::ProviderEnd { task } => fabric::live_as_provider(task).map(|()| ExitCode::SUCCESS),
        Task::Paper(options) => paper::run(options),
        Task::Compare(options) => compare::run(options),
        Task::Report(options) => report::run(options),
    }
}
