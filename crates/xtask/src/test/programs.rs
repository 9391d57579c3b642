//! The self-checking C programs of `tests/c`, run as `tests/c/list.txt` says.

use super::mpi::Job;
use super::{Case, Workshop, blocks, list};
use crate::command::Program;
use crate::install::installed;
use crate::paths;
use anyhow::{Result, bail};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Programs compiled in this run.
#[derive(Default)]
pub struct Compiled {
    programs: RefCell<HashMap<String, Result<PathBuf, String>>>,
}

impl Compiled {
    /// `NAME.c` or `NAME.cpp` as a program; compiled once, without a warning.
    pub fn compiled(&self, name: &str) -> Result<PathBuf> {
        let mut programs = self.programs.borrow_mut();
        let result = programs.entry(name.to_owned()).or_insert_with(|| {
            let place = paths::target().join("programs").join(name);
            compile(installed, name, &place).map(|()| place).map_err(|error| format!("{error:#}"))
        });
        result.clone().map_err(anyhow::Error::msg)
    }
}

/// Compiles a program of `tests/c` with a given set of wrappers.
pub fn compile(wrapper: impl Fn(&str) -> Program, name: &str, place: &Path) -> Result<()> {
    let folder = folder();
    let c = folder.join(format!("{name}.c"));
    let (compiler, standard, source) = match c.is_file() {
        true => ("mpicc", "-std=c11", c),
        false => ("mpicxx", "-std=c++17", folder.join(format!("{name}.cpp"))),
    };
    std::fs::create_dir_all(place.parent().unwrap_or(place))?;
    wrapper(compiler)
        .args([standard, "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(place)
        .arg(source)
        .arg("-lm")
        .limit(Duration::from_secs(120))
        .run_successfully()?;
    Ok(())
}

fn folder() -> PathBuf {
    paths::root().join("tests/c")
}

/// Devices beside the usual one that lines with `over` are run on.
const DEVICES: [&str; 2] = ["shm-verbs", "tcp"];
/// The device that lines with `hosts` are run on, where two ranks at a time are treated as a host.
const BETWEEN_HOSTS: (&str, &str) = ("shm+tcp", "2");

/// One case per line and rank count.
pub fn cases() -> Result<Vec<Case>> {
    let mut cases = vec![Case::new("install", |workshop| workshop.installation().map(drop)).quick(true), header()];
    for entry in list::read(&folder().join("list.txt"))? {
        let (expected, arguments, variables) = (Expected::from(&entry), arguments(&entry), variables(&entry));
        let limit = Duration::from_secs(entry.last("limit").map_or(Ok(60), str::parse)?);
        let title = std::iter::once(entry.name.as_str())
            .chain(arguments.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join("-");
        let alone = entry.has("alone").then_some(None);
        let over = entry.last("over").map(str::parse::<u32>).transpose()?;
        let hosts = entry.last("hosts").map(str::parse::<u32>).transpose()?;
        let runs = entry.ranks().into_iter().map(Some).chain(alone).map(|ranks| (None, ranks));
        let over = DEVICES.into_iter().filter_map(|device| Some((Some(device), Some(over?))));
        let hosts = hosts.map(|ranks| (Some(BETWEEN_HOSTS.0), Some(ranks)));
        for (device, ranks) in runs.chain(over).chain(hosts) {
            let place = device.map_or_else(|| "c".to_owned(), |device| format!("c/{device}"));
            let name = match ranks {
                Some(ranks) => format!("{place}/{title}-{ranks}"),
                None => format!("{place}/{title}-alone"),
            };
            let mut variables = variables.clone();
            variables.extend(device.map(|device| ("FERROVIA_DEVICE".to_owned(), device.to_owned())));
            if device == Some(BETWEEN_HOSTS.0) {
                variables.push(("FERROVIA_HOST_RANKS".to_owned(), BETWEEN_HOSTS.1.to_owned()));
            }
            let (program, arguments, expected) = (entry.name.clone(), arguments.clone(), expected.clone());
            let case = Case::new(name, move |workshop| {
                let program = workshop.program(&program)?;
                let mut job = match ranks {
                    Some(ranks) => Job::of(ranks).with(|mpiexec| mpiexec.arg(&program)),
                    None => Job::launched(Program::new(&program)),
                };
                job = job.with(|command| command.args(&arguments).limit(limit));
                for (name, value) in &variables {
                    job = job.with(|command| command.env(name, value));
                }
                let finished = job.run()?;
                expected.check(finished.code(), &finished.said()).map_err(|wrong| finished.complain(wrong))
            });
            cases.push(case.quick(entry.has("quick") && device.is_none()));
        }
    }
    Ok(cases)
}

/// What a program of the list is given.
pub fn arguments(entry: &list::Entry) -> Vec<String> {
    entry.last("args").map(|args| args.split(',').map(str::to_owned).collect()).unwrap_or_default()
}

/// The environment variables of an entry.
pub fn variables(entry: &list::Entry) -> Vec<(String, String)> {
    let pairs = entry.all("env").filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The lines that have an option, and its value: the number of ranks.
pub fn with(option: &str) -> Result<Vec<(list::Entry, String)>> {
    let entries = list::read(&folder().join("list.txt"))?.into_iter();
    Ok(entries.filter_map(|entry| entry.last(option).map(str::to_owned).map(|ranks| (entry, ranks))).collect())
}

/// The lines with `verbs`, to be run one after another on a machine with an adapter.
pub struct OverAdapter {
    entries: Vec<(list::Entry, String)>,
}

impl OverAdapter {
    /// Reads the list.
    pub fn read() -> Result<Self> {
        Ok(Self { entries: with("verbs")? })
    }

    /// The commands, for `sh`, each in its block.
    pub fn script(&self, workshop: &Workshop) -> Result<String> {
        let mpiexec = workshop.installation()?.join("bin/mpiexec");
        let command = |(entry, ranks): &(list::Entry, String)| {
            let program = workshop.program(&entry.name)?;
            let own = variables(entry).into_iter().map(|(name, value)| format!("{name}={value}"));
            // Of two for one name the last counts.
            let settings: Vec<String> = ["FERROVIA_DEVICE=verbs".to_owned()].into_iter().chain(own).collect();
            let (settings, arguments) = (settings.join(" "), arguments(entry).join(" "));
            Ok(format!("env {settings} '{}' -n {ranks} '{}' {arguments}", mpiexec.display(), program.display()))
        };
        Ok(blocks::script(self.entries.iter().map(command).collect::<Result<Vec<_>>>()?))
    }

    /// What is wrong with what the script has said, if anything is.
    pub fn check(&self, said: &str) -> Result<(), String> {
        for (index, (entry, ranks)) in self.entries.iter().enumerate() {
            let title = format!("{} on {ranks} ranks", entry.name);
            let block = blocks::block(said, index).map_err(|why| format!("{title} {why}"))?;
            Expected::from(entry)
                .check(block.code, block.output)
                .map_err(|wrong| format!("{title}: {wrong}; it said\n{}", block.output))?;
        }
        Ok(())
    }
}

/// What a program's end must look like.
#[derive(Clone)]
pub struct Expected {
    /// `None`: any status but 0.
    status: Option<i32>,
    says: Vec<String>,
}

impl Expected {
    /// What an entry says of it.
    pub fn from(entry: &list::Entry) -> Self {
        let status = match entry.last("exit") {
            None => Some(0),
            Some(text) => text.parse().ok(),
        };
        let mut says: Vec<String> = entry.all("says").map(str::to_owned).collect();
        if status == Some(0) && says.is_empty() {
            says.push("No Errors".to_owned());
        }
        Self { status, says }
    }

    /// What is wrong with an end, if anything is.
    pub fn check(&self, code: Option<i32>, said: &str) -> Result<(), String> {
        let right = match self.status {
            Some(status) => code == Some(status),
            None => code.is_some_and(|code| code != 0),
        };
        if !right {
            let wanted = self.status.map_or("a status other than 0".to_owned(), |status| format!("status {status}"));
            return Err(format!("expected {wanted}"));
        }
        match self.says.iter().find(|text| !said.contains(text.as_str())) {
            Some(text) => Err(format!("expected the output to contain {text:?}")),
            None => Ok(()),
        }
    }
}

/// The header alone, in every language standard people still use, without a warning.
fn header() -> Case {
    Case::new("header", |workshop| {
        let prefix = workshop.installation()?;
        let folder = tempfile::tempdir()?;
        for (name, compiler, standards) in
            [("a.c", "mpicc", ["-std=c99", "-std=c17"]), ("a.cpp", "mpicxx", ["-std=c++11", "-std=c++20"])]
        {
            let source = folder.path().join(name);
            std::fs::write(&source, "#include <mpi.h>\nint main(void) { return MPI_SUCCESS; }\n")?;
            for standard in standards {
                installed(compiler)
                    .args([standard, "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"])
                    .arg(&source)
                    .run_successfully()?;
            }
        }
        if !prefix.join("include/mpi.h").is_file() {
            bail!("include/mpi.h is not installed");
        }
        Ok(())
    })
    .quick(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_is_not_as_it_should_be_is_found() {
        let list = list::parse("hello 1 verbs=2\nerrors 3 exit=7 says=blame verbs=3\nping 1").unwrap();
        let entries = list.into_iter().filter_map(|entry| entry.last("verbs").map(str::to_owned).map(|n| (entry, n)));
        let over = OverAdapter { entries: entries.collect() };
        let said = |ends: &[(&str, i32)]| {
            let commands = ends.iter().map(|(text, status)| format!("{{ echo '{text}'; (exit {status}); }}"));
            Program::new("sh").arg("-c").arg(blocks::script(commands)).run().unwrap().stdout
        };
        let (hello, errors) = (("No Errors", 0), ("blame", 7));
        assert_eq!(over.check(&said(&[hello, errors])), Ok(()));
        for wrong in [("No Errors", 1), ("nothing", 0)] {
            let found = over.check(&said(&[wrong, errors]));
            assert!(found.is_err_and(|why| why.contains("hello on 2 ranks")), "{wrong:?}");
        }
        assert!(over.check(&said(&[hello, ("blame", 0)])).is_err());
        assert!(over.check(&said(&[hello])).is_err());
    }
}
