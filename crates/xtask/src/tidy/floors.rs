//! The floor table: which crate may use which, and which may contain unsafe code.

use crate::paths;
use anyhow::{Context, Result};
use serde_json::Value;
use std::process::Command;

/// One crate's place in the house.
struct Room {
    name: &'static str,
    /// A crate may use crates of lower numbers only.
    floor: u32,
    unsafe_code: bool,
}

const fn room(floor: u32, name: &'static str, unsafe_code: bool) -> Room {
    Room { name, floor, unsafe_code }
}

/// From the ground up.
const HOUSE: [Room; 20] = [
    room(0, "base", true),
    room(1, "lockfree", true),
    room(2, "fabric", true),
    room(3, "fabric-conformance", true),
    room(3, "fabric-soft", true),
    room(3, "fabric-verbs", true),
    room(4, "datatype", true),
    room(5, "protocol", false),
    room(6, "engine", false),
    room(7, "collectives", false),
    room(8, "mpi-core", false),
    room(9, "pmi", false),
    room(10, "boot", false),
    room(10, "vipl", true),
    room(11, "abi", true),
    room(11, "ferrovia", true),
    room(11, "launcher", true),
    room(11, "bench", true),
    room(12, "cli", true),
    room(12, "xtask", false),
];

/// Whether a crate may contain unsafe code.
pub fn may_be_unsafe(name: &str) -> bool {
    HOUSE.iter().find(|room| room.name == name).is_none_or(|room| room.unsafe_code)
}

/// Every dependency that climbs, and every crate that has no place.
pub fn check() -> Result<Vec<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version=1"])
        .current_dir(paths::root())
        .output()
        .context("cannot start cargo")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata gave no JSON")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    Ok(packages.iter().flat_map(breaches).collect())
}

fn breaches(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let Some(room) = find(name) else {
        return vec![format!("crate {name} has no floor in the table of xtask's tidy")];
    };
    let dependencies = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
    dependencies
        .iter()
        .filter(|dependency| dependency["kind"] != "dev") // tests may use the whole house
        .filter_map(|dependency| find(dependency["name"].as_str()?))
        .filter(|used| used.floor >= room.floor)
        .map(|used| format!("crate {name} (floor {}) must not use {} (floor {})", room.floor, used.name, used.floor))
        .collect()
}

fn find(name: &str) -> Option<&'static Room> {
    HOUSE.iter().find(|room| room.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, uses: &[&str]) -> Value {
        let dependencies: Vec<Value> = uses.iter().map(|name| serde_json::json!({ "name": name })).collect();
        serde_json::json!({ "name": name, "dependencies": dependencies })
    }

    #[test]
    fn climbing_is_a_breach() {
        assert!(breaches(&package("engine", &["protocol", "base", "thiserror"])).is_empty());
        assert_eq!(breaches(&package("protocol", &["engine"])).len(), 1);
        assert_eq!(breaches(&package("abi", &["ferrovia"])).len(), 1);
        assert_eq!(breaches(&package("cellar", &[])).len(), 1);
        let tested = serde_json::json!({ "name": "engine", "dependencies": [{ "name": "boot", "kind": "dev" }] });
        assert!(breaches(&tested).is_empty());
    }
}
