//! `cargo xtask tidy`: rules of the house that can be checked by reading.
//!
//! - A crate uses only crates on floors below its own ([`floors`]).
//! - Files keep to a length, say what they are for, and hold no leftovers ([`text`]).
//! - Rust is formatted as `rustfmt.toml` says.

mod floors;
mod text;

use crate::command::Program;
use anyhow::{Result, bail};

/// Reports every breach with its place; an error if there is any.
pub fn run() -> Result<()> {
    let mut breaches = floors::check()?;
    breaches.extend(text::check()?);
    breaches.extend(unformatted()?);
    if breaches.is_empty() {
        println!("tidy: nothing to complain about");
        return Ok(());
    }
    breaches.iter().for_each(|breach| eprintln!("{breach}"));
    bail!("tidy found {} breaches", breaches.len());
}

/// The files `cargo fmt` would change.
fn unformatted() -> Result<Vec<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let checked = Program::new(cargo).args(["fmt", "--all", "--", "--check", "-l"]).run()?;
    if checked.success() {
        return Ok(Vec::new());
    }
    let mut files: Vec<&str> = checked.stdout.lines().filter(|line| line.ends_with(".rs")).collect();
    files.dedup();
    if files.is_empty() {
        return Ok(vec![checked.report()]);
    }
    let root = crate::paths::root();
    Ok(files
        .into_iter()
        .map(|file| format!("{}: not formatted; run cargo fmt", crate::paths::shown(&root.join(file))))
        .collect())
}
