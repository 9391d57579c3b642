//! The segment of a host: its first process makes it and hands it to the others, around a barrier of the job.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use fabric_soft::shm::{Segment, SegmentServer, Shape, join};

use crate::BootError;
use crate::manager::Manager;

/// A segment between its offer and the barrier after it.
pub(crate) enum Offer {
    /// Nobody else wants it.
    Alone(Segment),
    /// The others will come for it.
    Given { server: SegmentServer, guest_count: u32 },
    /// It is offered under this key.
    Wanted { key: String, shape: Shape },
}

impl Offer {
    /// Makes the segment for `mates`, ranks in ascending order of which this process is one, if it is the first of them.
    /// `has_bells`: they sleep on descriptors. All processes of the job meet between this and [`Offer::take`].
    pub(crate) fn new(
        manager: &Manager,
        purpose: &str,
        mates: &[u32],
        shape: Shape,
        has_bells: bool,
    ) -> Result<Self, BootError> {
        let first = mates.first().copied().unwrap_or(manager.rank());
        let key = format!("ferrovia-{purpose}-{first}");
        if manager.rank() != first {
            return Ok(Self::Wanted { key, shape });
        }
        let segment = if has_bells { Segment::create_with_bells(shape)? } else { Segment::create(shape)? };
        if mates.len() < 2 {
            return Ok(Self::Alone(segment));
        }
        let (server, name) = SegmentServer::bind(segment, &unique_name())?;
        manager.put(&key, &name)?;
        Ok(Self::Given { server, guest_count: shape.process_count - 1 })
    }

    /// The segment, once all have it.
    pub(crate) fn take(self, manager: &Manager) -> Result<Segment, BootError> {
        Ok(match self {
            Self::Alone(segment) => segment,
            Self::Given { server, guest_count } => server.serve(guest_count)?,
            Self::Wanted { key, shape } => join(&manager.get(&key)?, shape)?,
        })
    }
}

/// The segment of all processes of a job on one host.
pub(crate) fn of_all(manager: &Manager, shape: Shape) -> Result<Segment, BootError> {
    let all: Vec<u32> = (0..manager.size()).collect();
    let offer = Offer::new(manager, "segment", &all, shape, false)?;
    if manager.size() > 1 {
        manager.barrier()?;
    }
    offer.take(manager)
}

/// Where all processes are in this one: the segment of those of a host, by the first of them, which `make` makes for
/// whoever comes first.
pub(crate) fn of_host(
    segments: &mut BTreeMap<u32, Segment>,
    first: u32,
    make: impl FnOnce() -> Result<Segment, BootError>,
) -> Result<Segment, BootError> {
    let segment = match segments.entry(first) {
        Entry::Occupied(made) => made.into_mut(),
        Entry::Vacant(missing) => missing.insert(make()?),
    };
    Ok(segment.clone())
}

/// A name no other job on this host has: the process and 64 random bits.
pub(crate) fn unique_name() -> String {
    format!("{}-{:016x}", std::process::id(), RandomState::new().build_hasher().finish())
}
