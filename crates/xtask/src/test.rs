//! `cargo xtask test`: every kind of test behind one command, one line each, one summary.
//!
//! A test is a [`Case`]: a name such as `c/ping-2`, what it needs first, and a body. What it needs
//! (an installation, the peer libraries, mpi4py, programs of others) is made once, when the first test asks for it.

mod adapter;
mod blocks;
mod cargo;
mod debian;
mod examples;
mod fabric;
mod instructions;
pub mod interoperation;
mod launch;
pub mod list;
mod miri;
mod mpi;
mod profiling;
mod programs;
mod python;
pub mod record;
mod relocation;
mod surroundings;
mod tool;
mod vipl;
mod ways;

use anyhow::{Result, bail};
use std::cell::OnceCell;
use std::path::PathBuf;
use std::time::Instant;

use crate::{install, paths};

#[derive(clap::Args)]
pub struct Options {
    /// Only tests whose names contain one of these
    filters: Vec<String>,
    /// List the tests instead of running them
    #[arg(long)]
    list: bool,
    /// A small choice that takes a minute or two
    #[arg(long)]
    quick: bool,
    /// Stop at the first failure
    #[arg(long)]
    fail_fast: bool,
    /// Test what is installed under target/prefix as it is, without building it again
    #[arg(long)]
    no_build: bool,
}

/// How a test ended, if not by an error.
pub enum Verdict {
    /// As it should.
    Passed,
    /// As it should, but for what it names, which could not be tried here.
    PassedInPart(Vec<String>),
    /// It could not be tried here; says why.
    Skipped(String),
}

/// What a test does with the workshop.
type Body = Box<dyn Fn(&Workshop) -> Result<Verdict>>;

/// One test.
pub struct Case {
    name: String,
    quick: bool,
    body: Body,
}

impl Case {
    /// A test that passes if its body ends without an error.
    pub fn new(name: impl Into<String>, body: impl Fn(&Workshop) -> Result<()> + 'static) -> Self {
        Self::that_may_skip(name, move |workshop| body(workshop).map(|()| Verdict::Passed))
    }

    /// A test that may find that it cannot be tried here.
    pub fn that_may_skip(name: impl Into<String>, body: impl Fn(&Workshop) -> Result<Verdict> + 'static) -> Self {
        Self { name: name.into(), quick: false, body: Box::new(body) }
    }

    /// Puts the test into the `--quick` choice.
    pub fn quick(mut self, quick: bool) -> Self {
        self.quick = quick;
        self
    }
}

/// What tests need and share; each thing is made at its first use, and a failure is remembered.
#[derive(Default)]
pub struct Workshop {
    no_build: bool,
    installed: OnceCell<Result<(), String>>,
    peers: OnceCell<Result<PathBuf, String>>,
    virtual_machine: OnceCell<Result<(), String>>,
    debian_lists: OnceCell<Result<(), String>>,
    python: OnceCell<Result<python::Environment, String>>,
    rust_examples: OnceCell<Result<PathBuf, String>>,
    programs: programs::Compiled,
    fabric: fabric::Budget,
}

impl Workshop {
    /// Ferrovia, installed from this working tree under `target/prefix`.
    pub fn installation(&self) -> Result<PathBuf> {
        made_once(&self.installed, || if self.no_build { Ok(()) } else { install::run(&paths::prefix()) })?;
        Ok(paths::prefix())
    }

    /// The folder with the peer MPI libraries.
    pub fn peers(&self) -> Result<PathBuf> {
        made_once(&self.peers, interoperation::install_peers)
    }

    /// A virtual machine with an RDMA adapter can be started.
    pub fn virtual_machine(&self) -> Result<()> {
        made_once(&self.virtual_machine, fabric::prepare_virtual_machine)
    }

    /// Lists of what Debian's archive has, in the cache.
    fn debian_lists(&self) -> Result<()> {
        made_once(&self.debian_lists, debian::update_lists)
    }

    /// The folder with the examples of the `ferrovia` crate.
    pub fn rust_examples(&self) -> Result<PathBuf> {
        made_once(&self.rust_examples, examples::build_rust)
    }

    /// Python with mpi4py built against the installation.
    pub fn python(&self) -> Result<python::Environment> {
        self.installation()?;
        made_once(&self.python, python::prepare)
    }

    /// A program of `tests/c`, compiled with the installed `mpicc` or `mpicxx`.
    pub fn program(&self, name: &str) -> Result<PathBuf> {
        self.installation()?;
        self.programs.compiled(name)
    }
}

