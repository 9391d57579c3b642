//! Which protocol carries which message on which device, as configured here, for people to look at.

use base::Config;
use base::config::{Medium, Sizes};
use protocol::Thresholds;
use protocol::rendezvous::Reach;
use protocol::table::{Between, Row, rows};

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
    let eager_max = |medium| {
        let Sizes { channel_bytes, eager_max_bytes, .. } = config.sizes(medium);
        eager_max_bytes.min(lockfree::block::payload_max_bytes(channel_bytes))
    };
    let thresholds = |over| Thresholds::configured(config, eager_max(Medium::Memory), eager_max(over));
    let (reach, note) = match cross_memory(config) {
        Ok(()) => {
            (Reach::Works, "the first long message from a peer is read, to see whether the kernel allows it; by FERROVIA_LARGE_COPY=auto later ones are read, shared or (up to FERROVIA_STAGED_NEAR_MAX) staged, whichever was the fastest lately, or, where ranks outnumber cores, read, and staged up to 128 KiB; data in pieces goes by FERROVIA_DATATYPE_SCHEME, and tuple queues (FERROVIA_RENDEZVOUS) come before any of this".into())
        }
        Err(why) => (Reach::Refused, format!("nothing is copied straight between processes: {why}")),
    };
    let over_verbs = |device, over, prefers_reads| {
        ProtocolReport {
        device,
        note: "peers are reached over connections, and channels are buffers of one pool; data in pieces goes by FERROVIA_DATATYPE_SCHEME".into(),
        rows: rows(&thresholds(over), Between::Verbs { prefers_reads }),
    }
    };
    vec![
        ProtocolReport {
            device: "shm",
            note: note + &aboard(config),
            rows: rows(&thresholds(Medium::Memory), Between::Mapped(reach)),
        },
        over_verbs("shm-verbs", Medium::Memory, reach == Reach::Works),
        over_verbs("tcp", Medium::Sockets, false),
        over_verbs("verbs", Medium::Memory, true),
    ]
}

/// What is written to shuttles.
fn aboard(config: &Config) -> String {
    let (least, most) = (engine::ABOARD_MIN_BYTES, protocol::fastpath::Geometry::new(config).shuttle_bytes());
    match most >= least {
        true => format!(
            "; of what goes through the channel, messages of {least} to {most} bytes (FERROVIA_SHUTTLE) are written to memory \
             that both processes write by turns, if it is here"
        ),
        false => String::new(),
    }
}
