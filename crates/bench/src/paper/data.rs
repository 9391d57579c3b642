//! Papers as data: `bench/papers/NAME.toml`, as it is written and as the rows it stands for.

use crate::library::Variant;
use crate::record::{self, Row};
use crate::suite::{FABRIC, Level};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The papers, by the key that documentation cites.
pub const PAPERS: [(&str, &str); 6] = [
    ("miba", include_str!("../../../../bench/papers/miba.toml")),
    ("mpich2-ib", include_str!("../../../../bench/papers/mpich2-ib.toml")),
    ("tupleq", include_str!("../../../../bench/papers/tupleq.toml")),
    ("datatypes", include_str!("../../../../bench/papers/datatypes.toml")),
    ("veloblock", include_str!("../../../../bench/papers/veloblock.toml")),
    ("via2sisci", include_str!("../../../../bench/papers/via2sisci.toml")),
];

/// A paper's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Its title.
    pub title: String,
    /// Ways in which our library takes part.
    #[serde(default, rename = "variant")]
    pub variants: Vec<VariantEntry>,
    /// Single figures.
    #[serde(default, rename = "row")]
    pub rows: Vec<Entry>,
    /// Curves.
    #[serde(default, rename = "figure")]
    pub figures: Vec<FigureEntry>,
    /// What is not reproduced.
    #[serde(default)]
    pub missing: Vec<Missing>,
}

/// Our library under settings of its own; rows name it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantEntry {
    /// What rows call it.
    pub name: String,
    /// Variables of the environment.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// The device without which it takes no part.
    pub needs: Option<String>,
}

/// What is measured for a row or a curve.
#[derive(Clone, Debug, Deserialize)]
pub struct Measurement {
    /// Which suite the test stands in.
    pub level: Level,
    /// The test.
    pub test: String,
    /// What the program reports, if not under the test's name.
    pub reported: Option<String>,
    /// Number of ranks.
    pub ranks: u32,
    /// Unit of the figure.
    pub unit: String,
    /// The test's parameters, by which the row is found as well.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// Further parameters of the program, which the row does not show.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// A performance variable (MPI_T), a sum `a+b` or a share `a/b`: its growth per operation is the figure.
    pub counter: Option<String>,
    /// The variant that is measured; ours as it is set by itself if there is none.
    pub variant: Option<String>,
    /// The device whose verbs are measured; every device asked for if there is none.
    pub device: Option<String>,
}

/// One figure of the paper and the test that measures the same here.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    /// What the figure is of; unique within the paper.
    pub what: String,
    /// Where it stands in the paper.
    pub source: String,
    /// Message size; of a counter too.
    pub bytes: u64,
    /// How it is measured here.
    #[serde(flatten)]
    pub measurement: Measurement,
    /// The paper's figure.
    pub paper: Option<f64>,
    /// The paper's figure of a rival; ours is compared with the best peer found here.
    pub paper_peer: Option<f64>,
    /// The row whose figure this one is divided by, in the paper and here.
    pub over: Option<String>,
    /// The quotient, where the paper gives no figures.
    pub paper_ratio: Option<f64>,
    /// Whether a ratio that is better than the paper's is what is wanted as well.
    #[serde(default)]
    pub better_counts: bool,
    /// Rows of which the best is what this figure is divided by.
    #[serde(skip)]
    pub over_best_of: Vec<String>,
    /// The curve that this is a point of.
    #[serde(skip)]
    pub point: Option<CurvePoint>,
}

/// Which point of a curve a row is.
#[derive(Clone, Debug, PartialEq)]
pub struct CurvePoint {
    /// Number of the curve among those of the paper.
    pub figure: usize,
    /// The line.
    pub line: String,
    /// Value on the axis.
    pub at: u64,
}

/// A picture of the paper: several lines over an axis.
#[derive(Clone, Debug, Deserialize)]
pub struct FigureEntry {
    /// What it shows.
    pub what: String,
    /// Where it stands in the paper.
    pub source: String,
    /// What the paper reads from it, in a sentence.
    #[serde(default)]
    pub says: String,
    /// How a point is measured here.
    #[serde(flatten)]
    pub measurement: Measurement,
    /// Message size, if that is not the axis.
    #[serde(default)]
    pub bytes: u64,
    /// `bytes`, `ranks` or the name of a parameter.
    pub axis: String,
    /// Places on the axis.
    pub values: Vec<u64>,
    /// The lines; one of this name's measurement alone if there are none.
    #[serde(default, rename = "line")]
    pub lines: Vec<LineEntry>,
    /// The line that the others are divided by.
    pub over: Option<String>,
    /// The line that makes a choice among what the others do: it is divided by the best of them at each place.
    pub choice: Option<String>,
}

