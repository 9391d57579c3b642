//! A program under `mpiexec`, watched for anything it leaves behind.

use crate::command::{Finished, Program, Running};
use crate::install::installed;
use anyhow::{Result, bail};
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The variable by which a job's processes are found again.
const MARK: &str = "TEST_JOB_MARK";
/// How long processes may take to disappear after their launcher is gone.
const DISAPPEAR_MAX: Duration = Duration::from_secs(10);

static JOBS: AtomicU32 = AtomicU32::new(0);

/// An MPI job, not yet started.
pub struct Job {
    program: Program,
    mark: String,
}

impl Job {
    /// `mpiexec -n RANKS`, to which the program and its arguments are added.
    pub fn of(ranks: u32) -> Self {
        Self::launched(installed("mpiexec").arg("-n").arg(ranks.to_string()))
    }

    /// Any command that starts MPI processes.
    pub fn launched(program: Program) -> Self {
        // ordering: a counter that only has to give distinct numbers
        let mark = format!("{}-{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
        let program = program.env(MARK, &mark).limit(Duration::from_secs(60));
        Self { program, mark }
    }

    /// Changes the command.
    pub fn with(mut self, change: impl FnOnce(Program) -> Program) -> Self {
        self.program = change(self.program);
        self
    }

    /// Runs to the end; processes left behind are an error.
    pub fn run(self) -> Result<Finished> {
        let finished = self.program.run()?;
        match gone(&self.mark) {
            Ok(()) => Ok(finished),
            Err(error) => Err(finished.complain(error)),
        }
    }

    /// Runs to the end, which must be successful and say `text`.
    pub fn run_saying(self, text: &str) -> Result<Finished> {
        let finished = self.run()?;
        if !finished.success() || !finished.stdout.contains(text) {
            return Err(finished.complain(format!("expected a successful end and {text:?} on standard output")));
        }
        Ok(finished)
    }

    /// Starts in the background; the second value watches for what is left behind.
    pub fn start(self) -> Result<(Running, Mark)> {
        Ok((self.program.start()?, Mark(self.mark)))
    }
}

/// The mark of a job in the background.
pub struct Mark(String);

impl Mark {
    /// Waits until no process of the job is left.
    pub fn gone(&self) -> Result<()> {
        gone(&self.0)
    }

    /// How many processes of the job exist.
    pub fn count(&self) -> usize {
        marked(&self.0).len()
    }
}

fn gone(mark: &str) -> Result<()> {
    let deadline = Instant::now() + DISAPPEAR_MAX;
    loop {
        let left = marked(mark);
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let list: Vec<String> = left.iter().map(|(pid, name)| format!("{pid} ({name})")).collect();
            for (pid, _) in &left {
                if let Some(pid) = rustix::process::Pid::from_raw(*pid) {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
            bail!("processes were left behind: {}", list.join(", "));
        }
        sleep(Duration::from_millis(5));
    }
}

/// Running processes with this mark in their environment: their ids and names.
fn marked(mark: &str) -> Vec<(i32, String)> {
    let wanted = format!("{MARK}={mark}");
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(entry.path().join("environ")).ok()?;
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()).then_some(())?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            Some((pid, name.trim().to_owned()))
        })
        .collect()
}
