//! Records: what a run leaves behind, one JSON object a line. The format is published in `bench/schema.json`.

use crate::environment::Environment;
use crate::pace::{self, Paces};
use crate::statistics::{self, Interval};
use crate::suite::Suite;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The version of the format; a reader refuses others.
pub const FORMAT: u32 = 1;
/// Most bytes of a file of records.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The library name of floors.
pub const FLOOR: &str = "floor";

/// One line of a file.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Record {
    /// What was asked for, where and of whom; the first line of a run.
    Run(Run),
    /// What one process measured of one thing.
    Point(Point),
    /// A job that gave no result.
    Failure(Failure),
}

/// A run: the circumstances of the points that follow it.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub struct Run {
    /// Version of the format.
    pub format: u32,
    /// Words of the command line.
    pub command: Vec<String>,
    /// Start, in seconds since 1970.
    pub started_s: u64,
    /// Seed of the order in which libraries took turns.
    pub seed: u64,
    /// The machine and its state.
    pub environment: Environment,
    /// What was measured, in the order of columns; the first is the one the others are compared with.
    pub libraries: Vec<LibraryRecord>,
}

impl Run {
    /// The command line as it may be shown anywhere: of paths, the last part only.
    pub fn shown_command(&self) -> String {
        let last = |word: &String| match word.rsplit_once('/') {
            Some((_, last)) if word.starts_with('/') => last.to_owned(),
            _ => word.clone(),
        };
        let quoted = |word: String| if word.contains(' ') { format!("'{word}'") } else { word };
        self.command.iter().map(|word| quoted(last(word))).collect::<Vec<_>>().join(" ")
    }

    /// The day on which it began, in UTC.
    pub fn date(&self) -> String {
        // Civil date of a day count, by years that begin in March (Howard Hinnant, "chrono-compatible low-level date
        // algorithms").
        let days = self.started_s / 86_400 + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        format!("{year:04}-{month:02}-{day_of_month:02}")
    }
}

/// A library that took part.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub struct LibraryRecord {
    /// Its name in this run.
    pub name: String,
    /// The file.
    pub path: String,
    /// When the file was last changed, in seconds since 1970.
    pub modified_s: u64,
    /// What it calls itself; empty if it was not asked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Variables of the environment that set it in this run, beside those of the caller.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

/// What identifies a row: everything but the library and the process.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    /// The test.
    pub test: String,
    /// Number of ranks; 0 for floors.
    pub ranks: u32,
    /// Parameters.
    pub parameters: BTreeMap<String, String>,
    /// Message size.
    pub bytes: u64,
    /// `us`, `ms`, `MB/s` (10⁶ bytes), `/s`, `%`, `KiB`, `B`, `count`.
    pub unit: String,
}

impl Row {
    /// Whether larger figures are better.
    pub fn more_is_better(&self) -> bool {
        self.unit.ends_with("/s")
            || (self.unit == "%" && ["overlap", "available"].iter().any(|end| self.test.ends_with(end)))
    }

    /// By which factor `ours` is better than `theirs`; above 1 it is.
    pub fn advantage(&self, ours: f64, theirs: f64) -> f64 {
        if self.more_is_better() { ours / theirs } else { theirs / ours }
    }

    /// The parameters as `name=value`, separated by blanks.
    pub fn shown_parameters(&self) -> String {
        self.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {} ranks, {} bytes", self.test, self.ranks, self.bytes)?;
        if !self.parameters.is_empty() {
            write!(f, ", {}", self.shown_parameters())?;
        }
        Ok(())
    }
}

