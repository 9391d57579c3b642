//! Tuple queues, where they are asked for: on the software adapter of all other messages, or on one over shared memory
//! beside the channels.

use base::Config;
use base::config::{DeviceChoice, Rendezvous};
use base::log::{Level, Log};
use engine::{Engine, TupleSetup};
use fabric_soft::shm::{Segment, Shape};

use crate::manager::Manager;
use crate::pair::in_segment;
use crate::start::cross_memory;
use crate::{BootError, segment, ways};

/// Bytes of the adapter's channels: they carry what can not go by the queues themselves.
const CHANNEL_BYTES: usize = 16 << 10;
/// Messages below this are copied by senders that would wait. Paper: tupleq §7.3.
const COPY_BELOW_BYTES: u64 = 8 << 10;

/// Has the engine use tuple queues if the settings say so and the device has some: where processes share memory they must
/// be able to copy from each other.
pub(crate) fn use_if_wanted(
    engine: &mut Engine,
    manager: &Manager,
    device: DeviceChoice,
    config: &Config,
    log: &Log,
) -> Result<(), BootError> {
    let Some(setup) = setup(config) else { return Ok(()) };
    match device {
        DeviceChoice::Auto | DeviceChoice::Verbs | DeviceChoice::ShmAndTcp | DeviceChoice::ShmAndVerbs => {
            if manager.rank() == 0 {
                let name = device.name();
                let why = match ways::is_mixed(device) {
                    true => "they are made on one device that reaches all processes",
                    false => "its sends wait in one line",
                };
                log.say(Level::Warn, format_args!("no tuple queues over device {name}: {why}"));
            }
            return Ok(());
        }
        DeviceChoice::Shm | DeviceChoice::ShmVerbs => {
            if let Err(why) = cross_memory(config) {
                // The same for all processes of a host.
                let what = "no tuple queues: whoever comes second moves the data, and can not";
                log.say(Level::Warn, format_args!("{what}: {why}"));
                return Ok(());
            }
        }
        DeviceChoice::Tcp => {}
    }
    let own = match device {
        DeviceChoice::Shm => {
            let shape = Shape { process_count: manager.size(), channel_bytes: CHANNEL_BYTES, arena_bytes: 0 };
            let segment = segment::of_all(manager, "tuples", shape)?;
            // The channels beside it tell who is stopped.
            let quiet = Config { log: Level::Error, ..config.clone() };
            Some(in_segment(segment, manager.rank(), &quiet)?)
        }
        _ => None,
    };
    engine.use_tuple_queues(own, setup)?;
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
