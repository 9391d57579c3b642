//! Figures: which rows belong into one picture, and what stands along its axis.

use crate::measure;
use crate::record::{Records, Row, Summary};
use crate::suite::Suite;
use crate::table;
use std::collections::{BTreeMap, BTreeSet};

/// One picture.
#[derive(Debug)]
pub struct Figure {
    /// The test.
    pub test: String,
    /// What it measures.
    pub title: String,
    /// What is the same for all its points, such as `4 ranks, window=64`.
    pub fixed: String,
    /// What stands along the axis: `bytes`, `ranks`, or a parameter's name.
    pub axis: String,
    /// Unit of the figures.
    pub unit: String,
    /// Whether larger is better.
    pub more_is_better: bool,
    /// The libraries' lines, in the order of the run, then the floor's.
    pub series: Vec<Series>,
}

/// One line of a picture.
#[derive(Debug)]
pub struct Series {
    /// Library, or `floor`.
    pub name: String,
    /// Its number among the libraries; `None` for the floor.
    pub index: Option<usize>,
    /// Its points, by position.
    pub points: Vec<Mark>,
}

/// One point of a line.
#[derive(Debug)]
pub struct Mark {
    /// Value on the axis.
    pub x: f64,
    /// The figure.
    pub y: f64,
    /// Where the figure lies, lower end.
    pub low: f64,
    /// Where the figure lies, upper end.
    pub high: f64,
    /// What is shown when somebody points at it.
    pub text: String,
}

/// All pictures of the records, in the order of the tests.
pub fn figures(records: &Records, suite: &Suite) -> Vec<Figure> {
    let rows = records.rows(suite);
    let libraries = records.libraries();
    let mut figures = Vec::new();
    let mut start = 0;
    while start < rows.len() {
        let first = &rows[start].0;
        let same = |row: &Row| row.test == first.test && row.unit == first.unit;
        let end = start + rows[start..].iter().take_while(|(row, _)| same(row)).count();
        let axis = axis(&rows[start..end]);
        let mut by_rest: BTreeMap<Rest, Vec<&(Row, Summaries)>> = BTreeMap::new();
        for entry in &rows[start..end] {
            by_rest.entry(rest(&entry.0, &axis)).or_default().push(entry);
        }
        for entries in by_rest.values() {
            figures.push(figure(records, suite, &libraries, &axis, entries));
        }
        start = end;
    }
    figures
}

type Summaries = BTreeMap<String, Summary>;
/// Ranks, bytes and parameters, without what stands on the axis.
type Rest = (u32, u64, BTreeMap<String, String>);

/// What varies and is a number: sizes first, then a parameter, then ranks.
fn axis(rows: &[(Row, Summaries)]) -> String {
    let several = |values: BTreeSet<String>| values.len() > 1;
    if several(rows.iter().map(|(row, _)| row.bytes.to_string()).collect()) {
        return "bytes".to_owned();
    }
    let names: BTreeSet<&String> = rows.iter().flat_map(|(row, _)| row.parameters.keys()).collect();
    for name in names {
        let values: BTreeSet<String> = rows.iter().filter_map(|(row, _)| row.parameters.get(name).cloned()).collect();
        if values.iter().all(|value| value.parse::<f64>().is_ok()) && several(values) {
            return name.clone();
        }
    }
    if several(rows.iter().map(|(row, _)| row.ranks.to_string()).collect()) { "ranks" } else { "bytes" }.to_owned()
}

/// What is left of a row without its value on the axis.
fn rest(row: &Row, axis: &str) -> Rest {
    let mut parameters = row.parameters.clone();
    parameters.remove(axis);
    let ranks = if axis == "ranks" { 0 } else { row.ranks };
    let bytes = if axis == "bytes" { 0 } else { row.bytes };
    (ranks, bytes, parameters)
}

fn position(row: &Row, axis: &str) -> f64 {
    match axis {
        "bytes" => row.bytes as f64,
        "ranks" => f64::from(row.ranks),
        name => row.parameters.get(name).and_then(|value| value.parse().ok()).unwrap_or(0.0),
    }
}

fn figure(records: &Records, suite: &Suite, libraries: &[String], axis: &str, entries: &[&(Row, Summaries)]) -> Figure {
    let first = &entries[0].0;
    let (ranks, bytes, parameters) = rest(first, axis);
    let mut fixed = Vec::new();
    if ranks > 0 {
        fixed.push(format!("{ranks} rank{}", if ranks == 1 { "" } else { "s" }));
    }
    if bytes > 0 {
        fixed.push(format!("{bytes} bytes"));
    }
    fixed.extend(parameters.iter().map(|(name, value)| format!("{name} {value}")));
    let mut series: Vec<Series> = libraries
        .iter()
        .enumerate()
        .map(|(index, library)| Series {
            name: library.clone(),
            index: Some(index),
            points: marks(records, suite, libraries, axis, entries, library),
        })
        .collect();
    series.push(Series { name: "floor".to_owned(), index: None, points: floor(records, suite, axis, entries) });
    series.retain(|series| !series.points.is_empty());
    Figure {
        test: first.test.clone(),
        title: table::title(suite, &first.test).to_owned(),
        fixed: fixed.join(", "),
        axis: axis.to_owned(),
        unit: first.unit.clone(),
        more_is_better: first.more_is_better(),
        series,
    }
}

