//! The self-checking C programs of `tests/c`, run as `tests/c/list.txt` says.

use super::mpi::Job;
use super::{Case, list};
use crate::command::{Finished, Program};
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

/// One case per line and rank count.
pub fn cases() -> Result<Vec<Case>> {
    let mut cases = vec![Case::new("install", |workshop| workshop.installation().map(drop)).quick(true), header()];
    for entry in list::read(&folder().join("list.txt"))? {
        let expected = Expected::from(&entry);
        let arguments: Vec<String> =
            entry.last("args").map(|args| args.split(',').map(str::to_owned).collect()).unwrap_or_default();
        let variables: Vec<(String, String)> = entry
            .all("env")
            .filter_map(|pair| pair.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect();
        let limit = Duration::from_secs(entry.last("limit").map_or(Ok(60), str::parse)?);
        let title = std::iter::once(entry.name.as_str())
            .chain(arguments.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join("-");
        let alone = entry.has("alone").then_some(None);
        let over = entry.last("over").map(str::parse::<u32>).transpose()?;
        let runs = entry.ranks().into_iter().map(Some).chain(alone).map(|ranks| (None, ranks));
        let over = DEVICES.into_iter().filter_map(|device| Some((Some(device), Some(over?))));
        for (device, ranks) in runs.chain(over) {
            let place = device.map_or_else(|| "c".to_owned(), |device| format!("c/{device}"));
            let name = match ranks {
                Some(ranks) => format!("{place}/{title}-{ranks}"),
                None => format!("{place}/{title}-alone"),
            };
            let mut variables = variables.clone();
            variables.extend(device.map(|device| ("FERROVIA_DEVICE".to_owned(), device.to_owned())));
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
                expected.check(&job.run()?)
            });
            cases.push(case.quick(entry.has("quick") && device.is_none()));
        }
    }
    Ok(cases)
}

/// What a program's end must look like.
#[derive(Clone)]
struct Expected {
    /// `None`: any status but 0.
    status: Option<i32>,
    says: Vec<String>,
}

impl Expected {
    fn from(entry: &list::Entry) -> Self {
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

    fn check(&self, finished: &Finished) -> Result<()> {
        let right = match self.status {
            Some(status) => finished.code() == Some(status),
            None => finished.code().is_some_and(|code| code != 0),
        };
        if !right {
            let wanted = self.status.map_or("a status other than 0".to_owned(), |status| format!("status {status}"));
            return Err(finished.complain(format!("expected {wanted}")));
        }
        let said = finished.said();
        match self.says.iter().find(|text| !said.contains(text.as_str())) {
            Some(text) => Err(finished.complain(format!("expected the output to contain {text:?}"))),
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
