//! Plans: which jobs a run consists of.

use crate::rounds;
use crate::suite::Test;
use anyhow::Result;
use std::collections::BTreeSet;

/// One job: a test on one library, in processes of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job {
    /// Index of the test.
    pub test: usize,
    /// Number of ranks.
    pub ranks: u32,
    /// Index of the library; `None` for the floors of the machine.
    pub library: Option<usize>,
    /// What it is called while it runs.
    pub name: String,
}

impl rounds::Job for Job {
    fn together(&self) -> Option<(usize, u32)> {
        self.library.map(|_| (self.test, self.ranks))
    }

    fn shown(&self) -> String {
        self.name.clone()
    }
}

/// What is run on what.
pub struct Shape<'a> {
    /// The tests.
    pub tests: &'a [&'a Test],
    /// Rank counts for all tests, instead of their own.
    pub ranks: &'a [u32],
    /// Names of the libraries.
    pub libraries: &'a [&'a str],
    /// Whether the machine's floors are measured as well.
    pub floors: bool,
    /// Cores of the machine.
    pub cores: u32,
}

/// All jobs, each once.
///
/// # Errors
/// If a test's rank counts are not well formed.
pub fn jobs(shape: &Shape) -> Result<Vec<Job>> {
    let mut all = Vec::new();
    for (test, definition) in shape.tests.iter().enumerate() {
        let counts = if shape.ranks.is_empty() { definition.rank_counts(shape.cores)? } else { shape.ranks.to_vec() };
        for ranks in counts {
            let concerned = shape.libraries.iter().enumerate().filter(|(_, name)| definition.concerns(name));
            all.extend(concerned.map(|(library, name)| Job {
                test,
                ranks,
                library: Some(library),
                name: format!("{} on {ranks} ranks, {name}", definition.name),
            }));
        }
    }
    if shape.floors {
        all.push(Job { test: 0, ranks: 0, library: None, name: "floors of this machine".to_owned() });
    }
    Ok(all)
}

/// The sizes at which copying is measured: those of all tests that are compared with it.
pub fn floor_sizes(tests: &[&Test], sizes: &[u64]) -> Vec<u64> {
    let compared = tests.iter().filter(|test| test.floor.is_some());
    let all: BTreeSet<u64> = if sizes.is_empty() {
        compared.flat_map(|test| test.sizes.iter().copied()).collect()
    } else {
        sizes.iter().copied().collect()
    };
    all.into_iter().filter(|bytes| *bytes > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{Level, Suite};

    #[test]
    fn every_library_has_every_test_on_all_its_rank_counts() {
        let suite = Suite::builtin(Level::Mpi).unwrap();
        let tests = suite.choose(&["latency".to_owned(), "barrier".to_owned()]).unwrap();
        let shape = Shape { tests: &tests, ranks: &[], libraries: &["a", "b", "c"], floors: true, cores: 2 };
        let all = jobs(&shape).unwrap();
        assert_eq!(all.len(), 3 * (1 + 3) + 1);
        assert_eq!(all.iter().cloned().collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(all[1].name, "latency on 2 ranks, b");
    }

    #[test]
    fn a_test_may_concern_some_libraries_only() {
        let mut suite = Suite::builtin(Level::Mpi).unwrap();
        suite.tests.retain(|test| ["latency", "bandwidth"].contains(&test.name.as_str()));
        suite.tests[0].libraries = vec!["b".to_owned()];
        let tests: Vec<&Test> = suite.tests.iter().collect();
        let shape = Shape { tests: &tests, ranks: &[2], libraries: &["a", "b"], floors: false, cores: 2 };
        let mut all = jobs(&shape).unwrap();
        all.sort();
        let all: Vec<_> = all.iter().map(|job| (job.test, job.library)).collect();
        assert_eq!(all, [(0, Some(1)), (1, Some(0)), (1, Some(1))]);
    }
}
