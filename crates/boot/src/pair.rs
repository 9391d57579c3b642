//! Devices opened several times over, so that what they do can be measured without a job.

use std::net::{Ipv4Addr, SocketAddr};

use base::Config;
use base::log::Log;
use fabric::{Context, Device, FabricError, PeerIndex};
use fabric_soft::shm::{Segment, Shape, ShmLink, probe_cross_memory};
use fabric_soft::tcp::{Interface, JobSecret, TcpLink, TcpOptions, listening_addresses};
use fabric_soft::{LoopbackHub, SoftContext};
use fabric_verbs::Survey;
use fabric_verbs::choice::Wanted;

/// The devices [`open_together`] knows.
pub const DEVICES: [&str; 4] = ["shm", "tcp", "loopback", "verbs"];

/// What each context may give out to be mapped by the others; pages are taken when they are touched.
const ARENA_BYTES: usize = 256 << 20;

/// Opens a device `count` times within this process; the contexts reach each other.
///
/// # Errors
/// Why there is no such device here.
pub fn open_together(name: &str, count: u32, config: &Config) -> Result<Vec<Box<dyn Context>>, String> {
    let opened = match name {
        "loopback" => loopback(count),
        "tcp" => sockets(count, config),
        "shm" => shared_memory(count, config),
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
    let shape = Shape { process_count: count, channel_bytes: config.channel_bytes, arena_bytes: ARENA_BYTES };
    let segment = Segment::create(shape)?;
    let cross_memory = probe_cross_memory();
    let open = |place| {
        let link = ShmLink::join(segment.clone(), PeerIndex(place), cross_memory.clone())?;
        Ok(Box::new(SoftContext::new(link)) as Box<dyn Context>)
    };
    (0..count).map(open).collect()
}

/// Over the loopback unless other interfaces are asked for.
fn sockets(count: u32, config: &Config) -> Result<Vec<Box<dyn Context>>, FabricError> {
    let mut options = tcp_options(config, JobSecret::random()?, Log::new(config.log, None))?;
    if config.tcp.interfaces == "auto" {
        options.listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    }
    (0..count).map(|_| Ok(Box::new(SoftContext::new(TcpLink::new(options.clone())?)) as Box<dyn Context>)).collect()
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
        silence: tcp.silence,
        ..TcpOptions::new(secret, listen, log)
    })
}

fn verbs(count: u32, config: &Config) -> Result<Vec<Box<dyn Context>>, String> {
    let survey = Survey::new(&Wanted::from(&config.verbs)).map_err(|why| why.to_string())?;
    let open = |_| {
        let device = survey.device(0).map_err(|why| why.to_string())?;
        Box::new(device).open().map_err(|error| error.to_string())
    };
    (0..count).map(open).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_devices_open_together_and_others_are_named() {
        let config = Config::default();
        for name in ["shm", "tcp", "loopback"] {
            assert_eq!(open_together(name, 3, &config).unwrap().len(), 3);
        }
        let Err(error) = open_together("carrier-pigeon", 2, &config) else { panic!("there is no such device") };
        assert!(error.contains("shm"), "{error}");
    }
}
