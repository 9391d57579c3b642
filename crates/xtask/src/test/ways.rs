//! Messages go many ways: over several devices, by several protocols, through several designs of channels. Programs of
//! `tests/c` whose lines say `ways=N` are run over each way of `tests/c/ways.txt`, and that table is held against the
//! settings that the library has.

use super::mpi::Job;
use super::programs::{self, Expected};
use super::{Case, Workshop, list};
use crate::install::installed;
use crate::paths;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What one program may take; most take a tenth of a second.
const LIMIT: Duration = Duration::from_secs(30);

/// Settings that decide what way messages go, all of whose values are to be tried.
const CHOICES: [&str; 9] = [
    "DEVICE",
    "FASTPATH",
    "RENDEZVOUS",
    "LARGE_COPY",
    "CROSS_MEMORY",
    "DATATYPE_SCHEME",
    "DATATYPE_SEGMENT_UNPACK",
    "DATATYPE_LIST_POST",
    "REGISTRATION_CACHE",
];
/// Devices that need an adapter (`fabric/verbs-programs`), and the one that is another by itself.
const OTHER_DEVICES: [&str; 3] = ["auto", "verbs", "shm+verbs"];
/// Those of the choices whose values are each tried on each device.
const ON_EACH_DEVICE: [&str; 3] = ["FASTPATH", "RENDEZVOUS", "DATATYPE_SCHEME"];
/// What makes no difference where messages are only copied between processes of one host.
const NOT_IN_SHARED_MEMORY: [&str; 3] = ["rput", "rget", "staged"];

/// One way: a name, and settings without their prefix.
struct Way {
    name: String,
    settings: BTreeMap<String, String>,
}

/// One case per way, and one for the table.
pub fn cases() -> Result<Vec<Case>> {
    let mut cases = vec![Case::new("ways/table", |workshop| {
        workshop.installation()?;
        let shown = installed("ferrovia").args(["info", "--config", "--json"]).run_successfully()?;
        let config: Value = serde_json::from_str(&shown.stdout).with_context(|| shown.report())?;
        let left_out = left_out(&read()?, &choices(&config)?);
        if !left_out.is_empty() {
            bail!("tests/c/ways.txt tries nowhere:\n{}", left_out.join("\n"));
        }
        Ok(())
    })];
    cases.extend(read()?.into_iter().map(|way| Case::new(format!("ways/{}", way.name), move |shop| way.run(shop))));
    Ok(cases)
}

impl Way {
    /// Runs each program; what fails does not keep the others from being tried, unless it had to be ended.
    fn run(&self, workshop: &Workshop) -> Result<()> {
        let mut failed = Vec::new();
        for (entry, ranks) in programs::with("ways")? {
            let program = workshop.program(&entry.name)?;
            let mut job = Job::of(ranks.parse()?).with(|mpiexec| mpiexec.arg(&program).limit(LIMIT));
            job = job.with(|command| command.args(programs::arguments(&entry)));
            for (name, value) in programs::variables(&entry).into_iter().chain(self.variables()) {
                job = job.with(|command| command.env(name, value));
            }
            let finished = job.run()?;
            let ended = Expected::from(&entry).check(finished.code(), &finished.said());
            if let Err(wrong) = ended.and_then(|()| is_silent(&finished.stderr)) {
                let title = format!("{} on {ranks} ranks over the way {}", entry.name, self.name);
                failed.push(format!("{:#}", finished.complain(format!("{title}: {wrong}"))));
                if finished.outlived_its_limit() {
                    break;
                }
            }
        }
        if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
    }

    fn variables(&self) -> impl Iterator<Item = (String, String)> {
        self.settings.iter().map(|(name, value)| (format!("FERROVIA_{name}"), value.clone()))
    }
}

/// None of these programs has a reason to complain, nor has the library on any way.
fn is_silent(stderr: &str) -> Result<(), String> {
    if stderr.is_empty() { Ok(()) } else { Err("expected nothing on standard error".to_owned()) }
}

/// How many ways there are.
pub fn count() -> Result<usize> {
    Ok(read()?.len())
}

/// The table.
fn read() -> Result<Vec<Way>> {
    let entries = list::read(&paths::root().join("tests/c/ways.txt"))?.into_iter();
    Ok(entries.map(|entry| Way { name: entry.name, settings: entry.options.into_iter().collect() }).collect())
}