/// One line of a picture.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineEntry {
    /// Its name.
    pub name: String,
    /// The variant that is measured.
    pub variant: Option<String>,
    /// The device whose verbs are measured.
    pub device: Option<String>,
    /// Parameters beside those of the picture.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// Further parameters of the program.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// The paper's figures at the places of the axis, from the first on; fewer than places where it does not give all.
    #[serde(default)]
    pub paper: Vec<f64>,
}

/// What this program cannot reproduce.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Missing {
    /// What.
    pub what: String,
    /// And why not.
    pub why: String,
}

/// The paper of this name.
///
/// # Errors
/// If there is none, or its data are not well formed, which a test rules out.
pub fn paper(name: &str) -> Result<Paper> {
    let Some((_, text)) = PAPERS.iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = PAPERS.iter().map(|(name, _)| *name).collect();
        bail!("there is no paper {name:?}; there are {}", names.join(", "));
    };
    Paper::parse(text).with_context(|| format!("the data of {name}"))
}

impl Paper {
    /// From the text of its file.
    ///
    /// # Errors
    /// If a row names a row or a variant that is not there, or a setting is not understood.
    pub fn parse(text: &str) -> Result<Self> {
        let paper: Self = toml::from_str(text)?;
        check_members(text)?;
        let entries = paper.entries();
        for entry in &entries {
            let known = |what: &String| entries.iter().any(|other| other.what == *what);
            if entries.iter().filter(|other| other.what == entry.what).count() > 1 {
                bail!("{:?} stands twice", entry.what);
            }
            if let Some(other) = entry.over.as_ref().filter(|what| !known(what)) {
                bail!("{:?} over {other:?}, which is not there", entry.what);
            }
            let variant = entry.measurement.variant.as_ref();
            if let Some(name) = variant.filter(|name| !paper.variants.iter().any(|known| known.name == **name)) {
                bail!("{:?} names no variant: {name:?}", entry.what);
            }
        }
        for figure in &paper.figures {
            let lines = figure.over.iter().chain(&figure.choice);
            if let Some(name) = lines.into_iter().find(|name| !figure.lines.iter().any(|line| line.name == **name)) {
                bail!("{:?} has no line {name:?}", figure.what);
            }
        }
        paper.library_variants()?;
        Ok(paper)
    }

    /// Leaves out what cannot be measured without a device that is not there, and says so among what is missing.
    pub fn keep_devices(&mut self, present: &[String]) {
        let absent = |variant: &VariantEntry| variant.needs.clone().filter(|device| !present.contains(device));
        let without: BTreeMap<String, String> =
            self.variants.iter().filter_map(|variant| Some((variant.name.clone(), absent(variant)?))).collect();
        let of = |variant: &Option<String>| variant.as_ref().and_then(|name| without.get(name));
        let mut left_out = Vec::new();
        let mut leave_out = |what: String, device: &String| {
            left_out.push(Missing { what, why: format!("there is no {device} device here") });
        };
        for row in &self.rows {
            of(&row.measurement.variant).into_iter().for_each(|device| leave_out(row.what.clone(), device));
        }
        self.rows.retain(|row| of(&row.measurement.variant).is_none());
        self.figures.retain_mut(|figure| {
            let had_lines = !figure.lines.is_empty();
            for line in &figure.lines {
                let device = of(&line.variant).or(of(&figure.measurement.variant));
                device.into_iter().for_each(|device| leave_out(format!("{}: {}", figure.what, line.name), device));
            }
            figure.lines.retain(|line| of(&line.variant).is_none());
            of(&figure.measurement.variant).is_none() && (!figure.lines.is_empty() || !had_lines)
        });
        self.variants.retain(|variant| !without.contains_key(&variant.name));
        self.missing.extend(left_out);
    }

    /// The variants as libraries take part.
    ///
    /// # Errors
    /// If a setting is not understood.
    pub fn library_variants(&self) -> Result<Vec<Variant>> {
        let variant = |entry: &VariantEntry| {
            Variant::new(&entry.name, entry.settings.clone()).map_err(|why| anyhow::anyhow!("{}: {why}", entry.name))
        };
        self.variants.iter().map(variant).collect()
    }

    /// All rows, those of the curves behind the others.
    pub fn entries(&self) -> Vec<Entry> {
        let curves = self.figures.iter().enumerate().flat_map(|(number, figure)| figure.entries(number));
        self.rows.iter().cloned().chain(curves).collect()
    }
}

/// What stands in a table of rows, and beside it in one of figures, in which members are put together from two types.
const MEASUREMENT: [&str; 11] =
    ["level", "test", "reported", "ranks", "unit", "parameters", "set", "counter", "variant", "device", "bytes"];
