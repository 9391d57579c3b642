//! The adapters' device against a real kernel driver: on an adapter of this machine where there is one, else on
//! Soft-RoCE in a virtual machine (`tools/rdma-vm.sh`), alone and with a second one on the same wire.

use super::programs::OverAdapter;
use super::{Case, Verdict, Workshop, adapter};
use crate::command::{Finished, Program};
use crate::install::installed;
use crate::paths;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What a test prints that found no adapter.
const NO_DEVICE: &str = "skipped: no RDMA device";

/// What the cases may take together, beside what is fetched and built for them.
const BUDGET: Duration = Duration::from_secs(300);

/// The time that the cases share.
pub struct Budget {
    whole: Duration,
    spent: Cell<Duration>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { whole: BUDGET, spent: Cell::default() }
    }
}

impl Budget {
    /// Runs a program in what is left; an error if that is not enough.
    fn run(&self, program: Program) -> Result<Finished> {
        let left = self.whole.saturating_sub(self.spent.get());
        if left.is_zero() {
            bail!("not run: nothing is left of {}", self.described());
        }
        let began = Instant::now();
        let finished = program.limit(left).run();
        self.spent.set(self.spent.get() + began.elapsed());
        let finished = finished?;
        match finished.outlived_its_limit() {
            true => {
                let (left, whole) = (left.as_secs(), self.described());
                Err(finished.complain(format!("it did not end in the {left} s that were left of {whole}")))
            }
            false => Ok(finished),
        }
    }

    /// The same for a program that is to end well.
    fn run_successfully(&self, program: Program) -> Result<Finished> {
        let finished = self.run(program)?;
        match finished.success() {
            true => Ok(finished),
            false => bail!("{}", finished.report()),
        }
    }

    fn described(&self) -> String {
        format!("the {} s that the tests of fabric/ have together", self.whole.as_secs())
    }

    /// For the end of a run: what was used, if anything was.
    pub fn account(&self) -> Option<String> {
        let spent = self.spent.get();
        (!spent.is_zero()).then(|| format!("{:.0} s of {}", spent.as_secs_f64(), self.described()))
    }
}

/// The structures, one machine, two machines.
pub fn cases() -> Vec<Case> {
    vec![
        Case::that_may_skip("fabric/verbs-header", header),
        Case::that_may_skip("fabric/verbs-conformance", |workshop| one_machine(workshop, "conformance")),
        Case::that_may_skip("fabric/verbs-live", |workshop| one_machine(workshop, "live")),
        Case::that_may_skip("fabric/verbs-two-machines", two_machines),
        Case::that_may_skip("fabric/verbs-programs", programs),
        Case::that_may_skip("fabric/verbs-settings", settings),
    ]
}

/// Our declarations against the header that is installed here, else against the one of Debian's package.
fn header(workshop: &Workshop) -> Result<Verdict> {
    let tests = Program::new(executable("header")?).arg("--nocapture");
    let skipped = |tests: &Program| -> Result<Option<String>> {
        let finished = workshop.fabric.run_successfully(tests.clone())?;
        let line = finished.stdout.lines().find_map(|line| line.split_once("skipped: "));
        Ok(line.map(|(_, why)| why.to_owned()))
    };
    let Some(why) = skipped(&tests)? else { return Ok(Verdict::Passed) };
    let fetched = Program::new(script()).arg("--header").limit(Duration::from_secs(300)).run()?;
    if !fetched.success() {
        let last = fetched.stderr.trim().lines().last().unwrap_or("tools/rdma-vm.sh --header failed");
        return Ok(Verdict::Skipped(format!("{why}: {last}")));
    }
    let mut folders = vec![PathBuf::from(fetched.stdout.trim())];
    folders.extend(std::env::var_os("C_INCLUDE_PATH").iter().flat_map(std::env::split_paths));
    let tests = tests.env("C_INCLUDE_PATH", std::env::join_paths(folders)?);
    Ok(skipped(&tests)?.map_or(Verdict::Passed, Verdict::Skipped))
}

fn one_machine(workshop: &Workshop, name: &str) -> Result<Verdict> {
    let tests = executable(name)?;
    let arguments = ["--test-threads=1", "--nocapture"];
    let here = workshop.fabric.run_successfully(Program::new(&tests).args(arguments))?;
    if !here.stdout.contains(NO_DEVICE) {
        return Ok(Verdict::Passed);
    }
    in_virtual_machines(workshop, 1, Program::new(&tests).args(arguments))
}

fn two_machines(workshop: &Workshop) -> Result<Verdict> {
    let live = executable("live")?;
    in_virtual_machines(workshop, 2, Program::new(live).args(["--test-threads=1", "--nocapture", "two_machines"]))
}

/// MPI programs of `tests/c` whose messages go by an adapter.
fn programs(workshop: &Workshop) -> Result<Verdict> {
    let chosen = OverAdapter::read()?;
    let script = paths::target().join("programs/over-an-adapter.sh");
    let commands = chosen.script(workshop)?;
    std::fs::write(&script, commands)?;
    let program = Program::new("sh").arg(&script);
    let info = installed("ferrovia").args(["info", "--fabric", "--json"]).run_successfully()?;
    let devices: Value = serde_json::from_str(&info.stdout).context("ferrovia info --fabric --json")?;
    let program = match has_adapter(&devices) {
        true => Ok(program),
        false => machines(workshop, 1, program)?,
    };
    let finished = match program {
        Ok(program) => workshop.fabric.run(program)?,
        Err(skipped) => return Ok(skipped),
    };
    chosen.check(&finished.stdout).map_err(|wrong| finished.complain(wrong))?;
    Ok(Verdict::Passed)
}

