//! Processes with a time limit, and what a benchmark program wrote.

use crate::pace;
use crate::record::{Measured, Row};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What is kept of the output of a process, from its end.
const OUTPUT_BYTES_MAX: u64 = 4096;
/// Time for a launcher to end its job after being asked to.
const GRACE: Duration = Duration::from_secs(3);

/// How a process ended.
pub struct Ended {
    /// By itself, with status 0.
    pub success: bool,
    /// It had to be ended at its limit.
    pub too_long: bool,
    /// How long it ran.
    pub took: Duration,
    /// The end of what it printed on both streams.
    pub output: String,
}

/// Runs a command; at the limit it is asked to end, then made to.
///
/// # Errors
/// If it cannot be started.
pub fn run(command: &mut Command, limit: Duration) -> Result<Ended> {
    let mut output = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
    let began = Instant::now();
    let mut child =
        command.spawn().with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
    let mut too_long = false;
    let status = match wait_until(&mut child, began + limit)? {
        Some(status) => status,
        None => {
            too_long = true;
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            if wait_until(&mut child, Instant::now() + GRACE)?.is_none() {
                child.kill()?;
            }
            child.wait()?
        }
    };
    let took = began.elapsed();
    Ok(Ended { success: status.success() && !too_long, too_long, took, output: tail(&mut output)? })
}

/// Waits in small steps, so that the end of a job is seen within about a millisecond.
fn wait_until(child: &mut Child, deadline: Instant) -> Result<Option<std::process::ExitStatus>> {
    let mut pause = Duration::from_micros(100);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        sleep(pause);
        pause = (pause + pause / 8).min(Duration::from_millis(2));
    }
}

fn tail(file: &mut File) -> Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(OUTPUT_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// The first line of a program's results.
#[derive(Deserialize)]
pub struct Opening {
    /// Greatest offset of a rank's clock from rank 0's.
    pub offset_max_ns: f64,
    /// Greatest error of such an offset.
    pub offset_error_max_ns: f64,
    /// What the library calls itself.
    pub library: String,
}

#[derive(Deserialize)]
struct Line {
    test: String,
    bytes: u64,
    parameters: BTreeMap<String, Value>,
    unit: String,
    amount: f64,
    per_sample: u64,
    samples: Vec<f64>,
    /// The machine's pace at each of them, or nothing where it was not looked at.
    #[serde(default)]
    paces: Vec<f64>,
}

/// Reads what the benchmark program wrote for a job on so many ranks.
///
/// # Errors
/// If the file is missing, cut off, or not as the program writes it.
pub fn read_results(path: &Path, ranks: u32) -> Result<(Opening, Vec<Measured>)> {
    let text = std::fs::read_to_string(path).context("the program left no results")?;
    let mut lines = text.lines();
    let opening = lines.next().context("the program's results are empty")?;
    let opening = serde_json::from_str(opening).context("the program's results are damaged")?;
    let mut measured = Vec::new();
    for line in lines {
        let line: Line = serde_json::from_str(line).context("the program's results are damaged")?;
        if line.samples.is_empty() {
            bail!("the program took no samples of {}", line.test);
        }
        let parameters = line.parameters.into_iter().map(|(name, value)| match value {
            Value::String(text) => (name, text),
            other => (name, other.to_string()),
        });
        let row = Row { test: line.test, ranks, parameters: parameters.collect(), bytes: line.bytes, unit: line.unit };
        let taken = line.samples.len();
        let told = pace::told_apart(line.samples, &line.paces);
        let mut unpaced = (taken - told.iter().map(|(_, samples)| samples.len()).sum::<usize>()) as u64;
        measured.extend(told.into_iter().enumerate().map(|(index, (met, samples))| Measured {
            row: pace::of_row(&row, met),
            operations_per_sample: line.per_sample,
            amount: line.amount,
            samples,
            // Said once.
            unpaced: std::mem::take(&mut unpaced),
            again: index > 0,
        }));
    }
    Ok((opening, measured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_outputs_and_limits() {
        let ended = run(Command::new("sh").args(["-c", "echo one; echo two >&2"]), Duration::from_secs(20)).unwrap();
        assert!(ended.success && ended.output == "one\ntwo", "{}", ended.output);
        let ended = run(Command::new("sh").args(["-c", "exit 3"]), Duration::from_secs(20)).unwrap();
        assert!(!ended.success && !ended.too_long);
        let ended = run(Command::new("sleep").arg("1000"), Duration::from_millis(20)).unwrap();
        assert!(!ended.success && ended.too_long);
        assert!(run(&mut Command::new("/nonexistent/program"), Duration::from_secs(1)).is_err());
    }

    #[test]
    fn results_are_read_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let opening = r#"{"clock_ns":1,"offset_max_ns":2,"offset_error_max_ns":3,"library":"L"}"#;
        let point = r#"{"test":"t","bytes":8,"parameters":{"depth":4,"way":"x"},"unit":"us","amount":0,"per_sample":2,"samples":[1,2.5]}"#;
        std::fs::write(&path, format!("{opening}\n{point}\n")).unwrap();
        let (read, measured) = read_results(&path, 2).unwrap();
        assert_eq!((read.library.as_str(), read.offset_error_max_ns), ("L", 3.0));
        assert_eq!(measured[0].row.shown_parameters(), "depth=4 way=x");
        assert_eq!(measured[0].samples, [1.0, 2.5]);
        let all = |of: [&str; 3]| [vec![of[0]; 9], vec![of[1]; 3], vec![of[2]; 8]].concat().join(",");
        let paces = all(["60", "0", "250"]);
        let samples = all(["1", "2", "3"]);
        let paced = point.replace("[1,2.5]", &format!("[{samples}],\"paces\":[{paces}]"));
        std::fs::write(&path, format!("{opening}\n{paced}\n")).unwrap();
        let told = read_results(&path, 2).unwrap().1;
        let told: Vec<_> = told
            .iter()
            .map(|told| (told.row.shown_parameters(), told.samples.len(), told.unpaced, told.again))
            .collect();
        assert_eq!(
            told,
            [("depth=4 pace=near way=x".into(), 9, 3, false), ("depth=4 pace=apart way=x".into(), 8, 0, true)]
        );
        for text in ["", "x", &format!("{opening}\n{}", &point[..50]), &format!("{opening}\n{{}}")] {
            std::fs::write(&path, text).unwrap();
            assert!(read_results(&path, 2).is_err(), "{text}");
        }
        assert!(read_results(&folder.path().join("none"), 2).is_err());
    }
}
