//! Running mpiexec in tests, and looking for what it may have left behind.
#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A rank that speaks PMI.
pub const PROBE: &str = env!("CARGO_BIN_EXE_pmi-probe");
const MARK: &str = "LAUNCHER_TEST_MARK";
/// How long anything may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A job that can be found again by its mark; ended, if necessary, when dropped.
pub struct Job {
    pub command: Command,
    pub mark: String,
}

/// How mpiexec ended.
#[derive(Debug)]
pub struct Finished {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// `mpiexec` with arguments separated by blanks.
pub fn mpiexec(args: &str) -> Job {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpiexec"));
    command.args(args.split_whitespace());
    Job::of(command)
}

impl Job {
    /// Any command as a job.
    pub fn of(mut command: Command) -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        command.env(MARK, &mark).env("MPIEXEC_TIMEOUT", PATIENCE.as_secs().to_string()).stdin(Stdio::null());
        Self { command, mark }
    }

    pub fn arg(mut self, arg: &str) -> Self {
        self.command.arg(arg);
        self
    }

    /// Arguments separated by blanks.
    pub fn args(mut self, args: &str) -> Self {
        self.command.args(args.split_whitespace());
        self
    }

    /// A program of `sh`.
    pub fn sh(self, script: &str) -> Self {
        self.arg("sh").arg("-c").arg(script)
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs to the end; nothing may be left.
    pub fn run(mut self) -> Finished {
        let output = self.command.output().unwrap();
        self.check_gone();
        finished(output)
    }

    /// Runs to the end with the bytes as standard input.
    pub fn run_with_input(mut self, input: &[u8]) -> Finished {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let output = thread::scope(|scope| {
            scope.spawn(move || {
                // A job that ends early does not read everything.
                let _ = stdin.write_all(input);
            });
            child.wait_with_output().unwrap()
        });
        self.check_gone();
        finished(output)
    }

    /// Processes of this job that are alive.
    pub fn processes(&self) -> Vec<Pid> {
        let wanted = format!("{MARK}={}", self.mark).into_bytes();
        fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
            .filter(|pid| {
                let environ = fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default();
                environ.split(|byte| *byte == 0).any(|entry| entry == wanted)
            })
            .collect()
    }

    /// Waits until so many processes of the job are alive.
    pub fn wait_for(&self, at_least: usize) {
        wait_until(&format!("{at_least} processes"), || self.processes().len() >= at_least);
    }

    /// Waits a moment for the last processes to go.
    pub fn check_gone(&self) {
        wait_until("the end of all processes", || self.processes().is_empty());
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Sleeps until it is so.
pub fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Reads what has come so far from a file that a job writes to.
pub fn read(path: &std::path::Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

pub fn finished(output: Output) -> Finished {
    use std::os::unix::process::ExitStatusExt;
    Finished {
        code: output.status.code().unwrap_or_else(|| -output.status.signal().unwrap_or(0)),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Finished {
    /// Checks the exit code and that the complaint is one line with these words.
    pub fn check_complaint(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        let complaints: Vec<&str> = self.stderr.lines().filter(|line| line.starts_with("mpiexec: ")).collect();
        assert_eq!(complaints.len(), 1, "{self:?}");
        for word in words {
            assert!(complaints[0].contains(word), "{word:?} is not in {:?}", complaints[0]);
        }
    }

    /// Checks success, silence on standard error, and the sorted lines of output.
    pub fn check_lines(&self, expected: &[&str]) {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{self:?}");
        let mut lines: Vec<&str> = self.stdout.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, expected);
    }
}
