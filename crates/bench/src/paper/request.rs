//! What must be run for a paper: rows of the same test become one test of a suite, so that nothing is run twice.

use super::data::{Entry, Measurement};
use crate::library::{OURS, PEERS};
use crate::suite::{Level, Suite, Test};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Rows that one job can measure together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    test: String,
    ranks: u32,
    /// Parameters of which the program takes one value only.
    single: BTreeMap<String, String>,
    counter: Option<String>,
}

#[derive(Default)]
struct Together {
    sizes: BTreeSet<u64>,
    /// Values of parameters of which the program takes a list.
    lists: BTreeMap<String, BTreeSet<String>>,
    libraries: BTreeSet<String>,
}

/// The tests that measure all entries of a level; none if there are none. `devices`: those asked for. Peers take part
/// where the paper has a rival's figure.
///
/// # Errors
/// If an entry names a test that the suite does not have.
pub fn suite(level: Level, entries: &[Entry], devices: &[String]) -> Result<Suite> {
    let known = Suite::builtin(level)?;
    let mut jobs: BTreeMap<Key, Together> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.measurement.level == level) {
        let of = &entry.measurement;
        let test = find(&known, &of.test)?;
        let (lists, single) = split(test, of);
        let key = Key { test: of.test.clone(), ranks: of.ranks, single, counter: of.counter.clone() };
        let together = jobs.entry(key).or_default();
        together.sizes.insert(entry.bytes);
        for (name, value) in lists {
            together.lists.entry(name).or_default().insert(value);
        }
        together.libraries.extend(libraries(of, devices));
        if entry.paper_peer.is_some() {
            together.libraries.extend(PEERS.map(|(_, name, _)| name.to_owned()));
        }
    }
    let tests = jobs.into_iter().map(|(key, together)| {
        let mut test = find(&known, &key.test)?.clone();
        test.ranks = vec![key.ranks.to_string()];
        test.sizes = together.sizes.into_iter().collect();
        test.parameters.extend(key.single);
        let listed = together.lists.into_iter().map(|(name, values)| (name, in_order(values)));
        test.parameters.extend(listed);
        test.counters.extend(key.counter);
        test.libraries = together.libraries.into_iter().collect();
        Ok(test)
    });
    Ok(Suite { tests: tests.collect::<Result<_>>()? })
}

fn find<'a>(suite: &'a Suite, name: &str) -> Result<&'a Test> {
    suite.tests.iter().find(|test| test.name == name).with_context(|| format!("there is no test {name:?}"))
}

/// The parameters of which the test takes a list, as the suite shows by giving one, and those of which it takes a value.
fn split(test: &Test, of: &Measurement) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let takes_list = |name: &String| test.parameters.get(name).is_some_and(|default| default.contains(','));
    let (lists, mut single): (BTreeMap<_, _>, BTreeMap<_, _>) = of
        .parameters
        .iter()
        .filter(|(name, _)| test.parameters.contains_key(*name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .partition(|(name, _)| takes_list(name));
    single.extend(of.set.clone());
    (lists, single)
}

/// Numbers by size, other values by name.
fn in_order(values: BTreeSet<String>) -> String {
    let mut values: Vec<String> = values.into_iter().collect();
    values.sort_by_key(|value| (value.parse::<u64>().unwrap_or(u64::MAX), value.clone()));
    values.join(",")
}

/// Whom the entry is measured on.
pub fn libraries(of: &Measurement, devices: &[String]) -> Vec<String> {
    match (of.level, &of.device, &of.variant) {
        (Level::Fabric, Some(device), _) => vec![device.clone()],
        (Level::Fabric, None, _) => devices.to_vec(),
        (_, _, Some(variant)) => vec![variant.clone()],
        _ => vec![OURS.to_owned()],
    }
}

/// Whether what is measured exists on a device; libraries have everything.
pub fn has_it(of: &Measurement, library: &str) -> bool {
    let on_device = |suite: Suite| find(&suite, &of.test).is_ok_and(|test| test.can_use(library));
    of.level != Level::Fabric || Suite::builtin(Level::Fabric).is_ok_and(on_device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::data::Paper;

    #[test]
    fn rows_of_a_test_are_measured_together() {
        let row = |what: &str, more: &str| {
            format!("[[row]]\nwhat = \"{what}\"\nsource = \"S\"\nlevel = \"mpi\"\nunit = \"us\"\nranks = 2\n{more}\n")
        };
        let text = [
            "title = \"T\"\n[[variant]]\nname = \"V\"\n".to_owned(),
            row("a", "test = \"unexpected\"\nbytes = 8\nparameters = { depth = \"16\" }"),
            row("b", "test = \"unexpected\"\nbytes = 64\nparameters = { depth = \"4\" }\nvariant = \"V\""),
            row("c", "test = \"latency\"\nbytes = 8"),
            row("d", "test = \"latency\"\nbytes = 8\nset = { way = \"x\" }"),
        ];
        let entries = Paper::parse(&text.concat()).unwrap().entries();
        let suite = suite(Level::Mpi, &entries, &[]).unwrap();
        let names: Vec<&str> = suite.tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["latency", "latency", "unexpected"]);
        let unexpected = &suite.tests[2];
        assert_eq!((unexpected.parameters["depth"].as_str(), &unexpected.sizes[..]), ("4,16", &[8, 64][..]));
        assert_eq!(unexpected.libraries, ["Ferrovia", "V"]);
        assert_eq!(suite.tests[1].parameters["way"], "x");
        assert!(super::suite(Level::Fabric, &entries, &[]).unwrap().tests.is_empty());
    }
}
