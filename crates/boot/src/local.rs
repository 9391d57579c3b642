//! Worlds inside one process, for tests: one engine per thread, over one private segment or another device.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Config;
use base::config::DeviceChoice;
use base::log::Log;
use engine::{Engine, WaitPolicy};
use fabric::{Context, PeerIndex};
use fabric_soft::shm::{Segment, ShmPeers};

use crate::hosts::Hosts;
use crate::pair::in_segment;
use crate::start::{cross_memory, shape, stop_policy};
use crate::ways::is_mixed;
use crate::{BootError, connected, open_together, segment, tuples};

/// Tests run beside each other.
const POLICY: WaitPolicy =
    WaitPolicy { close_count: 2, spin_count: 8, yield_count: 8, dear_yield: Duration::from_millis(3) };

/// `count` engines that reach each other over the device of `config`, each to be used by a thread of its own. They are on
/// one host, or on as many as the settings want.
///
/// # Errors
/// When the system has no memory for the segment, or there is no such device.
pub fn local_engines(count: u32, config: &Config) -> Result<Vec<Engine>, BootError> {
    let device = match config.device {
        DeviceChoice::Auto | DeviceChoice::Shm => None,
        DeviceChoice::ShmVerbs => Some("shm"),
        DeviceChoice::Tcp | DeviceChoice::ShmAndTcp => Some("tcp"),
        DeviceChoice::Verbs | DeviceChoice::ShmAndVerbs => Some("verbs"),
    };
    let mut engines = match device {
        Some(device) => {
            let contexts = open_together(device, count, config).map_err(BootError::NoDevice)?;
            connected::together(contexts, &[config], POLICY, connected::monotonic)?
        }
        None => {
            let segment = Segment::create(shape(count, config))?;
            let open = |me| {
                let peers = ShmPeers::join(segment.clone(), PeerIndex(me), cross_memory(config))?;
                let peers = peers.with_stop_policy(stop_policy(config, Log::new(config.log, Some(me)), Vec::new()));
                Ok(Engine::new(Box::new(peers), config, POLICY)?)
            };
            (0..count).map(open).collect::<Result<Vec<_>, BootError>>()?
        }
    };
    if device != Some("verbs") {
        use_tuple_queues(&mut engines, config, device.is_some())?;
    }
    Ok(engines)
}

/// Has engines use tuple queues if `config` wants that: `over_ports` on their own devices, and among those that share
/// memory on adapters beside their channels.
fn use_tuple_queues(engines: &mut [Engine], config: &Config, over_ports: bool) -> Result<(), BootError> {
    let Some(setup) = tuples::setup(config) else { return Ok(()) };
    let host_ranks_max = if over_ports { config.host_ranks_max } else { 0 };
    let shares_memory = !over_ports || is_mixed(config.device);
    let hosts = shares_memory.then(|| Hosts::new(vec![0; engines.len()], host_ranks_max));
    let mut segments = BTreeMap::new();
    for engine in engines {
        let mates = hosts.as_ref().map(|hosts| hosts.mates(engine.rank())).unwrap_or_default();
        if let Some(place) = mates.iter().position(|mate| *mate == engine.rank()) {
            let segment = segment::of_host(&mut segments, mates[0], || tuples::segment(mates.len() as u32))?;
            engine.use_tuple_queues(in_segment(segment, place as u32, config)?, setup)?;
        }
        if over_ports {
            engine.use_tuple_queues_of_port(setup)?;
        }
    }
    Ok(())
}

/// Engines over opened devices that reach each other, one for each, each to be used by a thread of its own. Where `config`
/// wants shared memory beside the device, they share it as far as it puts them on one host. `clock` tells them the time
/// since some fixed moment; without one they look at the system's. Tuple queues, if `config` wants them, are made on the
/// devices, and on adapters in the memory that some share.
///
/// # Errors
/// What a device refuses.
pub fn engines_over(
    contexts: Vec<Box<dyn Context>>,
    config: &Config,
    clock: Option<fn() -> Duration>,
) -> Result<Vec<Engine>, BootError> {
    let mut engines = connected::together(contexts, &[config], POLICY, clock.unwrap_or(connected::monotonic))?;
    use_tuple_queues(&mut engines, config, true)?;
    Ok(engines)
}

/// As [`engines_over`], of two processes whose settings differ.
///
/// # Errors
/// As [`engines_over`].
pub fn pair_over(contexts: Vec<Box<dyn Context>>, configs: [&Config; 2]) -> Result<Vec<Engine>, BootError> {
    connected::together(contexts, &configs, POLICY, connected::monotonic)
}
