//! `ferrovia bench fabric`: the verbs of a device, without MPI. Paper: miba §2.
//!
//! Both ends are contexts of this process, each with a thread of its own; what one context costs alone is measured on a
//! queue pair that is its own peer. Hot spots with many slaves are left out (they need more processors than ends), and
//! the MTU, of which these devices have none to set.

mod costs;
mod end;
mod floor;
mod private;
mod sampling;
mod transfer;

use crate::environment::Environment;
use crate::journal::Journal;
use crate::record::{FLOOR, FORMAT, Failure, LibraryRecord, Measured, Record, Records, Row, Run};
use crate::suite::{FABRIC, Level, Suite, Test};
use crate::{plan, table};
use anyhow::{Context as _, Result, bail};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

pub use sampling::Sampling;

/// What to measure, and how.
#[derive(clap::Args)]
pub struct Options {
    /// Tests or groups (`ferrovia bench list`), quick or all
    tests: Vec<String>,
    /// Devices to measure beside each other: shm, loopback, verbs
    #[arg(short, long, value_delimiter = ',', default_value = "shm", value_name = "NAME")]
    device: Vec<String>,
    /// How often each test is run, each time on a device opened anew
    #[arg(short, long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// Message sizes in bytes instead of the suite's
    #[arg(long, value_delimiter = ',', value_name = "BYTES")]
    sizes: Vec<u64>,
    /// Sets a parameter of the tests; lists are written 1,2,4
    #[arg(long, value_name = "NAME=VALUE", value_parser = crate::measure::name_and_value)]
    set: Vec<(String, String)>,
    /// Seconds of samples for each point
    #[arg(long, default_value_t = 0.1, value_name = "S", value_parser = crate::measure::positive)]
    seconds: f64,
    /// Most samples of a point
    #[arg(long, default_value_t = 2000, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    samples: u64,
    /// Order of the tests (default: drawn, and recorded)
    #[arg(long)]
    seed: Option<u64>,
    /// Something to remember with the run, such as commit=…
    #[arg(long, value_name = "NAME=VALUE", value_parser = crate::measure::name_and_value)]
    note: Vec<(String, String)>,
    /// Also append the records, as JSON lines, to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    form: table::Form,
}

