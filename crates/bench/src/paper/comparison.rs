//! A paper's figures beside those measured here.

use super::data::{CurvePoint, Entry};
use super::request;
use crate::library::PEERS;
use crate::record::{Records, Row, Summary};
use crate::suite::{Level, Suite};
use crate::table;
use serde::Serialize;
use std::collections::BTreeMap;

/// Ratios this near to 1, either way, say that there is no difference.
const NO_DIFFERENCE: f64 = 0.1;

/// One line of the comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// What the figure is of.
    pub what: String,
    /// Where it stands in the paper.
    pub source: String,
    /// The library, variant or device that was measured.
    pub on: String,
    /// Unit of both figures.
    pub unit: String,
    /// The paper's figure.
    pub paper: Option<f64>,
    /// Ours.
    pub here: Option<f64>,
    /// What the ratio is of.
    pub ratio_of: String,
    /// The paper's ratio.
    pub paper_ratio: Option<f64>,
    /// Ours.
    pub here_ratio: Option<f64>,
    /// Whether both ratios point the same way, or both say that there is no difference.
    pub same_way: Option<bool>,
    /// Where the paper draws a curve: which point of which.
    #[serde(skip)]
    pub point: Option<CurvePoint>,
    /// Whether it is a figure of verbs.
    #[serde(skip)]
    pub is_of_verbs: bool,
}

/// All entries, each for everybody it was measured on.
pub fn compare(entries: &[Entry], records: &Records, devices: &[String]) -> Vec<Compared> {
    let rows = records.rows(&Suite { tests: Vec::new() });
    let of_entry = |entry: &Entry| -> Vec<Compared> {
        let on = request::libraries(&entry.measurement, devices).into_iter();
        on.filter(|library| request::has_it(&entry.measurement, library))
            .map(|library| compared(entry, &library, entries, &rows))
            .collect()
    };
    entries.iter().flat_map(of_entry).collect()
}

type Rows = [(Row, BTreeMap<String, Summary>)];

fn compared(entry: &Entry, library: &str, entries: &[Entry], rows: &Rows) -> Compared {
    let find = |entry: &Entry| rows.iter().find(|(row, _)| entry.is(row));
    let here = |entry: &Entry, library: &str| Some(find(entry)?.1.get(library)?.median);
    let other = entry.over.as_ref().and_then(|what| entries.iter().find(|other| other.what == *what));
    let (ratio_of, paper_ratio, here_ratio) = if let Some(other) = other {
        // The other row's own variant or device, or else the same as here.
        let of = &other.measurement;
        let theirs = match of.level {
            Level::Fabric if of.device.is_none() => library.to_owned(),
            _ => request::libraries(of, &[]).remove(0),
        };
        let ratio = entry.paper_ratio.or_else(|| quotient(entry.paper, other.paper));
        (format!("over: {}", other.what), ratio, quotient(here(entry, library), here(other, &theirs)))
    } else if let Some(theirs) = entry.paper_peer {
        let mut libraries = vec![library.to_owned()];
        libraries.extend(PEERS.map(|(_, name, _)| name.to_owned()));
        let peer = find(entry).and_then(|(row, by_library)| table::ahead(row, by_library, &libraries));
        let name = peer.map_or("a peer", |(_, name)| name);
        (format!("rival over this: {name}"), entry.paper.map(|ours| theirs / ours), peer.map(|(ratio, _)| ratio))
    } else {
        (String::new(), None, None)
    };
    Compared {
        what: entry.what.clone(),
        source: entry.source.clone(),
        on: library.to_owned(),
        unit: entry.measurement.unit.clone(),
        paper: entry.paper,
        here: here(entry, library),
        ratio_of,
        paper_ratio,
        here_ratio,
        same_way: paper_ratio.zip(here_ratio).map(|(paper, here)| way(paper) == way(here)),
        point: entry.point.clone(),
        is_of_verbs: entry.measurement.level == Level::Fabric,
    }
}

