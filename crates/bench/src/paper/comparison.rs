//! A paper's figures beside those measured here.
//!
//! Where the machine has two paces (see [`crate::pace`]), all that a ratio is of was met at the same one; where there is none at
//! which all of it was, there is no ratio.

use super::data::{CurvePoint, Entry};
use super::request;
use crate::library::PEERS;
use crate::pace::{self, Pace};
use crate::record::{self, Records, Row, Summary};
use crate::suite::{Level, Suite};
use crate::table;
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Ratios this near to 1, either way, say that there is no difference.
const NO_DIFFERENCE: f64 = 0.1;

/// How a ratio here stands to the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Agreement {
    /// Both point the same way, or both say that there is no difference.
    Yes,
    /// Ours is better, where that is what is wanted.
    Better,
    /// They do not.
    No,
    /// The processes differ so much from each other, or in the machine's pace, that it cannot be told.
    Unclear,
}

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
    pub agrees: Option<Agreement>,
    /// Where the paper draws a curve: which point of which.
    #[serde(skip)]
    pub point: Option<CurvePoint>,
    /// Whether it is a figure of verbs, to be set beside those of other devices.
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

/// A row and what everybody has of it.
type MeasuredRow<'a> = (&'a Row, &'a BTreeMap<String, Summary>);

/// The rows that an entry is of, and the pace of each.
fn rows_of<'r>(entry: &Entry, rows: &'r Rows) -> impl Iterator<Item = (MeasuredRow<'r>, Option<Pace>)> {
    let its_own = rows.iter().filter(|(row, _)| entry.is(row));
    its_own.map(|(row, by_library)| ((row, by_library), pace::split_row(row).1))
}

/// An entry as `library` has it, and what a ratio of it is of.
struct Figures<'a> {
    entry: &'a Entry,
    library: &'a str,
    /// The entries that it is set against, and who has them: those that it names, and then itself as each peer has it.
    others: Vec<(&'a Entry, String)>,
    rows: &'a Rows,
    /// Of those at which the entry was met, that at which most of the others were, too.
    pace: Option<Pace>,
}

/// What a figure is set against.
struct Ratio {
    of: String,
    paper: Option<f64>,
    here: Option<Range>,
    /// One that is better than the paper's counts as such, and is larger.
    better_counts: bool,
    wants_more: bool,
}

impl<'a> Figures<'a> {
    fn of(entry: &'a Entry, library: &'a str, entries: &'a [Entry], rows: &'a Rows) -> Self {
        let named = |what: &String| entries.iter().find(|other| other.what == *what);
        // The other row's own variant or device, or else the same as here.
        let on = |other: &Entry| match &other.measurement {
            of if of.level == Level::Fabric && of.device.is_none() => library.to_owned(),
            of => request::libraries(of, &[]).remove(0),
        };
        let others = entry.over.iter().chain(&entry.over_best_of).filter_map(named).map(|other| (other, on(other)));
        let peers = PEERS.iter().filter(|_| entry.paper_peer.is_some()).map(|(_, name, _)| (entry, (*name).to_owned()));
        let unsettled = Self { entry, library, others: others.chain(peers).collect(), rows, pace: None };
        Self { pace: unsettled.common_pace(), ..unsettled }
    }

    fn common_pace(&self) -> Option<Pace> {
        let is_met = |entry: &Entry, library: &str, pace: Pace| {
            rows_of(entry, self.rows).any(|((_, by_library), at)| at == Some(pace) && by_library.contains_key(library))
        };
        let count_at = |pace: Pace| self.others.iter().filter(|(other, library)| is_met(other, library, pace)).count();
        let paces = Pace::ALL.into_iter().filter(|pace| is_met(self.entry, self.library, *pace));
        // Of two that are as good the first, which comes last backwards.
        paces.rev().max_by_key(|pace| count_at(*pace))
    }

    /// The row of an entry that somebody has, at this pace if there is one.
    fn row(&self, entry: &Entry, library: &str) -> Option<(MeasuredRow<'a>, Option<Pace>)> {
        let its_own = rows_of(entry, self.rows).filter(|((_, by_library), _)| by_library.contains_key(library));
        its_own.min_by_key(|(_, at)| *at != self.pace)
    }