const ROW: [&str; 7] = ["what", "source", "paper", "paper_peer", "over", "paper_ratio", "better_counts"];
const FIGURE: [&str; 8] = ["what", "source", "says", "axis", "values", "line", "over", "choice"];

/// A misspelt member of a row or figure is refused, as elsewhere.
fn check_members(text: &str) -> Result<()> {
    let table: toml::Table = toml::from_str(text)?;
    for (name, known) in [("row", &ROW[..]), ("figure", &FIGURE[..])] {
        let entries = table.get(name).and_then(toml::Value::as_array).into_iter().flatten();
        let members = entries.filter_map(toml::Value::as_table).flat_map(toml::Table::keys);
        for member in members {
            if !known.contains(&member.as_str()) && !MEASUREMENT.contains(&member.as_str()) {
                bail!("a {name} has no member {member:?}");
            }
        }
    }
    Ok(())
}

impl FigureEntry {
    /// A row for each point of each line.
    fn entries(&self, figure: usize) -> Vec<Entry> {
        let alone = [LineEntry {
            name: String::new(),
            variant: None,
            device: None,
            parameters: BTreeMap::new(),
            set: BTreeMap::new(),
            paper: Vec::new(),
        }];
        let lines = if self.lines.is_empty() { &alone[..] } else { &self.lines };
        let of_line = |line: &LineEntry| -> Vec<Entry> {
            let places = self.values.iter().enumerate();
            places.map(|(index, at)| self.entry(figure, line, *at, line.paper.get(index).copied())).collect()
        };
        lines.iter().flat_map(of_line).collect()
    }

    fn entry(&self, figure: usize, line: &LineEntry, at: u64, paper: Option<f64>) -> Entry {
        let mut measurement = self.measurement.clone();
        measurement.parameters.extend(line.parameters.clone());
        measurement.set.extend(line.set.clone());
        measurement.variant = line.variant.clone().or(measurement.variant);
        measurement.device = line.device.clone().or(measurement.device);
        let mut bytes = self.bytes;
        match self.axis.as_str() {
            "bytes" => bytes = at,
            "ranks" => measurement.ranks = u32::try_from(at).unwrap_or(u32::MAX),
            name => drop(measurement.parameters.insert(name.to_owned(), at.to_string())),
        }
        let is_choice = self.choice.as_ref() == Some(&line.name);
        let over = self.over.as_ref().filter(|over| **over != line.name && !is_choice);
        let others = self.lines.iter().filter(|other| is_choice && other.name != line.name);
        Entry {
            what: self.point_name(&line.name, at),
            source: self.source.clone(),
            bytes,
            measurement,
            paper,
            paper_peer: None,
            over: over.map(|over| self.point_name(over, at)),
            // A choice is as good as the best, or better.
            paper_ratio: is_choice.then_some(1.0),
            better_counts: is_choice,
            over_best_of: others.map(|other| self.point_name(&other.name, at)).collect(),
            point: Some(CurvePoint { figure, line: line.name.clone(), at }),
        }
    }

    fn point_name(&self, line: &str, at: u64) -> String {
        match line {
            "" => format!("{}: {} {at}", self.what, self.axis),
            line => format!("{}: {line}, {} {at}", self.what, self.axis),
        }
    }
}

