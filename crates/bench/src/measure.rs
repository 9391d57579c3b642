//! `ferrovia bench mpi` and `app`: libraries beside each other, in one run.

use crate::environment::{self, Environment};
use crate::job::{self, Ended};
use crate::journal::Journal;
use crate::library::{self, Library, Variant};
use crate::plan::{self, Job, Shape};
use crate::programs;
use crate::record::{FLOOR, FORMAT, Failure, Measured, Record, Records, Row, Run};
use crate::rounds::{self, Effort, Found};
use crate::suite::{self, Level, Suite, Test};
use crate::table;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How much longer than a job's own limit its launcher may take to end it.
const LAUNCHER_GRACE: Duration = Duration::from_secs(5);

/// What to measure, and how.
#[derive(clap::Args)]
pub struct Options {
    /// Tests or groups (`ferrovia bench list`), quick or all
    tests: Vec<String>,
    /// Rank counts instead of the suite's: 4, cores or 2*cores, separated by commas
    #[arg(short = 'n', long, value_delimiter = ',', value_name = "N")]
    ranks: Vec<String>,
    /// Libraries to measure; the others are compared with the first. A library's file, the folder of an installation
    /// (either as NAME=PATH), ours, mpich, intel or openmpi. Default: ours and every peer found
    #[arg(long, num_args = 1.., value_name = "PATH")]
    lib: Vec<String>,
    /// Our library once more, under settings of its own; may be given several times. Then peers take part if --lib
    /// names them
    #[arg(long, value_name = "NAME:SETTING=VALUE,…")]
    variant: Vec<Variant>,
    /// Performance variables (MPI_T) of the library: how much they grow with each operation, all ranks together; a/b
    /// for a share in per cent, a+b for a sum
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    counters: Vec<String>,
    #[command(flatten)]
    effort: Effort,
    /// Message sizes in bytes instead of the suite's
    #[arg(long, value_delimiter = ',', value_name = "BYTES")]
    sizes: Vec<u64>,
    /// Sets a parameter of the tests, as the column of parameters shows it
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_and_value)]
    set: Vec<(String, String)>,
    /// Seconds of samples for each point
    #[arg(long, default_value_t = 0.2, value_name = "S", value_parser = positive)]
    seconds: f64,
    /// Most samples of a point
    #[arg(long, default_value_t = 2000, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    samples: u64,
    /// Time every operation by itself, even if reading the clock then counts
    #[arg(long)]
    per_operation: bool,
    /// Begin every collective at a moment agreed upon, by clocks set against each other
    #[arg(long)]
    agreed_start: bool,
    /// Do not look at the machine's pace between samples of two ranks; rows then hold whatever pace was met
    #[arg(long)]
    no_pace: bool,
    /// Slow every sample down by this many per cent of itself, to see whether it is found
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT", value_parser = not_negative)]
    inject_delay: f64,
    /// Ends a job that takes longer
    #[arg(long, default_value_t = 60.0, value_name = "S", value_parser = positive)]
    limit: f64,
    /// Order of the jobs (default: drawn, and recorded)
    #[arg(long)]
    seed: Option<u64>,
    /// Do not measure the machine's floors
    #[arg(long)]
    no_floor: bool,
    /// A suite of your own instead of the built-in one
    #[arg(long, value_name = "FILE")]
    suite: Option<PathBuf>,
    /// The installation that `ours` means (default: the one this program belongs to)
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// Where peers are looked for (default: ~/.cache/ferrovia-peers)
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Something to remember with the run, such as commit=…
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_and_value)]
    note: Vec<(String, String)>,
    /// Also append the records, as JSON lines, to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    form: table::Form,
}

pub(crate) fn name_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("a number, 0 or more".to_owned()),
    }
}

pub(crate) fn positive(text: &str) -> Result<f64, String> {
    match not_negative(text)? {
        value if value > 0.0 && value <= 1e6 => Ok(value),
        _ => Err("a number above 0".to_owned()),
    }
}

