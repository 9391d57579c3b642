//! `ferrovia bench compare A B`: is B slower?
//!
//! For each row that both have, the medians of A's processes are compared with those of B's by the rank-sum test; the
//! probabilities of all rows are adjusted together, so that two runs of the same thing are told apart in at most 5 of
//! 100 cases however many rows there are. A difference smaller than the threshold is never flagged.
//!
//! Two runs an hour apart also differ by what the machine did meanwhile. Where that matters, measure both libraries in
//! one run, where they take turns, and compare FILE:OLD with FILE:NEW.

use crate::record::{Point, Records, Row};
use crate::statistics;
use crate::table::shown;
use anyhow::{Context, Result, bail};
use comfy_table::{Table, presets};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The share of comparisons of equals that may be flagged.
const SIGNIFICANCE: f64 = 0.05;
/// The exit code if nothing could be told.
const CANNOT_TELL: u8 = 2;

/// What to compare.
#[derive(clap::Args)]
pub struct Options {
    /// Records to compare with: FILE, or FILE:LIBRARY if it holds several
    a: String,
    /// Records that may be slower: FILE, or FILE:LIBRARY
    b: String,
    /// Differences of fewer per cent are not flagged
    #[arg(long, default_value_t = 2.0, value_name = "PERCENT")]
    threshold: f64,
    /// Every row, not only those that differ
    #[arg(long)]
    all: bool,
    /// The verdicts as JSON
    #[arg(long, group = "form")]
    json: bool,
    /// The verdicts as CSV
    #[arg(long, group = "form")]
    csv: bool,
}

/// What can be said of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No difference that could be told.
    Same,
    /// B is worse.
    Slower,
    /// B is better.
    Faster,
}

/// One row of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// What was measured.
    #[serde(flatten)]
    pub row: Row,
    /// Median of A's processes.
    pub a: f64,
    /// Median of B's processes.
    pub b: f64,
    /// How many per cent B is worse; negative if it is better.
    pub worse_percent: f64,
    /// Probability of such a difference between equals, adjusted for the number of rows.
    pub probability: f64,
    /// What follows.
    pub verdict: Verdict,
}

/// All rows that both sides have.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The rows.
    pub rows: Vec<Compared>,
    /// Rows in which so few processes could not have shown any difference.
    pub hopeless: usize,
}

/// Compares and prints; the exit code says whether B is slower (1) or nothing can be told (2).
///
/// # Errors
/// If a verdict cannot be printed. What cannot be read or compared is printed and ends with 2.
pub fn run(options: &Options) -> Result<ExitCode> {
    let comparison = read(&options.a).and_then(|a| Ok(compare(&a, &read(&options.b)?, options.threshold)));
    let comparison = match comparison {
        Ok(comparison) => comparison,
        Err(error) => {
            eprintln!("ferrovia bench compare: {error:#}");
            return Ok(ExitCode::from(CANNOT_TELL));
        }
    };
    print(options, &comparison)?;
    let slower = comparison.rows.iter().any(|row| row.verdict == Verdict::Slower);
    let telling = comparison.rows.len() > comparison.hopeless;
    Ok(match (slower, telling) {
        (true, _) => ExitCode::from(1),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::from(CANNOT_TELL),
    })
}

/// The points of one library of a file.
fn read(what: &str) -> Result<Vec<Point>> {
    let (path, library) = match what.rsplit_once(':') {
        Some((path, library)) if !Path::new(what).exists() => (PathBuf::from(path), Some(library)),
        _ => (PathBuf::from(what), None),
    };
    let records = Records::read(&path)?;
    let libraries = records.libraries();
    let library = match library {
        Some(library) => libraries.iter().find(|name| *name == library).with_context(|| {
            format!("{} has no library {library:?}; it has {}", path.display(), libraries.join(", "))
        })?,
        None if libraries.len() == 1 => &libraries[0],
        None => bail!("{0} holds several libraries; write {0}:{1}", path.display(), libraries.join(" or :")),
    };
    Ok(records.points.iter().filter(|point| point.library == *library).cloned().collect())
}

