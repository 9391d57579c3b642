//! `ferrovia bench fabric`: the verbs of a device, without MPI. Paper: miba §2.
//!
//! One end is measured, in this process; each of the others lives in a process of its own, or in a thread where the
//! device exists within one process only. What one context costs alone is measured on a queue pair that is its own peer.
//! On the simulated network the network's time counts, and the ends take turns: equal runs have equal results.

mod card;
mod costs;
mod end;
mod floor;
mod helper;
mod memory;
mod opening;
mod places;
mod polling;
mod private;
mod process;
mod provider;
mod raw;
mod registering;
mod sampling;
mod transfer;
mod turns;

use crate::environment::Environment;
use crate::journal::Journal;
use crate::pace::{self, Pace};
use crate::plan::Job;
use crate::record::{FLOOR, FORMAT, Failure, LibraryRecord, Measured, Record, Records, Row, Run};
use crate::rounds::{self, Effort};
use crate::suite::{FABRIC, Level, Suite, Test};
use crate::{plan, table};
use anyhow::{Context as _, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

pub use opening::Ends;
use opening::Opening;
pub use process::{TASK, live};
pub use provider::{END as PROVIDER_END, NAME as PROVIDER, live as live_as_provider};
pub use sampling::Sampling;

/// The word for every device that is found on this machine.
pub const PRESENT: &str = "present";

/// What to measure, and how.
#[derive(clap::Args)]
pub struct Options {
    /// Tests or groups (`ferrovia bench list`), quick or all
    tests: Vec<String>,
    /// Devices to measure beside each other: shm, tcp, sim, verbs, loopback; present: those found here but the last;
    /// socket: bare sockets, the floor of tcp; vipl: the VI Provider Library
    #[arg(short, long, value_delimiter = ',', default_value = PRESENT, value_name = "NAME")]
    device: Vec<String>,
    /// Where the other ends live
    #[arg(long, value_enum, default_value = "processes")]
    ends: Ends,
    #[command(flatten)]
    effort: Effort,
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
    /// Do not look at the machine's pace before and after points of two ends; rows then hold whatever pace was met
    #[arg(long)]
    no_pace: bool,
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
    if rounds::is_interrupted() {
        return Ok(rounds::interrupted_code());
    }
    Ok(if records.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Measures what the options choose of a suite.
///
/// # Errors
/// As [`run`].
pub fn records(suite: &Suite, options: &Options) -> Result<Records> {
    let tests = suite.choose(&options.tests)?;
    if let Some((name, _)) =
        options.set.iter().find(|(name, _)| !tests.iter().any(|test| test.parameters.contains_key(name)))
    {
        bail!("no test named here takes a parameter {name:?}");
    }
    let devices = devices(&options.device)?;
    for device in &devices {
        let without = tests.iter().filter(|test| !test.can_use(device)).map(|test| test.name.as_str());
        let without: Vec<&str> = without.collect();
        if !without.is_empty() {
            eprintln!("{device} has nothing to measure for {}", without.join(", "));
        }
    }
    let seed = options.seed.unwrap_or_else(rand::random);
    let mut journal = Journal::new(options.output.as_deref())?;
    journal.write(Record::Run(run_record(options, &devices, seed)))?;
    let mut jobs = Vec::new();
    for (index, test) in tests.iter().enumerate() {
        let concerned = devices.iter().filter(|device| test.concerns(device) && test.can_use(device));
        jobs.extend(concerned.map(|device| {
            let name = format!("{} on {device}", test.name);
            Job { test: index, ranks: ranks(test), library: devices.iter().position(|other| other == device), name }
        }));
    }
    if tests.iter().any(|test| test.floor.is_some()) {
        jobs.push(Job { test: 0, ranks: 0, library: None, name: "floors of this machine".to_owned() });
    }
    rounds::run(&options.effort, &jobs, seed, |job, round| {
        let device = job.library.map(|device| &devices[device]);
        one(options, &tests, tests[job.test], device, round, &mut journal)
    })?;
    if journal.records.points.is_empty() && rounds::is_interrupted() {
        bail!("interrupted before anything was measured");
    }
    if journal.records.points.is_empty() {
        let reasons: Vec<&str> = journal.records.failures.iter().map(|failure| failure.reason.as_str()).collect();
        bail!("no test gave a result: {}", reasons.join("\n"));
    }
    Ok(journal.records)
}

/// The devices that these words mean.
///
/// # Errors
/// If one is no device.
pub fn devices(words: &[String]) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for word in words {
        let known = boot::DEVICES.contains(&word.as_str()) || [raw::NAME, PROVIDER].contains(&word.as_str());
        if word == PRESENT {
            let config = boot::configuration().context("the settings in the environment")?;
            let found = boot::devices(&config).into_iter().filter(|device| device.found.is_ok());
            names.extend(
                found.map(|device| device.name.to_owned()).filter(|name| boot::DEVICES.contains(&name.as_str())),
            );
        } else if known {
            names.push(word.clone());
        } else {
            bail!("there is no device {word:?}; there are {}, {}, {PROVIDER}", boot::DEVICES.join(", "), raw::NAME);
        }
    }
    let mut once = BTreeSet::new();
    names.retain(|name| once.insert(name.clone()));
    Ok(names)
}

fn run_record(options: &Options, devices: &[String], seed: u64) -> Run {
    Run {
        format: FORMAT,
        command: std::env::args().collect(),
        started_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        seed,
        environment: Environment::captured(&options.note),
        libraries: devices
            .iter()
            .map(|name| LibraryRecord {
                name: name.clone(),
                path: String::new(),
                modified_s: 0,
                version: String::new(),
                settings: BTreeMap::new(),
            })
            .collect(),
    }
}

/// One test on one device, or the floors.
fn one(
    options: &Options,
    tests: &[&Test],
    test: &Test,
    device: Option<&String>,
    repetition: u32,
    journal: &mut Journal,
) -> Result<rounds::Found> {
    let sampling = Sampling { seconds: options.seconds, samples_max: options.samples, operations_min: 1 };
    let (name, ranks, outcome) = match device {
        Some(device) => (device.as_str(), ranks(test), measured(options, test, device, &sampling)),
        None => (FLOOR, 0, Ok(floor::floors(&plan::floor_sizes(tests, &options.sizes), &sampling, !options.no_pace))),
    };
    let failed = match outcome {
        Ok(all) => {
            let mut found = Vec::new();
            for measured in all {
                let row = measured.row.clone();
                let Some(point) = measured.point(name, repetition, (0.0, 0.0)) else {
                    bail!("the samples of {row} are no numbers");
                };
                found.push((row, point.median));
                journal.write(Record::Point(point))?;
            }
            return Ok(Some(found));
        }
        // Its processes heard of it, too.
        Err(_) if rounds::is_interrupted() => return Ok(None),
        Err(error) => format!("{error:#}"),
    };
    let failure = Failure { test: test.name.clone(), library: name.to_owned(), ranks, reason: failed };
    journal.write(Record::Failure(failure))?;
    Ok(None)
}

fn ranks(test: &Test) -> u32 {
    if matches!(test.group.as_str(), "costs" | "polling") { 1 } else { 2 }
}

/// All points of a test on a device opened for it.
fn measured(options: &Options, test: &Test, device: &str, sampling: &Sampling) -> Result<Vec<Measured>> {
    let opening = Opening { device: device.to_owned(), ends: options.ends, mtu_bytes: None };
    let sizes = if options.sizes.is_empty() { &test.sizes } else { &options.sizes };
    let mut parameters = test.parameters.clone();
    for (name, value) in options.set.iter().filter(|(name, _)| test.parameters.contains_key(name)) {
        parameters.insert(name.clone(), value.clone());
    }
    let mut all = Vec::new();
    for bytes in sizes {
        for values in combinations(&parameters) {
            // Beside devices the floor of one is measured where there is one.
            if device == raw::NAME && options.device.len() > 1 && !raw::has(test.program(), &values) {
                continue;
            }
            let measure = || match test.group.as_str() {
                _ if device == raw::NAME => raw::measure(test.program(), *bytes, &values, sampling),
                _ if device == PROVIDER => provider::measure(test.program(), options.ends, *bytes, &values, sampling),
                "polling" => polling::measure(&values, sampling),
                "registering" => registering::measure(*bytes, &values, sampling),
                "costs" => costs::measure(test.program(), &opening, *bytes, &values, sampling),
                _ => transfer::measure(test.program(), &opening, *bytes, &values, sampling),
            };
            // Virtual time has one pace, and so has who is alone; more ends than two meet both.
            let is_of_two = ranks(test) == 2 && device != "sim" && !values.contains_key("slaves");
            let asks = is_of_two && !options.no_pace;
            let (rows, met) = if asks { paced(measure)? } else { (measure()?, None) };
            all.extend(rows.into_iter().map(|found| found.measured(test, *bytes, &values, met)));
        }
    }
    Ok(all)
}

/// What is measured, and the machine's pace if it was the same before and after.
fn paced(measure: impl FnOnce() -> Result<Vec<Found>>) -> Result<(Vec<Found>, Option<Pace>)> {
    let before = Pace::of(floor::line_now_ns());
    let found = measure()?;
    Ok((found, before.filter(|pace| Pace::of(floor::line_now_ns()) == Some(*pace))))
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
    /// Behind the name of the test.
    suffix: &'static str,
    /// Beyond those of the point.
    parameters: BTreeMap<String, String>,
    unit: &'static str,
    /// Bytes of an operation, where the figure is a rate.
    amount: f64,
    taken: sampling::Taken,
}

impl Found {
    fn measured(self, test: &Test, bytes: u64, values: &BTreeMap<String, String>, met: Option<Pace>) -> Measured {
        let mut parameters = values.clone();
        parameters.extend(self.parameters);
        let row = Row {
            test: format!("{FABRIC}{}{}", test.name, self.suffix),
            ranks: ranks(test),
            parameters,
            bytes,
            unit: self.unit.to_owned(),
        };
        let (operations_per_sample, amount) = (self.taken.per_sample, self.amount);
        let row = pace::of_row(&row, met);
        Measured { row, operations_per_sample, amount, samples: self.taken.samples, unpaced: 0, again: false }
    }

    fn time(taken: sampling::Taken) -> Vec<Self> {
        vec![Self { suffix: "", parameters: BTreeMap::new(), unit: "us", amount: 0.0, taken }]
    }

    /// A time that is told in nanoseconds.
    fn short_time(taken: sampling::Taken) -> Vec<Self> {
        Self::time(taken).into_iter().map(|found| Self { unit: "ns", ..found }).collect()
    }

    fn rate(taken: sampling::Taken, amount: f64) -> Vec<Self> {
        vec![Self { suffix: "", parameters: BTreeMap::new(), unit: "MB/s", amount, taken }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Options {
        #[derive(clap::Parser)]
        struct Words {
            #[command(flatten)]
            options: Options,
        }
        <Words as clap::Parser>::parse_from(std::iter::once(&"fabric").chain(words)).options
    }

    /// Every test of the suite leaves points on the devices that need no hardware, and checks what it moved. The ends
    /// are threads: this program cannot be started as an end.
    #[test]
    fn every_test_runs_on_software_devices() {
        let suite = Suite::builtin(Level::Fabric).unwrap();
        let sampling = Sampling { seconds: 0.0, samples_max: 1, operations_min: 1 };
        for device in ["loopback", "tcp", "shm", "sim", PROVIDER] {
            for test in suite.tests.iter().filter(|test| test.can_use(device)) {
                let size = test.sizes[0].clamp(64, 4096).to_string();
                let options = options(&["--ends", "threads", "--sizes", &size, "--set", "slaves=1,3"]);
                let measured = measured(&options, test, device, &sampling)
                    .unwrap_or_else(|error| panic!("{device}, {}: {error:#}", test.name));
                let count =
                    |(name, list): (&String, &String)| if name == "slaves" { 2 } else { list.split(',').count() };
                let expected: usize = test.parameters.iter().map(count).product();
                assert!(measured.len() >= expected, "{device}, {}", test.name);
                assert!(measured.iter().all(|measured| !measured.samples.is_empty()), "{device}, {}", test.name);
            }
        }
    }

    /// Virtual time: a message of `k` bytes takes what the network's plan says, and every run says the same.
    #[test]
    fn a_simulated_network_gives_the_same_figures_every_time() {
        let suite = Suite::builtin(Level::Fabric).unwrap();
        let run = |test: &str, words: &[&str]| -> Vec<(String, Vec<f64>)> {
            let test = suite.choose(&[test.to_owned()]).unwrap()[0];
            let sampling = Sampling { seconds: 1e-5, samples_max: 8, operations_min: 1 };
            let all = measured(&options(words), test, "sim", &sampling).unwrap();
            all.into_iter().map(|measured| (measured.row.to_string(), measured.samples)).collect()
        };
        let latency = run("latency", &["--sizes", "8", "--set", "operation=send"]);
        // o + 7 G + L + o with 100, 0.04 and 800 ns; the fractions of a nanosecond are cut off.
        assert!(latency[0].1.iter().all(|sample| *sample == 1000.0), "{latency:?}");
        let write = run("latency", &["--sizes", "8", "--set", "operation=write"]);
        assert_eq!(write[0].1, latency[0].1, "a write is noticed the moment it is there");
        for (test, words) in [
            ("bandwidth", &["--sizes", "4096"][..]),
            ("hot-spot-send-receive", &["--set", "slaves=1,4"]),
            ("computation", &[]),
        ] {
            assert_eq!(run(test, words), run(test, words), "{test}");
        }
        let cut = run("mtu-bandwidth", &["--sizes", "65536"]);
        let rate = |mtu: &str| {
            let row = cut.iter().find(|(row, _)| row.contains(&format!("mtu={mtu}"))).unwrap();
            row.1.iter().sum::<f64>() / row.1.len() as f64
        };
        assert!(rate("256") > 1.05 * rate("4096"), "smaller packets cost more time: {cut:?}");
    }

    #[test]
    fn devices_are_named_once_or_all_that_are_present() {
        let names = |words: &[&str]| devices(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(names(&["tcp", "shm", "tcp"]).unwrap(), ["tcp", "shm"]);
        let present = names(&[PRESENT]).unwrap();
        assert!(present.starts_with(&["shm".to_owned(), "tcp".to_owned(), "sim".to_owned()]), "{present:?}");
        assert!(names(&["pigeon"]).is_err_and(|error| error.to_string().contains("shm")));
    }

    #[test]
    fn parameters_are_combined() {
        let lists = BTreeMap::from([("a".to_owned(), "1,2".to_owned()), ("b".to_owned(), "x,y,z".to_owned())]);
        assert_eq!(combinations(&lists).len(), 6);
        assert_eq!(combinations(&BTreeMap::new()), [BTreeMap::new()]);
    }
}
