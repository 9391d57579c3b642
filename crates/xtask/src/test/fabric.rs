//! The adapters' device against a real kernel driver: on an adapter of this machine where there is one, else on
//! Soft-RoCE in a virtual machine (`tools/rdma-vm.sh`), alone and with a second one on the same wire. What Soft-RoCE
//! lacks, XRC of its own and limits that can be chosen, on an adapter of the tests' own, which is a library in C.

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

/// Settings of the tests' own adapter, what is run over it, and what must be said of it.
struct OwnAdapter {
    settings: &'static str,
    /// Test programs, and the part of each that is run.
    programs: &'static [(&'static str, &'static str)],
    has_xrc: bool,
    limits: &'static str,
}

const WHOLE: &[(&str, &str)] = &[("conformance", ""), ("live", "")];

const OWN_ADAPTERS: [OwnAdapter; 5] = [
    OwnAdapter { settings: "", programs: WHOLE, has_xrc: true, limits: "inline 256 B, lists of 16, atomics true" },
    OwnAdapter {
        settings: "infiniband=1 late=1",
        programs: WHOLE,
        has_xrc: true,
        limits: "inline 256 B, lists of 16, atomics true",
    },
    OwnAdapter {
        settings: "inline=64 list=4 atomics=0",
        programs: WHOLE,
        has_xrc: true,
        limits: "inline 64 B, lists of 4, atomics false",
    },
    OwnAdapter {
        settings: "xrc=0",
        programs: WHOLE,
        has_xrc: false,
        limits: "inline 256 B, lists of 16, atomics true",
    },
    // Less than the suite itself asks for.
    OwnAdapter {
        settings: "inline=0 list=1 infiniband=1",
        programs: &[("live", "limits")],
        has_xrc: true,
        limits: "inline 0 B, lists of 1, atomics true",
    },
];

/// The structures, the tests' own adapter, one machine, two machines.
pub fn cases() -> Vec<Case> {
    vec![
        Case::that_may_skip("fabric/verbs-header", header),
        Case::that_may_skip("fabric/verbs-own-xrc", own_adapter),
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
    match with_fetched_header(tests)? {
        Ok(tests) => Ok(skipped(&tests)?.map_or(Verdict::Passed, Verdict::Skipped)),
        Err(last) => Ok(Verdict::Skipped(format!("{why}: {last}"))),
    }
}

/// `program`, which compiles, with the header of Debian's package in its path, or why that cannot be fetched.
fn with_fetched_header(program: Program) -> Result<Result<Program, String>> {
    let fetched = Program::new(script()).arg("--header").limit(Duration::from_secs(300)).run()?;
    if !fetched.success() {
        let last = fetched.stderr.trim().lines().last().unwrap_or("tools/rdma-vm.sh --header failed");
        return Ok(Err(last.to_owned()));
    }
    let mut folders = vec![PathBuf::from(fetched.stdout.trim())];
    folders.extend(std::env::var_os("C_INCLUDE_PATH").iter().flat_map(std::env::split_paths));
    Ok(Ok(program.env("C_INCLUDE_PATH", std::env::join_paths(folders)?)))
}

/// The suite over an adapter that is a library of the tests' own, with XRC of its own, without, and of few abilities.
fn own_adapter(workshop: &Workshop) -> Result<Verdict> {
    let folder = match own_library()? {
        Ok(folder) => folder,
        Err(why) => return Ok(Verdict::Skipped(why)),
    };
    let [conformance, live] = [executable("conformance")?, executable("live")?];
    for adapter in OWN_ADAPTERS {
        for (name, part) in adapter.programs {
            let program = Program::new(if *name == "live" { &live } else { &conformance })
                .args(["--test-threads=1", "--nocapture", part])
                .env("LD_LIBRARY_PATH", &folder)
                .env("FERROVIA_TEST_ADAPTER", adapter.settings);
            let finished = workshop.fabric.run_successfully(program)?;
            adapter.check(name, &finished).map_err(|wrong| finished.complain(wrong))?;
        }
    }
    Ok(Verdict::Passed)
}

impl OwnAdapter {
    fn check(&self, name: &str, finished: &Finished) -> Result<(), String> {
        if finished.stdout.contains(NO_DEVICE) || !passed_some(finished) {
            return Err("the tests should have used the tests' own adapter".to_owned());
        }
        let note = if self.has_xrc { "XRC is the adapter's own" } else { "XRC: the adapter has none of its own" };
        let limits = if name == "live" { self.limits } else { "" };
        for expected in [note, limits] {
            if !finished.stdout.contains(expected) {
                return Err(format!("the tests should have said {expected:?}"));
            }
        }
        let was_used = finished.stderr.contains("requests of XRC were carried out");
        match self.has_xrc && self.programs == WHOLE {
            expected if expected == was_used => Ok(()),
            true => Err("the adapter's own XRC should have been used".to_owned()),
            false => Err("XRC should not have been used".to_owned()),
        }
    }
}

/// The folder of the tests' own `libibverbs.so.1`, built, or why it cannot be.
fn own_library() -> Result<Result<PathBuf, String>> {
    let folder = paths::target().join("programs/own-adapter");
    std::fs::create_dir_all(&folder)?;
    let sources = paths::root().join("crates/fabric-verbs/tests/adapter");
    let files = std::fs::read_dir(&sources).with_context(|| paths::shown(&sources))?;
    let files = files.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    let compiler = Program::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"])
        .args(files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "c")))
        .arg("-o")
        .arg(folder.join("libibverbs.so.1"))
        .limit(Duration::from_secs(120));
    let trial = Program::new("cc").args(["-fsyntax-only", "-xc", "-"]).input("#include <infiniband/verbs.h>\n");
    let compiler = match trial.run()?.success() {
        true => compiler,
        false => match with_fetched_header(compiler)? {
            Ok(compiler) => compiler,
            Err(why) => return Ok(Err(format!("infiniband/verbs.h is not installed (package libibverbs-dev): {why}"))),
        },
    };
    compiler.run_successfully()?;
    Ok(Ok(folder))
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
