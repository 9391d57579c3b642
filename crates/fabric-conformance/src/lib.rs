//! What any device of `fabric` must do, case by case.
//!
//! Floor: wire. Uses `base` and `fabric`; knows no device.
//!
//! A device's own test gives a [`Fixture`], which opens two contexts that reach each other, and calls [`run`]. A case
//! drives both sides, so the same cases hold inside one process, between two, and between machines: the second context
//! may be a [`RemoteContext`], whose calls another process makes (see [`remote`]). A case fails by panicking with its own
//! name; what a device does not offer is skipped with the reason, and counted.
//!
//! **Invariants**
//! - Nothing is believed to have happened because time passed: a case waits for what must come, with a patience that
//!   only a hang exceeds, and proves absence by something later that did come.
//! - No case depends on another; each opens its own contexts.
//!
//! Deliberately absent: timing; killing processes, which is the device's test's to arrange.
//!
//! ```no_run
//! # struct MyDevice;
//! # impl fabric_conformance::Fixture for MyDevice {
//! #     fn name(&self) -> &'static str { "mine" }
//! #     fn open(&mut self) -> Result<(Box<dyn fabric::Context>, fabric_conformance::Other), String> {
//! #         Err("not here".into())
//! #     }
//! # }
//! let report = fabric_conformance::run(&mut MyDevice, |_| true);
//! println!("{report}");
//! ```

mod cases;
mod memory;
pub mod remote;
mod side;

use std::fmt;

use fabric::{Context, Operation, RemoteMemory, WcStatus};

use remote::RemoteContext;

/// One operation of each kind, those that reach memory at `remote`: atomics, of 8 bytes, are the last two.
pub const fn operations_of_every_kind(remote: RemoteMemory) -> [Operation; 7] {
    [
        Operation::Send,
        Operation::SendWithImmediate(1),
        Operation::RdmaWrite(remote),
        Operation::RdmaWriteWithImmediate(remote, 1),
        Operation::RdmaRead(remote),
        Operation::FetchAdd { remote, add: 1 },
        Operation::CompareSwap { remote, compare: 0, swap: 0 },
    ]
}

/// The second context of a pair.
pub enum Other {
    /// In this process.
    Here(Box<dyn Context>),
    /// In another process, or on another machine.
    Remote(RemoteContext),
}

impl From<Box<dyn Context>> for Other {
    fn from(context: Box<dyn Context>) -> Self {
        Self::Here(context)
    }
}

impl From<RemoteContext> for Other {
    fn from(context: RemoteContext) -> Self {
        Self::Remote(context)
    }
}

/// Opens devices for the cases.
pub trait Fixture {
    /// The device's name, for messages.
    fn name(&self) -> &'static str;

    /// Two fresh contexts whose endpoints reach each other; the second may be in another process.
    ///
    /// # Errors
    /// Why there is no such device here: everything is skipped.
    fn open(&mut self) -> Result<(Box<dyn Context>, Other), String>;

    /// Cases this device cannot pass, by name, and why: its hardware or driver does otherwise.
    fn exceptions(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Statuses that this device's driver reports where the rule says otherwise: (the rule's, the driver's).
    fn other_words(&self) -> &'static [(WcStatus, WcStatus)] {
        &[]
    }

    /// True if the memory of the cases is to be the device's own, which it may reach by other ways than the caller's.
    fn allocates_memory(&self) -> bool {
        false
    }

    /// True if completions beyond a queue's depth are noticed exactly there.
    fn has_exact_depths(&self) -> bool {
        true
    }
}

/// How a case that did not fail ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As it should.
    Passed,
    /// Not run, and why.
    Skipped(String),
}

/// One rule.
#[derive(Clone, Copy)]
pub struct Case {
    /// A sentence, with underscores.
    pub name: &'static str,
    run: fn(&mut dyn Fixture) -> Outcome,
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The device.
    pub device: String,
    /// Cases that passed.
    pub passed: Vec<&'static str>,
    /// Cases not run, and why.
    pub skipped: Vec<(&'static str, String)>,
}

/// All cases.
pub fn cases() -> Vec<Case> {
    cases::all()
}

/// Runs the cases `wanted` accepts by name.
///
/// # Panics
/// When a case fails.
pub fn run(fixture: &mut dyn Fixture, wanted: impl Fn(&str) -> bool) -> Report {
    let mut report = Report { device: fixture.name().to_owned(), ..Report::default() };
    for case in cases().into_iter().filter(|case| wanted(case.name)) {
        // A case that fails or hangs is named by the last line.
        println!("{}: {}", report.device, case.name);
        let exception = fixture.exceptions().iter().find(|(name, _)| *name == case.name);
        let outcome = match exception {
            Some((_, why)) => Outcome::Skipped((*why).to_owned()),
            None => (case.run)(fixture),
        };
        match outcome {
            Outcome::Passed => report.passed.push(case.name),
            Outcome::Skipped(why) => report.skipped.push((case.name, why)),
        }
    }
    report
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, why) in &self.skipped {
            writeln!(f, "skipped: {name}: {why}")?;
        }
        write!(f, "{}: {} cases passed, {} skipped", self.device, self.passed.len(), self.skipped.len())
    }
}