/// What a setting may be.
struct Choice {
    default: String,
    /// All that is to be tried.
    values: Vec<String>,
}

/// Each of [`CHOICES`], as the library has it.
fn choices(config: &Value) -> Result<BTreeMap<&'static str, Choice>> {
    let choice = |name: &'static str| {
        let full = format!("FERROVIA_{name}");
        let setting = config.as_array().into_iter().flatten().find(|setting| setting["name"] == full.as_str());
        let setting = setting.with_context(|| format!("the library has no setting {full}"))?;
        let default = setting["default"].as_str().context("a setting has a default")?.to_owned();
        let values = setting["values"].as_str().context("a setting has values")?.split(" | ");
        let values = values.filter(|value| name != "DEVICE" || !OTHER_DEVICES.contains(value));
        Ok((name, Choice { default, values: values.map(str::to_owned).collect() }))
    };
    CHOICES.into_iter().map(choice).collect()
}

/// What the ways do not try, though they should.
fn left_out(ways: &[Way], choices: &BTreeMap<&str, Choice>) -> Vec<String> {
    let mut left_out = Vec::new();
    for (name, choice) in choices {
        let value = |way: &Way| way.settings.get(*name).unwrap_or(&choice.default).clone();
        let tried: BTreeSet<_> = ways.iter().map(|way| (way.settings.get("DEVICE").cloned(), value(way))).collect();
        for value in &choice.values {
            if !tried.iter().any(|(_, other)| other == value) {
                left_out.push(format!("{name}={value}"));
            } else if ON_EACH_DEVICE.contains(name) {
                let devices = choices["DEVICE"].values.iter();
                let missing = devices.filter(|device| {
                    let makes_a_difference = *device != "shm" || !NOT_IN_SHARED_MEMORY.contains(&value.as_str());
                    makes_a_difference && !tried.contains(&(Some((*device).clone()), value.clone()))
                });
                left_out.extend(missing.map(|device| format!("{name}={value} with DEVICE={device}")));
            }
        }
    }
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config() -> Value {
        let of = |name: &str| match name {
            "DEVICE" => "auto | shm | tcp | verbs",
            "RENDEZVOUS" => "auto | rput | tupleq",
            _ => "auto | off",
        };
        let setting = |name| json!({ "name": format!("FERROVIA_{name}"), "default": "auto", "values": of(name) });
        CHOICES.into_iter().map(setting).collect()
    }

    fn ways(text: &str) -> Vec<Way> {
        let entries = list::parse(text).unwrap().into_iter();
        entries.map(|entry| Way { name: entry.name, settings: entry.options.into_iter().collect() }).collect()
    }

    #[test]
    fn a_value_that_no_way_has_is_found() {
        let choices = choices(&config()).unwrap();
        let others: String = CHOICES.iter().skip(1).map(|name| format!(" {name}=off")).collect();
        let others = others.replace(" RENDEZVOUS=off", "");
        let table = format!(
            "a DEVICE=shm\nb DEVICE=shm RENDEZVOUS=tupleq{others}\nc DEVICE=tcp RENDEZVOUS=rput\n\
             d DEVICE=tcp RENDEZVOUS=tupleq{others}\ne DEVICE=tcp\n"
        );
        assert_eq!(left_out(&ways(&table), &choices), Vec::<String>::new());
        let without = |line: &str| left_out(&ways(&table.replace(line, "")), &choices);
        assert_eq!(without("c DEVICE=tcp RENDEZVOUS=rput\n"), ["RENDEZVOUS=rput"]);
        let missing = without(&format!("d DEVICE=tcp RENDEZVOUS=tupleq{others}\n"));
        let expected = ["DATATYPE_SCHEME=off", "FASTPATH=off", "RENDEZVOUS=tupleq"];
        assert_eq!(missing, expected.map(|value| format!("{value} with DEVICE=tcp")));
        assert!(super::choices(&json!([])).is_err());
    }

    #[test]
    fn ways_have_names_of_their_own() {
        let ways = read().unwrap();
        let names: BTreeSet<&str> = ways.iter().map(|way| way.name.as_str()).collect();
        assert_eq!(names.len(), ways.len());
        let settings: BTreeSet<_> = ways.iter().map(|way| way.variables().collect::<Vec<_>>()).collect();
        assert_eq!(settings.len(), ways.len());
    }
}
