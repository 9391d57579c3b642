//! Worlds inside one process, for tests: one engine per thread, over one private segment or another device.

use base::Config;
use base::config::DeviceChoice;
use engine::{Engine, WaitPolicy};
use fabric::{Context, PeerIndex};
use fabric_soft::shm::{Segment, ShmPeers};

use crate::pair::in_segment;
use crate::start::{cross_memory, shape};
use crate::{BootError, connected, open_together, tuples};

/// Tests run beside each other.
const POLICY: WaitPolicy = WaitPolicy { spin_count: 8, yield_count: 8 };

/// `count` engines that reach each other over the device of `config`, each to be used by a thread of its own.
///
/// # Errors
/// When the system has no memory for the segment, or there is no such device.
pub fn local_engines(count: u32, config: &Config) -> Result<Vec<Engine>, BootError> {
    let device = match config.device {
        DeviceChoice::Auto | DeviceChoice::Shm => None,
        DeviceChoice::ShmVerbs => Some("shm"),
        DeviceChoice::Tcp => Some("tcp"),
        DeviceChoice::Verbs => Some("verbs"),
    };
    if let Some(device) = device {
        let contexts = open_together(device, count, config).map_err(BootError::NoDevice)?;
        return engines_over(contexts, config);
    }
    let segment = Segment::create(shape(count, config))?;
    let queues = tuples::setup(config).map(|_| tuples::segment(count)).transpose()?;
    (0..count)
        .map(|me| {
            let peers = ShmPeers::join(segment.clone(), PeerIndex(me), cross_memory(config))?;
            let mut engine = Engine::new(Box::new(peers), config, POLICY)?;
            if let (Some(setup), Some(queues)) = (tuples::setup(config), &queues) {
                engine.use_tuple_queues(in_segment(queues.clone(), me, config)?, setup)?;
            }
            Ok(engine)
        })
        .collect()
}

/// Engines over opened devices that reach each other, one for each, each to be used by a thread of its own.
///
/// # Errors
/// What a device refuses.
pub fn engines_over(contexts: Vec<Box<dyn Context>>, config: &Config) -> Result<Vec<Engine>, BootError> {
    connected::together(contexts, config, POLICY)
}