/// Measures and shows.
///
/// # Errors
/// If a name is not known, a setting in the environment is not understood, or nothing could be measured.
pub fn run(options: &Options) -> Result<ExitCode> {
    let records = records(&Suite::builtin(Level::Fabric)?, options)?;
    options.form.print(&records, &Suite::everything()?)?;
    Ok(if records.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Measures what the options choose of a suite.
///
/// # Errors
/// As [`run`].
pub fn records(suite: &Suite, options: &Options) -> Result<Records> {
    let tests = suite.choose(&options.tests)?;
    if let Some(unknown) = options.device.iter().find(|name| !boot::DEVICES.contains(&name.as_str())) {
        bail!("there is no device {unknown:?}; there are {}", boot::DEVICES.join(", "));
    }
    let seed = options.seed.unwrap_or_else(rand::random);
    let mut journal = Journal::new(options.output.as_deref())?;
    journal.write(Record::Run(run_record(options, seed)))?;
    let mut jobs: Vec<(usize, Option<&String>)> = Vec::new();
    for (index, test) in tests.iter().enumerate() {
        let concerned = options.device.iter().filter(|device| test.concerns(device));
        jobs.extend(concerned.map(|device| (index, Some(device))));
    }
    if tests.iter().any(|test| test.floor.is_some()) {
        jobs.push((0, None));
    }
    let mut random = StdRng::seed_from_u64(seed);
    let mut given_up = BTreeSet::new();
    for repetition in 0..options.repetitions {
        jobs.shuffle(&mut random);
        for (index, device) in &jobs {
            if !given_up.contains(&(*index, *device))
                && !one(options, &tests, tests[*index], *device, repetition, &mut journal)?
            {
                given_up.insert((*index, *device));
            }
        }
    }
    if journal.records.points.is_empty() {
        let reasons: Vec<&str> = journal.records.failures.iter().map(|failure| failure.reason.as_str()).collect();
        bail!("no test gave a result: {}", reasons.join("\n"));
    }
    Ok(journal.records)
}

fn run_record(options: &Options, seed: u64) -> Run {
    Run {
        format: FORMAT,
        command: std::env::args().collect(),
        started_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        seed,
        environment: Environment::captured(&options.note),
        libraries: options
            .device
            .iter()
            .map(|name| LibraryRecord {
                name: name.clone(),
                path: String::new(),
                modified_s: 0,
                settings: BTreeMap::new(),
            })
            .collect(),
    }
}

/// One test on one device, or the floors; false if it failed and need not be tried again.
fn one(
    options: &Options,
    tests: &[&Test],
    test: &Test,
    device: Option<&String>,
    repetition: u32,
    journal: &mut Journal,
) -> Result<bool> {
    let sampling = Sampling { seconds: options.seconds, samples_max: options.samples };
    let (name, ranks, outcome) = match device {
        Some(device) => (device.as_str(), ranks(test), measured(options, test, device, &sampling)),
        None => (FLOOR, 0, Ok(floor::floors(&plan::floor_sizes(tests, &options.sizes), &sampling))),
    };
    let failed = match outcome {
        Ok(all) => {
            for measured in all {
                let row = measured.row.to_string();
                match measured.point(name, repetition, (0.0, 0.0)) {
                    Some(point) => journal.write(Record::Point(point))?,
                    None => bail!("the samples of {row} are no numbers"),
                }
            }
            return Ok(true);
        }
        Err(error) => format!("{error:#}"),
    };
    let failure = Failure { test: test.name.clone(), library: name.to_owned(), ranks, reason: failed };
    journal.write(Record::Failure(failure))?;
    Ok(false)
}

fn ranks(test: &Test) -> u32 {
    if test.group == "costs" { 1 } else { 2 }
}

/// All points of a test on a device opened for it.
fn measured(options: &Options, test: &Test, device: &str, sampling: &Sampling) -> Result<Vec<Measured>> {
    let config = boot::configuration().context("the settings in the environment")?;
    let sizes = if options.sizes.is_empty() { &test.sizes } else { &options.sizes };
    let mut parameters = test.parameters.clone();
    for (name, value) in options.set.iter().filter(|(name, _)| test.parameters.contains_key(name)) {
        parameters.insert(name.clone(), value.clone());
    }
    let mut all = Vec::new();
    for bytes in sizes {
        for values in combinations(&parameters) {
            let open = || boot::open_together(device, ranks(test), &config).map_err(anyhow::Error::msg);
            let rows = match test.group.as_str() {
                "costs" => costs::measure(test.program(), open()?.remove(0), *bytes, sampling)?,
                _ => transfer::measure(test.program(), open()?, *bytes, &values, sampling)?,
            };
            for found in rows {
                let mut row_parameters = values.clone();
                row_parameters.extend(found.parameters);
                let row = Row {
                    test: format!("{FABRIC}{}", test.name),
                    ranks: ranks(test),
                    parameters: row_parameters,
                    bytes: *bytes,
                    unit: found.unit.to_owned(),
                };
                let (operations_per_sample, amount) = (found.taken.per_sample, found.amount);
                all.push(Measured { row, operations_per_sample, amount, samples: found.taken.samples });
            }
        }
    }
    Ok(all)
}

/// Every choice of one value from each list.
fn combinations(parameters: &BTreeMap<String, String>) -> Vec<BTreeMap<String, String>> {
    let mut all = vec![BTreeMap::new()];
    for (name, list) in parameters {
        let with = |chosen: &BTreeMap<String, String>, value: &str| {
            let mut chosen = chosen.clone();
            chosen.insert(name.clone(), value.to_owned());
            chosen
        };
        all = all.iter().flat_map(|chosen| list.split(',').map(move |value| with(chosen, value))).collect();
    }
    all
}

/// What was found of one point, before it has a row.
pub struct Found {
    /// Beyond those of the point.
    parameters: BTreeMap<String, String>,
    unit: &'static str,
    /// Bytes of an operation, where the figure is a rate.
    amount: f64,
    taken: sampling::Taken,
}

impl Found {
    fn time(taken: sampling::Taken) -> Vec<Self> {
        vec![Self { parameters: BTreeMap::new(), unit: "us", amount: 0.0, taken }]
    }

    fn rate(taken: sampling::Taken, amount: f64) -> Vec<Self> {
        vec![Self { parameters: BTreeMap::new(), unit: "MB/s", amount, taken }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every test of the suite leaves points on the devices that need no hardware, and checks what it moved.
    #[test]
    fn every_test_runs_on_software_devices() {
        let suite = Suite::builtin(Level::Fabric).unwrap();
        let sampling = Sampling { seconds: 0.0, samples_max: 1 };
        for device in ["loopback", "tcp", "shm"] {
            for test in &suite.tests {
                let options = Options {
                    tests: Vec::new(),
                    device: Vec::new(),
                    repetitions: 1,
                    sizes: vec![test.sizes[0].min(4096)],
                    set: Vec::new(),
                    seconds: 0.0,
                    samples: 1,
                    seed: None,
                    note: Vec::new(),
                    output: None,
                    form: table::Form::default(),
                };
                let measured = measured(&options, test, device, &sampling)
                    .unwrap_or_else(|error| panic!("{device}, {}: {error:#}", test.name));
                let expected: usize = test.parameters.values().map(|list| list.split(',').count()).product();
                assert!(measured.len() >= expected, "{device}, {}", test.name);
                assert!(measured.iter().all(|measured| !measured.samples.is_empty()), "{device}, {}", test.name);
            }
        }
    }

    #[test]
    fn parameters_are_combined() {
        let lists = BTreeMap::from([("a".to_owned(), "1,2".to_owned()), ("b".to_owned(), "x,y,z".to_owned())]);
        assert_eq!(combinations(&lists).len(), 6);
        assert_eq!(combinations(&BTreeMap::new()), [BTreeMap::new()]);
    }
}
