//! The rules of `fabric`, on a real kernel driver. Where this machine has no adapter the test says so and passes;
//! `cargo xtask test fabric/verbs` runs it in a virtual machine that has one.

use fabric::WcStatus::{
    LocalLengthError, LocalProtectionError, LocalQueuePairOperationError, RemoteAccessError, RemoteInvalidRequest,
    RemoteOperationError,
};
use fabric::{Context, Device, WcStatus};
use fabric_conformance::Fixture;
use fabric_verbs::VerbsDevice;
use fabric_verbs::choice::Wanted;
use std::sync::LazyLock;

/// An adapter, or Soft-RoCE, whose driver does some things its own way.
struct Verbs {
    soft_roce: bool,
}

/// Cases left out on Soft-RoCE, and why; `docs/CONFORMANCE.md` lists them too.
static SOFT_ROCE_EXCEPTIONS: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let lines = include_str!("soft_roce.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').map(|(name, why)| (name, why.trim())).expect("a name and why")).collect()
});

/// Seen with Linux 6.1: (the specification's, Soft-RoCE's).
const SOFT_ROCE_WORDS: &[(WcStatus, WcStatus)] = &[
    (RemoteAccessError, RemoteInvalidRequest),
    (LocalProtectionError, LocalQueuePairOperationError),
    (LocalLengthError, LocalQueuePairOperationError),
    (RemoteInvalidRequest, RemoteOperationError),
];

impl Fixture for Verbs {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn open(&mut self) -> Result<[Box<dyn Context>; 2], String> {
        let open = || -> Result<Box<dyn Context>, String> {
            let device = VerbsDevice::find(&Wanted::default()).map_err(|error| error.to_string())?;
            Box::new(device).open().map_err(|error| error.to_string())
        };
        Ok([open()?, open()?])
    }

    fn exceptions(&self) -> &'static [(&'static str, &'static str)] {
        if self.soft_roce { &SOFT_ROCE_EXCEPTIONS } else { &[] }
    }

    fn other_words(&self) -> &'static [(WcStatus, WcStatus)] {
        if self.soft_roce { SOFT_ROCE_WORDS } else { &[] }
    }

    fn has_exact_depths(&self) -> bool {
        false
    }
}

#[test]
fn what_is_left_out_on_soft_roce_is_a_case() {
    let cases = fabric_conformance::cases();
    for (name, why) in SOFT_ROCE_EXCEPTIONS.iter() {
        assert!(cases.iter().any(|case| case.name == *name) && !why.is_empty(), "{name}: {why}");
    }
}

#[test]
fn verbs() {
    let device = match VerbsDevice::find(&Wanted::default()) {
        Ok(device) => device,
        Err(why) => {
            println!("skipped: no RDMA device: {why}");
            return;
        }
    };
    let mut fixture = Verbs { soft_roce: device.offer().adapter.starts_with("rxe") };
    drop(device);
    // Each by itself, so that one run in a virtual machine tells of all that fail.
    let (mut passed, mut failed) = (0, Vec::new());
    for case in fabric_conformance::cases() {
        let run = std::panic::AssertUnwindSafe(|| fabric_conformance::run(&mut fixture, |name| name == case.name));
        match std::panic::catch_unwind(run) {
            Ok(report) => {
                passed += report.passed.len();
                report.skipped.iter().for_each(|(name, why)| println!("skipped: {name}: {why}"));
            }
            Err(_) => failed.push(case.name),
        }
    }
    println!("verbs: {passed} cases passed");
    assert!(failed.is_empty() && passed > 0, "failed: {failed:#?}");
}
