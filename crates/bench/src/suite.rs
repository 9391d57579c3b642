//! Suites: what can be measured, as data.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

/// Most ranks that a suite may ask for.
const RANKS_MAX: u32 = 4096;

/// What the names of fabric tests begin with in results, where those of MPI stand beside them.
pub const FABRIC: &str = "fabric/";

/// Which of the built-in suites.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The operations of MPI.
    Mpi,
    /// Kernels of applications.
    App,
    /// The verbs of a device.
    Fabric,
}

/// The physical limit that a test is compared with.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub enum Floor {
    /// A cache line from one process to another.
    #[serde(rename = "line")]
    Line,
    /// Copying as many bytes.
    #[serde(rename = "memcpy")]
    Memcpy,
    /// Both, one after the other.
    #[serde(rename = "line+memcpy")]
    LineAndMemcpy,
}

/// One test: what is run, with which parameters.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// Its name on the command line and in results.
    pub name: String,
    /// One line that says what is measured.
    pub title: String,
    /// What it belongs to.
    pub group: String,
    /// The benchmark program's name for it, if another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Whether it is part of the short choice.
    #[serde(default)]
    pub quick: bool,
    /// Rank counts: numbers, `cores` or `N*cores`.
    pub ranks: Vec<String>,
    /// Message sizes in bytes.
    pub sizes: Vec<u64>,
    /// Parameters for the benchmark program.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// Whether the whole job is timed from outside.
    #[serde(default)]
    pub wall: bool,
    /// Whether messages go through the system's sockets, as between hosts, whatever a library would choose.
    #[serde(default)]
    pub sockets: bool,
    /// What it is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<Floor>,
    /// Only these devices have what is measured; all if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Performance variables (MPI_T) whose growth is recorded beside the samples: names, sums `a+b`, shares `a/b`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<String>,
    /// Only these libraries are measured, by their names in the run; all if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<String>,
}

impl Test {
    /// What the benchmark program calls it.
    pub fn program(&self) -> &str {
        self.program.as_deref().unwrap_or(&self.name)
    }

    /// The name in results of what the program reports under `reported`.
    pub fn reported_name(&self, reported: &str) -> String {
        match reported.strip_prefix(self.program()) {
            Some(rest) => format!("{}{rest}", self.name),
            None => reported.to_owned(),
        }
    }

    /// Whether a library of this name takes part.
    pub fn concerns(&self, library: &str) -> bool {
        self.libraries.is_empty() || self.libraries.iter().any(|name| name == library)
    }

    /// Whether there is anything to measure on a device of this name.
    pub fn can_use(&self, device: &str) -> bool {
        // The VI Provider Library has tests of its own.
        let has_all = self.devices.is_empty() && device != crate::fabric::PROVIDER;
        has_all || self.devices.iter().any(|name| name == device)
    }

    /// The rank counts on a machine with so many cores, ascending, each once.
    ///
    /// # Errors
    /// If one is not of the form `N`, `cores` or `N*cores`, is 0, or is above the limit.
    pub fn rank_counts(&self, cores: u32) -> Result<Vec<u32>> {
        let mut counts = self
            .ranks
            .iter()
            .map(|text| rank_count(text, cores).with_context(|| format!("ranks of test {}", self.name)))
            .collect::<Result<Vec<u32>>>()?;
        counts.sort_unstable();
        counts.dedup();
        Ok(counts)
    }
}

/// `4`, `cores` or `2*cores` as a number.
///
/// # Errors
/// If it has none of these forms or is out of bounds.
pub fn rank_count(text: &str, cores: u32) -> Result<u32> {
    let count = match text.split_once('*') {
        Some((factor, "cores")) => factor.parse::<u32>().ok().and_then(|factor| factor.checked_mul(cores)),
        Some(_) => None,
        None if text == "cores" => Some(cores),
        None => text.parse().ok(),
    };
    match count {
        Some(count) if (1..=RANKS_MAX).contains(&count) => Ok(count),
        _ => bail!("{text:?} is no number of ranks; write 4, cores or 2*cores, at most {RANKS_MAX}"),
    }
}

/// A list of tests.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// The tests in the order of tables.
    #[serde(rename = "test")]
    pub tests: Vec<Test>,
}

impl Suite {
    /// The suite that comes with the program.
    ///
    /// # Errors
    /// If it is not well formed, which a test rules out.
    pub fn builtin(level: Level) -> Result<Self> {
        Self::parse(match level {
            Level::Mpi => include_str!("../../../bench/suites/mpi.toml"),
            Level::App => include_str!("../../../bench/suites/app.toml"),
            Level::Fabric => include_str!("../../../bench/suites/fabric.toml"),
        })
    }