    /// What somebody has of an entry, in the unit of this one.
    fn range(&self, entry: &Entry, library: &str) -> Option<Range> {
        let ((row, by_library), _) = self.row(entry, library)?;
        let in_its_unit = record::conversion(&row.unit, &entry.measurement.unit)?;
        by_library.get(library).map(|summary| Range::of(summary).times(in_its_unit))
    }

    fn here(&self) -> Option<Range> {
        self.range(self.entry, self.library)
    }

    fn are_of_one_pace(&self) -> bool {
        let mut elsewhere = self.others.iter().filter_map(|(entry, library)| self.row(entry, library));
        elsewhere.all(|(_, at)| at == self.pace)
    }

    /// What the entry is set against, if it is, whatever the paces.
    fn ratio(&self) -> Option<Ratio> {
        let (entry, here) = (self.entry, self.here());
        let row = self.row(entry, self.library).map(|(row, _)| row);
        let more_is_better = row.is_some_and(|(row, _)| row.more_is_better());
        let of_others = |of: String, paper: Option<f64>, base: Option<Range>| Ratio {
            of,
            paper,
            here: Range::quotient(here, base),
            better_counts: entry.better_counts,
            wants_more: more_is_better,
        };
        let mut ranges = self.others.iter().map(|(other, library)| self.range(other, library));
        if let Some((other, _)) = self.others.first().filter(|(other, _)| entry.over.as_ref() == Some(&other.what)) {
            let paper = entry.paper_ratio.or_else(|| quotient(entry.paper, other.paper));
            return Some(of_others(format!("over: {}", other.what), paper, ranges.next().flatten()));
        }
        if !entry.over_best_of.is_empty() {
            let by_middle = |a: &Range, b: &Range| a.middle.total_cmp(&b.middle);
            let best =
                if more_is_better { ranges.flatten().max_by(by_middle) } else { ranges.flatten().min_by(by_middle) };
            return Some(of_others("over: the best".to_owned(), entry.paper_ratio, best));
        }
        if let Some(theirs) = entry.paper_peer {
            let peers = self.others.iter().map(|(_, peer)| peer);
            let libraries: Vec<String> = std::iter::once(&self.library.to_owned()).chain(peers).cloned().collect();
            let peer = row.and_then(|(row, by_library)| table::ahead(row, by_library, &libraries));
            let ratio = Range::quotient(peer.and_then(|(_, name)| self.range(entry, name)), here);
            return Some(Ratio {
                of: format!("rival over this: {}", peer.map_or("a peer", |(_, name)| name)),
                paper: entry.paper.map(|ours| theirs / ours),
                here: if more_is_better { ratio.map(Range::inverse) } else { ratio },
                better_counts: true,
                wants_more: true,
            });
        }
        // Shares of something are the same thing on any machine.
        let paper = entry.paper.filter(|_| entry.measurement.unit == "%")?;
        let base = Range { low: paper, middle: paper, high: paper };
        Some(of_others("over the paper's".to_owned(), Some(1.0), Some(base)))
    }
}

fn compared(entry: &Entry, library: &str, entries: &[Entry], rows: &Rows) -> Compared {
    let figures = Figures::of(entry, library, entries, rows);
    let ratio = figures.ratio();
    let is_of_one_pace = figures.are_of_one_pace();
    let paper_ratio = ratio.as_ref().and_then(|ratio| ratio.paper);
    let here_ratio = ratio.as_ref().and_then(|ratio| ratio.here).filter(|_| is_of_one_pace);
    let agrees = match (&ratio, paper_ratio, here_ratio) {
        (Some(ratio), Some(paper), Some(here)) => Some(agreement(paper, here, ratio.better_counts, ratio.wants_more)),
        (_, Some(_), None) if !is_of_one_pace => Some(Agreement::Unclear),
        _ => None,
    };
    Compared {
        what: entry.what.clone(),
        source: entry.source.clone(),
        on: library.to_owned(),
        unit: entry.measurement.unit.clone(),
        paper: entry.paper,
        here: figures.here().map(|range| range.middle),
        ratio_of: ratio.map(|ratio| ratio.of).unwrap_or_default(),
        paper_ratio,
        here_ratio: here_ratio.map(|range| range.middle),
        agrees,
        point: entry.point.clone(),
        is_of_verbs: entry.measurement.level == Level::Fabric && entry.measurement.device.is_none(),
    }
}