/// Compares the points of two sides row by row. `threshold_percent`: smaller differences are not flagged.
pub fn compare(a: &[Point], b: &[Point], threshold_percent: f64) -> Comparison {
    let (a, b) = (medians(a), medians(b));
    let both: Vec<(&Row, &Vec<f64>, &Vec<f64>)> =
        a.iter().filter_map(|(row, medians)| Some((*row, medians, b.get(row)?))).collect();
    let probabilities: Vec<f64> = both.iter().map(|(_, a, b)| statistics::rank_sum_probability(a, b)).collect();
    let adjusted = statistics::adjusted(&probabilities);
    let hopeless = both
        .iter()
        .filter(|(_, a, b)| statistics::smallest_probability(a.len(), b.len()) * both.len() as f64 >= SIGNIFICANCE)
        .count();
    let rows = both.iter().zip(adjusted).map(|((row, a, b), probability)| {
        let ratio = statistics::typical_ratio(a, b);
        let worse = if row.more_is_better() { 1.0 / ratio } else { ratio };
        let worse_percent = (worse - 1.0) * 100.0;
        let flagged = probability < SIGNIFICANCE && worse_percent.abs() > threshold_percent;
        let verdict = match (flagged, worse_percent > 0.0) {
            (false, _) => Verdict::Same,
            (true, true) => Verdict::Slower,
            (true, false) => Verdict::Faster,
        };
        Compared {
            row: (*row).clone(),
            a: statistics::median(a),
            b: statistics::median(b),
            worse_percent,
            probability,
            verdict,
        }
    });
    Comparison { rows: rows.collect(), hopeless }
}

fn medians(points: &[Point]) -> BTreeMap<&Row, Vec<f64>> {
    let mut medians: BTreeMap<&Row, Vec<f64>> = BTreeMap::new();
    // A median of 0 has no ratio; such rows say nothing.
    for point in points.iter().filter(|point| point.median > 0.0) {
        medians.entry(&point.row).or_default().push(point.median);
    }
    medians
}

fn print(options: &Options, comparison: &Comparison) -> Result<()> {
    if options.json {
        for row in &comparison.rows {
            println!("{}", serde_json::to_string(row)?);
        }
    } else if options.csv {
        let mut writer = csv::Writer::from_writer(std::io::stdout());
        writer.write_record([
            "test",
            "ranks",
            "bytes",
            "parameters",
            "unit",
            "a",
            "b",
            "worse_percent",
            "probability",
            "verdict",
        ])?;
        for compared in &comparison.rows {
            let row = &compared.row;
            let mut line = vec![row.test.clone(), row.ranks.to_string(), row.bytes.to_string(), row.shown_parameters()];
            line.push(row.unit.clone());
            line.extend([compared.a, compared.b, compared.worse_percent, compared.probability].map(|x| x.to_string()));
            line.push(format!("{:?}", compared.verdict).to_lowercase());
            writer.write_record(&line)?;
        }
        writer.flush()?;
    } else {
        println!("{}", table(&comparison.rows, options.all));
    }
    let count = |verdict| comparison.rows.iter().filter(|row| row.verdict == verdict).count();
    eprintln!(
        "{} rows: {} slower, {} faster, {} without a difference that could be told",
        comparison.rows.len(),
        count(Verdict::Slower),
        count(Verdict::Faster),
        count(Verdict::Same)
    );
    if comparison.hopeless > 0 {
        eprintln!(
            "{} of them have too few processes to show any difference among so many rows; measure with more --repetitions",
            comparison.hopeless
        );
    }
    Ok(())
}

