//! The workspace's own unit, property and documentation tests.

use super::{Case, miri};
use crate::command::{Program, exists};
use std::time::Duration;

/// With `cargo nextest` where it is installed, else with `cargo test`; documentation tests always by cargo.
pub fn cases() -> Vec<Case> {
    let cargo =
        || Program::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).limit(Duration::from_secs(900));
    vec![
        Case::new("cargo/test", move |_| {
            let command = match exists("cargo-nextest") {
                true => cargo().args(["nextest", "run", "--workspace", "--no-fail-fast", "--no-tests=pass"]),
                false => cargo().args(["test", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"]),
            };
            // As long as a storm must be weathered; the rest of the tests take longer beside it.
            command.env("FABRIC_SOFT_STORM_SECONDS", "60").run_openly()
        }),
        // The model checker replaces the atomics of whole crates, so it builds beside everything else.
        Case::new("cargo/loom", move |_| {
            cargo()
                .args(["test", "--release", "--package=lockfree", "--test=loom", "--target-dir"])
                .arg(crate::paths::target().join("loom"))
                .env("RUSTFLAGS", "--cfg loom")
                .run_openly()
        }),
        Case::that_may_skip("cargo/miri", |_| miri::run()),
        Case::new("cargo/doc", move |_| cargo().args(["test", "--workspace", "--doc"]).run_openly()),
    ]
}
