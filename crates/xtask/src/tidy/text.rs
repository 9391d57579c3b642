//! What can be seen in the text of a file: length, header, unsafe code where it is forbidden, leftovers.

use super::floors;
use crate::paths;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// Lines of a Rust file before its tests.
const LINES_MAX: usize = 800;
/// Columns of a line of C; rustfmt sees to Rust.
const COLUMNS_MAX: usize = 120;

/// Words that mark unfinished work or switch a test off, written apart so that this file passes.
const FORBIDDEN: [(&str, &str); 8] = [
    (concat!("TO", "DO"), "finish it, or open an issue"),
    (concat!("FIX", "ME"), "fix it"),
    (concat!("XX", "X "), "say what is meant"),
    (concat!("#[ig", "nore"), "a test that cannot run here prints why and is counted as skipped"),
    (concat!("todo", "!("), "finish it"),
    (concat!("unimple", "mented!("), "finish it"),
    (concat!("<<<<", "<<< "), "merge both sides"),
    (concat!(">>>>", ">>> "), "merge both sides"),
];

/// Reads every tracked source file.
pub fn check() -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(paths::root())
        .output()
        .context("cannot start git")?;
    let mut breaches = Vec::new();
    for name in String::from_utf8_lossy(&output.stdout).split('\0').filter(|name| is_source(name)) {
        // A file may be listed and already deleted.
        let Ok(text) = std::fs::read_to_string(paths::root().join(name)) else { continue };
        breaches.extend(breaches_in(name, &text));
    }
    Ok(breaches)
}

fn is_source(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("rs" | "c" | "h" | "cpp" | "py" | "sh" | "toml" | "md"))
}

fn breaches_in(name: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut complain = |what: String| breaches.push(format!("{name}:{}: {what}", number + 1));
        for (word, advice) in FORBIDDEN {
            if line.contains(word) {
                complain(format!("{word:?}: {advice}"));
            }
        }
        let c = matches!(Path::new(name).extension().and_then(|e| e.to_str()), Some("c" | "h" | "cpp"));
        if c && line.chars().count() > COLUMNS_MAX && !line.contains("http") {
            complain(format!("longer than {COLUMNS_MAX} columns"));
        }
        if line.ends_with([' ', '\t']) {
            complain("blanks at the end of the line".to_owned());
        }
    }
    if name.ends_with(".rs") {
        breaches.extend(rust_breaches(name, text));
    }
    if name.ends_with(".md") {
        breaches.extend(dead_links(name, text));
    }
    breaches
}

/// Links of a document to files that are not there.
fn dead_links(name: &str, text: &str) -> Vec<String> {
    let folder = paths::root().join(name);
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets
        .map(|target| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains("://"))
        .filter(|target| !folder.parent().is_some_and(|folder| folder.join(target).exists()))
        .map(|target| format!("{name}: links to {target}, which is not there"))
        .collect()
}

fn rust_breaches(name: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
    if lines > LINES_MAX {
        breaches.push(format!("{name}: {lines} lines before its tests; {LINES_MAX} at most"));
    }
    if name.contains("/src/") && !text.starts_with("//!") {
        breaches.push(format!("{name}: does not begin by saying what it is for (`//! …`)"));
    }
    if name.ends_with("/src/lib.rs") {
        for word in ["Floor: ", "**Invariants**", "eliberately absent"] {
            if !text.contains(word) {
                breaches.push(format!("{name}: the crate's header does not say {word:?}"));
            }
        }
    }
    if let Some(package) = name.strip_prefix("crates/").and_then(|rest| rest.split('/').next()) {
        let root = name.ends_with("/src/lib.rs") || name.ends_with("/src/main.rs");
        if root && !floors::may_be_unsafe(package) && !text.contains("#![forbid(unsafe_code)]") {
            breaches.push(format!("{name}: crate {package} must say #![forbid(unsafe_code)]"));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str, expected: usize) {
        let breaches = breaches_in(name, text);
        assert_eq!(breaches.len(), expected, "{breaches:?}");
    }

    #[test]
    fn breaches_are_found() {
        check("crates/base/src/x.rs", "//! A file.\nfn f() {}\n", 0);
        check("crates/base/src/x.rs", "fn f() {} \n", 2);
        check("README.md", concat!("TO", "DO\n"), 1);
        check("README.md", concat!("<<<<", "<<< HEAD\nours\n=======\ntheirs\n>>>>", ">>> 1234 theirs\n"), 2);
        check("README.md", "[a](Cargo.toml) [b](https://a.b) [c](#part) [d](no-such-file.md)\n", 1);
        check("crates/pmi/src/lib.rs", "//! P.\n//! Floor: x. **Invariants** Deliberately absent: y\n", 1);
        check("tests/c/x.c", &format!("// {}\n", "x".repeat(120)), 1);
        let long = format!("//! A file.\n{}", "fn f() {}\n".repeat(LINES_MAX));
        check("crates/base/src/x.rs", &long, 1);
        check("crates/base/src/x.rs", &long.replacen("fn f() {}\n", "#[cfg(test)]\n", 1), 0);
    }
}
