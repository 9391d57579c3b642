//! The cases by subject.

mod datagrams;
mod errors;
mod independent;
mod life;
mod messages;
mod overflow;
mod queues;
mod rdma;
mod traffic;

use crate::side::Pair;
use crate::{Case, Fixture, Outcome};

pub(crate) fn all() -> Vec<Case> {
    let queues = [queues::CASES, overflow::CASES, independent::CASES].concat();
    [messages::CASES, rdma::CASES, errors::CASES, &queues, datagrams::CASES, life::CASES, traffic::CASES].concat()
}

/// Runs a case on a fresh pair, if the device is there.
fn with_pair(fixture: &mut dyn Fixture, case: impl FnOnce(&mut Pair)) -> Outcome {
    match Pair::open(fixture) {
        Ok(mut pair) => {
            case(&mut pair);
            Outcome::Passed
        }
        Err(why) => Outcome::Skipped(why),
    }
}

/// The same, for a case that may find that the device lacks something.
fn with_ability(
    fixture: &mut dyn Fixture,
    ability: &str,
    has: impl Fn(&fabric::Capabilities) -> bool,
    case: impl FnOnce(&mut Pair),
) -> Outcome {
    match Pair::open(fixture) {
        Ok(mut pair) if has(pair.here.context.capabilities()) => {
            case(&mut pair);
            Outcome::Passed
        }
        Ok(_) => Outcome::Skipped(format!("the device has no {ability}")),
        Err(why) => Outcome::Skipped(why),
    }
}
