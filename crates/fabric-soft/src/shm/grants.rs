//! What peers allow this process, remembered: who writes again and again to the same memory through the same queue pair
//! asks the owner's tables no more than whether they still say the same.

use base::memory::WriteRange;
use fabric::RemoteMemory;
use lockfree::Sight;

use crate::link::{DirectTarget, LinkPeer};

/// Grants that are remembered at most; one more takes the place of another.
const GRANTS_MAX: usize = 64;

/// Memory of a peer that its tables let this process reach through a queue pair.
pub(super) struct Grant {
    pub(super) key: Key,
    /// What both the queue pair and the region allow.
    pub(super) rights: u64,
    /// Where the region begins, as its owner and its key say it.
    pub(super) start: u64,
    pub(super) len_bytes: u64,
    /// Where it begins in this process, if all of it is mapped.
    pub(super) here: Option<usize>,
    /// The entries that say so.
    pub(super) queue_pair: Sight,
    pub(super) region: Sight,
}

/// What a grant is about: a key of a peer, through two queue pairs that are connected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    peer: u32,
    remote_qp: u32,
    local_qp: u32,
    rkey: u32,
}

impl Key {
    #[inline]
    pub(super) fn of(target: &DirectTarget) -> Self {
        let DirectTarget { peer, remote_qp, local_qp, memory, .. } = target;
        Self { peer: peer.0, remote_qp: *remote_qp, local_qp: *local_qp, rkey: memory.rkey.0 }
    }

    #[inline]
    fn place(&self) -> usize {
        place(self.local_qp, self.rkey)
    }
}

/// Queue pairs and regions are numbered one after the other: those of few of either meet seldom.
#[inline]
fn place(local_qp: u32, rkey: u32) -> usize {
    (local_qp ^ rkey.wrapping_mul(5)) as usize % GRANTS_MAX
}

impl Grant {
    /// True if it holds still; asked by who is engaged with its key.
    #[inline]
    pub(super) fn stands(&self) -> bool {
        self.queue_pair.stands() && self.region.stands()
    }

    /// True if it lets the target be used with this right.
    #[inline]
    pub(super) fn covers(&self, target: &DirectTarget, right: u64) -> bool {
        let offset = target.memory.address.wrapping_sub(self.start);
        let is_inside = offset <= self.len_bytes && target.len_bytes <= self.len_bytes - offset;
        self.rights & right != 0 && is_inside
    }

    /// The bytes of a target that it covers, where they are mapped.
    #[inline]
    pub(super) fn mapped(&self, target: &DirectTarget) -> Option<WriteRange> {
        let offset = target.memory.address.wrapping_sub(self.start) as usize;
        // SAFETY: all of the region is mapped, as long as the segment, and its owner allows the access.
        self.here.map(|here| unsafe { WriteRange::new((here + offset) as *mut u8, target.len_bytes as usize) })
    }
}

/// Grants by what they are about.
#[derive(Default)]
pub(super) struct Grants {
    places: Vec<Option<Grant>>,
}

impl Grants {
    /// Where memory that is reached through this queue pair is mapped, most likely, for a hint.
    #[inline]
    pub(super) fn guess(&self, local_qp: u32, memory: &RemoteMemory) -> Option<*const u8> {
        let grant = self.places.get(place(local_qp, memory.rkey.0))?.as_ref()?;
        let here = grant.here.filter(|_| grant.key.rkey == memory.rkey.0)?;
        Some(here.wrapping_add(memory.address.wrapping_sub(grant.start) as usize) as *const u8)
    }

    /// What was granted for this target; whether it still stands is another matter.
    #[inline]
    pub(super) fn find(&self, target: &DirectTarget) -> Option<&Grant> {
        let key = Key::of(target);
        self.places.get(key.place())?.as_ref().filter(|grant| grant.key == key)
    }

    pub(super) fn keep(&mut self, grant: Grant) {
        self.places.resize_with(GRANTS_MAX, || None);
        let place = grant.key.place();
        self.places[place] = Some(grant);
    }

    /// Nothing of this peer is used any more.
    pub(super) fn forget(&mut self, peer: LinkPeer) {
        for place in &mut self.places {
            place.take_if(|grant| grant.key.peer == peer.0);
        }
    }
}
