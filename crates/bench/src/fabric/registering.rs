//! What keeping memory registered brings to long messages where registering costs something: two engines over a simulated
//! network, in its time. Paper: mpich2-ib §2.4.2.
//!
//! Wire and costs are those of the paper's day: 838 MB/s and 7.5 us for a message between two adapters (mpich2-ib §2.3.7),
//! 73 us to register memory and 82 us to deregister it (miba, Table 3.1, of 4 KB; more pages cost no more here).

use super::Found;
use super::sampling::{Sampling, Taken};
use anyhow::{Context as _, Result, bail};
use base::Config;
use base::config::{RegistrationScheme, Rendezvous};
use boot::{LinkCost, SimPlan};
use datatype::{RecvBuf, SendBuf};
use engine::{ContextId, Engine, SendMode, Source, TagPattern};
use std::collections::BTreeMap;

const COST: LinkCost = LinkCost { latency_ns: 5500, overhead_ns: 1000, gap_ns: 0, gap_per_byte_ps: 1193 };
const REGISTERING_NS: u64 = 73_060;
const DEREGISTERING_NS: u64 = 82_050;
/// Messages before the first that counts, and those that do: all of these take the same.
const WARM_UPS: u64 = 4;
const SAMPLES_MAX: u64 = 20;
/// Turns after which a message does not come.
const TURNS_MAX: u32 = 1_000_000;

/// Runs the test: messages of `bytes` written by RDMA, from one buffer to one buffer, one after the other.
///
/// # Errors
/// If the parameters make no sense, or messages do not come.
pub fn measure(bytes: u64, values: &BTreeMap<String, String>, sampling: &Sampling) -> Result<Vec<Found>> {
    let cache = values.get("cache").context("the test has no parameter cache")?;
    let registration_cache = match cache.as_str() {
        "off" => RegistrationScheme::Off,
        "dme" => RegistrationScheme::Dme,
        "interval" => RegistrationScheme::Interval,
        other => bail!("cache is off, dme or interval, not {other}"),
    };
    let config =
        Config { registration_cache, rendezvous: Rendezvous::Rput, eager_max_bytes: Some(0), ..Config::default() };
    let plan = SimPlan {
        cost: COST,
        registering_ns: REGISTERING_NS,
        deregistering_ns: DEREGISTERING_NS,
        // The buffers below stay where they are.
        checks_keys: true,
        timeout_ns: 1_000_000_000,
        ..SimPlan::new(0)
    };
    let (contexts, time) = boot::open_network(2, plan)?;
    let mut engines = boot::engines_over(contexts, &config, None)?;
    let [sender, receiver] = &mut engines[..] else { bail!("there are two engines") };
    let message = SendBuf::from_owned(vec![7; usize::try_from(bytes)?].into());
    let mut buffer = RecvBuf::from_owned(vec![0; usize::try_from(bytes)?].into());
    let mut taken = Taken { per_sample: 1, samples: Vec::new() };
    for number in 0..WARM_UPS + sampling.samples_max.min(SAMPLES_MAX) {
        let start = time.now();
        pass(sender, receiver, &message, buffer.slice(0, bytes))?;
        if number >= WARM_UPS {
            taken.samples.push((time.now() - start).as_nanos() as f64);
        }
    }
    let registrations = sender.stats().registrations;
    // The shortest are not registered at all.
    if registrations.misses > 0 && (registrations.hits > 0) != (registration_cache != RegistrationScheme::Off) {
        bail!("{} registrations were found with the cache {cache}", registrations.hits);
    }
    if buffer.as_contiguous().is_none_or(|all| all.iter().any(|byte| *byte != 7)) {
        bail!("a message did not come whole");
    }
    Ok(Found::rate(taken, bytes as f64))
}

/// One message, from its send to the moment at which both sides are through with it.
fn pass(sender: &mut Engine, receiver: &mut Engine, message: &SendBuf, into: RecvBuf) -> Result<()> {
    let receive = receiver.recv(Source::Peer(0), ContextId(1), TagPattern::Exact(1), into)?;
    let send = sender.send(SendMode::Standard, 1, ContextId(1), 1, message.clone())?;
    for _ in 0..TURNS_MAX {
        if sender.is_complete(send) && receiver.is_complete(receive) {
            let ended = (sender.take(send), receiver.take(receive));
            let done =
                |one: &Option<engine::Completion>| one.as_ref().is_some_and(|one| one.outcome == engine::Outcome::Done);
            return if done(&ended.0) && done(&ended.1) { Ok(()) } else { bail!("a message failed: {ended:?}") };
        }
        sender.progress();
        receiver.progress();
    }
    bail!("a message did not come");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In simulated time every figure is what the plan says, whatever this machine does.
    #[test]
    fn what_is_kept_registered_costs_once() {
        let rate = |cache: &str, bytes: u64| {
            let values = BTreeMap::from([("cache".to_owned(), cache.to_owned())]);
            let sampling = Sampling { seconds: 0.0, samples_max: 5, operations_min: 1 };
            let found = measure(bytes, &values, &sampling).unwrap();
            let samples = &found[0].taken.samples;
            assert!(samples.iter().all(|sample| sample == &samples[0]), "{cache}, {bytes} bytes: {samples:?}");
            bytes as f64 / samples[0] * 1000.0
        };
        for bytes in [65_536, 1 << 20] {
            let (off, dme, interval) = (rate("off", bytes), rate("dme", bytes), rate("interval", bytes));
            assert_eq!(dme, interval, "{bytes} bytes");
            // Both sides register and deregister.
            let costs_ns = 2.0 * (REGISTERING_NS + DEREGISTERING_NS) as f64;
            let expected = bytes as f64 / (bytes as f64 * 1000.0 / dme + costs_ns) * 1000.0;
            assert!((off - expected).abs() < 0.35 * expected, "{bytes} bytes: {off}, {dme}, expected {expected} MB/s");
        }
    }
}
