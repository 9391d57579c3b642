//! Where things lie in the working tree.

use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .and_then(Path::parent)
        .expect("this crate lies two folders below the root")
}

/// Cargo's folder for build results.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// The installation that tests and demo use.
pub fn prefix() -> PathBuf {
    target().join("prefix")
}

/// What was fetched from elsewhere, kept across `cargo clean`.
pub fn cache() -> PathBuf {
    root().join(".cache")
}

/// The path as a person in the working tree would write it.
pub fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