fn table(rows: &[Compared], all: bool) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["row", "unit", "A", "B", "B is worse by", "probability", "verdict"]);
    for compared in rows.iter().filter(|compared| all || compared.verdict != Verdict::Same) {
        table.add_row([
            compared.row.to_string(),
            compared.row.unit.clone(),
            shown(compared.a),
            shown(compared.b),
            format!("{:+.1} %", compared.worse_percent),
            format!("{:.4}", compared.probability),
            format!("{:?}", compared.verdict).to_lowercase(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{point, row};
    use rand::rngs::StdRng;
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};

    const ROWS: u64 = 20;
    const PROCESSES: u32 = 10;

    /// A standard normal value, by the sum of twelve uniform ones.
    fn normal(random: &mut StdRng) -> f64 {
        (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
    }

    /// Points as a run makes them: every process has a level of its own (2 %), its samples vary round it (5 %), start
    /// with a warm-up, and one in fifty is an outlier of up to ten times. `delays` slows the sizes named.
    fn measured(random: &mut StdRng, delays: &[(u64, f64)]) -> Vec<Point> {
        let mut points = Vec::new();
        for bytes in 0..ROWS {
            let delay = delays.iter().find(|(slow, _)| *slow == bytes).map_or(1.0, |(_, factor)| *factor);
            for process in 0..PROCESSES {
                let level = 1000.0 * (bytes + 1) as f64 * (0.02 * normal(random)).exp();
                let samples: Vec<f64> = (0..100)
                    .map(|i| {
                        let warm_up = if i < 10 { 1.5 } else { 1.0 };
                        let outlier = if random.random_ratio(1, 50) { 1.0 + 9.0 * random.random::<f64>() } else { 1.0 };
                        level * (0.05 * normal(random)).exp() * warm_up * outlier * delay
                    })
                    .collect();
                points.push(point("a", row(bytes), process, &samples));
            }
        }
        points
    }

    fn slower(comparison: &Comparison) -> Vec<u64> {
        comparison.rows.iter().filter(|row| row.verdict == Verdict::Slower).map(|row| row.row.bytes).collect()
    }

    #[test]
    fn equals_are_told_apart_in_at_most_five_of_a_hundred_runs() {
        let mut random = StdRng::seed_from_u64(2026);
        let flagged = (0..100)
            .filter(|_| {
                let (a, b) = (measured(&mut random, &[]), measured(&mut random, &[]));
                compare(&a, &b, 0.0).rows.iter().any(|row| row.verdict != Verdict::Same)
            })
            .count();
        assert!(flagged <= 5, "{flagged} of 100");
    }

    #[test]
    fn ten_per_cent_are_found_in_at_least_ninety_five_of_a_hundred_runs() {
        let mut random = StdRng::seed_from_u64(2027);
        let mut found = 0;
        for trial in 0..100 {
            let slow = trial % ROWS;
            let (a, b) = (measured(&mut random, &[]), measured(&mut random, &[(slow, 1.1)]));
            let comparison = compare(&a, &b, 2.0);
            found += usize::from(slower(&comparison).contains(&slow));
        }
        assert!(found >= 95, "{found} of 100");
    }

    /// Medians of 80 processes of each of two libraries that are the same, as a run left them on a busy machine of two
    /// cores: `ferrovia bench mpi latency allreduce -n 2 --sizes 8,4096 -r 80 --seconds 0.01 --samples 300 --lib ours
    /// --variant again:FERROVIA_LOG=warn --no-floor`.
    const RECORDED: &str = include_str!("../data/recorded.csv");
    const RECORDED_PROCESSES: usize = 80;

    /// The library's name, the process and what it measured, for each line of the record.
    fn recorded() -> Vec<(String, usize, Point)> {
        let point = |line: csv::StringRecord| {
            let row = Row { test: line[2].into(), unit: line[4].into(), ..row(line[3].parse().unwrap()) };
            let process: usize = line[1].parse().unwrap();
            let median = line[5].parse::<f64>().unwrap();
            (line[0].to_owned(), process, point("a", row, u32::try_from(process).unwrap(), &[median * 1e3]))
        };
        csv::Reader::from_reader(RECORDED.as_bytes()).records().map(|line| point(line.unwrap())).collect()
    }

    /// Points of both libraries from so many of the recorded processes, drawn by chance; in half of the draws the
    /// libraries change places. One row of the second is slower by `delay`.
    fn drawn(
        random: &mut StdRng,
        all: &[(String, usize, Point)],
        count: usize,
        slow: &str,
        delay: f64,
    ) -> [Vec<Point>; 2] {
        let mut processes: Vec<usize> = (0..RECORDED_PROCESSES).collect();
        processes.shuffle(random);
        let chosen: std::collections::BTreeSet<usize> = processes[..count].iter().copied().collect();
        let turned: bool = random.random();
        let mut sides = [Vec::new(), Vec::new()];
        for (library, _, point) in all.iter().filter(|(_, process, _)| chosen.contains(process)) {
            let (mut point, second) = (point.clone(), (library == "again") != turned);
            if second && format!("{}-{}", point.row.test, point.row.bytes) == slow {
                point.median *= delay;
            }
            sides[usize::from(second)].push(point);
        }
        sides
    }

    #[test]
    fn recorded_equals_are_told_apart_in_at_most_five_of_a_hundred_runs() {
        let (mut random, all) = (StdRng::seed_from_u64(2028), recorded());
        let flagged = (0..100)
            .filter(|_| {
                let [a, b] = drawn(&mut random, &all, 10, "", 1.0);
                let comparison = compare(&a, &b, 0.0);
                assert_eq!((comparison.rows.len(), comparison.hopeless), (4, 0));
                comparison.rows.iter().any(|row| row.verdict != Verdict::Same)
            })
            .count();
        assert!(flagged <= 5, "{flagged} of 100");
    }

    #[test]
    fn ten_per_cent_are_found_in_recorded_runs() {
        let (mut random, all) = (StdRng::seed_from_u64(2029), recorded());
        // The noisiest row needs twice the processes of the others; what a run cannot show, it does not flag wrongly.
        for (slow, processes) in [("latency-8", 10), ("latency-4096", 10), ("allreduce-8", 20), ("allreduce-4096", 40)]
        {
            let mut found = 0;
            for _ in 0..100 {
                let [a, b] = drawn(&mut random, &all, processes, slow, 1.1);
                let rows = compare(&a, &b, 2.0).rows;
                let slower = rows.iter().filter(|row| row.verdict == Verdict::Slower);
                found +=
                    usize::from(slower.map(|row| format!("{}-{}", row.row.test, row.row.bytes)).any(|row| row == slow));
            }
            assert!(found >= 95, "{slow}: {found} of 100");
        }
    }

    #[test]
    fn direction_and_threshold() {
        let mut random = StdRng::seed_from_u64(1);
        let (a, b) = (measured(&mut random, &[]), measured(&mut random, &[(3, 1.5), (4, 0.5)]));
        let comparison = compare(&a, &b, 2.0);
        assert_eq!(slower(&comparison), [3]);
        assert_eq!(comparison.rows[4].verdict, Verdict::Faster);
        assert!((comparison.rows[3].worse_percent - 50.0).abs() < 8.0);
        assert!(slower(&compare(&a, &b, 80.0)).is_empty());
        let rates = |points: &[Point]| -> Vec<Point> {
            points
                .iter()
                .cloned()
                .map(|mut point| {
                    point.row.unit = "MB/s".into();
                    point
                })
                .collect()
        };
        assert_eq!(slower(&compare(&rates(&a), &rates(&b), 2.0)), [4], "a lower rate is worse");
    }

    #[test]
    fn too_few_processes_are_pointed_out() {
        let of = |level: f64| -> Vec<Point> {
            (0..3).map(|process| point("a", row(8), process, &[level + f64::from(process)])).collect()
        };
        let comparison = compare(&of(1000.0), &of(9000.0), 2.0);
        assert_eq!((comparison.rows.len(), comparison.hopeless), (1, 1));
        assert!(slower(&comparison).is_empty());
        assert_eq!(compare(&of(1000.0), &[], 2.0).rows.len(), 0);
    }
}
