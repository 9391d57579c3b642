//! `ferrovia bench compare A B`: is B slower?
//!
//! For each row that both have, the medians of A's processes are compared with those of B's by the rank-sum test; the
//! probabilities of all rows are adjusted together, so that two runs of the same thing are told apart in at most 5 of
//! 100 cases however many rows there are. A difference smaller than the threshold is never flagged.
//!
//! That no difference was found says little by itself: a row counts as the same only if the interval of the ratio rules
//! out a slowdown worth finding (`--detect`). Otherwise the records cannot decide, and that is said, too.
//!
//! Where the machine has two paces (see [`crate::pace`]), processes that met the same one are compared, if there are enough
//! of them; a row may then appear once for each pace.
//!
//! Two runs an hour apart also differ by what the machine did meanwhile. Where that matters, measure both libraries in
//! one run, where they take turns, and compare FILE:OLD with FILE:NEW.

use crate::pace::{self, Pace};
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
    /// A slowdown of so many per cent is to be found; a row in which it could hide is undecided
    #[arg(long, default_value_t = 10.0, value_name = "PERCENT")]
    detect: f64,
    /// Every row, not only those that differ or are undecided
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
    /// Not slower by as much as is to be found, and no other difference that could be told.
    Same,
    /// The processes are too few, or differ too much from each other, to tell.
    Undecided,
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
    /// Where that lies with 95 %; nothing where so few processes cannot say.
    pub worse_percent_low: Option<f64>,
    /// Its upper end.
    pub worse_percent_high: Option<f64>,
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