/// Measures and shows.
///
/// # Errors
/// If a name, library or file is not there, the program cannot be compiled, or every job failed.
pub fn run(level: Level, options: &Options) -> Result<ExitCode> {
    let suite = options.suite(level)?;
    let records = records(&suite, options)?;
    options.form.print(&records, &suite)?;
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
    let takes = |name: &str| programs::take(name) || tests.iter().any(|test| test.parameters.contains_key(name));
    if let Some((name, _)) = options.set.iter().find(|(name, _)| !takes(name)) {
        bail!("no test takes a parameter {name:?}; the column of parameters shows those there are");
    }
    let prefix = match &options.prefix {
        Some(prefix) => std::path::absolute(prefix)?,
        None => library::own_prefix()?,
    };
    let mut libraries = library::chosen(&options.lib, &options.variant, &prefix, &options.peers())?;
    let folder = tempfile::tempdir().context("cannot make a folder for the benchmark program")?;
    library::compile(&mut libraries, &prefix, folder.path())?;
    library::identify(&mut libraries, folder.path());
    let seed = options.seed.unwrap_or_else(rand::random);
    let cores = environment::cores();
    let ranks = options.ranks.iter().map(|text| suite::rank_count(text, cores)).collect::<Result<Vec<_>>>()?;
    let names: Vec<&str> = libraries.iter().map(|library| library.name.as_str()).collect();
    let shape = Shape {
        tests: &tests,
        ranks: &ranks,
        libraries: &names,
        floors: !options.no_floor && tests.iter().any(|test| test.floor.is_some()),
        cores,
    };
    let jobs = plan::jobs(&shape)?;
    let mut bench = Bench {
        options,
        tests: &tests,
        libraries: &libraries,
        folder: folder.path(),
        journal: Journal::new(options.output.as_deref())?,
    };
    bench.journal.write(Record::Run(bench.run_record(seed)))?;
    rounds::run(&options.effort, &jobs, seed, |job, round| bench.one(job, round))?;
    let records = bench.journal.records;
    if records.points.is_empty() && rounds::is_interrupted() {
        bail!("interrupted before anything was measured");
    }
    if records.points.is_empty() {
        let reasons: Vec<&str> = records.failures.iter().map(|failure| failure.reason.as_str()).collect();
        bail!("no job gave a result: {}", reasons.join("\n"));
    }
    Ok(records)
}

impl Options {
    /// Lets these variants of ours take part, and the peers only if they are wanted.
    pub fn with_variants(&mut self, variants: Vec<Variant>, peers: bool) {
        self.variant = variants;
        if peers {
            let found = |(word, ..): &&(&str, &str, &str)| library::is_there(word, &self.peers());
            let words = library::PEERS.iter().filter(found).map(|(word, ..)| (*word).to_owned());
            self.lib = std::iter::once("ours".to_owned()).chain(words).collect();
        } else {
            self.lib = vec!["ours".to_owned()];
        }
    }

    fn suite(&self, level: Level) -> Result<Suite> {
        match &self.suite {
            Some(path) => Suite::read(path),
            None => Suite::builtin(level),
        }
    }

    fn peers(&self) -> PathBuf {
        self.peers.clone().unwrap_or_else(|| {
            PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/ferrovia-peers")
        })
    }

    /// The words for the benchmark program.
    fn words(&self, test: &Test, results: &Path) -> Vec<String> {
        let sizes = if self.sizes.is_empty() { &test.sizes } else { &self.sizes };
        let mut words = vec![test.program().to_owned(), "--out".to_owned(), results.display().to_string()];
        words.extend(["--sizes".to_owned(), listed(sizes)]);
        words.extend(["--seconds".to_owned(), self.seconds.to_string()]);
        words.extend(["--samples".to_owned(), self.samples.to_string()]);
        words.extend(["--delay".to_owned(), (self.inject_delay / 100.0).to_string()]);
        if self.per_operation {
            words.extend(["--operations".to_owned(), "1".to_owned()]);
        }
        if self.agreed_start {
            words.push("--agreed-start".to_owned());
        }
        if self.no_pace {
            words.push("--no-pace".to_owned());
        }
        let counters: Vec<&str> = test.counters.iter().chain(&self.counters).map(String::as_str).collect();
        if !counters.is_empty() {
            words.extend(["--counters".to_owned(), counters.join(",")]);
        }
        words.extend(test.parameters.iter().map(|(name, value)| format!("{name}={value}")));
        // Later words count: what was set on the command line replaces what stands in the suite.
        words.extend(self.set.iter().map(|(name, value)| format!("{name}={value}")));
        words
    }
}

fn listed(sizes: &[u64]) -> String {
    sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

struct Bench<'a> {
    options: &'a Options,
    tests: &'a [&'a Test],
    libraries: &'a [Library],
    folder: &'a Path,
    journal: Journal,
}