impl Entry {
    /// Whether this row of records is what the entry is of.
    pub fn is(&self, row: &Row) -> bool {
        let of = &self.measurement;
        let name = of.reported.as_ref().unwrap_or(&of.test);
        let name = if of.level == Level::Fabric { format!("{FABRIC}{name}") } else { name.clone() };
        let counter = row.parameters.get("counter") == of.counter.as_ref();
        let name = if of.counter.is_some() { format!("{name}-counter") } else { name };
        row.test == name
            && row.ranks == of.ranks
            && row.bytes == self.bytes
            && record::conversion(&row.unit, &of.unit).is_some()
            && counter
            && of.parameters.iter().all(|(name, value)| row.parameters.get(name) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        title = "T"
        [[variant]]
        name = "small"
        settings = { FERROVIA_CHANNEL = "8K" }
        [[row]]
        what = "a"
        source = "Table 1"
        level = "mpi"
        test = "latency"
        ranks = 2
        bytes = 8
        unit = "us"
        [[figure]]
        what = "F"
        source = "Figure 2"
        level = "mpi"
        test = "bandwidth"
        ranks = 2
        unit = "MB/s"
        parameters = { window = "64" }
        axis = "bytes"
        values = [8, 64]
        over = "plain"
        [[figure.line]]
        name = "plain"
        paper = [1.0, 2.0]
        [[figure.line]]
        name = "small"
        variant = "small"
        parameters = { window = "2" }
    "#;

    #[test]
    fn a_figure_is_a_row_for_each_point() {
        let paper = Paper::parse(TEXT).unwrap();
        let entries = paper.entries();
        let shown: Vec<(&str, u64, Option<f64>, Option<&str>)> = entries
            .iter()
            .map(|entry| (entry.what.as_str(), entry.bytes, entry.paper, entry.over.as_deref()))
            .collect();
        assert_eq!(
            shown,
            [
                ("a", 8, None, None),
                ("F: plain, bytes 8", 8, Some(1.0), None),
                ("F: plain, bytes 64", 64, Some(2.0), None),
                ("F: small, bytes 8", 8, None, Some("F: plain, bytes 8")),
                ("F: small, bytes 64", 64, None, Some("F: plain, bytes 64")),
            ]
        );
        assert_eq!(entries[3].measurement.parameters["window"], "2");
        assert_eq!(paper.library_variants().unwrap()[0].settings["FERROVIA_CHANNEL"], "8K");
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for (from, to, complaint) in [
            ("what = \"a\"", "what = \"a\"\nover = \"b\"", "not there"),
            ("variant = \"small\"", "variant = \"large\"", "names no variant"),
            ("\"8K\"", "\"9\"", "FERROVIA_CHANNEL"),
            ("FERROVIA_CHANNEL", "FERROVIA_CHANEL", "FERROVIA_CHANEL"),
            ("unit = \"us\"", "unit = \"us\"\npapper = 1.0", "papper"),
            ("name = \"plain\"", "name = \"small\"", "stands twice"),
        ] {
            let error = format!("{:#}", Paper::parse(&TEXT.replacen(from, to, 1)).unwrap_err());
            assert!(error.contains(complaint), "{error}");
        }
    }

    #[test]
    fn every_paper_names_tests_that_exist() {
        use crate::suite::Suite;
        for (name, _) in PAPERS {
            let paper = paper(name).unwrap();
            assert!(!paper.entries().is_empty() || !paper.missing.is_empty(), "{name} says nothing");
            for entry in paper.entries() {
                let suite = Suite::builtin(entry.measurement.level).unwrap();
                assert!(
                    suite.tests.iter().any(|test| test.name == entry.measurement.test),
                    "{name}: {} names no test",
                    entry.what
                );
            }
        }
        assert!(paper("none").unwrap_err().to_string().contains("miba"));
    }

    #[test]
    fn every_counter_is_one_that_the_library_has() {
        // As MPI_T names them: the words of the counter's name.
        let words = |name: &str| {
            let words: Vec<&str> =
                name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
            words.join("_")
        };
        let known: Vec<String> = engine::Stats::COUNTERS.iter().map(|counter| words(counter.name)).collect();
        for (name, _) in PAPERS {
            for entry in paper(name).unwrap().entries() {
                for counter in entry.measurement.counter.iter().flat_map(|text| text.split(['+', '/'])) {
                    assert!(known.iter().any(|known| known == counter), "{name}: {}: {counter}", entry.what);
                }
            }
        }
    }

    #[test]
    fn what_needs_a_device_that_is_absent_is_said_to_be_missing() {
        let text = TEXT.replace("FERROVIA_CHANNEL = \"8K\" }", "FERROVIA_DEVICE = \"verbs\" }\nneeds = \"verbs\"");
        let mut paper = Paper::parse(&text).unwrap();
        paper.keep_devices(&["verbs".to_owned()]);
        assert_eq!((paper.variants.len(), paper.figures[0].lines.len(), paper.missing.len()), (1, 2, 0));
        paper.keep_devices(&["shm".to_owned()]);
        assert_eq!((paper.variants.len(), paper.figures[0].lines.len()), (0, 1));
        assert_eq!(paper.missing.len(), 1);
        assert_eq!((paper.missing[0].what.as_str(), paper.rows.len()), ("F: small", 1));
        assert!(paper.missing[0].why.contains("verbs"));
    }

    #[test]
    fn a_choice_stands_over_the_best_of_the_others() {
        let text = TEXT.replace("over = \"plain\"", "choice = \"small\"");
        let entries = Paper::parse(&text).unwrap().entries();
        assert_eq!(entries[4].over_best_of, ["F: plain, bytes 64"]);
        assert_eq!((entries[4].paper_ratio, entries[4].better_counts), (Some(1.0), true));
        assert!(entries[2].over_best_of.is_empty());
        let error = Paper::parse(&TEXT.replace("over = \"plain\"", "choice = \"none\"")).unwrap_err();
        assert!(error.to_string().contains("no line"), "{error}");
    }
}