/// Compares and prints; the exit code says whether a row of B is slower (1), none is (0), or that cannot be told of
/// some row (2).
///
/// # Errors
/// If a verdict cannot be printed. What cannot be read or compared is printed and ends with 2.
pub fn run(options: &Options) -> Result<ExitCode> {
    let comparison =
        read(&options.a).and_then(|a| Ok(compare(&a, &read(&options.b)?, options.threshold, options.detect)));
    let comparison = match comparison {
        Ok(comparison) => comparison,
        Err(error) => {
            eprintln!("ferrovia bench compare: {error:#}");
            return Ok(ExitCode::from(CANNOT_TELL));
        }
    };
    print(options, &comparison)?;
    let any = |verdict| comparison.rows.iter().any(|row| row.verdict == verdict);
    Ok(if any(Verdict::Slower) {
        ExitCode::from(1)
    } else if comparison.rows.is_empty() || any(Verdict::Undecided) {
        ExitCode::from(CANNOT_TELL)
    } else {
        ExitCode::SUCCESS
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

/// Compares the points of two sides row by row. `threshold_percent`: smaller differences are not flagged;
/// `detect_percent`: where a slowdown of so much could hide, nothing is decided.
pub fn compare(a: &[Point], b: &[Point], threshold_percent: f64, detect_percent: f64) -> Comparison {
    let both = side_by_side(a, b);
    let probabilities: Vec<f64> = both.iter().map(|row| statistics::rank_sum_probability(&row.a, &row.b)).collect();
    let adjusted = statistics::adjusted(&probabilities);
    let hopeless = both
        .iter()
        .filter(|row| statistics::smallest_probability(row.a.len(), row.b.len()) * both.len() as f64 >= SIGNIFICANCE)
        .count();
    let rows = both.iter().zip(adjusted).map(|(Sides { row, a, b, are_disjoint }, probability)| {
        // Of a rate, the less the worse: the inverse.
        let (a_worse, b_worse) = if row.more_is_better() { (b, a) } else { (a, b) };
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let worse_percent = percent(statistics::typical_ratio(a_worse, b_worse));
        let (low, high) = statistics::ratio_interval(a_worse, b_worse);
        let (low, high) = (percent(low), percent(high));
        let flagged = probability < SIGNIFICANCE && worse_percent.abs() > threshold_percent;
        let verdict = match (flagged, worse_percent > 0.0) {
            _ if *are_disjoint => Verdict::Undecided,
            (true, true) => Verdict::Slower,
            (true, false) => Verdict::Faster,
            (false, _) if high < detect_percent => Verdict::Same,
            (false, _) => Verdict::Undecided,
        };
        Compared {
            row: row.clone(),
            a: statistics::median(a),
            b: statistics::median(b),
            worse_percent,
            worse_percent_low: high.is_finite().then_some(low),
            worse_percent_high: high.is_finite().then_some(high),
            probability,
            verdict,
        }
    });
    Comparison { rows: rows.collect(), hopeless }
}

/// What the processes of both sides found of a row.
struct Sides {
    row: Row,
    a: Vec<f64>,
    b: Vec<f64>,
    /// All of the one side met the machine at one of its paces, all of the other at the other one.
    are_disjoint: bool,
}

/// Every row that both sides have. Where most of both met the machine at a pace that is told, and so many at one that a
/// difference could be shown, those are compared; otherwise all are, whatever pace they met.
fn side_by_side(a: &[Point], b: &[Point]) -> Vec<Sides> {
    let (a, b) = (medians(a), medians(b));
    let bases: Vec<&Row> = a.keys().filter(|row| b.contains_key(*row)).collect();
    // Each may become two.
    let significance = SIGNIFICANCE / (2 * bases.len()) as f64;
    let sides = bases.iter().flat_map(|base| {
        let (a, b) = (&a[*base], &b[*base]);
        let at = |side: &[Met], pace| -> Vec<f64> {
            side.iter().filter(|met| met.pace == Some(pace)).map(|met| met.median).collect()
        };
        let told = Pace::ALL.map(|pace| (pace, at(a, pace), at(b, pace)));
        let are_disjoint = told.iter().all(|(_, a, b)| a.is_empty() != b.is_empty())
            && a.iter().chain(b).all(|met| met.pace.is_some());
        let mut enough: Vec<_> = told.into_iter().collect();
        enough.retain(|(_, a, b)| statistics::smallest_probability(a.len(), b.len()) < significance);
        let (in_a, in_b) = enough.iter().fold((0, 0), |(in_a, in_b), (_, a, b)| (in_a + a.len(), in_b + b.len()));
        if enough.is_empty() || 2 * in_a < a.len() || 2 * in_b < b.len() {
            let whole = |side: &[Met]| side.iter().filter(|met| !met.again).map(|met| met.median).collect();
            return vec![Sides { row: (*base).clone(), a: whole(a), b: whole(b), are_disjoint }];
        }
        // One pace is not worth telling.
        let is_told = enough.len() > 1;
        let of_pace = |(pace, a, b)| {
            let row = pace::of_row(base, Some(pace).filter(|_| is_told));
            Sides { row, a, b, are_disjoint: false }
        };
        enough.into_iter().map(of_pace).collect()
    });
    sides.collect()
}

/// What a process found at a pace; `again` if it has told of another.
struct Met {
    pace: Option<Pace>,
    median: f64,
    again: bool,
}

/// By row, whatever the pace.
fn medians(points: &[Point]) -> BTreeMap<Row, Vec<Met>> {
    let mut medians: BTreeMap<Row, Vec<Met>> = BTreeMap::new();
    // A median of 0 has no ratio; such rows say nothing.
    for point in points.iter().filter(|point| point.median > 0.0) {
        let (row, pace) = pace::split_row(&point.row);
        medians.entry(row).or_default().push(Met { pace, median: point.median, again: point.again });
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
            "worse_percent_low",
            "worse_percent_high",
            "probability",
            "verdict",
        ])?;
        for compared in &comparison.rows {
            let row = &compared.row;
            let mut line = vec![row.test.clone(), row.ranks.to_string(), row.bytes.to_string(), row.shown_parameters()];
            line.push(row.unit.clone());
            line.extend([compared.a, compared.b, compared.worse_percent].map(|x| x.to_string()));
            let ends = [compared.worse_percent_low, compared.worse_percent_high];
            line.extend(ends.map(|end| end.map_or_else(String::new, |end| end.to_string())));
            line.push(compared.probability.to_string());
            line.push(format!("{:?}", compared.verdict).to_lowercase());
            writer.write_record(&line)?;
        }
        writer.flush()?;
    } else {
        println!("{}", table(&comparison.rows, options.all));
    }
    let count = |verdict| comparison.rows.iter().filter(|row| row.verdict == verdict).count();
    eprintln!(
        "{} rows: {} slower, {} faster, {} the same, {} undecided",
        comparison.rows.len(),
        count(Verdict::Slower),
        count(Verdict::Faster),
        count(Verdict::Same),
        count(Verdict::Undecided)
    );
    if count(Verdict::Undecided) > 0 {
        eprintln!(
            "Of what is undecided the records cannot say whether it is slower by {} %: measure without -r, with a longer \
             --budget, or on a quieter machine.",
            options.detect
        );
    }
    if comparison.hopeless > 0 {
        eprintln!("{} of them have too few processes to show any difference among so many rows.", comparison.hopeless);
    }
    Ok(())
}

fn table(rows: &[Compared], all: bool) -> Table {
    let end = |percent: Option<f64>| percent.map_or_else(|| "?".to_owned(), |percent| format!("{percent:+.1} %"));
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["row", "unit", "A", "B", "B is worse by", "from", "to", "probability", "verdict"]);
    for compared in rows.iter().filter(|compared| all || compared.verdict != Verdict::Same) {
        table.add_row([
            compared.row.to_string(),
            compared.row.unit.clone(),
            shown(compared.a),
            shown(compared.b),
            format!("{:+.1} %", compared.worse_percent),
            end(compared.worse_percent_low),
            end(compared.worse_percent_high),
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
    use crate::rounds::{self, Effort};
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

    fn is_flagged(row: &Compared) -> bool {
        matches!(row.verdict, Verdict::Slower | Verdict::Faster)
    }

    fn slower(comparison: &Comparison) -> Vec<u64> {
        comparison.rows.iter().filter(|row| row.verdict == Verdict::Slower).map(|row| row.row.bytes).collect()
    }

    #[test]
    fn processes_are_compared_at_the_pace_that_both_sides_met() {
        let points = |times: &[(Option<Pace>, f64)]| -> Vec<Point> {
            let all = times.iter().enumerate();
            all.map(|(process, (pace, took))| point("a", pace::of_row(&row(8), *pace), process as u32, &[*took]))
                .collect()
        };
        let (near, apart) = (Some(Pace::Near), Some(Pace::Apart));
        let several = |pace, took| [(pace, took), (pace, took + 1.0)].repeat(5);
        let found = |a: &[(Option<Pace>, f64)], b: &[(Option<Pace>, f64)]| -> Vec<(String, f64, Verdict)> {
            let comparison = compare(&points(a), &points(b), 5.0, 10.0);
            comparison.rows.iter().map(|row| (row.row.shown_parameters(), row.a, row.verdict)).collect()
        };
        // The one side met more of the slow pace: no difference, told of each pace by itself.
        let a = [several(near, 100.0), several(apart, 300.0)].concat();
        let b = [several(near, 100.0), several(apart, 300.0), several(apart, 300.0)].concat();
        let (at_near, at_apart) =
            (("pace=near".into(), 0.1005, Verdict::Same), ("pace=apart".into(), 0.3005, Verdict::Same));
        assert_eq!(found(&a, &b), [at_near, at_apart]);
        // They met different ones: that says nothing of the sides.
        let undecided = [(String::new(), 0.1005, Verdict::Undecided)];
        assert_eq!(found(&several(near, 100.0), &several(apart, 300.0)), undecided);
        assert_eq!(found(&several(near, 100.0), &several(None, 100.0)), [(String::new(), 0.1005, Verdict::Same)]);
        // Most of them met none that is told, or too few met one.
        let most = [several(None, 100.0), several(None, 100.0), several(near, 100.0)].concat();
        assert_eq!(found(&most, &most), [(String::new(), 0.1005, Verdict::Same)]);
        let few = [several(None, 100.0), vec![(near, 100.0); 3]].concat();
        assert_eq!(found(&few, &few), [(String::new(), 0.1, Verdict::Same)]);
    }

    #[test]
    fn a_process_that_met_both_paces_counts_once() {
        let both = |process| -> Vec<Point> {
            let at =
                |pace, took, again| Point { again, ..point("a", pace::of_row(&row(8), Some(pace)), process, &[took]) };
            vec![at(Pace::Near, 100.0, false), at(Pace::Apart, 300.0, true)]
        };
        let points: Vec<Point> = (0..2).flat_map(both).collect();
        let sides = side_by_side(&points, &points);
        assert_eq!((sides.len(), &sides[0].a[..]), (1, &[0.1, 0.1][..]));
    }

    #[test]
    fn equals_are_told_apart_in_at_most_five_of_a_hundred_runs() {
        let mut random = StdRng::seed_from_u64(2026);
        let flagged = (0..100)
            .filter(|_| {
                let (a, b) = (measured(&mut random, &[]), measured(&mut random, &[]));
                compare(&a, &b, 0.0, 10.0).rows.iter().any(is_flagged)
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
            let comparison = compare(&a, &b, 2.0, 10.0);
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

    /// The row's test and size.
    fn named(row: &Row) -> String {
        format!("{}-{}", row.test, row.bytes)
    }

    /// One of two libraries that a run measures in turns.
    struct Library(&'static str);

    impl rounds::Job for Library {
        fn together(&self) -> Option<(usize, u32)> {
            Some((0, 2))
        }

        fn shown(&self) -> String {
            self.0.to_owned()
        }
    }

    /// A run of both libraries as it is made by default, repeated until it is certain enough; what a process measures is
    /// drawn from the record. In half of the rounds the libraries change places, so that they are equals whatever the
    /// record holds. One row of the second is slower by `delay`. Returns both sides, and how many processes each has.
    fn drawn(random: &mut StdRng, all: &[(String, usize, Point)], slow: &str, delay: f64) -> ([Vec<Point>; 2], usize) {
        let mut processes: Vec<usize> = (0..RECORDED_PROCESSES).collect();
        processes.shuffle(random);
        let turned: Vec<bool> = processes.iter().map(|_| random.random()).collect();
        let libraries = [Library("first"), Library("second")];
        let mut sides = [Vec::new(), Vec::new()];
        let effort = Effort { repetitions: None, precision: 3.0, budget: None };
        rounds::run(&effort, &libraries, random.random(), |library, round| {
            let (second, process) = (library.0 == libraries[1].0, processes[round as usize]);
            let recorded = if second != turned[process] { "again" } else { "once" };
            let mut found = Vec::new();
            for (_, _, point) in all.iter().filter(|(name, number, _)| (name.as_str(), *number) == (recorded, process))
            {
                let mut point = point.clone();
                if second && named(&point.row) == slow {
                    point.median *= delay;
                }
                found.push((point.row.clone(), point.median));
                sides[usize::from(second)].push(point);
            }
            Ok(Some(found))
        })
        .unwrap();
        let count = sides[0].iter().filter(|point| point.row == sides[0][0].row).count();
        (sides, count)
    }

    #[test]
    fn recorded_equals_are_told_apart_in_at_most_five_of_a_hundred_runs() {
        let (mut random, all) = (StdRng::seed_from_u64(2028), recorded());
        let flagged = (0..100)
            .filter(|_| {
                let ([a, b], _) = drawn(&mut random, &all, "", 1.0);
                let comparison = compare(&a, &b, 0.0, 10.0);
                assert_eq!((comparison.rows.len(), comparison.hopeless), (4, 0));
                comparison.rows.iter().any(is_flagged)
            })
            .count();
        assert!(flagged <= 5, "{flagged} of 100");
    }

    #[test]
    fn ten_per_cent_are_found_in_recorded_runs() {
        let (mut random, all) = (StdRng::seed_from_u64(2029), recorded());
        for slow in ["latency-8", "latency-4096", "allreduce-8", "allreduce-4096"] {
            let (mut found, mut missed, mut processes) = (0, 0, 0);
            for _ in 0..100 {
                let ([a, b], count) = drawn(&mut random, &all, slow, 1.1);
                let rows = compare(&a, &b, 2.0, 10.0).rows;
                let verdict = rows.iter().find(|row| named(&row.row) == slow).unwrap().verdict;
                found += usize::from(verdict == Verdict::Slower);
                missed += usize::from(verdict == Verdict::Same);
                processes += count;
            }
            println!(
                "{slow}: {found} of 100 found, {missed} called the same, {} processes on average",
                processes / 100
            );
            assert!(found >= 95, "{slow}: {found} of 100");
            assert!(missed <= 3, "{slow}: {missed} of 100 called the same");
        }
    }

    #[test]
    fn direction_and_threshold() {
        let mut random = StdRng::seed_from_u64(1);
        let (a, b) = (measured(&mut random, &[]), measured(&mut random, &[(3, 1.5), (4, 0.5)]));
        let comparison = compare(&a, &b, 2.0, 10.0);
        assert_eq!(slower(&comparison), [3]);
        assert_eq!(comparison.rows[4].verdict, Verdict::Faster);
        assert!((comparison.rows[3].worse_percent - 50.0).abs() < 8.0);
        assert!(slower(&compare(&a, &b, 80.0, 90.0)).is_empty());
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
        assert_eq!(slower(&compare(&rates(&a), &rates(&b), 2.0, 10.0)), [4], "a lower rate is worse");
    }

    #[test]
    fn too_few_processes_are_pointed_out() {
        let of = |level: f64| -> Vec<Point> {
            (0..3).map(|process| point("a", row(8), process, &[level + f64::from(process)])).collect()
        };
        let comparison = compare(&of(1000.0), &of(9000.0), 2.0, 10.0);
        assert_eq!((comparison.rows.len(), comparison.hopeless), (1, 1));
        assert_eq!((comparison.rows[0].verdict, comparison.rows[0].worse_percent_high), (Verdict::Undecided, None));
        assert_eq!(compare(&of(1000.0), &[], 2.0, 10.0).rows.len(), 0);
    }
}