/// What one process measured of one row. Figures are in the row's unit; for rates the tail is the slow one.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub struct Point {
    /// What was measured.
    #[serde(flatten)]
    pub row: Row,
    /// Of which library.
    pub library: String,
    /// The how-manieth process of this library and test in the run, from 0.
    pub process: u32,
    /// Operations timed together as one sample.
    pub operations_per_sample: u64,
    /// Bytes or messages of an operation, where the figure is a rate; else 0.
    pub amount: f64,
    /// Samples that count.
    pub samples: u64,
    /// Samples left out before them because the level was not reached yet.
    pub warm_up_samples: u64,
    /// Samples left out because it is not known which of the machine's paces they met.
    #[serde(default)]
    pub unpaced_samples: u64,
    /// The process has told of the row at another pace before.
    #[serde(default)]
    pub again: bool,
    /// Whether a steady level was reached.
    pub steady: bool,
    /// Samples more than three interquartile ranges from the quartiles; they count like all others.
    pub outliers: u64,
    /// The fastest sample.
    pub best: f64,
    /// The middle.
    pub median: f64,
    /// What 90 % of the samples reach.
    pub p90: f64,
    /// What 99 % of the samples reach.
    pub p99: f64,
    /// What 99.9 % of the samples reach.
    pub p999: f64,
    /// The slowest sample.
    pub worst: f64,
    /// Occupied buckets, a thousandth wide, of the samples: nanoseconds per operation, or the unit where it is no time.
    pub histogram: Vec<(f64, u64)>,
    /// The greatest estimated difference between the clock of a rank and that of rank 0.
    pub clock_offset_max_ns: f64,
    /// The greatest error of these estimates.
    pub clock_error_max_ns: f64,
}

/// A job that gave no result.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub struct Failure {
    /// The test.
    pub test: String,
    /// Of which library.
    pub library: String,
    /// On how many ranks.
    pub ranks: u32,
    /// What happened, with the end of the output.
    pub reason: String,
}

/// A sample in nanoseconds per operation as a figure in a row's unit.
pub fn figure(unit: &str, amount: f64, sample: f64) -> f64 {
    match unit {
        "us" => sample * 1e-3,
        "ms" => sample * 1e-6,
        "MB/s" => amount / sample * 1e3,
        "/s" => amount / sample * 1e9,
        _ => sample,
    }
}

/// What a figure in unit `from` is to be multiplied by to be one in unit `to`; `None` if they measure different things.
pub fn conversion(from: &str, to: &str) -> Option<f64> {
    let time = |unit: &str| ["ns", "us", "ms"].iter().position(|known| *known == unit);
    match (time(from), time(to)) {
        (Some(from), Some(to)) => Some(1000f64.powi(from as i32 - to as i32)),
        _ => (from == to).then_some(1.0),
    }
}

/// What a process tells of one row, before it is judged.
pub struct Measured {
    /// What was measured.
    pub row: Row,
    /// Operations timed together.
    pub operations_per_sample: u64,
    /// Bytes or messages of an operation.
    pub amount: f64,
    /// Samples in the order taken.
    pub samples: Vec<f64>,
    /// Samples that are not among them, for it is not known which of the machine's paces they met.
    pub unpaced: u64,
    /// The process has told of the row at another pace before.
    pub again: bool,
}

impl Measured {
    /// The point: warm-up cut off, the rest described. `None` if there are no samples or some are no numbers.
    pub fn point(self, library: &str, process: u32, clock: (f64, f64)) -> Option<Point> {
        if self.samples.is_empty() || self.samples.iter().any(|sample| !sample.is_finite() || *sample < 0.0) {
            return None;
        }
        let (warm_up, steady) = statistics::warm_up(&self.samples);
        let mut sorted = self.samples[warm_up..].to_vec();
        sorted.sort_by(f64::total_cmp);
        // A percentage of overlap is better when larger; its slow tail is at the lower end.
        if self.row.more_is_better() && self.amount == 0.0 {
            sorted.reverse();
        }
        let at = |share: f64| figure(&self.row.unit, self.amount, statistics::quantile(&sorted, share));
        let ascending = {
            let mut ascending = sorted.clone();
            ascending.sort_by(f64::total_cmp);
            ascending
        };
        Some(Point {
            library: library.to_owned(),
            process,
            operations_per_sample: self.operations_per_sample,
            amount: self.amount,
            samples: sorted.len() as u64,
            warm_up_samples: warm_up as u64,
            unpaced_samples: self.unpaced,
            again: self.again,
            steady,
            outliers: statistics::outlier_count(&ascending) as u64,
            best: at(0.0),
            median: figure(&self.row.unit, self.amount, statistics::median(&ascending)),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            worst: at(1.0),
            histogram: statistics::histogram(&ascending),
            clock_offset_max_ns: clock.0,
            clock_error_max_ns: clock.1,
            row: self.row,
        })
    }
}

