//! `ferrovia bench paper NAME`: the tables and figures of a paper, as far as the devices at hand allow. The papers'
//! figures are of hardware twenty years older; what can be reproduced is the ratio that a mechanism makes.

use crate::fabric;
use crate::measure;
use crate::record::{Records, Row};
use crate::suite::{FABRIC, Level, Suite};
use crate::table::{self, shown};
use anyhow::{Context, Result, bail};
use comfy_table::{Table, presets};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

const PAPERS: [(&str, &str); 6] = [
    ("miba", include_str!("../../../bench/papers/miba.toml")),
    ("mpich2-ib", include_str!("../../../bench/papers/mpich2-ib.toml")),
    ("tupleq", include_str!("../../../bench/papers/tupleq.toml")),
    ("datatypes", include_str!("../../../bench/papers/datatypes.toml")),
    ("veloblock", include_str!("../../../bench/papers/veloblock.toml")),
    ("via2sisci", include_str!("../../../bench/papers/via2sisci.toml")),
];

/// Which paper, and how long to measure.
#[derive(clap::Args)]
pub struct Options {
    /// miba, mpich2-ib, tupleq, datatypes, veloblock or via2sisci; `ferrovia bench paper list` tells what each is
    name: String,
    /// The device whose verbs stand beside the paper's
    #[arg(short, long, default_value = "shm", value_name = "NAME")]
    device: String,
    /// Processes of each test
    #[arg(short, long, default_value_t = 5)]
    repetitions: u32,
    /// Seconds of samples for each point
    #[arg(long, default_value_t = 0.1, value_name = "S")]
    seconds: f64,
    /// The installation that is measured (default: the one this program belongs to)
    #[arg(long, value_name = "DIR")]
    prefix: Option<String>,
    /// The comparison as JSON
    #[arg(long, group = "form")]
    json: bool,
    /// The comparison as CSV
    #[arg(long, group = "form")]
    csv: bool,
}

/// A paper, as data.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    title: String,
    #[serde(default, rename = "row")]
    rows: Vec<Entry>,
    #[serde(default)]
    missing: Vec<Missing>,
}

/// One figure of the paper and the test that measures the same here.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    what: String,
    source: String,
    level: EntryLevel,
    test: String,
    /// What the program reports, if not under the test's name.
    reported: Option<String>,
    ranks: u32,
    bytes: u64,
    unit: String,
    #[serde(default)]
    parameters: BTreeMap<String, String>,
    /// The paper's figure.
    paper: Option<f64>,
    /// The paper's figure of a rival; ours is compared with the best peer found here.
    paper_peer: Option<f64>,
    /// The row whose figure this one is divided by, in the paper and here.
    over: Option<String>,
    /// The quotient, where the paper gives no figures.
    paper_ratio: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum EntryLevel {
    Mpi,
    Fabric,
}

/// What this program cannot reproduce.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Missing {
    what: String,
    why: String,
}

/// One line of the comparison.
#[derive(Debug, Serialize)]
struct Compared {
    what: String,
    source: String,
    unit: String,
    paper: Option<f64>,
    here: Option<f64>,
    ratio_of: String,
    paper_ratio: Option<f64>,
    here_ratio: Option<f64>,
}

/// Options of another subcommand, read from words.
#[derive(clap::Parser)]
struct Words<T: clap::Args> {
    #[command(flatten)]
    options: T,
}

fn read<T: clap::Args>(words: Vec<String>) -> Result<T> {
    let words = std::iter::once("paper".to_owned()).chain(words);
    Ok(<Words<T> as clap::Parser>::try_parse_from(words)?.options)
}

