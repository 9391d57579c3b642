//! Devices opened several times over, so that what they do can be measured without a job.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use base::Config;
use base::config::Medium;
use base::log::Log;
use fabric::{Context, Device, FabricError, PeerIndex};
use fabric_soft::shm::{Segment, Shape, ShmLink};
use fabric_soft::tcp::{self, Interface, JobSecret, Progress, TcpOptions, listening_addresses};
use fabric_soft::{LoopbackHub, SimNetwork, SimPlan, SoftContext};
use fabric_verbs::Survey;
use fabric_verbs::choice::Wanted;

use crate::start::{cross_memory, stop_policy};

/// The devices [`open_together`] knows.
pub const DEVICES: [&str; 5] = ["shm", "tcp", "loopback", "sim", "verbs"];

/// What each context may give out to be mapped by the others; pages are taken when they are touched.
pub(crate) const ARENA_BYTES: usize = 256 << 20;

/// Opens a device `count` times within this process; the contexts reach each other.
///
/// # Errors
/// Why there is no such device here.
pub fn open_together(name: &str, count: u32, config: &Config) -> Result<Vec<Box<dyn Context>>, String> {
    let opened = match name {
        "loopback" => loopback(count),
        "tcp" => sockets(count, config),
        "shm" => shared_memory(count, config),
        "sim" => open_simulated(count, None).map(|(contexts, _)| contexts),
        "verbs" => return verbs(count, config),
        _ => return Err(format!("there is no device {name:?}; there are {}", DEVICES.join(", "))),
    };
    opened.map_err(|error| error.to_string())
}

fn loopback(count: u32) -> Result<Vec<Box<dyn Context>>, FabricError> {
    let hub = LoopbackHub::new();
    (0..count).map(|_| Ok(Box::new(SoftContext::new(hub.link()?)) as Box<dyn Context>)).collect()
}

fn shared_memory(count: u32, config: &Config) -> Result<Vec<Box<dyn Context>>, FabricError> {
    let shape = Shape {
        process_count: count,
        channel_bytes: config.sizes(Medium::Memory).channel_bytes,
        arena_bytes: ARENA_BYTES,
        ..Shape::default()
    };
    let segment = Segment::create(shape)?;
    (0..count).map(|place| in_segment(segment.clone(), place, config)).collect()
}

/// The adapter of process `place` in a segment.
pub(crate) fn in_segment(segment: Segment, place: u32, config: &Config) -> Result<Box<dyn Context>, FabricError> {
    let mut link = ShmLink::join(segment, PeerIndex(place), cross_memory(config))?;
    link.set_stop_policy(stop_policy(config, Log::new(config.log, Some(place)), Vec::new()));
    Ok(Box::new(SoftContext::new(link)))
}

/// Over the loopback unless other interfaces are asked for.
pub(crate) fn local_sockets(config: &Config, secret: JobSecret, log: Log) -> Result<TcpOptions, FabricError> {
    let mut options = tcp_options(config, secret, log)?;
    if config.tcp.interfaces == "auto" {
        options.listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    }
    Ok(options)
}

fn sockets(count: u32, config: &Config) -> Result<Vec<Box<dyn Context>>, FabricError> {
    let options = local_sockets(config, JobSecret::random()?, Log::new(config.log, None))?;
    (0..count).map(|_| tcp::open(options.clone())).collect()
}

/// How `config` wants sockets to be used by the processes of a job that share `secret`.
///
/// # Errors
/// [`FabricError::System`] if this host has no such address as is wanted.
pub(crate) fn tcp_options(config: &Config, secret: JobSecret, log: Log) -> Result<TcpOptions, FabricError> {
    let listen = listening_addresses(&config.tcp.interfaces, &Interface::all()?)?;
    let tcp = &config.tcp;
    Ok(TcpOptions {
        check_payloads: tcp.check_payloads,
        connections: tcp.connections,
        patience: tcp.patience,
        silence: config.silence,
        progress: if tcp.thread { Progress::Thread } else { Progress::Caller },
        ..TcpOptions::new(secret, listen, log)
    })
}

fn verbs(count: u32, config: &Config) -> Result<Vec<Box<dyn Context>>, String> {
    (0..count).map(|_| adapter(config)).collect()
}

/// The adapter that the settings choose.
pub(crate) fn adapter(config: &Config) -> Result<Box<dyn Context>, String> {
    let survey = Survey::new(&Wanted::from(&config.verbs)).map_err(|why| why.to_string())?;
    let device = survey.device(0).map_err(|why| why.to_string())?;
    Box::new(device).open().map_err(|error| error.to_string())
}

/// The time of a simulated network, which passes while its adapters are polled.
#[derive(Clone)]
pub struct SimulatedTime(SimNetwork);

impl SimulatedTime {
    /// What has passed so far.
    pub fn now(&self) -> Duration {
        self.0.now()
    }

    /// Lets time pass, as if this adapter's process computed.
    pub fn pass(&self, time: Duration) {
        self.0.pass(time);
    }
}

/// Adapters of a simulated network without faults; `mtu_bytes`: the longest packet on its wires, if messages shall be
/// cut into packets at all.
///
/// # Errors
/// If there are too many.
pub fn open_simulated(
    count: u32,
    mtu_bytes: Option<u64>,
) -> Result<(Vec<Box<dyn Context>>, SimulatedTime), FabricError> {
    open_network(count, SimPlan { mtu_bytes, ..SimPlan::new(0) })
}

/// Adapters of a network that is simulated as `plan` says.
///
/// # Errors
/// If there are too many.
pub fn open_network(count: u32, plan: SimPlan) -> Result<(Vec<Box<dyn Context>>, SimulatedTime), FabricError> {
    let network = SimNetwork::new(plan);
    let open = |_| Ok(Box::new(SoftContext::new(network.link()?)) as Box<dyn Context>);
    let contexts = (0..count).map(open).collect::<Result<_, FabricError>>()?;
    Ok((contexts, SimulatedTime(network)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::config::CrossMemory;

    #[test]
    fn software_devices_open_together_and_others_are_named() {
        let config = Config::default();
        for name in ["shm", "tcp", "loopback", "sim"] {
            assert_eq!(open_together(name, 3, &config).unwrap().len(), 3);
        }
        let config = Config { cross_memory: CrossMemory::Off, ..config };
        for context in open_together("shm", 2, &config).unwrap() {
            assert!(
                context.capabilities().single_copy.as_ref().is_err_and(|why| why.contains("FERROVIA_CROSS_MEMORY"))
            );
        }
        let Err(error) = open_together("carrier-pigeon", 2, &config) else { panic!("there is no such device") };
        assert!(error.contains("shm"), "{error}");
    }
}
