//! Which protocol carries which message on which device, as configured here, for people to look at.

use base::Config;
use protocol::Thresholds;
use protocol::rendezvous::Reach;
use protocol::table::{Row, rows};

use crate::start::cross_memory;

/// One device and how messages go over it.
pub struct ProtocolReport {
    /// Its short name.
    pub device: &'static str,
    /// What decides beside the settings.
    pub note: String,
    /// In order of size.
    pub rows: Vec<Row>,
}

/// The protocols of every device that carries messages, with the settings of `config` on this machine.
pub fn protocols(config: &Config) -> Vec<ProtocolReport> {
    let thresholds = Thresholds::configured(config, lockfree::block::payload_max_bytes(config.channel_bytes));
    let (reach, note) = match cross_memory(config) {
        Ok(()) => {
            (Reach::Works, "the first long message from a peer is read, to see whether the kernel allows it".into())
        }
        Err(why) => (Reach::Refused, format!("nothing is copied straight between processes: {why}")),
    };
    vec![ProtocolReport { device: "shm", note, rows: rows(&thresholds, reach) }]
}
