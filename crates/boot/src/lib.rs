//! From a started process to a world: the one place that names devices.
//!
//! Floor: root. Configuration, devices and the process manager come together here.
//!
//! ```text
//!   first process of the host            the others
//!   create the segment, listen
//!   put its name          ── barrier ──  get the name
//!   hand the segment out                 map it
//!   open the device, make the engine     open the device, make the engine
//! ```
//!
//! **Invariants**
//! - A process started by hand is a world of one; launcher variables without a launcher behind them are an error,
//!   never a silent world of one.
//! - Everything read from the environment is read here, once.
//! - Who shares memory uses it, where the settings do not want otherwise; a device that reaches other hosts carries the rest.
//! - Joining over mapped memory takes two round trips to the process manager and one barrier, however many processes
//!   there are; over verbs, one more barrier and a business card of each process.
//!
//! Deliberately absent: communicators, handles; what a launcher does.

#![forbid(unsafe_code)]

mod apart;
mod connected;
mod devices;
mod hardware;
mod hosts;
mod local;
mod manager;
mod pair;
mod protocols;
mod report;
mod secret;
mod segment;
mod start;
mod tuples;
mod ways;

pub use apart::{APART, Invitation, accept, invite};
pub use devices::{DeviceReport, devices};
pub use fabric_soft::SimPlan;
pub use fabric_soft::sim::LinkCost;
pub use hardware::hardware;
pub use local::{engines_over, local_engines, pair_over};
pub use pair::{DEVICES, SimulatedTime, open_network, open_simulated, open_together};
pub use protocols::{ProtocolReport, protocols};
pub use start::{Job, configuration, configuration_with, connect, start};
pub use ways::ways;

/// What kept a world from starting. Each is one line for the user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootError {
    /// A setting is not understood.
    #[error(transparent)]
    Config(#[from] base::config::ConfigError),
    /// The process manager did not answer as it should.
    #[error(transparent)]
    ProcessManager(#[from] pmi::PmiError),
    /// The collective algorithms asked for do not exist.
    #[error("FERROVIA_COLLECTIVES: {0}")]
    Collectives(#[from] collectives::SelectionError),
    /// A device failed.
    #[error(transparent)]
    Fabric(#[from] fabric::FabricError),
    /// The engine refused the device.
    #[error(transparent)]
    Engine(#[from] engine::EngineError),
    /// There is no such device here.
    #[error("{0}")]
    NoDevice(String),
    /// No adapter carries the job.
    #[error("FERROVIA_DEVICE=verbs: {0}")]
    NoAdapter(String),
    /// The job spans hosts, and the device does not.
    #[error("FERROVIA_DEVICE={device}: rank {rank} runs on another host, which only tcp and verbs reach")]
    OtherHost {
        /// The first rank elsewhere.
        rank: u32,
        /// The device asked for.
        device: &'static str,
    },
    /// The job spans hosts, and this one has no address that others can reach.
    #[error(
        "FERROVIA_TCP_INTERFACES={interfaces}: rank {rank} runs on another host, and of this host's addresses these are \
         loopback addresses only, which it can not reach"
    )]
    NoNetwork {
        /// The first rank elsewhere.
        rank: u32,
        /// The interfaces asked for.
        interfaces: String,
    },
}
