//! `cargo xtask bench`: the same program over Ferrovia, MPICH, Intel MPI and Open MPI, in turns, in one run.
//!
//! The machine is shared and its speed changes by the minute, so each test runs on one library after the other,
//! several rounds of that, and a row shows the median of the rounds and its ratio to the best peer's.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::command::Program;
use crate::install;
use crate::paths;
use crate::test::interoperation::install_peers;

/// What to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Only tests whose name contains this (latency, bandwidth, bidirectional, rate, barrier, bcast, allreduce,
    /// alltoall, idle, startup, floor)
    filter: Option<String>,
    /// Rounds over all libraries
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Ranks of the collective tests
    #[arg(long, value_delimiter = ',', default_value = "2,4,8")]
    ranks: Vec<u32>,
    /// Also write the table, as Markdown, to this file
    #[arg(long)]
    output: Option<PathBuf>,
    /// Measure the library in target/prefix as it is
    #[arg(long)]
    no_install: bool,
}

struct Library {
    name: &'static str,
    mpiexec: PathBuf,
    arguments: &'static [&'static str],
    program: PathBuf,
    library_path: Option<PathBuf>,
}

/// Test, ranks, bytes and unit name a row; values by library.
type Row = (String, u32, u64, String);
type Values = BTreeMap<Row, BTreeMap<&'static str, Vec<f64>>>;

const TWO_RANKS: [&str; 4] = ["latency", "bandwidth", "bidirectional", "rate"];
const COLLECTIVES: [&str; 4] = ["barrier", "bcast", "allreduce", "alltoall"];
const RUN_LIMIT: Duration = Duration::from_secs(120);

