//! The rules of `fabric`, on the software adapter over each of its links.

use fabric::Context;
use fabric_conformance::Fixture;
use fabric_soft::{LoopbackHub, SoftContext};

struct Loopback;

impl Fixture for Loopback {
    fn name(&self) -> &'static str {
        "loopback"
    }

    fn open(&mut self) -> Result<[Box<dyn Context>; 2], String> {
        let hub = LoopbackHub::new();
        let open = || -> Result<Box<dyn Context>, String> {
            let link = hub.link().map_err(|error| error.to_string())?;
            Ok(Box::new(SoftContext::new(link)))
        };
        Ok([open()?, open()?])
    }
}

#[test]
fn loopback() {
    let report = fabric_conformance::run(&mut Loopback, |_| true);
    println!("{report}");
    assert!(report.skipped.is_empty(), "the software adapter can do everything");
}
