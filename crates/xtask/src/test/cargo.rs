//! The workspace's own unit, property and documentation tests.

use super::{Case, Verdict, miri};
use crate::command::{Program, exists};
use crate::paths;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Tests that are named where they give the same reason.
const TESTS_SHOWN_MAX: usize = 3;

/// With `cargo nextest` where it is installed, else with `cargo test`; documentation tests always by cargo.
pub fn cases() -> Vec<Case> {
    let cargo =
        || Program::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).limit(Duration::from_secs(900));
    vec![
        Case::that_may_skip("cargo/test", move |_| {
            // As long as a storm must be weathered; the rest of the tests take longer beside it.
            let cargo = || cargo().env("FABRIC_SOFT_STORM_SECONDS", "60");
            if !exists("cargo-nextest") {
                let all = ["test", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"];
                return cargo().args(all).run_openly().map(|()| Verdict::Passed);
            }
            cargo().args(["nextest", "run", "--workspace", "--no-fail-fast", "--no-tests=pass"]).run_openly()?;
            let report = paths::target().join("nextest/default/junit.xml");
            let report = std::fs::read_to_string(&report).with_context(|| format!("no {}", report.display()))?;
            Ok(Verdict::PassedInPart(left_out(&report)?))
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

/// What the tests of a report in JUnit's form say they could not try: each reason once, with the tests that give it.
fn left_out(report: &str) -> Result<Vec<String>> {
    let report = roxmltree::Document::parse(report).context("the report of cargo nextest")?;
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for test in report.descendants().filter(|node| node.has_tag_name("testcase")) {
        let outputs = test.children().filter(|node| node.has_tag_name("system-out") || node.has_tag_name("system-err"));
        for line in outputs.filter_map(|output| output.text()).flat_map(str::lines) {
            let why = ["skipped: ", "skipped in part: "].iter().find_map(|mark| Some(line.split_once(mark)?.1));
            if let Some(why) = why {
                found.entry(why).or_default().insert(test.attribute("name").unwrap_or_default());
            }
        }
    }
    let shown = |tests: &BTreeSet<&str>| match tests.len() {
        0..=TESTS_SHOWN_MAX => tests.iter().copied().collect::<Vec<_>>().join(", "),
        count => format!("{count} tests"),
    };
    Ok(found.iter().map(|(why, tests)| format!("{why} ({})", shown(tests))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tests_could_not_try_is_found_in_the_report() {
        let report = r#"<?xml version="1.0" encoding="UTF-8"?><testsuites name="nextest-run"><testsuite name="crate">
            <testcase name="a::b" time="0.1"><system-out>test a::b ... skipped: no device: it&apos;s &lt;gone&gt;
ok</system-out><system-err>skipped in part: no IPv6</system-err></testcase>
            <testcase name="c" time="0.1"><system-out>9 cases passed, 0 skipped</system-out></testcase>
            <testcase name="d" time="0.1"><system-out>skipped: no device: it&apos;s &lt;gone&gt;
skipped: no device: it&apos;s &lt;gone&gt;</system-out></testcase></testsuite></testsuites>"#;
        let expected = ["no IPv6 (a::b)", "no device: it's <gone> (a::b, d)"];
        assert_eq!(left_out(report).unwrap(), expected);
        assert!(left_out("<testsuites>").is_err());
    }
}