/// A ratio; of nothing there is none.
fn quotient(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    b.filter(|b| *b != 0.0).and_then(|b| Some(a? / b))
}

/// -1, 0 or 1: smaller, about the same, larger.
fn way(ratio: f64) -> i8 {
    match ratio {
        ratio if ratio > 1.0 + NO_DIFFERENCE => 1,
        ratio if ratio < 1.0 / (1.0 + NO_DIFFERENCE) => -1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::data::Paper;
    use crate::record::Record;
    use crate::record::tests::{point, row, run};

    #[test]
    fn ratios_stand_beside_the_papers() {
        let entry = |what: &str, test: &str, more: &str| {
            format!(
                "[[row]]\nwhat = \"{what}\"\nsource = \"Table 1\"\nlevel = \"mpi\"\ntest = \"{test}\"\nranks = 2\n\
                 bytes = 8\nunit = \"us\"\n{more}\n"
            )
        };
        let text = [
            "title = \"T\"\n[[variant]]\nname = \"V\"\n".to_owned(),
            entry("a", "latency", "paper = 4.0\npaper_peer = 8.0"),
            entry("b", "barrier", "paper = 6.0\nover = \"a\""),
            entry("c", "latency", "variant = \"V\"\npaper_ratio = 1.0\nover = \"a\""),
            entry("d", "latency", "paper_ratio = 0.5\nover = \"c\""),
        ];
        let entries = Paper::parse(&text.concat()).unwrap().entries();
        let mut records = Records::default();
        records.add(Record::Run(run(&["Ferrovia", "V", "MPICH"])));
        for (library, test, time) in [
            ("Ferrovia", "latency", 1000.0),
            ("V", "latency", 1050.0),
            ("MPICH", "latency", 3000.0),
            ("Ferrovia", "barrier", 5000.0),
        ] {
            let row = Row { test: test.into(), ..row(8) };
            records.add(Record::Point(point(library, row, 0, &[time])));
        }
        let all = compare(&entries, &records, &[]);
        assert_eq!((all[0].here, all[0].paper_ratio, all[0].here_ratio), (Some(1.0), Some(2.0), Some(3.0)));
        assert_eq!((all[1].paper_ratio, all[1].here_ratio, all[1].same_way), (Some(1.5), Some(5.0), Some(true)));
        assert_eq!((all[2].here, all[2].same_way), (Some(1.05), Some(true)), "no difference in either");
        assert_eq!((all[3].here_ratio.map(|x| x < 1.0), all[3].same_way), (Some(true), Some(false)));
    }

    #[test]
    fn verbs_are_compared_on_every_device() {
        let text = "title = \"T\"\n[[row]]\nwhat = \"a\"\nsource = \"S\"\nlevel = \"fabric\"\ntest = \"latency\"\nranks = 2\n\
                    bytes = 8\nunit = \"us\"\n[[row]]\nwhat = \"b\"\nsource = \"S\"\nlevel = \"fabric\"\ntest = \"latency\"\n\
                    ranks = 2\nbytes = 64\nunit = \"us\"\nover = \"a\"\npaper_ratio = 2.0\n";
        let entries = Paper::parse(text).unwrap().entries();
        let mut records = Records::default();
        for (device, bytes, time) in [("shm", 8, 1.0), ("shm", 64, 3.0), ("tcp", 8, 10.0), ("tcp", 64, 5.0)] {
            let row = Row { test: "fabric/latency".into(), ..row(bytes) };
            records.add(Record::Point(point(device, row, 0, &[time * 1000.0])));
        }
        let all = compare(&entries, &records, &["shm".to_owned(), "tcp".to_owned()]);
        let shown: Vec<_> = all.iter().map(|line| (line.on.as_str(), line.here_ratio, line.same_way)).collect();
        let expected =
            [("shm", None, None), ("tcp", None, None), ("shm", Some(3.0), Some(true)), ("tcp", Some(0.5), Some(false))];
        assert_eq!(shown, expected);
    }
}