/// What all processes of a library together tell of one row.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Medians of the processes.
    pub medians: Vec<f64>,
    /// The median of these.
    pub median: f64,
    /// Where the median lies.
    pub interval: Interval,
    /// Over the samples of all processes: 90 %, 99 %, 99.9 % reach this, and the worst.
    pub tail: [f64; 4],
    /// Samples of all processes.
    pub samples: u64,
    /// Outliers among them.
    pub outliers: u64,
    /// Processes that never became steady.
    pub unsteady: usize,
}

impl Summary {
    /// Puts the points of one row and library together.
    ///
    /// # Panics
    /// If there are none.
    pub fn of(points: &[&Point]) -> Self {
        let first = points[0];
        let medians: Vec<f64> = points.iter().map(|point| point.median).collect();
        let merged = statistics::merged(points.iter().map(|point| &point.histogram));
        let reversed = first.row.more_is_better() && first.amount == 0.0;
        let tail = [0.9, 0.99, 0.999, 1.0].map(|share| {
            let share = if reversed { 1.0 - share } else { share };
            figure(&first.row.unit, first.amount, statistics::histogram_quantile(&merged, share))
        });
        Self {
            median: statistics::median(&medians),
            interval: statistics::median_interval(&medians),
            tail,
            samples: points.iter().map(|point| point.samples).sum(),
            outliers: points.iter().map(|point| point.outliers).sum(),
            unsteady: points.iter().filter(|point| !point.steady).count(),
            medians,
        }
    }
}

/// Everything a file or several tell.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// The runs in the order read.
    pub runs: Vec<Run>,
    /// All points.
    pub points: Vec<Point>,
    /// All failures.
    pub failures: Vec<Failure>,
}

impl Records {
    /// Adds one record.
    pub fn add(&mut self, record: Record) {
        match record {
            Record::Run(run) => self.runs.push(run),
            Record::Point(point) => self.points.push(point),
            Record::Failure(failure) => self.failures.push(failure),
        }
    }

