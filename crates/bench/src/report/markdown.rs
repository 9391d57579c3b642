//! The report as Markdown, as `docs/PERFORMANCE.md` is written.

use crate::pace;
use crate::record::{FLOOR, Point, Records, Run};
use crate::statistics;
use crate::suite::Suite;
use crate::table::{self, shown};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The whole document: circumstances, `remarks` of whoever measured, where the first library is behind, every table.
pub fn document(title: &str, remarks: Option<&str>, records: &Records, suite: &Suite) -> String {
    let mut text = format!("# {title}\n\n");
    text.push_str(
        "Written by `ferrovia bench report` from records of `ferrovia bench`; the same program over each library, the \
         libraries in turns.\nA figure is the median of the processes' medians, ± how far the further end of its \
         interval lies; what is behind is listed\nfirst.\n\n",
    );
    circumstances(&mut text, records);
    trust(&mut text, records);
    if let Some(remarks) = remarks {
        let _ = writeln!(text, "\n{}", remarks.trim());
    }
    let (rows, libraries) = table::rivalry(records, suite);
    if libraries.len() > 1 {
        let _ = writeln!(text, "\n## Where {} is behind\n", libraries[0]);
        behind(&mut text, &rows, &libraries);
    }
    for failure in &records.failures {
        let first = failure.reason.lines().next().unwrap_or_default();
        let _ = writeln!(
            text,
            "\nWithout result: {} on {} ranks, {}: {first}",
            failure.test, failure.ranks, failure.library
        );
    }
    text.push_str(&table::tables_of(records, suite, true, false));
    // A document ends its lines without blanks.
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Machine, day, commands and libraries of all runs; what is the same for several is said once.
pub fn circumstances(text: &mut String, records: &Records) {
    let mut said = BTreeSet::new();
    let mut say = |line: String| {
        if said.insert(line.clone()) {
            let _ = writeln!(text, "- {line}");
        }
    };
    let each = |of: fn(&Run) -> Vec<String>| -> Vec<String> { records.runs.iter().flat_map(of).collect() };
    let machine = |run: &Run| {
        let shown = run.environment.shown();
        let machine = shown.rsplit_once(", load").map_or(shown.as_str(), |(machine, _)| machine).to_owned();
        vec![format!("Machine: {machine}, {} MiB.", run.environment.memory_kib / 1024)]
    };
    each(machine).into_iter().for_each(&mut say);
    let loads: Vec<f64> = records.runs.iter().map(|run| run.environment.load).collect();
    let most = loads.iter().copied().fold(0.0, f64::max);
    say(format!("Load when the runs began: at most {most:.2}."));
    each(|run| vec![format!("Date: {}.", run.date())]).into_iter().for_each(&mut say);
    each(|run| run.environment.notes.iter().map(|(name, value)| format!("{name}: {value}.")).collect())
        .into_iter()
        .for_each(&mut say);
    each(|run| run.environment.variables.iter().map(|(name, value)| format!("{name}={value}.")).collect())
        .into_iter()
        .for_each(&mut say);
    let library = |run: &Run| -> Vec<String> {
        let told = run.libraries.iter().filter(|library| !library.version.is_empty() || !library.settings.is_empty());
        told.map(|library| {
            let settings = library.settings.iter().map(|(name, value)| format!("{name}={value}"));
            let told = std::iter::once(library.version.clone()).chain(settings).filter(|part| !part.is_empty());
            format!("{}: {}.", library.name, told.collect::<Vec<_>>().join(", "))
        })
        .collect()
    };
    each(library).into_iter().for_each(&mut say);
    each(|run| vec![format!("`{}`", run.shown_command())]).into_iter().for_each(say);
}

/// What the records themselves say about how far they are to be trusted.
fn trust(text: &mut String, records: &Records) {
    let mut processes: BTreeMap<_, u64> = BTreeMap::new();
    for point in records.points.iter().filter(|point| point.library != FLOOR) {
        *processes.entry((&point.row, &point.library)).or_default() += 1;
    }
    let (Some(fewest), Some(most)) = (processes.values().min(), processes.values().max()) else { return };
    let unsteady = records.points.iter().filter(|point| !point.steady).count();
    let _ = write!(
        text,
        "\n**How far to trust it.** {} processes per row and library; {unsteady} of {} points never became steady.",
        if fewest == most { most.to_string() } else { format!("{fewest} to {most}") },
        records.points.len()
    );
    let lines: Vec<&Point> =
        records.points.iter().filter(|point| point.library == FLOOR && point.row.test == "line").collect();
    let took = |lines: &[&Point]| -> Option<f64> {
        let medians: Vec<f64> = lines.iter().map(|line| line.median).collect();
        (!medians.is_empty()).then(|| statistics::median(&medians))
    };
    let at = |name: &str| -> Vec<&Point> {
        let is_at = |line: &&Point| line.row.parameters.get(pace::PARAMETER).is_some_and(|pace| pace == name);
        lines.iter().copied().filter(is_at).collect()
    };
    if records.are_of_two_paces() {
        text.push_str(
            " The machine has two paces: a row of two ranks says whether its processors were near each other or apart, \
             before and after its samples; rows of more ranks hold both.",
        );
        let floors: Vec<String> = ["near", "apart"]
            .iter()
            .filter_map(|pace| Some(format!("{} us {pace}", shown(took(&at(pace))?))))
            .collect();
        if !floors.is_empty() {
            let _ = write!(text, " A cache line from one process to another took {}.", floors.join(" and "));
        }
    } else if let (Some(median), true) = (took(&lines), lines.len() > 1) {
        let (low, high) = lines
            .iter()
            .fold((f64::INFINITY, 0.0_f64), |(low, high), line| (low.min(line.median), high.max(line.median)));
        let _ = write!(
            text,
            " A cache line from one process to another took {} us at the median and from {} to {} us over the run: a \
             ratio of short messages within {:.1} either way may be the machine's.",
            shown(median),
            shown(low),
            shown(high),
            high / low
        );
    }
    if let Some(left_out) = table::left_out(records) {
        let _ = write!(text, " {left_out}");
    }
    text.push('\n');
}

type Rows = [(crate::record::Row, BTreeMap<String, crate::record::Summary>)];

/// By test: in how many of its rows the first library is behind, and how far at worst.
fn behind(text: &mut String, rows: &Rows, libraries: &[String]) {
    let mut tests: Vec<(&str, usize, usize, f64, String)> = Vec::new();
    for (row, by_library) in rows {
        let Some((ratio, peer)) = table::ahead(row, by_library, libraries) else { continue };
        if tests.last().is_none_or(|(test, ..)| *test != row.test) {
            tests.push((&row.test, 0, 0, f64::INFINITY, String::new()));
        }
        if let Some((_, behind, all, worst, place)) = tests.last_mut() {
            *all += 1;
            *behind += usize::from(ratio < 1.0);
            if ratio < *worst {
                (*worst, *place) =
                    (ratio, format!("{peer}, {} ranks, {} bytes {}", row.ranks, row.bytes, row.shown_parameters()));
            }
        }
    }
    text.push_str("| test | rows behind | at worst | against |\n|---|---:|---:|---|\n");
    for (test, behind, all, worst, place) in tests.iter().filter(|(_, behind, ..)| *behind > 0) {
        let _ = writeln!(text, "| {test} | {behind} of {all} | {worst:.2} | {} |", place.trim_end());
    }
    let (behind, all) = tests.iter().fold((0, 0), |(behind, all), test| (behind + test.1, all + test.2));
    let _ = writeln!(
        text,
        "\n{behind} of {all} rows. The last column of each table is how far it is ahead of the best peer: below 1 it is behind."
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::Pace;
    use crate::record::tests::{point, row, run};
    use crate::record::{Record, Row};

    #[test]
    fn what_is_behind_is_said_first() {
        let mut records = Records::default();
        for _ in 0..2 {
            let mut run = run(&["Ferrovia", "A"]);
            run.command = vec!["/home/somebody/bin/ferrovia".into(), "bench".into()];
            records.add(Record::Run(run));
        }
        for (bytes, ours) in [(0, 4000.0), (8, 500.0)] {
            records.add(Record::Point(point("Ferrovia", row(bytes), 0, &[ours])));
            records.add(Record::Point(point("A", row(bytes), 0, &[1000.0])));
        }
        for (process, took) in [(0, 100.0), (1, 300.0)] {
            let line = Row { test: "line".into(), ranks: 0, ..row(64) };
            records.add(Record::Point(point(FLOOR, line, process, &[took])));
        }
        let text = document("Performance", Some("It rains.\n"), &records, &Suite::everything().unwrap());
        assert!(text.contains("| latency | 1 of 2 | 0.25 | A, 2 ranks, 0 bytes |"), "{text}");
        assert!(text.contains("## latency") && text.lines().all(|line| line == line.trim_end()));
        for (part, times) in [
            ("- Machine: ", 1),
            ("- Date: 1970-01-01.", 1),
            ("- A: A 1.0.", 1),
            ("- `ferrovia bench`", 1),
            ("somebody", 0),
            ("from 0.100 to 0.300 us", 1),
            ("\nIt rains.\n", 1),
        ] {
            assert_eq!(text.matches(part).count(), times, "{part}: {text}");
        }
    }

    #[test]
    fn two_paces_are_told_with_the_floor_of_each_and_what_is_left_out() {
        let at = |row: Row, pace| pace::of_row(&row, Some(pace));
        let line = Row { test: "line".into(), ranks: 0, ..row(64) };
        let mut records = Records::default();
        records.add(Record::Run(run(&["Ferrovia", "A"])));
        for (pace, took) in [(Pace::Near, 100.0), (Pace::Apart, 300.0)] {
            records.add(Record::Point(point(FLOOR, at(line.clone(), pace), 0, &[took / 2.0])));
            records.add(Record::Point(point("Ferrovia", at(row(8), pace), 0, &[took])));
            records.add(Record::Point(point("A", at(row(8), pace), 0, &[took * 2.0])));
        }
        records.add(Record::Point(point("A", row(8), 1, &[1.0])));
        records.points[1].unpaced_samples = 5;
        let text = document("Performance", None, &records, &Suite::everything().unwrap());
        assert!(text.contains("took 0.050 us near and 0.150 us apart"), "{text}");
        assert!(text.contains("Of 5 samples and 1 whole points the pace is not known"), "{text}");
        for cells in
            ["pace=apart | 0.300 | 0.600 | 0.150 | 2.00 | 2.00", "pace=near | 0.100 | 0.200 | 0.050 | 2.00 | 2.00"]
        {
            let cells: Vec<&str> = cells.split(" | ").collect();
            let found = text.lines().any(|line| {
                let line: Vec<&str> = line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
                line.get(2..) == Some(&cells[..])
            });
            assert!(found, "{cells:?}: {text}");
        }
    }

    #[test]
    fn devices_are_no_rivals() {
        let mut records = Records::default();
        records.add(Record::Run(run(&["shm", "tcp"])));
        for (device, took) in [("shm", 4000.0), ("tcp", 500.0)] {
            let row = Row { test: "fabric/latency".into(), ..row(8) };
            records.add(Record::Point(point(device, row, 0, &[took])));
        }
        let text = document("Devices", None, &records, &Suite::everything().unwrap());
        assert!(text.contains("## fabric/latency") && !text.contains("behind |") && !text.contains("ahead"), "{text}");
    }
}
