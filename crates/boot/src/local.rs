//! Worlds inside one process, for tests: one engine per thread, over one private segment.

use base::Config;
use engine::{Engine, WaitPolicy};
use fabric::PeerIndex;
use fabric_soft::shm::{Segment, Shape, ShmPeers, probe_cross_memory};

use crate::BootError;

/// `count` engines that reach each other, each to be used by a thread of its own.
///
/// # Errors
/// When the system has no memory for the segment.
pub fn local_engines(count: u32, config: &Config) -> Result<Vec<Engine>, BootError> {
    let segment = Segment::create(Shape { process_count: count, channel_bytes: config.channel_bytes, arena_bytes: 0 })?;
    (0..count)
        .map(|me| {
            let peers = ShmPeers::join(segment.clone(), PeerIndex(me), probe_cross_memory())?;
            Ok(Engine::new(Box::new(peers), config, WaitPolicy { spin_count: 8, yield_count: 8 })?)
        })
        .collect()
}
