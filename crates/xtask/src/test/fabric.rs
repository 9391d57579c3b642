//! The adapters' device against a real kernel driver: on an adapter of this machine where there is one, else on
//! Soft-RoCE in a virtual machine (`tools/rdma-vm.sh`), alone and with a second one on the same wire.

use super::programs::OverAdapter;
use super::{Case, Verdict, Workshop};
use crate::command::{Finished, Program};
use crate::install::installed;
use crate::paths;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// What a test prints that found no adapter.
const NO_DEVICE: &str = "skipped: no RDMA device";

/// The structures, one machine, two machines.
pub fn cases() -> Vec<Case> {
    vec![
        Case::that_may_skip("fabric/verbs-header", |_| header()),
        Case::that_may_skip("fabric/verbs-conformance", |workshop| one_machine(workshop, "conformance")),
        Case::that_may_skip("fabric/verbs-live", |workshop| one_machine(workshop, "live")),
        Case::that_may_skip("fabric/verbs-two-machines", two_machines),
        Case::that_may_skip("fabric/verbs-programs", programs),
    ]
}

/// Our declarations against the header that is installed here, else against the one of Debian's package.
fn header() -> Result<Verdict> {
    let tests = Program::new(executable("header")?).arg("--nocapture");
    let skipped = |tests: &Program| -> Result<Option<String>> {
        let finished = tests.run_successfully()?;
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
    let here = Program::new(&tests).args(arguments).run_successfully()?;
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
    let finished = if has_adapter(&devices) {
        program.limit(Duration::from_secs(300)).run()?
    } else {
        match machines(workshop, 1, program)? {
            Ok(program) => program.run()?,
            Err(skipped) => return Ok(skipped),
        }
    };
    chosen.check(&finished.stdout).map_err(|wrong| finished.complain(wrong))?;
    Ok(Verdict::Passed)
}

fn has_adapter(devices: &Value) -> bool {
    let devices = devices.as_array().into_iter().flatten();
    devices.filter(|device| device["name"] == "verbs").any(|device| device["available"] == true)
}

fn in_virtual_machines(workshop: &Workshop, count: u32, program: Program) -> Result<Verdict> {
    let finished = match machines(workshop, count, program)? {
        Ok(program) => program.run_successfully()?,
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
    Ok(Ok(program.under(words).limit(Duration::from_secs(300))))
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
