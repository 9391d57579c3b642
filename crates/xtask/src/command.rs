//! Programs started with a time limit, their output kept, and ended together with what they started.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Lines of each output stream shown for a failure.
const TAIL_LINES_MAX: usize = 40;
/// Bytes of each output stream kept, from its end.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// A program to run: words, folder, variables, input, time limit.
#[derive(Clone)]
pub struct Program {
    words: Vec<OsString>,
    folder: PathBuf,
    variables: Vec<(OsString, Option<OsString>)>,
    input: Vec<u8>,
    limit: Duration,
}

impl Program {
    /// A program by name or path, run in the root of the workspace for at most ten minutes.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            words: vec![program.as_ref().to_owned()],
            folder: crate::paths::root().to_owned(),
            variables: Vec::new(),
            input: Vec::new(),
            limit: Duration::from_secs(600),
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.words.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.words.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Puts words in front: `other args… program args…`.
    pub fn under<S: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.words.splice(0..0, words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Removes an environment variable.
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_owned(), None));
        self
    }

    /// Runs in this folder.
    pub fn folder(mut self, folder: impl AsRef<Path>) -> Self {
        self.folder = folder.as_ref().to_owned();
        self
    }

    /// Feeds this to standard input.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Ends the program after this time.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The command as it would be typed.
    pub fn shown(&self) -> String {
        let mut line = String::new();
        for (name, value) in &self.variables {
            if let Some(value) = value {
                let _ = write!(line, "{}={} ", name.to_string_lossy(), quoted(value));
            }
        }
        for (index, word) in self.words.iter().enumerate() {
            line.push_str(if index > 0 { " " } else { "" });
            line.push_str(&quoted(word));
        }
        line
    }

    /// Runs with the terminal's own output, saying what is run; an unsuccessful end is an error.
    pub fn run_openly(&self) -> Result<()> {
        println!("$ {}", self.shown());
        let mut child = self.command().stdin(Stdio::null()).spawn().with_context(|| self.cannot_start())?;
        let Some(status) = wait_until(&mut child, Instant::now() + self.limit)? else {
            bail!("did not end within {} s: {}", self.limit.as_secs(), self.shown());
        };
        if !status.success() {
            bail!("ended with {}: {}", status_text(status), self.shown());
        }
        Ok(())
    }

    /// Runs and keeps the output.
    pub fn run(&self) -> Result<Finished> {
        self.start()?.finish()
    }

    /// Runs, keeps the output, and takes an unsuccessful end as an error.
    pub fn run_successfully(&self) -> Result<Finished> {
        let finished = self.run()?;
        if !finished.success() {
            bail!("{}", finished.report());
        }
        Ok(finished)
    }

    /// Starts in the background.
    pub fn start(&self) -> Result<Running> {
        let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let began = Instant::now();
        let mut input = tempfile::tempfile()?;
        input.write_all(&self.input)?;
        input.seek(SeekFrom::Start(0))?;
        let child = self
            .command()
            .stdin(if self.input.is_empty() { Stdio::null() } else { Stdio::from(input) })
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?)
            .spawn()
            .with_context(|| self.cannot_start())?;
        Ok(Running { shown: self.shown(), limit: self.limit, began, child, stdout, stderr })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).current_dir(&self.folder);
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    fn cannot_start(&self) -> String {
        format!("cannot start {}", self.shown())
    }
}

/// A program in the background; ended when dropped.
pub struct Running {
    shown: String,
    limit: Duration,
    began: Instant,
    child: Child,
    stdout: File,
    stderr: File,
}

impl Running {
    /// The process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Standard output so far.
    pub fn output(&self) -> Result<String> {
        contents(&self.stdout)
    }