/// Measures and compares.
///
/// # Errors
/// If there is no such paper, or nothing could be measured.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.name == "list" {
        for (name, _) in PAPERS {
            let paper = paper(name)?;
            println!("{name:<10} {} ({} rows, {} not reproduced)", paper.title, paper.rows.len(), paper.missing.len());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let paper = paper(&options.name)?;
    let mut records = Records::default();
    if let Some(words) = words(&paper, EntryLevel::Fabric, options) {
        let words = words.into_iter().chain(["--device".to_owned(), options.device.clone()]);
        records.append(fabric::records(&read(words.collect())?)?);
    }
    if let Some(mut words) = words(&paper, EntryLevel::Mpi, options) {
        words.push("--no-floor".to_owned());
        words.extend(options.prefix.iter().flat_map(|prefix| ["--prefix".to_owned(), prefix.clone()]));
        records.append(measure::records(Level::Mpi, &read(words)?)?);
    }
    print(options, &paper, &compare(&paper, &records, options))?;
    for failure in &records.failures {
        eprintln!("{} on {} ranks, {}: {}", failure.test, failure.ranks, failure.library, failure.reason);
    }
    Ok(if records.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn paper(name: &str) -> Result<Paper> {
    let Some((_, text)) = PAPERS.iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = PAPERS.iter().map(|(name, _)| *name).collect();
        bail!("there is no paper {name:?}; there are {}", names.join(", "));
    };
    toml::from_str(text).with_context(|| format!("the data of {name}"))
}

/// The words for a run that measures all rows of a level; `None` if there are none.
fn words(paper: &Paper, level: EntryLevel, options: &Options) -> Option<Vec<String>> {
    let rows: Vec<&Entry> = paper.rows.iter().filter(|row| row.level == level).collect();
    if rows.is_empty() {
        return None;
    }
    let listed = |values: BTreeSet<u64>| values.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let tests: BTreeSet<&str> = rows.iter().map(|row| row.test.as_str()).collect();
    let mut words: Vec<String> = tests.into_iter().map(str::to_owned).collect();
    words.extend(["--sizes".to_owned(), listed(rows.iter().map(|row| row.bytes).collect())]);
    if level == EntryLevel::Mpi {
        words.extend(["--ranks".to_owned(), listed(rows.iter().map(|row| row.ranks.into()).collect())]);
    }
    words.extend(["--repetitions".to_owned(), options.repetitions.to_string()]);
    words.extend(["--seconds".to_owned(), options.seconds.to_string()]);
    Some(words)
}

fn compare(paper: &Paper, records: &Records, options: &Options) -> Vec<Compared> {
    let suite = Suite { tests: Vec::new() };
    let rows = records.rows(&suite);
    // Records of MPI name their libraries, ours first; the verbs' library is the device.
    let libraries: Vec<String> = records.libraries().into_iter().filter(|library| *library != options.device).collect();
    let find = |entry: &Entry| rows.iter().find(|(row, _)| entry.is(row));
    let here = |entry: &Entry| {
        let library = match entry.level {
            EntryLevel::Fabric => &options.device,
            EntryLevel::Mpi => libraries.first()?,
        };
        Some(find(entry)?.1.get(library)?.median)
    };
    let compared = paper.rows.iter().map(|entry| {
        let other = entry.over.as_ref().and_then(|what| paper.rows.iter().find(|row| row.what == *what));
        let peer = find(entry).and_then(|(row, by_library)| table::ahead(row, by_library, &libraries));
        let (ratio_of, paper_ratio, here_ratio) = match (other, entry.paper_peer) {
            (Some(other), _) => {
                let quotient = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
                let ratio = entry.paper_ratio.or_else(|| quotient(entry.paper, other.paper));
                (format!("over: {}", other.what), ratio, quotient(here(entry), here(other)))
            }
            (None, Some(theirs)) => {
                let name = peer.map_or("a peer", |(_, name)| name);
                (
                    format!("rival over this: {name}"),
                    entry.paper.map(|ours| theirs / ours),
                    peer.map(|(ratio, _)| ratio),
                )
            }
            (None, None) => (String::new(), None, None),
        };
        Compared {
            what: entry.what.clone(),
            source: entry.source.clone(),
            unit: entry.unit.clone(),
            paper: entry.paper,
            here: here(entry),
            ratio_of,
            paper_ratio,
            here_ratio,
        }
    });
    compared.collect()
}

impl Entry {
    fn is(&self, row: &Row) -> bool {
        let name = self.reported.as_ref().unwrap_or(&self.test);
        let name = if self.level == EntryLevel::Fabric { format!("{FABRIC}{name}") } else { name.clone() };
        row.test == name
            && row.ranks == self.ranks
            && row.bytes == self.bytes
            && row.unit == self.unit
            && self.parameters.iter().all(|(name, value)| row.parameters.get(name) == Some(value))
    }
}

fn print(options: &Options, paper: &Paper, compared: &[Compared]) -> Result<()> {
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), shown);
    if options.json {
        for line in compared {
            println!("{}", serde_json::to_string(line)?);
        }
        return Ok(());
    }
    if options.csv {
        let mut writer = csv::Writer::from_writer(std::io::stdout());
        for line in compared {
            writer.serialize(line)?;
        }
        writer.flush()?;
        return Ok(());
    }
    println!("{}\n", paper.title);
    if !compared.is_empty() {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_header(["what", "source", "unit", "paper", "here", "ratio", "paper", "here"]);
        for line in compared {
            table.add_row([
                line.what.clone(),
                line.source.clone(),
                line.unit.clone(),
                number(line.paper),
                number(line.here),
                line.ratio_of.clone(),
                number(line.paper_ratio),
                number(line.here_ratio),
            ]);
        }
        println!("{table}");
    }
    for missing in &paper.missing {
        println!("not reproduced: {}: {}", missing.what, missing.why);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::record::tests::{point, run};

    fn options() -> Options {
        read(vec!["miba".to_owned()]).unwrap()
    }

    #[test]
    fn every_row_names_a_test_that_exists() {
        let (mpi, verbs) = (Suite::builtin(Level::Mpi).unwrap(), Suite::builtin(Level::Fabric).unwrap());
        for (name, _) in PAPERS {
            let paper = paper(name).unwrap();
            assert!(!paper.rows.is_empty() || !paper.missing.is_empty(), "{name} says nothing");
            for row in &paper.rows {
                let suite = if row.level == EntryLevel::Mpi { &mpi } else { &verbs };
                assert!(suite.tests.iter().any(|test| test.name == row.test), "{name}: {}", row.what);
                let known = |what: &String| paper.rows.iter().any(|other| other.what == *what);
                assert!(row.over.as_ref().is_none_or(known), "{name}: {} over what?", row.what);
            }
            for level in [EntryLevel::Mpi, EntryLevel::Fabric] {
                if let Some(words) = words(&paper, level, &options()) {
                    let understood = match level {
                        EntryLevel::Mpi => read::<measure::Options>(words).map(drop),
                        EntryLevel::Fabric => read::<fabric::Options>(words).map(drop),
                    };
                    understood.unwrap();
                }
            }
        }
        assert!(paper("none").unwrap_err().to_string().contains("miba"));
    }

    #[test]
    fn ratios_stand_beside_the_papers() {
        let entry = |what: &str, test: &str, paper: f64, over: Option<&str>, peer| Entry {
            what: what.into(),
            source: "Table 1".into(),
            level: EntryLevel::Mpi,
            test: test.into(),
            reported: None,
            ranks: 2,
            bytes: 8,
            unit: "us".into(),
            parameters: BTreeMap::new(),
            paper: Some(paper),
            paper_peer: peer,
            over: over.map(str::to_owned),
            paper_ratio: None,
        };
        let paper = Paper {
            title: "T".into(),
            rows: vec![entry("a", "latency", 4.0, None, Some(8.0)), entry("b", "barrier", 6.0, Some("a"), None)],
            missing: Vec::new(),
        };
        let mut records = Records::default();
        records.add(Record::Run(run(&["Ferrovia", "A"])));
        for (library, test, time) in
            [("Ferrovia", "latency", 1000.0), ("A", "latency", 3000.0), ("Ferrovia", "barrier", 5000.0)]
        {
            let row = Row { test: test.into(), ..crate::record::tests::row(8) };
            records.add(Record::Point(point(library, row, 0, &[time])));
        }
        let compared = compare(&paper, &records, &options());
        assert_eq!(
            (compared[0].here, compared[0].paper_ratio, compared[0].here_ratio),
            (Some(1.0), Some(2.0), Some(3.0))
        );
        assert_eq!((compared[1].paper_ratio, compared[1].here_ratio), (Some(1.5), Some(5.0)));
    }
}