/// What may be chosen of an adapter, and what is said of it; always in a virtual machine, where that is known.
fn settings(workshop: &Workshop) -> Result<Verdict> {
    let script = paths::target().join("programs/adapter-settings.sh");
    let commands = adapter::script(workshop)?;
    std::fs::write(&script, commands)?;
    let program = match machines(workshop, 1, Program::new("sh").arg(&script))? {
        Ok(program) => program,
        Err(skipped) => return Ok(skipped),
    };
    let finished = workshop.fabric.run(program)?;
    adapter::check(&finished.stdout).map_err(|wrong| finished.complain(wrong))?;
    Ok(Verdict::Passed)
}

fn has_adapter(devices: &Value) -> bool {
    let devices = devices.as_array().into_iter().flatten();
    devices.filter(|device| device["name"] == "verbs").any(|device| device["available"] == true)
}

fn in_virtual_machines(workshop: &Workshop, count: u32, program: Program) -> Result<Verdict> {
    let finished = match machines(workshop, count, program)? {
        Ok(program) => workshop.fabric.run_successfully(program)?,
        Err(skipped) => return Ok(skipped),
    };
    // The machines have an adapter, so that a test which finds none has failed.
    if finished.stdout.contains(NO_DEVICE) || !passed_some(&finished) {
        return Err(finished.complain("the tests should have used the machine's adapter"));
    }
    Ok(Verdict::Passed)
}

/// `program` in so many virtual machines, or why that cannot be.
fn machines(workshop: &Workshop, count: u32, program: Program) -> Result<Result<Program, Verdict>> {
    if let Err(error) = workshop.virtual_machine() {
        let last = error.to_string().lines().last().unwrap_or_default().to_owned();
        return Ok(Err(Verdict::Skipped(format!("no RDMA device: no adapter here, and no virtual machine: {last}"))));
    }
    let count = count.to_string();
    let (root, script) = (paths::root(), script());
    let mut words = [script.as_os_str(), "--vms".as_ref(), count.as_ref(), "--cpus".as_ref(), "2".as_ref()].to_vec();
    // The machines see all of this one's files, but have a /tmp of their own.
    if root.starts_with("/tmp") {
        words.extend(["--mount".as_ref(), root.as_os_str()]);
    }
    words.push("--".as_ref());
    Ok(Ok(program.under(words)))
}

fn passed_some(finished: &Finished) -> bool {
    finished.stdout.contains("test result: ok.") && !finished.stdout.contains("ok. 0 passed")
}

/// Runs virtual machines, and fetches what they and the test of the header need.
fn script() -> PathBuf {
    paths::root().join("tools/rdma-vm.sh")
}

/// Fetches what the virtual machine is made of, unless it is there; the error says why that cannot be.
pub fn prepare_virtual_machine() -> Result<()> {
    if !cfg!(target_arch = "x86_64") {
        bail!("it is made for x86-64");
    }
    let finished = Program::new(script()).arg("--setup").limit(Duration::from_secs(600)).run()?;
    match finished.success() {
        true => Ok(()),
        false => bail!("{}", finished.stderr.trim().lines().last().unwrap_or("tools/rdma-vm.sh --setup failed")),
    }
}

/// The test program `name` of the crate, built.
fn executable(name: &str) -> Result<PathBuf> {
    let finished = Program::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "test",
            "--package=fabric-verbs",
            "--test",
            name,
            "--no-run",
            "--message-format=json-render-diagnostics",
        ])
        .limit(Duration::from_secs(900))
        .run()?;
    if !finished.success() {
        bail!("the test program {name} does not build:\n{}", finished.stderr);
    }
    let artifacts = finished.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let executable = artifacts
        .filter(|artifact| artifact["target"]["name"] == name)
        .find_map(|artifact| artifact["executable"].as_str().map(PathBuf::from));
    executable.with_context(|| format!("cargo built no test program {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_past_the_budget_fails_and_says_so() {
        let budget = Budget { whole: Duration::from_millis(500), spent: Cell::default() };
        assert_eq!(budget.account(), None);
        assert_eq!(budget.run_successfully(Program::new("echo").arg("here")).unwrap().stdout, "here\n");
        assert_eq!(budget.account().unwrap(), "0 s of the 0 s that the tests of fabric/ have together");
        assert!(budget.run_successfully(Program::new("false")).is_err_and(|why| why.to_string().contains("status 1")));
        let sleep = || Program::new("sleep").arg("100");
        let late = budget.run(sleep()).err().unwrap().to_string();
        assert!(
            late.contains("did not end in the 0 s that were left of the 0 s") && late.contains("sleep 100"),
            "{late}"
        );
        let later = budget.run(sleep()).err().unwrap().to_string();
        assert!(later.starts_with("not run: nothing is left of the 0 s"), "{later}");
    }
}
