//! Tuple queues, where they are asked for: a software adapter over shared memory beside the channels, or beside the
//! adapter of all other messages.

use base::Config;
use base::config::{DeviceChoice, Rendezvous};
use base::log::{Level, Log};
use engine::{Engine, TupleSetup};
use fabric_soft::shm::{Segment, Shape};

use crate::BootError;
use crate::manager::Manager;
use crate::pair::in_segment;
use crate::start::{cross_memory, shared_segment};

/// Bytes of the adapter's channels: they carry what can not go by the queues themselves.
const CHANNEL_BYTES: usize = 16 << 10;
/// Messages below this are copied by senders that would wait. Paper: tupleq §7.3.
const COPY_BELOW_BYTES: u64 = 8 << 10;

/// Has the engine use tuple queues if the settings say so and the processes share memory and can copy from each other.
pub(crate) fn use_if_wanted(
    engine: &mut Engine,
    manager: &Manager,
    device: DeviceChoice,
    config: &Config,
    log: &Log,
) -> Result<(), BootError> {
    let Some(setup) = setup(config) else { return Ok(()) };
    if !matches!(device, DeviceChoice::Shm | DeviceChoice::ShmVerbs) {
        if manager.rank() == 0 {
            let name = device.name();
            log.say(Level::Warn, format_args!("no tuple queues over device {name}: its processes share no memory"));
        }
        return Ok(());
    }
    if let Err(why) = cross_memory(config) {
        // The same for all processes of a host.
        log.say(Level::Warn, format_args!("no tuple queues: whoever comes second moves the data, and can not: {why}"));
        return Ok(());
    }
    let shape = Shape { process_count: manager.size(), channel_bytes: CHANNEL_BYTES, arena_bytes: 0 };
    let segment = shared_segment(manager, "ferrovia-tuples", shape)?;
    engine.use_tuple_queues(in_segment(segment, manager.rank(), config)?, setup)?;
    Ok(())
}

/// How the settings want them used; `None`: not at all.
pub(crate) fn setup(config: &Config) -> Option<TupleSetup> {
    let copy_below_bytes = match config.rendezvous {
        Rendezvous::Auto | Rendezvous::Rput | Rendezvous::Rget | Rendezvous::Staged => return None,
        Rendezvous::TupleQueue => 0,
        Rendezvous::TupleQueueCopy => COPY_BELOW_BYTES,
    };
    Some(TupleSetup { copy_below_bytes, queues_max: config.tuple_queues_max, retreat_after: config.tuple_retreat })
}

/// A segment for the adapters of `count` processes.
pub(crate) fn segment(count: u32) -> Result<Segment, BootError> {
    Ok(Segment::create(Shape { process_count: count, channel_bytes: CHANNEL_BYTES, arena_bytes: 0 })?)
}
