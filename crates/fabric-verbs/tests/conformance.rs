//! The rules of `fabric`, on a real kernel driver, in one process and between two; between two machines they are in
//! `live/two_machines.rs`. Where this machine has no adapter each test says so and passes;
//! `cargo xtask test fabric/verbs` runs them in a virtual machine that has one.

mod fixture;

use fabric::{Context, Device};
use fabric_conformance::remote::{Remote, process, serve};
use fabric_verbs::VerbsDevice;
use fabric_verbs::choice::Wanted;
use fixture::{SOFT_ROCE_EXCEPTIONS, SOFT_ROCE_EXCEPTIONS_OF_TWO, Verbs};

#[test]
fn what_is_left_out_on_soft_roce_is_a_case() {
    let cases = fabric_conformance::cases();
    for (name, why) in SOFT_ROCE_EXCEPTIONS_OF_TWO.iter() {
        assert!(cases.iter().any(|case| case.name == *name) && !why.is_empty(), "{name}: {why}");
    }
}

fn open() -> Result<Box<dyn Context>, String> {
    let device = VerbsDevice::find(&Wanted::default()).map_err(|error| error.to_string())?;
    Box::new(device).open().map_err(|error| error.to_string())
}

fn over_verbs(other: impl FnOnce() -> Option<Remote>) {
    let device = match VerbsDevice::find(&Wanted::default()) {
        Ok(device) => device,
        Err(why) => {
            println!("skipped: no RDMA device: {why}");
            return;
        }
    };
    let mut fixture = Verbs::new(&device.offer().adapter, &open, other(), &SOFT_ROCE_EXCEPTIONS);
    drop(device);
    fixture.run();
}

#[test]
fn verbs() {
    over_verbs(|| None);
}

#[test]
fn verbs_between_processes() {
    over_verbs(|| Some(process::start("other_process").expect("a process")));
}

/// What the other process runs; nothing when the tests are run as usual.
#[test]
fn other_process() {
    let Some(stream) = process::parent().expect("a stream") else { return };
    serve(stream, |_| open()).expect("calls until the end");
}
