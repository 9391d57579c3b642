//! Results for people and for other programs: tables, JSON lines, CSV, and the form of the OSU benchmarks.

use crate::measure;
use crate::record::{Record, Records, Row, Summary};
use crate::suite::{FABRIC, Suite};
use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

/// How results are printed.
#[derive(clap::Args, Default)]
pub struct Form {
    /// Records as JSON lines on standard output (format: bench/schema.json)
    #[arg(long, group = "form")]
    json: bool,
    /// Results as CSV on standard output
    #[arg(long, group = "form")]
    csv: bool,
    /// Results in the form of the OSU benchmarks, for scripts that read those
    #[arg(long, group = "form")]
    osu: bool,
    /// Tables in Markdown
    #[arg(long, group = "form")]
    markdown: bool,
    /// Also the tail, the outliers and the samples of every library
    #[arg(long)]
    long: bool,
}

impl Form {
    /// Prints the records.
    ///
    /// # Errors
    /// If standard output is closed.
    pub fn print(&self, records: &Records, suite: &Suite) -> Result<()> {
        let text = match self {
            Self { json: true, .. } => json_lines(records)?,
            Self { csv: true, .. } => csv(records, suite)?,
            Self { osu: true, .. } => osu(records, suite),
            _ => tables(records, suite, self.markdown, self.long),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        for failure in &records.failures {
            eprintln!("{} on {} ranks, {}: {}", failure.test, failure.ranks, failure.library, failure.reason);
        }
        Ok(())
    }
}

fn json_lines(records: &Records) -> Result<String> {
    let all = records.runs.iter().cloned().map(Record::Run);
    let all = all.chain(records.points.iter().cloned().map(Record::Point));
    let mut text = String::new();
    for record in all.chain(records.failures.iter().cloned().map(Record::Failure)) {
        writeln!(text, "{}", serde_json::to_string(&record)?)?;
    }
    Ok(text)
}

fn csv(records: &Records, suite: &Suite) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "test",
        "ranks",
        "bytes",
        "parameters",
        "library",
        "unit",
        "median",
        "low",
        "high",
        "confidence",
        "p90",
        "p99",
        "p99.9",
        "worst",
        "processes",
        "samples",
        "outliers",
    ])?;
    for (row, by_library) in records.rows(suite) {
        for (library, summary) in by_library {
            let mut line =
                vec![row.test.clone(), row.ranks.to_string(), row.bytes.to_string(), row.shown_parameters(), library];
            line.push(row.unit.clone());
            let interval = summary.interval;
            let figures = [summary.median, interval.low, interval.high, interval.confidence];
            line.extend(figures.iter().chain(&summary.tail).map(f64::to_string));
            line.extend([summary.medians.len().to_string(), summary.samples.to_string(), summary.outliers.to_string()]);
            writer.write_record(&line)?;
        }
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// Two columns, size and figure, under a heading of two lines, as scripts for the OSU micro-benchmarks expect them; a
/// message rate has three, as theirs.
fn osu(records: &Records, suite: &Suite) -> String {
    let mut text = String::new();
    let mut heading = String::new();
    for library in records.libraries() {
        for (row, by_library) in records.rows(suite) {
            let Some(summary) = by_library.get(&library) else { continue };
            let parameters = row.shown_parameters();
            let new =
                format!("# OSU-compatible: {} ({library}, {} ranks) {parameters}", title(suite, &row.test), row.ranks);
            if new != heading {
                let group = suite.tests.get(suite.position(&row.test)).map_or("", |test| test.group.as_str());
                let column = match row.unit.as_str() {
                    "us" if matches!(group, "collectives" | "nonblocking") => "Avg Latency(us)".to_owned(),
                    "us" => "Latency (us)".to_owned(),
                    "MB/s" => "Bandwidth (MB/s)".to_owned(),
                    "/s" => format!("MB/s{:>22}", "Messages/s"),
                    other => other.to_owned(),
                };
                let _ = writeln!(text, "\n{}\n# {:<8}{column:>22}", new.trim_end(), "Size");
                heading = new;
            }
            let _ = write!(text, "{:<10}", row.bytes);
            if row.unit == "/s" {
                let _ = write!(text, "{:>22.2}", summary.median * row.bytes as f64 * 1e-6);
            }
            let _ = writeln!(text, "{:>22.2}", summary.median);
        }
    }
    text
}

/// What a test measures, from the suite; its name if the suite does not know it.
pub fn title<'a>(suite: &'a Suite, test: &'a str) -> &'a str {
    suite.tests.get(suite.position(test)).map_or(test, |known| known.title.as_str())
}

/// One table a test and unit; rows are ranks, sizes and parameters, columns libraries.
pub fn tables(records: &Records, suite: &Suite, markdown: bool, long: bool) -> String {
    let mut text = String::new();
    if let Some(run) = records.runs.first() {
        let _ = writeln!(text, "{}", run.environment.shown());
    }
    if let Some(line) = records.floor_of_a_line(None) {
        let _ = writeln!(text, "A cache line from one process to another takes {} us.", shown(line));
    }
    if let Some(left_out) = left_out(records) {
        let _ = writeln!(text, "{left_out}");
    }
    text.push_str(&tables_of(records, suite, markdown, long));
    if let Some(standing) = standing(records, suite) {
        let _ = write!(text, "\n{standing}");
    }
    text
}

/// What no row holds, if there is any.
pub fn left_out(records: &Records) -> Option<String> {
    let (samples, points) = records.left_out();
    let says = "the pace is not known that the machine had then; they are left out beside others of their row.";
    (samples > 0 || points > 0).then(|| format!("Of {samples} samples and {points} whole points {says}"))
}

/// The rows in which libraries are rivals; devices and variants of one library are not. And the names of the rivals.
pub fn rivalry(records: &Records, suite: &Suite) -> (Vec<RowOfAll>, Vec<String>) {
    let rows: Vec<_> = records.rows(suite).into_iter().filter(|(row, _)| !row.test.starts_with(FABRIC)).collect();
    let varied = |name: &String| {
        let mut all = records.runs.iter().flat_map(|run| &run.libraries);
        all.any(|library| library.name == *name && !library.settings.is_empty())
    };
    let takes_part = |name: &String| rows.iter().any(|(_, by_library)| by_library.contains_key(name));
    let names = records.libraries().into_iter().filter(|name| takes_part(name) && !varied(name)).collect();
    (rows, names)
}

/// The tables alone.
pub fn tables_of(records: &Records, suite: &Suite, markdown: bool, long: bool) -> String {
    let mut text = String::new();
    let libraries = records.libraries();
    let rows = records.rows(suite);
    let (_, rivals) = rivalry(records, suite);
    let mut start = 0;
    while start < rows.len() {
        let first = &rows[start].0;
        let same = |row: &Row| row.test == first.test && row.unit == first.unit;
        let end = start + rows[start..].iter().take_while(|(row, _)| same(row)).count();
        let present = |name: &&String| rows[start..end].iter().any(|(_, by_library)| by_library.contains_key(*name));
        let libraries: Vec<String> = libraries.iter().filter(present).cloned().collect();
        let rivals: &[String] = if first.test.starts_with(FABRIC) { &[] } else { &rivals };
        let mark = if markdown { "## " } else { "" };
        let _ = writeln!(text, "\n{mark}{} — {} ({})\n", first.test, title(suite, &first.test), first.unit);
        let _ = writeln!(text, "{}", table(records, suite, &rows[start..end], &libraries, rivals, markdown));
        if long {
            let _ = writeln!(text, "\n{}", details(&rows[start..end], &libraries, markdown));
        }
        start = end;
    }
    text
}

/// A row and what every library has of it.
pub type RowOfAll = (Row, BTreeMap<String, Summary>);
type Rows = [RowOfAll];

/// A table whose columns are right-aligned but for those that are `left`.
pub(crate) fn new_table(markdown: bool, heading: Vec<String>, left: impl Fn(usize) -> bool) -> Table {
    let mut table = Table::new();
    table.load_style(if markdown { presets::ASCII_MARKDOWN } else { presets::UTF8_FULL_CONDENSED });
    let columns = heading.len();
    table.set_header(heading);
    for column in (0..columns).filter(|column| !left(*column)) {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// `libraries`: one column each; `rivals`: those of them that the first is compared with, itself among them.
fn table(
    records: &Records,
    suite: &Suite,
    rows: &Rows,
    libraries: &[String],
    rivals: &[String],
    markdown: bool,
) -> Table {
    let has_parameters = rows.iter().any(|(row, _)| !row.parameters.is_empty());
    let floors: Vec<Option<f64>> = rows.iter().map(|(row, _)| measure::floor_of(records, suite, row)).collect();
    let has_floor = floors.iter().any(Option::is_some);
    let mut heading: Vec<String> = vec!["ranks".into(), "bytes".into()];
    if has_parameters {
        heading.push("parameters".into());
    }
    heading.extend(libraries.iter().cloned());
    if has_floor {
        heading.extend(["floor".to_owned(), format!("{} : floor", libraries[0])]);
    }
    if rivals.len() > 1 {
        heading.push("ahead of best peer".into());
    }
    let mut table = new_table(markdown, heading, |column| has_parameters && column == 2);
    for ((row, by_library), floor) in rows.iter().zip(floors) {
        let mut cells = vec![row.ranks.to_string(), row.bytes.to_string()];
        if has_parameters {
            cells.push(row.shown_parameters());
        }
        cells.extend(libraries.iter().map(|library| by_library.get(library).map_or_else(|| "-".to_owned(), cell)));
        if has_floor {
            let ratio =
                floor.zip(by_library.get(&libraries[0])).map(|(floor, ours)| 1.0 / row.advantage(ours.median, floor));
            cells.push(floor.map_or_else(String::new, shown));
            cells.push(ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")));
        }
        if rivals.len() > 1 {
            cells.push(ahead(row, by_library, rivals).map_or_else(String::new, |(ratio, _)| format!("{ratio:.2}")));
        }
        table.add_row(cells);
    }
    table
}

/// The median and, if there are several processes, how far the further end of its interval lies from it.
fn cell(summary: &Summary) -> String {
    let (median, interval) = (summary.median, summary.interval);
    if summary.medians.len() == 1 || median == 0.0 {
        return shown(median);
    }
    let reach = (interval.high - median).max(median - interval.low) / median;
    match reach {
        reach if reach < 10.0 => format!("{} ±{:.0}%", shown(median), reach * 100.0),
        _ => format!("{} ±>999%", shown(median)),
    }
}

fn details(rows: &Rows, libraries: &[String], markdown: bool) -> Table {
    let heading = [
        "library",
        "ranks",
        "bytes",
        "parameters",
        "median",
        "p90",
        "p99",
        "p99.9",
        "worst",
        "samples",
        "outliers",
        "processes",
        "unsteady",
        "confidence",
    ];
    let mut table = new_table(markdown, heading.map(str::to_owned).to_vec(), |column| column == 0);
    for (row, by_library) in rows {
        for library in libraries {
            let Some(summary) = by_library.get(library) else { continue };
            let mut cells = vec![library.clone(), row.ranks.to_string(), row.bytes.to_string(), row.shown_parameters()];
            cells.push(shown(summary.median));
            cells.extend(summary.tail.iter().map(|figure| shown(*figure)));
            cells.extend([summary.samples.to_string(), summary.outliers.to_string()]);
            cells.extend([summary.medians.len().to_string(), summary.unsteady.to_string()]);
            cells.push(format!("{:.1} %", summary.interval.confidence * 100.0));
            table.add_row(cells);
        }
    }
    table
}

/// By which factor the first library is better than the best of the others, and which that is.
pub fn ahead<'a>(row: &Row, by_library: &BTreeMap<String, Summary>, libraries: &'a [String]) -> Option<(f64, &'a str)> {
    let ours = by_library.get(libraries.first()?)?.median;
    let ratios = libraries[1..]
        .iter()
        .filter_map(|library| Some((row.advantage(ours, by_library.get(library)?.median), library.as_str())))
        .filter(|(ratio, _)| ratio.is_finite());
    ratios.min_by(|a, b| a.0.total_cmp(&b.0))
}

/// In how many rows the first library is behind, and the worst of them; nothing where there is no rival.
pub fn standing(records: &Records, suite: &Suite) -> Option<String> {
    let (rows, libraries) = &rivalry(records, suite);
    if libraries.len() < 2 {
        return None;
    }
    let mut ratios: Vec<(f64, &str, &Row)> = rows
        .iter()
        .filter_map(|(row, by_library)| ahead(row, by_library, libraries).map(|(ratio, peer)| (ratio, peer, row)))
        .collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let behind: Vec<_> = ratios.iter().filter(|(ratio, ..)| *ratio < 1.0).collect();
    let ours = libraries.first().map_or("", String::as_str);
    let mut text = format!("{ours} is behind the best peer in {} of {} rows.", behind.len(), ratios.len());
    text.push_str(if behind.is_empty() { "\n" } else { " The worst:\n" });
    for (ratio, peer, row) in behind.iter().take(5) {
        let _ = writeln!(text, "- {row}: {ratio:.2} of {peer}");
    }
    Some(text)
}

/// Three or four digits that matter.
pub fn shown(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 1e6 => format!("{:.2}M", value / 1e6),
        magnitude if magnitude >= 1000.0 => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::record::tests::{point, row, run};
    use crate::suite::{Level, Suite};

    fn records() -> Records {
        let mut records = Records::default();
        records.add(Record::Run(run(&["Ferrovia", "A", "B"])));
        let rate = Row { unit: "MB/s".into(), test: "bandwidth".into(), ..row(4000) };
        for (library, time) in [("Ferrovia", 2000.0), ("A", 1000.0), ("B", 8000.0)] {
            records.add(Record::Point(point(library, row(8), 0, &[time])));
            records.add(Record::Point(point(library, rate.clone(), 0, &[time])));
        }
        let line = Row { test: "line".into(), ranks: 0, ..row(64) };
        records.add(Record::Point(point("floor", line, 0, &[100.0])));
        records
    }

    #[test]
    fn tables_say_who_is_ahead_and_how_far_the_floor_is() {
        let suite = Suite::builtin(Level::Mpi).unwrap();
        let text = tables(&records(), &suite, true, true);
        let line = text.lines().find(|line| line.contains("2.000")).unwrap();
        let cells: Vec<&str> = line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, ["2", "8", "2.000", "1.000", "8.000", "0.100", "20.00", "0.50"], "{text}");
        let line = text.lines().find(|line| line.contains("4000 |")).unwrap();
        let cells: Vec<&str> = line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, ["2", "4000", "2000", "4000", "500.0", "0.50"], "{text}");
        assert!(text.contains("behind the best peer in 2 of 2 rows"), "{text}");
    }

    #[test]
    fn other_forms() {
        let suite = Suite::builtin(Level::Mpi).unwrap();
        let text = csv(&records(), &suite).unwrap();
        assert_eq!(text.lines().count(), 1 + 6);
        assert!(text.lines().any(|line| line.starts_with("latency,2,8,,A,us,1,1,1,0,")), "{text}");
        let text = osu(&records(), &suite);
        assert!(text.lines().any(|line| line.split_whitespace().eq(["8", "2.00"])), "{text}");
        assert!(text.contains("\n# Size"), "{text}");
        let mut rates = Records::default();
        rates.add(Record::Run(run(&["A"])));
        for (test, unit) in [("rate", "/s"), ("allreduce", "us")] {
            let row = Row { test: test.into(), unit: unit.into(), ..row(8) };
            let mut point = point("A", row, 0, &[500.0]);
            point.median = 2_000_000.0;
            rates.add(Record::Point(point));
        }
        let text = osu(&rates, &suite);
        assert!(text.lines().any(|line| line.split_whitespace().eq(["#", "Size", "MB/s", "Messages/s"])), "{text}");
        assert!(text.lines().any(|line| line.split_whitespace().eq(["8", "16.00", "2000000.00"])), "{text}");
        assert!(text.contains("Avg Latency(us)"), "{text}");
        let text = json_lines(&records()).unwrap();
        assert_eq!(text.lines().count(), 1 + 7);
    }

    #[test]
    fn digits() {
        for (value, expected) in [(0.1408, "0.141"), (14.26, "14.3"), (1234.4, "1234"), (12_345_678.0, "12.35M")] {
            assert_eq!(shown(value), expected);
        }
    }
}
