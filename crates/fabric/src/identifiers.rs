//! Names of things: keys and numbers that travel, handles that do not.

use std::fmt;

use base::SlabKey;

/// A peer of a job, numbered from 0 as the process manager numbers the job's processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct PeerIndex(pub u32);

/// Key by which the owner of a memory region names it in its own work requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lkey(pub u32);

/// Key by which a peer names a memory region of ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rkey(pub u32);

/// Number of a queue pair on its device; 24 bits on the wire of InfiniBand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct QpNumber(pub u32);

/// Number of a shared receive queue on its device, by which an XRC send addresses it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SrqNumber(pub u32);

/// Key of a datagram: taken only by queue pairs that were given the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Qkey(pub u32);

/// A multicast group, as a 16-byte GID.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MulticastGroup(pub [u8; 16]);

/// Handle of a protection domain: memory regions and queue pairs work together only inside one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProtectionDomain(pub SlabKey);

/// Handle of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CompletionQueue(pub SlabKey);

/// Handle of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SharedReceiveQueue(pub SlabKey);

/// Handle of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueuePair(pub SlabKey);

/// Handle of an XRC domain: what an XRC target queue pair may reach.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct XrcDomain(pub SlabKey);

/// Handle of the way to a datagram's receiver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddressHandle(pub SlabKey);

/// Handle of a receive that was posted to several queues.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MultiQueueReceive(pub SlabKey);

impl fmt::Display for PeerIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for QpNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
