//! What of each kind of device is found on this machine, for people to look at.

use base::Config;
use base::config::Medium;
use base::log::Log;
use fabric::{Capabilities, Device, FabricError, PeerIndex};
use fabric_soft::shm::{Segment, Shape, ShmLink};
use fabric_soft::tcp::{JobSecret, TcpLink};
use fabric_soft::{SimNetwork, SimPlan, SoftDevice};
use fabric_verbs::Survey;
use fabric_verbs::choice::{PortOffer, Wanted};

use crate::start::cross_memory;

/// One kind of device.
pub struct DeviceReport {
    /// Its short name.
    pub name: &'static str,
    /// What it can do, or why it is not used.
    pub found: Result<Capabilities, String>,
    /// What else was seen: ports that are not used, and why.
    pub notes: Vec<String>,
}

/// Looks for devices, as `config` would have them used. Nothing is opened for traffic.
pub fn devices(config: &Config) -> Vec<DeviceReport> {
    vec![shm(config), tcp(config), sim(), verbs(config)]
}

/// The software adapter over shared memory, in a segment of its own.
fn shm(config: &Config) -> DeviceReport {
    let found = || -> Result<Capabilities, FabricError> {
        let shape = Shape {
            process_count: 1,
            channel_bytes: config.sizes(Medium::Memory).channel_bytes,
            arena_bytes: 1 << 20,
            ..Shape::default()
        };
        let segment = Segment::create(shape)?;
        let link = ShmLink::join(segment, PeerIndex(0), cross_memory(config))?;
        Ok(SoftDevice::new(link).capabilities())
    };
    DeviceReport { name: "shm", found: found().map_err(|why| why.to_string()), notes: Vec::new() }
}

/// The software adapter in a simulated network without faults, as tests have it.
fn sim() -> DeviceReport {
    let link = SimNetwork::new(SimPlan::new(0)).link();
    let found = link.map(|link| SoftDevice::new(link).capabilities()).map_err(|why| why.to_string());
    let notes = vec!["for tests that bring their own network; no job runs on it".to_owned()];
    DeviceReport { name: "sim", found, notes }
}

/// The software adapter over sockets, listening where a job would for the moment.
fn tcp(config: &Config) -> DeviceReport {
    let found = || -> Result<Capabilities, FabricError> {
        let link = TcpLink::new(crate::pair::tcp_options(config, JobSecret::random()?, Log::new(config.log, None))?)?;
        Ok(SoftDevice::new(link).capabilities())
    };
    let notes = vec![
        "carries messages between hosts where not all processes are on one InfiniBand subnet, and those within a host \
         under FERROVIA_DEVICE=tcp"
            .to_owned(),
    ];
    DeviceReport { name: "tcp", found: found().map_err(|why| why.to_string()), notes }
}

fn verbs(config: &Config) -> DeviceReport {
    let (found, notes) = match Survey::new(&Wanted::from(&config.verbs)) {
        Err(why) => (Err(why.to_string()), Vec::new()),
        Ok(survey) => {
            let device = survey.device(0);
            // With no device the rejections are the reason already.
            let notes = if let Ok(device) = &device {
                let objection = survey.offers().first().and_then(PortOffer::objection);
                let role = objection.unwrap_or(
                    "carries messages between hosts, before tcp, where all processes have a port on its subnet",
                );
                let others = survey.rejections().iter().map(ToString::to_string);
                std::iter::once(role.to_owned()).chain(device.notes().iter().cloned()).chain(others).collect()
            } else {
                vec![]
            };
            (device.map(|device| device.capabilities()).map_err(|why| why.to_string()), notes)
        }
    };
    DeviceReport { name: "verbs", found, notes }
}