/// A figure and how far its interval reaches.
#[derive(Clone, Copy, Debug)]
struct Range {
    low: f64,
    middle: f64,
    high: f64,
}

impl Range {
    fn of(summary: &Summary) -> Self {
        Self { low: summary.interval.low, middle: summary.median, high: summary.interval.high }
    }

    fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, middle: self.middle * factor, high: self.high * factor }
    }

    /// By nothing cannot be divided.
    fn quotient(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        let (a, b) = (a?, b.filter(|b| b.middle > 0.0)?);
        let over = |a: f64, b: f64| if b > 0.0 { a / b } else { f64::INFINITY };
        Some(Self { low: over(a.low, b.high), middle: a.middle / b.middle, high: over(a.high, b.low) })
    }

    fn inverse(self) -> Self {
        Self { low: 1.0 / self.high, middle: 1.0 / self.middle, high: 1.0 / self.low }
    }
}

/// A ratio that is better than the paper's counts only if `better_counts`.
fn agreement(paper: f64, here: Range, better_counts: bool, wants_more: bool) -> Agreement {
    let judged = |ratio: f64| match way(ratio).cmp(&way(paper)) {
        Ordering::Equal => Agreement::Yes,
        Ordering::Greater if better_counts && wants_more => Agreement::Better,
        Ordering::Less if better_counts && !wants_more => Agreement::Better,
        _ => Agreement::No,
    };
    let at_all = [here.low, here.middle, here.high].map(judged);
    match at_all.iter().filter(|agreement| **agreement == Agreement::No).count() {
        0 | 3 => at_all[1],
        _ => Agreement::Unclear,
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
            entry("d", "latency", "paper_ratio = 1.2\nover = \"c\""),
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
        let yes = Some(Agreement::Yes);
        assert_eq!((all[1].paper_ratio, all[1].here_ratio, all[1].agrees), (Some(1.5), Some(5.0), yes));
        assert_eq!((all[2].here, all[2].agrees), (Some(1.05), yes), "no difference in either");
        assert_eq!((all[3].here_ratio.map(|x| x < 1.0), all[3].agrees), (Some(true), Some(Agreement::No)));
    }

    #[test]
    fn figures_are_shown_in_the_papers_unit() {
        let text = "title = \"T\"\n[[row]]\nwhat = \"a\"\nsource = \"S\"\nlevel = \"fabric\"\ntest = \"poll\"\nranks = 2\n\
                    bytes = 8\nunit = \"us\"\npaper = 1.08\n";
        let entries = Paper::parse(text).unwrap().entries();
        let here = |unit: &str| {
            let mut records = Records::default();
            let row = Row { test: "fabric/poll".into(), unit: unit.into(), ..row(8) };
            records.add(Record::Point(point("shm", row, 0, &[250.0])));
            compare(&entries, &records, &["shm".to_owned()])[0].here
        };
        assert_eq!((here("ns"), here("us"), here("ms"), here("count")), (Some(0.25), Some(0.25), Some(0.25), None));
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
        let shown: Vec<_> = all.iter().map(|line| (line.on.as_str(), line.here_ratio, line.agrees)).collect();
        let (yes, no) = (Some(Agreement::Yes), Some(Agreement::No));
        let expected = [("shm", None, None), ("tcp", None, None), ("shm", Some(3.0), yes), ("tcp", Some(0.5), no)];
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_a_ratio_is_of_was_met_at_one_pace() {
        let entry = |what: &str, more: &str| {
            format!(
                "[[row]]\nwhat = \"{what}\"\nsource = \"S\"\nlevel = \"mpi\"\ntest = \"latency\"\nranks = 2\nbytes = 8\n\
                 unit = \"us\"\n{more}\n"
            )
        };
        let variants = "title = \"T\"\n[[variant]]\nname = \"V\"\n[[variant]]\nname = \"W\"\n".to_owned();
        let over = |variant: &str| entry(variant, &format!("variant = \"{variant}\"\npaper_ratio = 0.5\nover = \"a\""));
        let text = [variants, entry("a", ""), over("V"), over("W")].concat();
        let entries = Paper::parse(&text).unwrap().entries();
        let mut records = Records::default();
        let (near, apart) = (Some(Pace::Near), Some(Pace::Apart));
        for (library, pace, time) in
            [("Ferrovia", near, 1000.0), ("Ferrovia", apart, 4000.0), ("V", apart, 2000.0), ("W", None, 500.0)]
        {
            records.add(Record::Point(point(library, pace::of_row(&row(8), pace), 0, &[time])));
        }
        let all = compare(&entries, &records, &[]);
        assert_eq!((all[1].here_ratio, all[1].agrees), (Some(0.5), Some(Agreement::Yes)), "both were met apart");
        let unclear = (Some(0.5), None, Some(Agreement::Unclear));
        assert_eq!((all[2].here, all[2].here_ratio, all[2].agrees), unclear, "which pace W has met is not known");
    }

    #[test]
    fn a_verdict_needs_processes_that_agree() {
        let range = |low, high| Range { low, middle: f64::midpoint(low, high), high };
        assert_eq!(agreement(2.0, range(1.5, 3.0), false, false), Agreement::Yes);
        assert_eq!(agreement(2.0, range(0.9, 3.0), false, false), Agreement::Unclear);
        assert_eq!(agreement(2.0, range(0.7, 0.9), false, false), Agreement::No);
        assert_eq!(agreement(1.0, range(0.2, 0.3), false, false), Agreement::No);
        assert_eq!(agreement(1.0, range(0.2, 0.3), true, false), Agreement::Better, "less is better");
        assert_eq!(agreement(1.0, range(0.2, 0.3), true, true), Agreement::No);
        assert_eq!(agreement(1.0, range(0.5, 1.0), true, false), Agreement::Better, "or the same");
        assert_eq!(agreement(1.0, range(1.0, 1.5), true, false), Agreement::Unclear);
    }

    #[test]
    fn a_share_is_compared_with_the_papers_own() {
        let text = "title = \"T\"\n[[row]]\nwhat = \"a\"\nsource = \"S\"\nlevel = \"mpi\"\ntest = \"overlap\"\nranks = 2\n\
                    bytes = 8\nunit = \"%\"\npaper = 100.0\n";
        let entries = Paper::parse(text).unwrap().entries();
        for (share, agrees) in [(97.0, Agreement::Yes), (80.0, Agreement::No)] {
            let mut records = Records::default();
            let row = Row { test: "overlap".into(), unit: "%".into(), ..row(8) };
            records.add(Record::Point(point("Ferrovia", row, 0, &[share])));
            let all = compare(&entries, &records, &[]);
            assert_eq!((all[0].here_ratio, all[0].agrees), (Some(share / 100.0), Some(agrees)));
        }
    }

    #[test]
    fn a_choice_is_compared_with_the_best() {
        let text = "title = \"T\"\n[[variant]]\nname = \"V\"\n[[variant]]\nname = \"W\"\n[[figure]]\nwhat = \"F\"\n\
                    source = \"S\"\nlevel = \"mpi\"\ntest = \"latency\"\nranks = 2\nunit = \"us\"\naxis = \"bytes\"\n\
                    values = [8]\nchoice = \"own\"\n[[figure.line]]\nname = \"v\"\nvariant = \"V\"\n[[figure.line]]\n\
                    name = \"w\"\nvariant = \"W\"\n[[figure.line]]\nname = \"own\"\n";
        let entries = Paper::parse(text).unwrap().entries();
        let mut records = Records::default();
        for (library, time) in [("V", 1000.0), ("W", 3000.0), ("Ferrovia", 2000.0)] {
            records.add(Record::Point(point(library, row(8), 0, &[time])));
        }
        let all = compare(&entries, &records, &[]);
        assert_eq!((all[2].here_ratio, all[2].agrees), (Some(2.0), Some(Agreement::No)));
        assert_eq!((all[0].here_ratio, all[0].agrees), (None, None));
    }
}
