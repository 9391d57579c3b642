//! Plans: which jobs a run consists of, in which order.

use crate::suite::Test;
use anyhow::Result;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::collections::BTreeSet;

/// Most jobs of one run.
pub const JOBS_MAX: usize = 100_000;

/// One job: a test on one library, in processes of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job {
    /// Which repetition, from 0.
    pub repetition: u32,
    /// Index of the test.
    pub test: usize,
    /// Number of ranks.
    pub ranks: u32,
    /// Index of the library; `None` for the floors of the machine.
    pub library: Option<usize>,
}

/// What is repeated over what.
pub struct Shape<'a> {
    /// The tests.
    pub tests: &'a [&'a Test],
    /// Rank counts for all tests, instead of their own.
    pub ranks: &'a [u32],
    /// Names of the libraries.
    pub libraries: &'a [&'a str],
    /// Number of repetitions.
    pub repetitions: u32,
    /// Whether the machine's floors are measured as well.
    pub floors: bool,
    /// Cores of the machine.
    pub cores: u32,
}

/// All jobs: each repetition holds every job once, in an order of its own drawn from the seed.
///
/// # Errors
/// If a test's rank counts are not well formed, or there are more jobs than the limit.
pub fn jobs(shape: &Shape, seed: u64) -> Result<Vec<Job>> {
    let mut once = Vec::new();
    for (test, definition) in shape.tests.iter().enumerate() {
        let counts = if shape.ranks.is_empty() { definition.rank_counts(shape.cores)? } else { shape.ranks.to_vec() };
        for ranks in counts {
            let concerned = shape.libraries.iter().enumerate().filter(|(_, name)| definition.concerns(name));
            once.extend(concerned.map(|(library, _)| Job { repetition: 0, test, ranks, library: Some(library) }));
        }
    }
    if shape.floors {
        once.push(Job { repetition: 0, test: 0, ranks: 0, library: None });
    }
    if once.len() * shape.repetitions as usize > JOBS_MAX {
        anyhow::bail!("{} jobs, {} times, are more than {JOBS_MAX}", once.len(), shape.repetitions);
    }
    let mut random = StdRng::seed_from_u64(seed);
    let mut all = Vec::new();
    for repetition in 0..shape.repetitions {
        once.shuffle(&mut random);
        all.extend(once.iter().map(|job| Job { repetition, ..*job }));
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

    fn jobs_of(seed: u64) -> Vec<Job> {
        let suite = Suite::builtin(Level::Mpi).unwrap();
        let tests = suite.choose(&["latency".to_owned(), "barrier".to_owned()]).unwrap();
        let shape =
            Shape { tests: &tests, ranks: &[], libraries: &["a", "b", "c"], repetitions: 4, floors: true, cores: 2 };
        jobs(&shape, seed).unwrap()
    }

    #[test]
    fn every_repetition_holds_every_job_once() {
        let all = jobs_of(1);
        let mut first: Option<Vec<Job>> = None;
        for repetition in 0..4 {
            let mut these: Vec<Job> = all
                .iter()
                .filter(|job| job.repetition == repetition)
                .map(|job| Job { repetition: 0, ..*job })
                .collect();
            these.sort();
            assert_eq!(these.len(), 3 * (1 + 3) + 1);
            assert_eq!(*first.get_or_insert(these.clone()), these);
        }
    }

    #[test]
    fn the_seed_is_the_order() {
        assert_eq!(jobs_of(5), jobs_of(5));
        assert_ne!(jobs_of(5), jobs_of(6));
        let all = jobs_of(5);
        let order =
            |repetition| all.iter().filter(move |job| job.repetition == repetition).map(|job| (job.test, job.library));
        assert!(!order(0).eq(order(1)), "each repetition has an order of its own");
    }

    #[test]
    fn too_many_jobs_are_refused() {
        let suite = Suite::builtin(Level::Mpi).unwrap();
        let tests = suite.choose(&["all".to_owned()]).unwrap();
        let shape =
            Shape { tests: &tests, ranks: &[], libraries: &["a"; 9], repetitions: 1000, floors: false, cores: 2 };
        assert!(jobs(&shape, 1).is_err());
    }

    #[test]
    fn a_test_may_concern_some_libraries_only() {
        let mut suite = Suite::builtin(Level::Mpi).unwrap();
        suite.tests.retain(|test| ["latency", "bandwidth"].contains(&test.name.as_str()));
        suite.tests[0].libraries = vec!["b".to_owned()];
        let tests: Vec<&Test> = suite.tests.iter().collect();
        let shape =
            Shape { tests: &tests, ranks: &[2], libraries: &["a", "b"], repetitions: 1, floors: false, cores: 2 };
        let mut all = jobs(&shape, 1).unwrap();
        all.sort();
        let all: Vec<_> = all.iter().map(|job| (job.test, job.library)).collect();
        assert_eq!(all, [(0, Some(1)), (1, Some(0)), (1, Some(1))]);
    }
}