fn marks(
    records: &Records,
    suite: &Suite,
    libraries: &[String],
    axis: &str,
    entries: &[&(Row, Summaries)],
    library: &str,
) -> Vec<Mark> {
    let mut marks: Vec<Mark> = entries
        .iter()
        .filter_map(|(row, by_library)| {
            let summary = by_library.get(library)?;
            let x = position(row, axis);
            let mut lines =
                vec![format!("{library}, {axis} {x}"), format!("{} {}", table::shown(summary.median), row.unit)];
            let interval = summary.interval;
            if summary.medians.len() > 1 {
                lines.push(format!(
                    "{} to {} ({:.0} % sure, {} processes)",
                    table::shown(interval.low),
                    table::shown(interval.high),
                    interval.confidence * 100.0,
                    summary.medians.len()
                ));
            }
            for other in libraries.iter().filter(|other| *other != library) {
                if let Some(theirs) = by_library.get(other) {
                    lines.push(ratio(row.advantage(summary.median, theirs.median), other));
                }
            }
            if let Some(floor) = measure::floor_of(records, suite, row) {
                lines.push(format!("{:.2} times the floor", 1.0 / row.advantage(summary.median, floor)));
            }
            lines.push(format!("p99 {}, worst {}", table::shown(summary.tail[1]), table::shown(summary.tail[3])));
            Some(Mark { x, y: summary.median, low: interval.low, high: interval.high, text: lines.join("\n") })
        })
        .collect();
    marks.sort_by(|a, b| a.x.total_cmp(&b.x));
    marks
}

fn ratio(advantage: f64, other: &str) -> String {
    match advantage {
        advantage if !advantage.is_finite() => format!("not comparable with {other}"),
        advantage if advantage >= 1.0 => format!("{advantage:.2} times better than {other}"),
        advantage => format!("{:.2} times worse than {other}", 1.0 / advantage),
    }
}

fn floor(records: &Records, suite: &Suite, axis: &str, entries: &[&(Row, Summaries)]) -> Vec<Mark> {
    let mut marks: Vec<Mark> = entries
        .iter()
        .filter_map(|(row, _)| {
            let (x, y) = (position(row, axis), measure::floor_of(records, suite, row)?);
            let text = format!("floor of this machine, {axis} {x}\n{} {}", table::shown(y), row.unit);
            Some(Mark { x, y, low: y, high: y, text })
        })
        .collect();
    marks.sort_by(|a, b| a.x.total_cmp(&b.x));
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::record::tests::{point, row, run};

    fn records(rows: &[Row]) -> Records {
        let mut records = Records::default();
        records.add(Record::Run(run(&["Ferrovia", "A"])));
        for row in rows {
            records.add(Record::Point(point("Ferrovia", row.clone(), 0, &[1000.0])));
            records.add(Record::Point(point("A", row.clone(), 0, &[2000.0])));
        }
        let line = Row { test: "line".into(), ranks: 0, ..row(64) };
        records.add(Record::Point(point("floor", line, 0, &[100.0])));
        records
    }

    #[test]
    fn sizes_stand_along_the_axis_and_ranks_apart() {
        let rows: Vec<Row> =
            [2, 4].iter().flat_map(|ranks| [0, 8, 64].map(|bytes| Row { ranks: *ranks, ..row(bytes) })).collect();
        let figures = figures(&records(&rows), &Suite::everything().unwrap());
        assert_eq!(figures.len(), 2);
        assert_eq!((figures[0].axis.as_str(), figures[0].fixed.as_str()), ("bytes", "2 ranks"));
        let names: Vec<&str> = figures[0].series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["Ferrovia", "A", "floor"]);
        assert_eq!(figures[0].series[0].points.len(), 3);
        let text = &figures[0].series[0].points[1].text;
        assert!(text.contains("2.00 times better than A") && text.contains("10.00 times the floor"), "{text}");
        let text = &figures[0].series[1].points[1].text;
        assert!(text.contains("2.00 times worse than Ferrovia"), "{text}");
    }

    #[test]
    fn a_parameter_stands_along_the_axis_if_sizes_do_not_vary() {
        let rows: Vec<Row> = ["0", "16", "4096"]
            .iter()
            .map(|depth| Row {
                test: "posted".into(),
                parameters: BTreeMap::from([("depth".to_owned(), (*depth).to_owned())]),
                ..row(8)
            })
            .collect();
        let figures = figures(&records(&rows), &Suite::everything().unwrap());
        assert_eq!((figures.len(), figures[0].axis.as_str()), (1, "depth"));
        assert_eq!(figures[0].series[0].points[2].x, 4096.0);
        assert_eq!(figures[0].fixed, "2 ranks, 8 bytes");
    }
}