    /// Reads a file of JSON lines.
    ///
    /// # Errors
    /// If the file cannot be read, is too long, or a line is no record of this format.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let length = std::fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
        if length > FILE_BYTES_MAX {
            bail!("{shown} is longer than {FILE_BYTES_MAX} bytes");
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
        let mut records = Self::default();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let record: Record = serde_json::from_str(line)
                .with_context(|| format!("{shown}:{}: no record of a benchmark run", number + 1))?;
            if let Record::Run(run) = &record
                && run.format != FORMAT
            {
                bail!("{shown}:{}: format {}; this program reads {FORMAT}", number + 1, run.format);
            }
            records.add(record);
        }
        if records.runs.is_empty() {
            bail!("{shown} holds no run");
        }
        Ok(records)
    }

    /// Puts other records behind these.
    pub fn append(&mut self, other: Self) {
        self.runs.extend(other.runs);
        self.points.extend(other.points);
        self.failures.extend(other.failures);
    }

    /// The names of the libraries in the order of the first run that has them; floors are none.
    pub fn libraries(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let named = self.runs.iter().flat_map(|run| run.libraries.iter().map(|library| &library.name));
        for name in named.chain(self.points.iter().map(|point| &point.library)) {
            if name != FLOOR && !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// The rows in the order of the suite's tests, each with what every library has of it. Where the machine has two paces,
    /// points of unknown pace are left out beside others of their row and library (see [`Records::left_out`]).
    pub fn rows(&self, suite: &Suite) -> Vec<(Row, BTreeMap<String, Summary>)> {
        let measured: Vec<&Point> = self.points.iter().filter(|point| point.library != FLOOR).collect();
        let paces = Paces::of(measured.iter().copied());
        let mut rows: BTreeMap<Cow<'_, Row>, BTreeMap<&str, Vec<&Point>>> = BTreeMap::new();
        for point in measured {
            let Some(row) = paces.shown(point) else { continue };
            rows.entry(row).or_default().entry(&point.library).or_default().push(point);
        }
        let mut sorted: Vec<_> = rows.into_iter().collect();
        sorted.sort_by_cached_key(|(row, _)| (suite.position(&row.test), row.test.clone(), row.unit.clone()));
        let summaries = |by_library: BTreeMap<&str, Vec<&Point>>| {
            by_library.into_iter().map(|(library, points)| (library.to_owned(), Summary::of(&points))).collect()
        };
        sorted.into_iter().map(|(row, by_library)| (row.into_owned(), summaries(by_library))).collect()
    }

    /// Samples and points that no row holds, for it is not known which of the machine's two paces they met.
    pub fn left_out(&self) -> (u64, usize) {
        let measured = self.points.iter().filter(|point| point.library != FLOOR);
        let paces = Paces::of(measured.clone());
        let hidden = measured.clone().filter(|point| paces.shown(point).is_none()).count();
        (measured.map(|point| point.unpaced_samples).sum(), hidden)
    }

    /// The machine went from one pace to the other, and rows say so.
    pub fn are_of_two_paces(&self) -> bool {
        Paces::of(self.points.iter().filter(|point| point.library != FLOOR)).are_two
    }

    /// Copying at a size, as a rate.
    pub fn floor_of_copying(&self, bytes: u64) -> Option<f64> {
        self.floor(|row| row.test == "memcpy" && row.bytes == bytes)
    }

    /// A cache line one way, at the pace of `row` if it tells one.
    pub fn floor_of_a_line(&self, row: Option<&Row>) -> Option<f64> {
        let wanted = row.and_then(|row| row.parameters.get(pace::PARAMETER));
        let is_met = |row: &Row| wanted.is_none_or(|wanted| row.parameters.get(pace::PARAMETER) == Some(wanted));
        self.floor(|row| row.test == "line" && is_met(row))
    }

    fn floor(&self, of: impl Fn(&Row) -> bool) -> Option<f64> {
        let floors = self.points.iter().filter(|point| point.library == FLOOR && of(&point.row));
        let medians: Vec<f64> = floors.map(|point| point.median).collect();
        (!medians.is_empty()).then(|| statistics::median(&medians))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row of a latency test.
    pub(crate) fn row(bytes: u64) -> Row {
        Row { test: "latency".into(), ranks: 2, parameters: BTreeMap::new(), bytes, unit: "us".into() }
    }

    /// A point of one process with these samples in nanoseconds.
    pub(crate) fn point(library: &str, row: Row, process: u32, samples: &[f64]) -> Point {
        let amount = if row.unit == "MB/s" { row.bytes as f64 } else { 0.0 };
        Measured { row, operations_per_sample: 1, amount, samples: samples.to_vec(), unpaced: 0, again: false }
            .point(library, process, (0.0, 0.0))
            .expect("samples")
    }

    /// A run of these libraries.
    pub(crate) fn run(libraries: &[&str]) -> Run {
        Run {
            format: FORMAT,
            command: vec!["ferrovia".into(), "bench".into()],
            started_s: 1,
            seed: 1,
            environment: Environment::default(),
            libraries: libraries
                .iter()
                .map(|name| LibraryRecord {
                    name: (*name).to_owned(),
                    path: "lib".into(),
                    modified_s: 1,
                    version: format!("{name} 1.0"),
                    settings: BTreeMap::new(),
                })
                .collect(),
        }
    }

    #[test]
    fn runs_tell_their_day_and_no_paths() {
        for (started_s, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_798_761_599, "2026-12-31"),
            (1_798_761_600, "2027-01-01"),
        ] {
            assert_eq!(Run { started_s, ..run(&[]) }.date(), expected);
        }
        let words = ["/home/a/bin/ferrovia", "bench", "mpi", "--lib", "old=/x", "-o", "/tmp/run.jsonl", "a b"];
        let run = Run { command: words.map(str::to_owned).to_vec(), ..run(&[]) };
        assert_eq!(run.shown_command(), "ferrovia bench mpi --lib old=/x -o run.jsonl 'a b'");
    }

    #[test]
    fn times_and_rates() {
        let time = point("a", row(8), 0, &[1000.0, 3000.0, 2000.0]);
        assert_eq!((time.best, time.median, time.worst), (1.0, 2.0, 3.0));
        let rate = Row { unit: "MB/s".into(), bytes: 4000, ..row(8) };
        let rate = point("a", rate, 0, &[1000.0, 4000.0, 2000.0]);
        assert_eq!((rate.best, rate.median, rate.worst), (4000.0, 2000.0, 1000.0));
        let share = Row { unit: "%".into(), test: "overlap".into(), ..row(8) };
        let share = point("a", share, 0, &[90.0, 10.0, 50.0]);
        assert_eq!((share.best, share.median, share.worst), (90.0, 50.0, 10.0));
    }

    #[test]
    fn samples_that_are_no_numbers_make_no_point() {
        for samples in [vec![], vec![f64::NAN], vec![-1.0], vec![f64::INFINITY]] {
            let measured =
                Measured { row: row(8), operations_per_sample: 1, amount: 0.0, samples, unpaced: 0, again: false };
            assert!(measured.point("a", 0, (0.0, 0.0)).is_none());
        }
    }

    #[test]
    fn lines_come_back_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let failure =
            Failure { test: "idle".into(), library: "b".into(), ranks: 2, reason: "took \"too\"\nlong".into() };
        let records = [
            Record::Run(run(&["a", "b"])),
            Record::Point(point("a", row(8), 0, &[1000.0, 3000.0, 2000.0])),
            Record::Failure(failure),
        ];
        let text: String =
            records.iter().map(|record| format!("{}\n", serde_json::to_string(record).unwrap())).collect();
        std::fs::write(&path, text).unwrap();
        let read = Records::read(&path).unwrap();
        assert_eq!(Record::Run(read.runs[0].clone()), records[0]);
        assert_eq!(Record::Point(read.points[0].clone()), records[1]);
        assert_eq!(Record::Failure(read.failures[0].clone()), records[2]);
        assert_eq!(read.libraries(), ["a", "b"]);
    }

    #[test]
    fn records_are_as_the_published_schema_says() {
        let schema = serde_json::from_str(include_str!("../../../bench/schema.json")).unwrap();
        let schema = jsonschema::validator_for(&schema).unwrap();
        let mut run = run(&["a"]);
        run.environment = Environment::captured(&[("commit".to_owned(), "abc".to_owned())]);
        run.libraries[0].settings.insert("FERROVIA_SPIN".into(), "7".into());
        let rate = Row { unit: "MB/s".into(), ..row(8) };
        let failure = Failure { test: "idle".into(), library: "b".into(), ranks: 2, reason: "none".into() };
        for record in
            [Record::Run(run), Record::Point(point("a", rate, 0, &[1000.0, 3000.0, 2000.0])), Record::Failure(failure)]
        {
            let mut value = serde_json::to_value(&record).unwrap();
            let errors: Vec<String> = schema.iter_errors(&value).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{errors:?}: {value}");
            value["surplus"] = 1.into();
            assert!(!schema.is_valid(&value), "a member that the schema does not know");
        }
    }

    #[test]
    fn other_files_are_refused_with_their_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let good = serde_json::to_string(&Record::Run(run(&["a"]))).unwrap();
        for (text, complaint) in [
            (format!("{good}\n{{\"kind\":\"point\"}}\n"), ":2"),
            (good.replace("\"format\":1", "\"format\":9"), "format 9"),
            (String::new(), "no run"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = format!("{:#}", Records::read(&path).unwrap_err());
            assert!(error.contains(complaint), "{error}");
        }
        assert!(Records::read(&folder.path().join("none")).is_err());
    }

    #[test]
    fn processes_are_put_together() {
        let mut records = Records::default();
        records.add(Record::Run(run(&["a"])));
        for process in 0..6 {
            let level = 1000.0 + f64::from(process) * 100.0;
            records.add(Record::Point(point("a", row(8), process, &[level, level, level * 9.0])));
        }
        let rows = records.rows(&Suite::everything().unwrap());
        let summary = &rows[0].1["a"];
        assert_eq!((summary.median, summary.samples), (1.25, 18));
        assert_eq!((summary.interval.low, summary.interval.high), (1.0, 1.5));
        assert!((summary.tail[3] / 13.5 - 1.0).abs() < 2e-3);
    }
}
