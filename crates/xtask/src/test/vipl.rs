//! The self-checking C programs of `tests/vipl`, compiled with what `vipl.pc` says and run as a user would. Each starts its
//! own second process.

use super::{Case, Workshop};
use crate::command::Program;
use crate::paths;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::time::Duration;

/// Programs, each with the settings it is run under.
const PROGRAMS: [(&str, &[(&str, &str)]); 3] =
    [("calls", &[]), ("processes", &[]), ("processes", &[("FERROVIA_VIPL_PUSH", "1")])];

pub fn cases() -> Vec<Case> {
    let case = |(program, settings): (&'static str, &'static [(&str, &str)])| {
        let suffix: String = settings.iter().map(|(name, value)| format!("-{name}={value}")).collect();
        Case::new(format!("vipl/{program}{suffix}"), move |workshop| run(workshop, program, settings))
    };
    PROGRAMS.into_iter().map(case).collect()
}

fn run(workshop: &Workshop, name: &str, settings: &[(&str, &str)]) -> Result<()> {
    let place = compiled(workshop, name)?;
    let mut program = Program::new(place).limit(Duration::from_secs(60));
    for (name, value) in settings {
        program = program.env(name, value);
    }
    let finished = program.run_successfully()?;
    match finished.stdout.contains("No Errors") {
        true => Ok(()),
        false => Err(finished.complain("expected \"No Errors\"")),
    }
}

fn compiled(workshop: &Workshop, name: &str) -> Result<PathBuf> {
    let prefix = workshop.installation()?;
    let description = std::fs::read_to_string(prefix.join("lib/pkgconfig/vipl.pc")).context("vipl.pc")?;
    let flags = |key: &str| -> Vec<String> {
        let line = description.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        let prefix = prefix.display().to_string();
        let whole = line
            .replace("${libdir}", "${prefix}/lib")
            .replace("${includedir}", "${prefix}/include")
            .replace("${prefix}", &prefix);
        whole.split_whitespace().map(str::to_owned).collect()
    };
    let place = paths::target().join("programs").join(format!("vipl-{name}"));
    std::fs::create_dir_all(paths::target().join("programs"))?;
    Program::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .args(flags("Cflags:"))
        .arg("-o")
        .arg(&place)
        .arg(paths::root().join("tests/vipl").join(format!("{name}.c")))
        .args(flags("Libs:"))
        .limit(Duration::from_secs(120))
        .run_successfully()?;
    Ok(place)
}