    /// Waits until standard output contains `text`, or the time limit.
    pub fn wait_for_output(&mut self, text: &str) -> Result<()> {
        while !self.output()?.contains(text) {
            if self.began.elapsed() > self.limit {
                bail!("{} did not print {text:?} in time; it printed:\n{}", self.shown, self.output()?);
            }
            if let Some(status) = self.child.try_wait()? {
                let errors = contents(&self.stderr)?;
                bail!("{} ended with {} before it printed {text:?}\n{errors}", self.shown, status_text(status));
            }
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits for the end, or ends it at its time limit.
    pub fn finish(mut self) -> Result<Finished> {
        let status = wait_until(&mut self.child, self.began + self.limit)?;
        Ok(Finished {
            shown: std::mem::take(&mut self.shown),
            status,
            limit: self.limit,
            stdout: contents(&self.stdout)?,
            stderr: contents(&self.stderr)?,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            kill_tree(self.pid());
            let _ = self.child.wait();
        }
    }
}

/// How a program ended and what it said.
pub struct Finished {
    shown: String,
    status: Option<ExitStatus>,
    limit: Duration,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Finished {
    /// Whether it ended by itself with status 0.
    pub fn success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// The values it has printed, one a line.
    pub fn json_lines(&self) -> Result<Vec<Value>> {
        self.stdout.lines().map(serde_json::from_str).collect::<Result<_, _>>().with_context(|| self.report())
    }

    /// Whether it had to be ended at its time limit.
    pub fn outlived_its_limit(&self) -> bool {
        self.status.is_none()
    }

    /// The exit status, if it ended by itself.
    pub fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// Both streams together.
    pub fn said(&self) -> String {
        format!("{}\n{}", self.stdout, self.stderr)
    }

    /// Command, end and the last lines of output, for a person.
    pub fn report(&self) -> String {
        let mut text = format!("$ {}\n", self.shown);
        match self.status {
            Some(status) => text.push_str(&format!("ended with {}\n", status_text(status))),
            None => text.push_str(&format!("was ended after its time limit of {} s\n", self.limit.as_secs())),
        }
        for (name, stream) in [("standard output", &self.stdout), ("standard error", &self.stderr)] {
            let lines: Vec<&str> = stream.lines().collect();
            let first = lines.len().saturating_sub(TAIL_LINES_MAX);
            if first > 0 {
                text.push_str(&format!("--- {name}, the last {TAIL_LINES_MAX} of {} lines\n", lines.len()));
            } else if !lines.is_empty() {
                text.push_str(&format!("--- {name}\n"));
            }
            for line in &lines[first..] {
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }

    /// An error that shows `complaint` above the report.
    pub fn complain(&self, complaint: impl std::fmt::Display) -> anyhow::Error {
        anyhow::anyhow!("{complaint}\n{}", self.report())
    }
}

/// Whether a program of this name can be started.
pub fn exists(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// Waits for a child; at the deadline it and what it started are killed and `None` returned.
fn wait_until(child: &mut Child, deadline: Instant) -> Result<Option<ExitStatus>> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            kill_tree(Pid::from_child(child));
            child.wait()?;
            return Ok(None);
        }
        sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Kills a process and its descendants. They stay in our process group, so that an interrupt reaches them too.
fn kill_tree(root: Pid) {
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    let parents: Vec<(i32, i32)> = entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name in parentheses may hold anything; state and parent follow it.
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut doomed = vec![root.as_raw_nonzero().get()];
    let mut next = 0;
    while let Some(pid) = doomed.get(next).copied() {
        next += 1;
        doomed.extend(parents.iter().filter(|(_, parent)| *parent == pid).map(|(child, _)| *child));
    }
    for pid in doomed.into_iter().filter_map(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The end of what was written so far; read by position, since the writer shares the file's offset.
fn contents(file: &File) -> Result<String> {
    let length = file.metadata()?.len();
    let kept = length.min(OUTPUT_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(kept)?];
    file.read_exact_at(&mut bytes, length - kept)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn status_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_/.,:=+@%-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_status_and_limit() {
        let finished = Program::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]).run().unwrap();
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str(), finished.code()), ("out\n", "err\n", Some(3)));
        assert!(!finished.success() && finished.report().contains("status 3"));
        let endless =
            Program::new("sh").args(["-c", "sleep 1000; true"]).limit(Duration::from_millis(50)).run().unwrap();
        assert!(endless.report().contains("time limit"));
    }

    #[test]
    fn input_and_environment() {
        let finished =
            Program::new("sh").args(["-c", "cat; echo $VALUE"]).input("fed ").env("VALUE", "set").run().unwrap();
        assert_eq!(finished.stdout, "fed set\n");
    }

    #[test]
    fn commands_are_shown_as_typed() {
        let program = Program::new("mpicc").arg("a file.c").env("CC", "it's").under(["nice", "-n1"]);
        assert_eq!(program.shown(), r"CC='it'\''s' nice -n1 mpicc 'a file.c'");
    }
}