impl Bench<'_> {
    fn run_record(&self, seed: u64) -> Run {
        Run {
            format: FORMAT,
            command: std::env::args().collect(),
            started_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            seed,
            environment: Environment::captured(&self.options.note),
            libraries: self.libraries.iter().map(Library::record).collect(),
        }
    }

    /// Runs one job and writes down what came of it.
    fn one(&mut self, job: &Job, round: u32) -> Result<Found> {
        let results = self.folder.join("results");
        let _ = std::fs::remove_file(&results);
        let outcome = match job.library {
            Some(library) => self.measured(job, &self.libraries[library], &results),
            None => self.floors(&results),
        };
        let library = job.library.map_or(FLOOR, |library| self.libraries[library].name.as_str()).to_owned();
        let (clock, measured) = match outcome {
            Ok(measured) => measured,
            // Its processes heard of it, too.
            Err(_) if rounds::is_interrupted() => return Ok(None),
            Err(error) => return self.failed(job, &library, format!("{error:#}")),
        };
        let mut found = Vec::new();
        for mut measured in measured {
            if job.library.is_some() {
                measured.row.test = self.tests[job.test].reported_name(&measured.row.test);
            }
            let row = measured.row.clone();
            let Some(point) = measured.point(&library, round, clock) else {
                return self.failed(job, &library, format!("its samples of {row} are no numbers"));
            };
            found.push((row, point.median));
            self.journal.write(Record::Point(point))?;
        }
        Ok(Some(found))
    }

    fn failed(&mut self, job: &Job, library: &str, reason: String) -> Result<Found> {
        let test = job.library.map_or("floor", |_| self.tests[job.test].name.as_str());
        let failure = Failure { test: test.to_owned(), library: library.to_owned(), ranks: job.ranks, reason };
        self.journal.write(Record::Failure(failure))?;
        Ok(None)
    }

    fn measured(&self, job: &Job, library: &Library, results: &Path) -> Result<((f64, f64), Vec<Measured>)> {
        let test = self.tests[job.test];
        let limit = Duration::from_secs_f64(self.options.limit);
        let mut command = match test.sockets {
            true => library.command_over_sockets(job.ranks, limit),
            false => library.command(job.ranks, limit),
        };
        command.args(self.options.words(test, results));
        let ended = ended_well(job::run(&mut command, limit + LAUNCHER_GRACE)?)?;
        let (opening, mut measured) = job::read_results(results, job.ranks)?;
        if test.wall {
            measured.push(Measured {
                row: Row {
                    test: test.program().to_owned(),
                    ranks: job.ranks,
                    parameters: BTreeMap::new(),
                    bytes: 0,
                    unit: "ms".to_owned(),
                },
                operations_per_sample: 1,
                amount: 0.0,
                samples: vec![ended.took.as_secs_f64() * 1e9],
                unpaced: 0,
                again: false,
            });
        }
        if measured.is_empty() {
            bail!("the program measured nothing");
        }
        Ok(((opening.offset_max_ns, opening.offset_error_max_ns), measured))
    }

    /// A cache line between two processes, and copying, by the same program without MPI.
    fn floors(&self, results: &Path) -> Result<((f64, f64), Vec<Measured>)> {
        let sizes = plan::floor_sizes(self.tests, &self.options.sizes);
        let library = &self.libraries[0];
        let mut command = Command::new(&library.program);
        if let Some(folder) = &library.folder {
            command.env("LD_LIBRARY_PATH", folder);
        }
        command.args(["floor", "--out"]).arg(results).args(["--sizes", &listed(&sizes)]);
        ended_well(job::run(&mut command, Duration::from_secs_f64(self.options.limit))?)?;
        let (_, measured) = job::read_results(results, 0)?;
        Ok(((0.0, 0.0), measured))
    }
}

fn ended_well(ended: Ended) -> Result<Ended> {
    if ended.too_long {
        bail!("took longer than its limit; --limit S allows more");
    }
    if !ended.success {
        bail!("ended without success after {:.1} s:\n{}", ended.took.as_secs_f64(), ended.output);
    }
    Ok(ended)
}

/// A point of a table and the floor it is compared with, in the row's unit.
pub fn floor_of(records: &Records, suite: &Suite, point: &Row) -> Option<f64> {
    use crate::suite::Floor::{Line, LineAndMemcpy, Memcpy};
    let test = suite.tests.iter().find(|test| test.name == point.test)?;
    let line = || records.floor_of_a_line(Some(point));
    // Copying is kept as a rate; 10⁶ bytes a second are one byte a microsecond.
    let copying = || records.floor_of_copying(point.bytes);
    match (test.floor?, point.unit.as_str()) {
        (Line, "us") => line(),
        (Memcpy, "MB/s") => copying(),
        (LineAndMemcpy, "us") if point.bytes <= 64 => line(),
        (LineAndMemcpy, "us") => Some(line()? + point.bytes as f64 / copying()?),
        _ => None,
    }
}