/// Installs, builds, measures in turns, prints the table.
pub fn run(options: &Options) -> Result<()> {
    if !options.no_install {
        install::run(&paths::prefix())?;
    }
    let libraries = libraries()?;
    let wanted = |test: &str| options.filter.as_deref().is_none_or(|filter| test.contains(filter));
    let mut values = Values::new();
    let began = Instant::now();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {} ({} s so far)", options.rounds, began.elapsed().as_secs());
        for test in TWO_RANKS.into_iter().filter(|test| wanted(test)) {
            measure(&libraries, test, 2, &mut values);
        }
        for test in COLLECTIVES.into_iter().filter(|test| wanted(test)) {
            for &ranks in &options.ranks {
                measure(&libraries, test, ranks, &mut values);
            }
        }
        if wanted("startup") {
            startup(&libraries, &mut values);
        }
        if wanted("idle") && round == 1 {
            measure(&libraries, "idle", 8, &mut values);
        }
        if wanted("floor") {
            measure(&libraries[..1], "floor", 1, &mut values);
        }
    }
    let table = table(&libraries, &values);
    println!("{table}");
    if let Some(path) = &options.output {
        fs::write(path, table).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn libraries() -> Result<Vec<Library>> {
    let peers = install_peers()?;
    let folder = paths::target().join("bench");
    fs::create_dir_all(&folder)?;
    let (standard, open) = (folder.join("mpi"), folder.join("mpi-openmpi"));
    let flags = ["-O2", "-std=gnu11", "bench/mpi.c", "-o"];
    // Built once against the standard ABI; only Open MPI, which has an ABI of its own, gets a build of its own.
    Program::new(peers.join("mpich/bin/mpicc_abi")).args(flags).arg(&standard).run_successfully()?;
    Program::new(peers.join("openmpi/bin/mpicc")).args(flags).arg(&open).run_successfully()?;
    let library = |name, folder: &str, arguments, program: &Path, lib: Option<PathBuf>| Library {
        name,
        mpiexec: peers.join(folder).join("bin/mpiexec"),
        arguments,
        program: program.to_owned(),
        library_path: lib,
    };
    let ours = paths::prefix();
    Ok(vec![
        Library {
            name: "Ferrovia",
            mpiexec: ours.join("bin/mpiexec"),
            arguments: &[],
            program: standard.clone(),
            library_path: Some(ours.join("lib")),
        },
        library("MPICH", "mpich", &[], &standard, Some(peers.join("mpich/lib"))),
        library("Intel MPI", "impi-rt", &[], &standard, Some(peers.join("impi-rt/lib"))),
        library("Open MPI", "openmpi", &["--allow-run-as-root", "--oversubscribe"], &open, None),
    ])
}

fn start(library: &Library, test: &str, ranks: u32) -> Program {
    let mut program = Program::new(&library.mpiexec)
        .args(library.arguments)
        .args(["-n", &ranks.to_string()])
        .arg(&library.program)
        .arg(test)
        .limit(RUN_LIMIT);
    if let Some(path) = &library.library_path {
        program = program.env("LD_LIBRARY_PATH", path);
    }
    program
}

/// One test on each library in turn; a library that fails or takes too long has no value in these rows.
fn measure(libraries: &[Library], test: &str, ranks: u32, values: &mut Values) {
    for library in libraries {
        eprintln!("  {test} on {ranks} ranks: {}", library.name);
        let finished = match start(library, test, ranks).run() {
            Ok(finished) if finished.success() => finished,
            Ok(finished) => {
                eprintln!("{}", finished.report());
                continue;
            }
            Err(error) => {
                eprintln!("{error:#}");
                continue;
            }
        };
        for line in finished.stdout.lines() {
            if let [name, bytes, value, unit] = line.split(' ').collect::<Vec<_>>()[..]
                && let (Ok(bytes), Ok(value)) = (bytes.parse(), value.parse())
            {
                let row = (name.to_owned(), ranks, bytes, unit.to_owned());
                values.entry(row).or_default().entry(library.name).or_default().push(value);
            }
        }
    }
}

/// Wall-clock time of a program that initialises and finalizes, start of `mpiexec` to its end.
fn startup(libraries: &[Library], values: &mut Values) {
    for library in libraries {
        for ranks in [2, 8] {
            for _ in 0..3 {
                let began = Instant::now();
                if start(library, "empty", ranks).run().is_ok_and(|finished| finished.success()) {
                    let row = ("startup".to_owned(), ranks, 0, "ms".to_owned());
                    let milliseconds = began.elapsed().as_secs_f64() * 1e3;
                    values.entry(row).or_default().entry(library.name).or_default().push(milliseconds);
                }
            }
        }
    }
}

/// The rows as Markdown; the last column above 1 means that Ferrovia is ahead of the best peer by that factor.
fn table(libraries: &[Library], values: &Values) -> String {
    let mut text = String::from("| test | ranks | bytes | unit |");
    for library in libraries {
        let _ = write!(text, " {} |", library.name);
    }
    text.push_str(" ahead of best peer |\n|---|---|---|---|");
    text.push_str(&"---:|".repeat(libraries.len() + 1));
    text.push('\n');
    for ((test, ranks, bytes, unit), by_library) in values {
        let _ = write!(text, "| {test} | {ranks} | {bytes} | {unit} |");
        let more_is_better = unit.ends_with("/s");
        let medians: Vec<Option<f64>> =
            libraries.iter().map(|library| by_library.get(library.name).map(|list| median(list))).collect();
        for value in &medians {
            match value {
                Some(value) => {
                    let _ = write!(text, " {} |", shown(*value));
                }
                None => text.push_str(" - |"),
            }
        }
        let peers = medians[1..].iter().flatten().copied();
        let best = if more_is_better { peers.reduce(f64::max) } else { peers.reduce(f64::min) };
        match (medians[0], best) {
            (Some(ours), Some(best)) => {
                let ratio = if more_is_better { ours / best } else { best / ours };
                let _ = writeln!(text, " {ratio:.2} |");
            }
            _ => text.push_str(" |\n"),
        }
    }
    text
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn shown(value: f64) -> String {
    match value {
        value if value >= 1000.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_medians_and_who_is_ahead() {
        let library = |name| Library {
            name,
            mpiexec: PathBuf::new(),
            arguments: &[],
            program: PathBuf::new(),
            library_path: None,
        };
        let libraries = [library("Ferrovia"), library("A"), library("B")];
        let mut values = Values::new();
        let latency = values.entry(("latency".into(), 2, 8, "us".into())).or_default();
        latency.insert("Ferrovia", vec![9.0, 1.0, 2.0]);
        latency.insert("A", vec![4.0]);
        latency.insert("B", vec![3.0]);
        values
            .entry(("rate".into(), 2, 8, "/s".into()))
            .or_default()
            .extend([("Ferrovia", vec![5.0]), ("A", vec![10.0])]);
        let text = table(&libraries, &values);
        assert!(text.contains("| latency | 2 | 8 | us | 2.000 | 4.000 | 3.000 | 1.50 |"), "{text}");
        assert!(text.contains("| rate | 2 | 8 | /s | 5.000 | 10.0 | - | 0.50 |"), "{text}");
    }
}
