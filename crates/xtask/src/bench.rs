//! `cargo xtask bench`: the installed `ferrovia bench`, after bringing the installation and the peers up to date.

use crate::command::Program;
use crate::install::{self, installed};
use crate::paths;
use crate::test::interoperation::install_peers;
use anyhow::Result;
use std::time::Duration;

/// Most time for a whole run.
pub const RUN_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// What to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Measure the library in target/prefix as it is
    #[arg(long)]
    no_install: bool,
    /// Words for `ferrovia bench`; `mpi` runs the short choice over all libraries
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, default_value = "mpi")]
    words: Vec<String>,
}

/// Installs, and hands over with the commit as a note.
pub fn run(options: &Options) -> Result<()> {
    if !options.no_install {
        install::run(&paths::prefix())?;
    }
    let mut bench = installed("ferrovia").arg("bench").args(&options.words).limit(RUN_LIMIT);
    if matches!(options.words[0].as_str(), "mpi" | "app") {
        install_peers()?;
        bench = bench.arg("--note").arg(commit_note()?);
    }
    bench.run_openly()
}

/// The commit, as a note for records.
pub fn commit_note() -> Result<String> {
    let commit = Program::new("git").args(["rev-parse", "--short=12", "HEAD"]).run_successfully()?;
    Ok(format!("commit={}", commit.stdout.trim()))
}
