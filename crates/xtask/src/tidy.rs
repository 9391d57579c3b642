//! `cargo xtask tidy`: rules of the house that can be checked by reading.
//!
//! - A crate uses only crates on floors below its own ([`floors`]).
//! - Files keep to a length, say what they are for, and hold no leftovers ([`text`]).

mod floors;
mod text;

use anyhow::{Result, bail};

/// Reports every breach with its place; an error if there is any.
pub fn run() -> Result<()> {
    let mut breaches = floors::check()?;
    breaches.extend(text::check()?);
    if breaches.is_empty() {
        println!("tidy: nothing to complain about");
        return Ok(());
    }
    breaches.iter().for_each(|breach| eprintln!("{breach}"));
    bail!("tidy found {} breaches", breaches.len());
}