    /// A suite of the user's own.
    ///
    /// # Errors
    /// If the file cannot be read or is not well formed.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is no suite", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let suite: Self = toml::from_str(text)?;
        for test in &suite.tests {
            test.rank_counts(1)?;
            if test.sizes.is_empty() {
                bail!("test {} has no sizes", test.name);
            }
        }
        Ok(suite)
    }

    /// All built-in suites as one, for titles, floors and order.
    ///
    /// # Errors
    /// If one is not well formed.
    pub fn everything() -> Result<Self> {
        let mut all = Self::builtin(Level::Mpi)?;
        all.tests.extend(Self::builtin(Level::App)?.tests);
        let fabric = Self::builtin(Level::Fabric)?.tests.into_iter();
        all.tests.extend(fabric.map(|test| Test { name: format!("{FABRIC}{}", test.name), ..test }));
        Ok(all)
    }

    /// Where results of this name stand: with the test whose name they begin with, the longest one if there are several.
    pub fn position(&self, reported: &str) -> usize {
        let fits = self.tests.iter().enumerate().filter(|(_, test)| reported.starts_with(&test.name));
        fits.max_by_key(|(_, test)| test.name.len()).map_or(self.tests.len(), |(position, _)| position)
    }

    /// The tests of these names, groups, or words: `all`, `quick`. Nothing named means `quick`.
    ///
    /// # Errors
    /// If a name fits nothing; the error tells what there is.
    pub fn choose(&self, names: &[String]) -> Result<Vec<&Test>> {
        let quick = [String::from("quick")];
        let names = if names.is_empty() { &quick[..] } else { names };
        let fits = |test: &Test, name: &str| match name {
            "all" => true,
            "quick" => test.quick,
            name => test.name == name || test.group == name,
        };
        if let Some(unknown) = names.iter().find(|name| !self.tests.iter().any(|test| fits(test, name))) {
            let is_near =
                |name: &&str| name.contains(unknown.as_str()) || strsim::damerau_levenshtein(name, unknown) <= 2;
            let near: Vec<&str> = self.tests.iter().map(|test| test.name.as_str()).filter(is_near).collect();
            match near.is_empty() {
                true => bail!("there is no test or group {unknown:?}; `ferrovia bench list` shows them"),
                false => bail!("there is no test or group {unknown:?}; did you mean {}?", near.join(", ")),
            }
        }
        Ok(self.tests.iter().filter(|test| names.iter().any(|name| fits(test, name))).collect())
    }
}

/// How to list.
#[derive(clap::Args)]
pub struct ListOptions {
    /// The suites as JSON
    #[arg(long)]
    json: bool,
    /// The tests as comma-separated values
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// Prints what can be measured.
///
/// # Errors
/// If a built-in suite is not well formed.
pub fn list(options: &ListOptions) -> Result<ExitCode> {
    let levels = [
        ("mpi", Suite::builtin(Level::Mpi)?),
        ("app", Suite::builtin(Level::App)?),
        ("fabric", Suite::builtin(Level::Fabric)?),
    ];
    if options.json {
        let all: BTreeMap<&str, &Suite> = levels.iter().map(|(name, suite)| (*name, suite)).collect();
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(ExitCode::SUCCESS);
    }
    if options.csv {
        let mut writer = csv::Writer::from_writer(std::io::stdout());
        writer.write_record(["level", "group", "test", "quick", "title"])?;
        for (level, suite) in &levels {
            for test in &suite.tests {
                let quick = if test.quick { "yes" } else { "no" };
                writer.write_record([*level, &test.group, &test.name, quick, &test.title])?;
            }
        }
        writer.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    for (level, suite) in &levels {
        println!("ferrovia bench {level} TEST…   (a name, a group, quick or all)");
        let mut group = "";
        for test in &suite.tests {
            if test.group != group {
                group = &test.group;
                println!("\n  {group}");
            }
            let mark = if test.quick { "*" } else { " " };
            println!("   {mark} {:<22} {}", test.name, test.title);
        }
        println!();
    }
    println!("* part of quick, which is what runs when nothing is named");
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_suites_are_sound() {
        for level in [Level::Mpi, Level::App, Level::Fabric] {
            let suite = Suite::builtin(level).unwrap();
            let mut names: Vec<&str> = suite.tests.iter().map(|test| test.name.as_str()).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "a name stands twice");
            assert!(!suite.choose(&[]).unwrap().is_empty());
            assert_eq!(suite.choose(&["all".to_owned()]).unwrap().len(), count);
        }
    }

    #[test]
    fn names_groups_and_what_does_not_exist() {
        let suite = Suite::builtin(Level::Mpi).unwrap();
        assert!(suite.choose(&["collectives".to_owned()]).unwrap().len() >= 17);
        let error = suite.choose(&["band".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("bandwidth"), "{error}");
        let error = suite.choose(&["latecy".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("did you mean latency?"), "{error}");
        assert!(suite.choose(&["nonsense".to_owned()]).is_err());
    }

    #[test]
    fn rank_counts() {
        for (text, expected) in [("4", Some(4)), ("cores", Some(6)), ("2*cores", Some(12))] {
            assert_eq!(rank_count(text, 6).ok(), expected, "{text}");
        }
        for text in ["0", "-1", "", "cores*2", "2*", "9999999", "4294967295*cores", "x"] {
            assert!(rank_count(text, 6).is_err(), "{text}");
        }
    }

    #[test]
    fn what_a_program_reports_under_another_name() {
        let suite = Suite::builtin(Level::Mpi).unwrap();
        let test = suite.choose(&["oversubscription".to_owned()]).unwrap()[0];
        assert_eq!(test.reported_name("allreduce"), "oversubscription");
        assert_eq!(test.reported_name("other"), "other");
    }

    #[test]
    fn results_stand_with_their_tests() {
        let suite = Suite::everything().unwrap();
        let place = |name| suite.position(name);
        assert_eq!(place("overlap-overhead"), place("overlap"));
        assert!(place("bandwidth") < place("bandwidth-windows") && place("latency") < place("iallreduce-overlap"));
        assert_eq!(place("nonsense"), suite.tests.len());
    }

    #[test]
    fn a_misspelt_member_is_refused() {
        let text = "[[test]]\nname='a'\ntitle='b'\ngroup='c'\nranks=['1']\nsizes=[1]\nsise=1\n";
        assert!(Suite::parse(text).is_err());
    }
}
