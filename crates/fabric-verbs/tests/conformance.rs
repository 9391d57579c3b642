//! The rules of `fabric`, on a real kernel driver, in one process and between two; between two machines they are in
//! `live/two_machines.rs`. Where this machine has no adapter each test says so and passes;
//! `cargo xtask test fabric/verbs` runs them in a virtual machine that has one, and over the adapter of `tests/adapter`.

mod fixture;

use fabric::{Context, Device};
use fabric_conformance::Other;
use fabric_conformance::remote::{process, serve};
use fabric_verbs::VerbsDevice;
use fabric_verbs::choice::Wanted;
use fixture::{SOFT_ROCE_EXCEPTIONS, SOFT_ROCE_EXCEPTIONS_OF_TWO, Verbs};
use std::cell::LazyCell;

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

/// Runs the suite if there is an adapter, whose second context of each case `other` opens, in this process or not.
fn over_verbs(is_here: bool, other: impl Fn() -> Result<Other, String>) {
    match VerbsDevice::find(&Wanted::default()) {
        Ok(device) => {
            let adapter = device.offer().adapter.clone();
            if adapter == "inprocess0" && !is_here {
                println!("skipped: the adapter's queue pairs reach those of their own process only");
                return;
            }
            device.notes().iter().for_each(|note| println!("{note}"));
            drop(device);
            Verbs::new(&adapter, &|| Ok((open()?, other()?)), &SOFT_ROCE_EXCEPTIONS).run("");
        }
        Err(why) => println!("skipped: no RDMA device: {why}"),
    }
}

#[test]
fn verbs() {
    over_verbs(true, || Ok(open()?.into()));
}

#[test]
fn verbs_between_processes() {
    let remote = LazyCell::new(|| process::start("other_process").expect("a process"));
    over_verbs(false, || Ok(remote.open("")?.into()));
}

/// What the other process runs; nothing when the tests are run as usual.
#[test]
fn other_process() {
    let Some(stream) = process::parent().expect("a stream") else { return };
    serve(stream, |_| open()).expect("calls until the end");
}
