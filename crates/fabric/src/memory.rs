//! Registered memory and how work requests name it.
//!
//! Registering is where a caller's promise about memory is made: a [`ReadRange`] or [`WriteRange`] given to
//! [`Context::register`](crate::Context::register) stays valid until the region is deregistered. Inside it, the bytes
//! of a posted work request are left alone until the request completes, and bytes that peers may reach can change at
//! any moment. Posting itself is safe: a device reaches nothing that lies outside a region.

use base::memory::{ReadRange, WriteRange};

use crate::{Lkey, Rkey};

/// What peers may do to a memory region, or through a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// RDMA read by a peer.
    pub remote_read: bool,
    /// RDMA write by a peer.
    pub remote_write: bool,
    /// Fetch-add and compare-swap by a peer.
    pub remote_atomic: bool,
}

impl Access {
    /// For the owner's own work requests only.
    pub const LOCAL: Self = Self { remote_read: false, remote_write: false, remote_atomic: false };
    /// Peers may read.
    pub const REMOTE_READ: Self = Self { remote_read: true, ..Self::LOCAL };
    /// Peers may write.
    pub const REMOTE_WRITE: Self = Self { remote_write: true, ..Self::LOCAL };
    /// Peers may do anything.
    pub const REMOTE_ALL: Self = Self { remote_read: true, remote_write: true, remote_atomic: true };

    /// True if a peer may change the bytes.
    pub const fn changes(self) -> bool {
        self.remote_write || self.remote_atomic
    }
}

/// What the key of a region means once its owner has unmapped the memory and has not deregistered it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Translation {
    /// Every access goes through the memory map of that moment, checked by the system: what lies there now, or an error.
    Checked,
    /// The pages that lay there when it was registered: they are pinned.
    Pinned,
    /// The device touches the addresses unchecked: the owner must deregister first.
    Unchecked,
}

/// Memory of the caller, to be registered.
#[derive(Clone, Copy, Debug)]
pub enum LocalMemory {
    /// Only ever gathered from, or read by peers.
    Source(ReadRange),
    /// Gathered from, scattered into, written by peers.
    Target(WriteRange),
    /// Memory of which only parts were promised: a message's blocks with the gaps between them. Only devices can register
    /// it for which the system checks that all of it is there; requests and peers keep to what was promised.
    Span {
        /// Where it starts.
        address: usize,
        /// Its length in bytes.
        len_bytes: usize,
        /// It may be written.
        is_target: bool,
    },
}

impl LocalMemory {
    /// Where it starts in this process.
    pub fn address(self) -> usize {
        match self {
            Self::Source(range) => range.address(),
            Self::Target(range) => range.address(),
            Self::Span { address, .. } => address,
        }
    }

    /// Its length in bytes.
    pub fn len_bytes(self) -> usize {
        match self {
            Self::Source(range) => range.len_bytes(),
            Self::Target(range) => range.len_bytes(),
            Self::Span { len_bytes, .. } => len_bytes,
        }
    }

    /// True if it may be written.
    pub fn is_target(self) -> bool {
        matches!(self, Self::Target(_) | Self::Span { is_target: true, .. })
    }
}

/// Registered memory: bytes known to the device under two keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRegion {
    /// First byte, as an address of the owner.
    pub address: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Local key.
    pub lkey: Lkey,
    /// Remote key.
    pub rkey: Rkey,
}

impl MemoryRegion {
    /// `len_bytes` bytes from `offset` on, for a scatter/gather list. Bounds are checked by the device.
    pub fn part(&self, offset: u64, len_bytes: u32) -> ScatterGather {
        ScatterGather { address: self.address.wrapping_add(offset), len_bytes, lkey: self.lkey }
    }

    /// The byte at `offset`, for a peer.
    pub fn remote(&self, offset: u64) -> RemoteMemory {
        RemoteMemory { address: self.address.wrapping_add(offset), rkey: self.rkey }
    }
}

/// One entry of a scatter/gather list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScatterGather {
    /// First byte.
    pub address: u64,
    /// Length in bytes.
    pub len_bytes: u32,
    /// Key of the region around it.
    pub lkey: Lkey,
}

/// Memory of a peer, as the peer described it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteMemory {
    /// First byte, as an address of the peer.
    pub address: u64,
    /// The peer's key for the region around it.
    pub rkey: Rkey,
}
