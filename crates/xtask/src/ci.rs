//! `cargo xtask ci`: what must be green before a change goes in.

use crate::command::Program;
use crate::{test, tidy};
use anyhow::Result;
use std::time::Duration;

/// Tidy with formatting, lints, tests; stops at the first that fails.
pub fn run() -> Result<()> {
    checks()?;
    test::run(&test::Options::everything())
}

/// All that does not run a program.
fn checks() -> Result<()> {
    let cargo =
        || Program::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).limit(Duration::from_secs(900));
    tidy::run()?;
    cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]).run_openly()
}
