//! Tuple queues, where they are asked for: on the software adapter of all other messages, and on one over shared memory
//! beside the channels for processes that share it.

use base::Config;
use base::config::{DeviceChoice, Rendezvous};
use base::log::{Level, Log};
use engine::{Engine, TupleSetup};
use fabric::Context;
use fabric_soft::shm::{Segment, Shape};

use crate::manager::Manager;
use crate::pair::in_segment;
use crate::segment::Offer;
use crate::start::cross_memory;
use crate::{BootError, ways};

/// Bytes of the adapter's channels: they carry what can not go by the queues themselves.
const CHANNEL_BYTES: usize = 16 << 10;
/// Messages below this are copied by senders that would wait. Paper: tupleq §7.3.
const COPY_BELOW_BYTES: u64 = 8 << 10;

/// Has the engine use tuple queues if the settings say so, on whichever of its devices has some. Where processes share
/// memory they must be able to copy from each other, and all of a host are or are not.
pub(crate) fn use_if_wanted(
    engine: &mut Engine,
    manager: &Manager,
    device: DeviceChoice,
    config: &Config,
    log: &Log,
) -> Result<(), BootError> {
    // A process alone sends to nobody but itself.
    let Some(setup) = setup(config).filter(|_| manager.size() > 1) else { return Ok(()) };
    let shares_memory = device == DeviceChoice::Shm || ways::is_mixed(device);
    // The adapter in shared memory of the single device copies, too.
    let copies = if shares_memory || device == DeviceChoice::ShmVerbs { cross_memory(config) } else { Ok(()) };
    let mates = if shares_memory { mates(manager, device) } else { Vec::new() };
    if let Err(why) = &copies
        && (mates.len() > 1 || !shares_memory)
    {
        let place = if ways::is_mixed(device) { " among the processes of a host" } else { "" };
        let what = "whoever comes second moves the data, and can not";
        log.say(Level::Warn, format_args!("no tuple queues{place}: {what}: {why}"));
    }
    if shares_memory && let Some(own) = among_mates(manager, &mates, copies.is_ok(), config)? {
        engine.use_tuple_queues(own, setup)?;
    }
    match ways::between(device) {
        DeviceChoice::Tcp => engine.use_tuple_queues_of_port(setup)?,
        DeviceChoice::ShmVerbs if copies.is_ok() => engine.use_tuple_queues_of_port(setup)?,
        DeviceChoice::Verbs if manager.rank() == 0 => {
            log.say(Level::Warn, format_args!("no tuple queues over device verbs: its sends wait in one line"));
        }
        _ => {}
    }
    Ok(())
}

/// The processes that share memory with this one, and itself.
fn mates(manager: &Manager, device: DeviceChoice) -> Vec<u32> {
    match device {
        DeviceChoice::Shm => (0..manager.size()).collect(),
        _ => manager.hosts().mates(manager.rank()),
    }
}

/// An adapter of the processes that share memory with this one, if there are any and they want it. All processes of the
/// job meet here.
fn among_mates(
    manager: &Manager,
    mates: &[u32],
    is_wanted: bool,
    config: &Config,
) -> Result<Option<Box<dyn Context>>, BootError> {
    let shape = shape(mates.len() as u32);
    let offer = (is_wanted && mates.len() > 1).then(|| Offer::new(manager, "tuples", mates, shape, false));
    let offer = offer.transpose()?;
    manager.barrier()?;
    let Some(segment) = offer.map(|offer| offer.take(manager)).transpose()? else { return Ok(None) };
    let place = mates.iter().position(|mate| *mate == manager.rank()).unwrap_or(0);
    // The channels beside it tell who is stopped.
    let quiet = Config { log: Level::Error, ..config.clone() };
    Ok(Some(in_segment(segment, place as u32, &quiet)?))
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
    Ok(Segment::create(shape(count))?)
}

const fn shape(count: u32) -> Shape {
    Shape { process_count: count, channel_bytes: CHANNEL_BYTES, shuttle_bytes: 0, arena_bytes: 0 }
}
