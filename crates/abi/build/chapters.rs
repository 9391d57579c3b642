//! Which calls are written: found by looking at the chapter sources.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// From the name of a chapter function to the name of its chapter.
pub fn scan(folder: &Path) -> HashMap<String, String> {
    let mut found = HashMap::new();
    for entry in fs::read_dir(folder).expect("the chapters are there") {
        let path = entry.expect("the chapters can be listed").path();
        let chapter = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        if chapter == "mod" || path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        for name in source.lines().filter_map(function_name) {
            if let Some(other) = found.insert(name.to_owned(), chapter.clone()) {
                panic!("{name} stands in the chapters {other} and {chapter}");
            }
        }
    }
    found
}

/// The name of the function that a line defines for the entry points.
fn function_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub(crate) ")?;
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest).strip_prefix("fn ")?;
    rest.split(['(', '<']).next()
}
