//! The comparison for people and for other programs.

use super::comparison::{Agreement, Compared};
use super::data::{FigureEntry, Paper};
use crate::record::Records;
use crate::report::circumstances;
use crate::table::{new_table, shown};
use anyhow::Result;
use comfy_table::Table;
use std::fmt::Write as _;

/// Every line of the comparison as a JSON object.
///
/// # Errors
/// If a figure is no number.
pub fn json(compared: &[Compared]) -> Result<String> {
    let mut text = String::new();
    for line in compared {
        writeln!(text, "{}", serde_json::to_string(line)?)?;
    }
    Ok(text)
}

/// The same as CSV.
///
/// # Errors
/// If a line cannot be written.
pub fn csv(compared: &[Compared]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for line in compared {
        writer.serialize(line)?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// The sections of papers under one title, with what `records` say of machine and day.
pub fn document(records: &Records, sections: &str) -> String {
    let mut text =
        "# Figures of papers\n\nWritten by `ferrovia bench paper`: what a paper measured, and the same on this \
        machine. The papers' machines are twenty years\nolder; what can be reproduced are the ratios that a mechanism \
        makes. Each row says whether they point the same way. Where this\nmachine has two paces, a ratio is of one that \
        both sides have met; figures beside each other may be of two.\n\n"
            .to_owned();
    circumstances(&mut text, records);
    text.push_str(sections);
    // A document ends its lines without blanks.
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Title, tables, curves, and what is not reproduced.
pub fn text(paper: &Paper, compared: &[Compared], devices: &[String], markdown: bool) -> String {
    let mark = |level: &str| if markdown { format!("{level} ") } else { String::new() };
    let mut text = format!("{}{}\n", mark("##"), paper.title);
    let single = |of_verbs: bool| -> Vec<&Compared> {
        compared.iter().filter(|line| line.point.is_none() && line.is_of_verbs == of_verbs).collect()
    };
    let (verbs, others) = (single(true), single(false));
    if !verbs.is_empty() {
        let _ = writeln!(text, "\n{}", by_device(&verbs, devices, markdown));
    }
    if !others.is_empty() {
        let _ = writeln!(text, "\n{}", rows(&others, markdown));
    }
    for (number, figure) in paper.figures.iter().enumerate() {
        let _ = writeln!(text, "\n{}{} ({}; {})\n", mark("###"), figure.what, figure.source, figure.measurement.unit);
        let _ = writeln!(text, "{}", curve(number, figure, compared, markdown));
        if !figure.says.is_empty() {
            let _ = writeln!(text, "\nThe paper: {}", figure.says);
        }
    }
    if !paper.missing.is_empty() {
        text.push('\n');
    }
    for missing in &paper.missing {
        let _ = writeln!(text, "{}not reproduced: {}: {}", mark("-"), missing.what, missing.why);
    }
    let count = |agreement| compared.iter().filter(|line| line.agrees == Some(agreement)).count();
    let judged = compared.iter().filter(|line| line.agrees.is_some()).count();
    if judged > 0 {
        let _ = writeln!(
            text,
            "\n{} of {judged} ratios that the paper gives, or says, point the same way here; {} are better than the \
             paper's, {} do not; of {} the processes, or the machine's pace, differ too much to \
             tell.",
            count(Agreement::Yes),
            count(Agreement::Better),
            count(Agreement::No),
            count(Agreement::Unclear)
        );
    }
    let empty: Vec<String> = compared.iter().filter(|line| line.here.is_none()).map(of_whom).collect();
    if !empty.is_empty() {
        let _ = writeln!(text, "\nNothing was measured of {}.", empty.join("; "));
    }
    text
}

/// What a line is of, and on which library or device.
pub fn of_whom(line: &Compared) -> String {
    format!("{} ({})", line.what, line.on)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), shown)
}

/// Figures of MPI.
fn rows(lines: &[&Compared], markdown: bool) -> Table {
    let heading =
        ["what", "source", "measured on", "ratio", "unit", "paper", "here", "paper's ratio", "here", "agrees"];
    let mut table = new_table(markdown, heading.map(str::to_owned).to_vec(), |column| column < 5);
    for line in lines {
        table.add_row([
            line.what.clone(),
            line.source.clone(),
            line.on.clone(),
            line.ratio_of.clone(),
            line.unit.clone(),
            number(line.paper),
            number(line.here),
            number(line.paper_ratio),
            number(line.here_ratio),
            agrees(line.agrees),
        ]);
    }
    table
}

fn agrees(agreement: Option<Agreement>) -> String {
    match agreement {
        Some(Agreement::Yes) => "yes",
        Some(Agreement::Better) => "better",
        Some(Agreement::No) => "no",
        Some(Agreement::Unclear) => "unclear",
        None => "",
    }
    .to_owned()
}

/// Figures of verbs, the devices beside each other: each one's figure, and its ratio behind it.
fn by_device(lines: &[&Compared], devices: &[String], markdown: bool) -> Table {
    let mut heading: Vec<String> = ["what", "source", "unit", "paper"].map(str::to_owned).to_vec();
    heading.extend(devices.iter().cloned());
    heading.extend(["ratio".to_owned(), "paper".to_owned()]);
    heading.extend(devices.iter().cloned());
    let mut table = new_table(markdown, heading, |column| column < 3);
    let mut names: Vec<&str> = lines.iter().map(|line| line.what.as_str()).collect();
    names.dedup();
    for name in names {
        let of_name: Vec<&&Compared> = lines.iter().filter(|line| line.what == name).collect();
        let first = of_name[0];
        let on = |device: &String| of_name.iter().find(|line| line.on == *device);
        let mut cells = vec![first.what.clone(), first.source.clone(), first.unit.clone(), number(first.paper)];
        cells.extend(devices.iter().map(|device| number(on(device).and_then(|line| line.here))));
        cells.extend([first.ratio_of.clone(), number(first.paper_ratio)]);
        let ratio =
            |line: &Compared| format!("{} {}", number(line.here_ratio), agrees(line.agrees)).trim_end().to_owned();
        cells.extend(devices.iter().map(|device| on(device).map_or_else(|| number(None), |line| ratio(line))));
        table.add_row(cells);
    }
    table
}

/// A curve: its places down, its lines across, with the quotient behind each line that has one.
fn curve(number_of_figure: usize, figure: &FigureEntry, compared: &[Compared], markdown: bool) -> Table {
    let of_figure = || compared.iter().filter_map(|line| Some((line, line.point.as_ref()?)));
    let of_figure = || of_figure().filter(|(_, point)| point.figure == number_of_figure);
    let mut columns: Vec<(&str, &str)> = Vec::new();
    for (line, point) in of_figure() {
        let column = (point.line.as_str(), line.on.as_str());
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let find = |column: &(&str, &str), at: u64| {
        of_figure().find(|(line, point)| (point.line.as_str(), line.on.as_str()) == *column && point.at == at)
    };
    let any = |column: &(&str, &str), has: fn(&Compared) -> bool| {
        figure.values.iter().any(|at| find(column, *at).is_some_and(|(line, _)| has(line)))
    };
    let mut heading = vec![figure.axis.clone()];
    for column in &columns {
        let several = columns.iter().filter(|other| other.0 == column.0).count() > 1;
        let name = match *column {
            ("", on) => on.to_owned(),
            (line, on) if several => format!("{line}, {on}"),
            (line, _) => line.to_owned(),
        };
        if any(column, |line| line.paper.is_some()) {
            heading.push(format!("{name}, paper"));
        }
        heading.push(name);
        if any(column, |line| line.here_ratio.is_some()) {
            heading.push(match figure.choice.as_deref() == Some(column.0) {
                true => ": best".to_owned(),
                false => format!(": {}", figure.over.as_deref().unwrap_or_default()),
            });
        }
    }
    let mut table = new_table(markdown, heading, |_| false);
    for at in &figure.values {
        let mut cells = vec![at.to_string()];
        for column in &columns {
            let line = find(column, *at).map(|(line, _)| line);
            if any(column, |line| line.paper.is_some()) {
                cells.push(number(line.and_then(|line| line.paper)));
            }
            cells.push(number(line.and_then(|line| line.here)));
            if any(column, |line| line.here_ratio.is_some()) {
                cells.push(number(line.and_then(|line| line.here_ratio)));
            }
        }
        table.add_row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::comparison::compare;
    use crate::record::tests::{point, row, run};
    use crate::record::{Record, Row};

    fn paper() -> Paper {
        Paper::parse(
            r#"
            title = "T"
            [[variant]]
            name = "V"
            [[row]]
            what = "a"
            source = "Table 1"
            level = "fabric"
            test = "latency"
            ranks = 2
            bytes = 8
            unit = "us"
            paper = 7.5
            [[figure]]
            what = "F"
            source = "Figure 2"
            says = "V is faster."
            level = "mpi"
            test = "latency"
            ranks = 2
            unit = "us"
            axis = "bytes"
            values = [8, 64]
            over = "plain"
            [[figure.line]]
            name = "plain"
            paper = [4.0]
            [[figure.line]]
            name = "V"
            variant = "V"
            [[missing]]
            what = "all else"
            why = "no time"
            "#,
        )
        .unwrap()
    }

    #[test]
    fn devices_and_lines_stand_beside_each_other() {
        let paper = paper();
        let mut records = Records::default();
        records.add(Record::Run(run(&["Ferrovia", "V"])));
        for (library, test, bytes, time) in [
            ("shm", "fabric/latency", 8, 1.0),
            ("tcp", "fabric/latency", 8, 9.0),
            ("Ferrovia", "latency", 8, 2.0),
            ("Ferrovia", "latency", 64, 3.0),
            ("V", "latency", 8, 4.0),
        ] {
            let row = Row { test: test.into(), ..row(bytes) };
            records.add(Record::Point(point(library, row, 0, &[time * 1000.0])));
        }
        let devices = ["shm".to_owned(), "tcp".to_owned()];
        let compared = compare(&paper.entries(), &records, &devices);
        let text = text(&paper, &compared, &devices, true);
        let cells = |start: &str| -> Vec<String> {
            let fits = |line: &&str| line.split('|').nth(1).is_some_and(|cell| cell.trim() == start);
            let line = text.lines().find(fits).unwrap_or_else(|| panic!("{start}: {text}"));
            line.split('|').map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
        };
        assert_eq!(cells("a"), ["a", "Table 1", "us", "7.500", "1.000", "9.000", "-", "-", "-"]);
        assert_eq!(cells("bytes"), ["bytes", "plain, paper", "plain", "V", ": plain"]);
        assert_eq!(cells("8"), ["8", "4.000", "2.000", "4.000", "2.000"]);
        assert!(text.contains("The paper: V is faster.") && text.contains("- not reproduced: all else: no time"));
        assert_eq!(json(&compared).unwrap().lines().count(), compared.len());
        assert_eq!(csv(&compared).unwrap().lines().count(), compared.len() + 1);
        let document = document(&records, &text);
        let order =
            ["# Figures", "- Machine: ", "- Date: 1970-01-01.", "## T", "### F"].map(|part| document.find(part));
        assert!(order.is_sorted() && order[0] == Some(0), "{document}");
        assert!(document.lines().all(|line| line == line.trim_end()));
    }
}
