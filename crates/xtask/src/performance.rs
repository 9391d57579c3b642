//! `cargo xtask performance`: measures, and writes `docs/PERFORMANCE.md` and a page with pictures from the records, or
//! `docs/PAPERS.md`.

use crate::bench::{RUN_LIMIT, commit_note};
use crate::install::{self, installed};
use crate::paths;
use crate::test::interoperation::install_peers;
use anyhow::{Result, bail};
use std::path::PathBuf;

/// The tests over all libraries, in short.
const TESTS: [&str; 23] = [
    "latency",
    "exchange",
    "mixed",
    "bandwidth",
    "bidirectional",
    "rate",
    "sockets",
    "overlap",
    "barrier",
    "bcast",
    "allreduce",
    "alltoall",
    "ibcast",
    "iallreduce",
    "threads",
    "unexpected",
    "posted",
    "oversubscription",
    "startup",
    "memory",
    "idle",
    "datatype",
    "calls",
];

/// The devices that are found, and bare sockets, the floor of one of them.
const DEVICES: &str = "present,socket";

/// How long to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Every test and kernel, with more processes, for about two hours instead of a quarter of one
    #[arg(long)]
    long: bool,
    /// The figures of the papers instead, in a quarter of an hour: docs/PAPERS.md
    #[arg(long, conflicts_with_all = ["long", "no_run"])]
    papers: bool,
    /// Write the documents from the records of the last run
    #[arg(long)]
    no_run: bool,
    /// Measure the library in target/prefix as it is
    #[arg(long)]
    no_install: bool,
}

/// Measures, unless told not to, and writes.
pub fn run(options: &Options) -> Result<()> {
    if !options.no_install {
        install::run(&paths::prefix())?;
    }
    if options.papers {
        return papers();
    }
    if !options.no_run {
        install_peers()?;
        measure(options)?;
    }
    let files: Vec<PathBuf> = ["mpi", "app", "fabric"].map(records).into_iter().filter(|file| file.is_file()).collect();
    if files.is_empty() {
        bail!("there are no records under {}", folder().display());
    }
    let page = folder().join("index.html");
    for output in [paths::root().join("docs/PERFORMANCE.md"), page.clone()] {
        let report = installed("ferrovia").args(["bench", "report"]).args(&files).arg("-o").arg(output);
        report.arg("--remarks").arg(paths::root().join("bench/remarks.md")).run_openly()?;
    }
    println!("docs/PERFORMANCE.md; with pictures: {}", page.display());
    Ok(())
}

fn measure(options: &Options) -> Result<()> {
    std::fs::create_dir_all(folder())?;
    let note = commit_note()?;
    let bench = |level: &str, words: &[&str]| -> Result<()> {
        let file = records(level);
        if file.is_file() {
            std::fs::remove_file(&file)?;
        }
        let program = installed("ferrovia").args(["bench", level]).args(words).args(["--note", &note]).arg("--output");
        let finished = program.arg(&file).limit(RUN_LIMIT).run_openly();
        // A job that failed is a record as well: what there is is written down, and the document says what is missing.
        if file.is_file() { Ok(()) } else { finished }
    };
    if options.long {
        bench("mpi", &["all", "--limit", "60", "--budget", "5400"])?;
        bench("app", &["all", "--limit", "60", "--budget", "1200"])?;
        return bench("fabric", &["all", "--device", DEVICES, "--seconds", "0.05", "--budget", "600"]);
    }
    let short = ["--seconds", "0.05", "--samples", "400", "--limit", "30", "--budget", "600"];
    bench("mpi", &TESTS.iter().chain(&short).copied().collect::<Vec<_>>())?;
    bench("app", &["all", "--seconds", "0.05", "--limit", "30", "--budget", "150"])?;
    bench("fabric", &["latency", "bandwidth", "costs", "--device", DEVICES, "--seconds", "0.02", "--budget", "60"])
}

fn papers() -> Result<()> {
    install_peers()?;
    let document = paths::root().join("docs/PAPERS.md");
    let words = ["bench", "paper", "all", "-r", "2", "--seconds", "0.02", "--limit", "120", "--document"];
    if document.is_file() {
        std::fs::remove_file(&document)?;
    }
    let finished = installed("ferrovia").args(words).arg(&document).limit(RUN_LIMIT).run_openly();
    // A row without a figure is a failure of the run; the document shows it as well.
    if document.is_file() { Ok(()) } else { finished }
}

fn folder() -> PathBuf {
    paths::target().join("performance")
}

fn records(level: &str) -> PathBuf {
    folder().join(format!("{level}.jsonl"))
}