fn made_once<T: Clone>(place: &OnceCell<Result<T, String>>, make: impl FnOnce() -> Result<T>) -> Result<T> {
    match place.get_or_init(|| make().map_err(|error| format!("{error:#}"))) {
        Ok(made) => Ok(made.clone()),
        Err(why) => bail!("what this test needs could not be made: {why}"),
    }
}

/// Runs what the options choose; an error if any test failed.
pub fn run(options: &Options) -> Result<()> {
    let chosen: Vec<Case> = all()?.into_iter().filter(|case| options.choose(case)).collect();
    if options.list {
        chosen.iter().for_each(|case| println!("{}", case.name));
        return Ok(());
    }
    if chosen.is_empty() {
        bail!("no test has a name like {:?}; `cargo xtask test --list` shows them all", options.filters);
    }
    let workshop = Workshop { no_build: options.no_build, ..Workshop::default() };
    let (mut passed, mut failed, mut skipped, mut left_out) = (0, Vec::new(), Vec::new(), Vec::new());
    let mut record = record::Record::read();
    let began = Instant::now();
    for (index, case) in chosen.iter().enumerate() {
        let start = Instant::now();
        let result = (case.body)(&workshop);
        let place = format!("[{}/{}]", index + 1, chosen.len());
        let took = format!("{:.1} s", start.elapsed().as_secs_f64());
        if let Ok(Verdict::PassedInPart(parts)) = &result {
            left_out.extend(parts.iter().map(|part| format!("{}: {part}", case.name)));
        }
        match result {
            Ok(Verdict::Passed | Verdict::PassedInPart(_)) => {
                passed += 1;
                record.note(&case.name, record::State::Passed);
                println!("{place} ok       {} ({took})", case.name);
            }
            Ok(Verdict::Skipped(why)) => {
                record.note(&case.name, record::State::Skipped);
                println!("{place} skipped  {}: {why}", case.name);
                skipped.push(format!("{}: {why}", case.name));
            }
            Err(error) => {
                record.note(&case.name, record::State::Failed);
                println!("{place} FAILED   {} ({took})\n{error:#}\n", case.name);
                failed.push((case.name.clone(), error));
                if options.fail_fast {
                    break;
                }
            }
        }
    }
    record.write()?;
    println!();
    left_out.iter().for_each(|line| println!("left out: {line}"));
    skipped.iter().for_each(|line| println!("skipped: {line}"));
    // Again, for those who are shown the end of a long log alone.
    failed.iter().for_each(|(name, why)| println!("failed: {name}\n{why:#}\n"));
    if let Some(account) = workshop.fabric.account() {
        println!("{account}");
    }
    println!("in {} s", began.elapsed().as_secs());
    println!("{passed} passed, {} failed, {} skipped", failed.len(), skipped.len());
    if failed.is_empty() { Ok(()) } else { bail!("tests failed") }
}

impl Options {
    /// Everything, as a newcomer asks for it.
    pub fn everything() -> Self {
        Self { filters: Vec::new(), list: false, quick: false, fail_fast: false, no_build: false }
    }

    fn choose(&self, case: &Case) -> bool {
        let named = self.filters.is_empty() || self.filters.iter().any(|filter| case.name.contains(filter.as_str()));
        named && (case.quick || !self.quick)
    }
}

/// The names of all tests.
pub fn names() -> Result<Vec<String>> {
    Ok(all()?.into_iter().map(|case| case.name).collect())
}

/// Every test, cheap ones first.
fn all() -> Result<Vec<Case>> {
    let mut cases = cargo::cases();
    cases.extend(fabric::cases());
    cases.extend(programs::cases()?);
    cases.extend(ways::cases()?);
    cases.extend(examples::cases()?);
    cases.extend(profiling::cases());
    cases.extend(launch::cases());
    cases.extend(tool::cases());
    cases.extend(instructions::cases());
    cases.extend(vipl::cases());
    cases.push(crate::docs::case());
    cases.extend(surroundings::cases());
    cases.extend(relocation::cases());
    cases.extend(interoperation::cases());
    cases.extend(debian::cases());
    cases.extend(python::cases()?);
    Ok(cases)
}

/// The interpreter of the environment with mpi4py, for the demo.
pub fn python_with_mpi4py() -> Result<PathBuf> {
    Ok(python::prepare()?.python)
}

pub use debian::mpich::list as mpich_list;
pub use examples::rust_example;
pub use python::list as python_list;
pub use ways::count as way_count;
