//! Reads, writes and atomics by the initiator's processor: it looks up the target's key in the target's own table.
//! Memory of an arena is mapped here and is simply used; private memory is copied by cross-memory attach. The target
//! takes no part, whatever it is doing. What it granted once is remembered (see [`super::grants`]), and one look at each
//! table tells whether it still stands.
//!
//! ```text
//!   region      address | length | rights, domain << 32
//!   queue pair  peer << 32, its queue pair | rights, domain << 32 | XRC domain + 1
//! ```

use base::memory::{ReadRange, WriteRange};
use base::sync::{AtomicU64, Ordering};
use fabric::{Access, DirectCopyError, MemoryRegion, Operation, RemoteMemory, RemotePiece};

use lockfree::Look;

use super::cross_memory;
use super::grants::{Grant, Key};
use super::life::{self, ProcessMark};
use super::link::{ARENA_ADDRESS, Peer, ShmLink};
use super::wakeup::ring;
use super::watch::Pauses;
use crate::copying;
use crate::link::{Direct, DirectOutcome, DirectQueuePair, DirectTarget};
use crate::numbered::split;

const READ: u64 = 1;
const WRITE: u64 = 2;
const ATOMIC: u64 = 4;
/// Not a right: the region lies in the owner's arena.
const MAPPED: u64 = 8;

fn rights(access: Access) -> u64 {
    let bit = |granted, right| if granted { right } else { 0 };
    bit(access.remote_read, READ) | bit(access.remote_write, WRITE) | bit(access.remote_atomic, ATOMIC)
}

/// What an initiator is engaged with: a key of a process, never 0.
fn mark(owner: u32, key: u32) -> u64 {
    u64::from(owner + 1) << 32 | u64::from(key)
}

impl Direct for ShmLink {
    fn publish_region(&mut self, region: &MemoryRegion, access: Access, domain: u32) {
        if rights(access) == 0 {
            return;
        }
        let (index, generation) = split(region.rkey.0);
        let mapped = if self.is_own_mapped(region) { MAPPED } else { 0 };
        if let Some(own) = self.own() {
            own.regions.publish(
                index,
                generation,
                [region.address, region.len_bytes, rights(access) | mapped | u64::from(domain) << 32],
            );
        }
    }

    fn withdraw_region(&mut self, region: &MemoryRegion) {
        let Some(own) = self.own() else { return };
        let (index, generation) = split(region.rkey.0);
        if own.regions.look(index, generation).is_none() {
            return;
        }
        own.regions.withdraw(index);
        let mark = mark(self.me, region.rkey.0);
        for place in (0..self.segment.shape().process_count).filter(|place| *place != self.me) {
            let Some(engagement) = self.segment.engagement(place) else { continue };
            // A copy under way is short, unless its process is stopped over it; one whose process has died is not under way.
            let mut pauses = Pauses::new();
            while engagement.is_with(mark) && self.lives(place) {
                pauses.pause();
            }
        }
    }

    fn publish_queue_pair(&mut self, qp: &DirectQueuePair) {
        let (index, generation) = split(qp.number);
        if let Some(own) = self.own() {
            let peer = u64::from(qp.peer.0) << 32 | u64::from(qp.remote);
            let xrc = qp.xrc.map_or(0, |domain| u64::from(domain) + 1);
            own.queue_pairs.publish(index, generation, [peer, rights(qp.access) | u64::from(qp.domain) << 32, xrc]);
            self.queue_pairs_end = self.queue_pairs_end.max(index + 1);
        }
    }

    fn withdraw_queue_pair(&mut self, number: u32) {
        if let Some(own) = self.own() {
            own.queue_pairs.withdraw(split(number).0);
        }
    }

    /// The line comes from the peer's cache while the request is looked at.
    #[inline]
    fn expect_write(&self, local_qp: u32, memory: &RemoteMemory) {
        if let Some(line) = self.grants.guess(local_qp, memory) {
            base::streaming::prefetch_to_write(line);
        }
    }

    #[inline]
    fn write(&mut self, target: &DirectTarget, from: &[ReadRange]) -> DirectOutcome {
        let done = self.act(target, WRITE, |way| match way {
            Way::Mapped(to) => {
                write_mapped(from, to);
                Ok(())
            }
            // SAFETY: the ranges are registered memory of a request that is not complete.
            Way::Process(process) => unsafe { cross_memory::gather_to(process, from, target.memory.address) },
        });
        if done.is_none() {
            return DirectOutcome::NotHere;
        }
        if let Some(peer) = self.peers.get(target.peer.0 as usize) {
            // Nothing completes there: whoever polls the memory would sleep through it.
            ring(&peer.doorbell);
        }
        DirectOutcome::Done
    }

    fn read(&mut self, target: &DirectTarget, to: &[WriteRange]) -> DirectOutcome {
        let done = self.act(target, READ, |way| match way {
            Way::Mapped(from) => {
                // SAFETY: the bytes are mapped, and a target that lets them be read expects it at any moment.
                let from = unsafe { ReadRange::new(from.address() as *const u8, from.len_bytes()) };
                copying::copy(&[from], to);
                Ok(())
            }
            Way::Process(process) => {
                let len_bytes = to.iter().map(|range| range.len_bytes() as u64).sum();
                let from = RemotePiece { address: target.memory.address, len_bytes };
                // SAFETY: the ranges are registered memory of a request that is not complete, for it to fill.
                unsafe { cross_memory::scatter(process, &[from], to) }
            }
        });
        if done.is_some() { DirectOutcome::Done } else { DirectOutcome::NotHere }
    }

    fn atomic(&mut self, target: &DirectTarget, operation: Operation) -> Option<u64> {
        if !target.memory.address.is_multiple_of(8) {
            return None;
        }
        self.act(target, ATOMIC, |way| {
            let Way::Mapped(range) = way else { return Err(DirectCopyError::Refused) };
            let word = range.address() as *const AtomicU64;
            // SAFETY: 8 mapped bytes, aligned here as there because arenas begin on pages; whoever shares them uses
            // atomics.
            let word = unsafe { &*word };
            Ok(match operation {
                Operation::FetchAdd { add, .. } => word.fetch_add(add, Ordering::AcqRel),
                Operation::CompareSwap { compare, swap, .. } => {
                    let (Ok(before) | Err(before)) =
                        word.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire);
                    before
                }
                _ => return Err(DirectCopyError::Refused),
            })
        })
    }
}

/// How the target's memory is reached.
enum Way {
    /// It is mapped here.
    Mapped(WriteRange),
    /// It is private to this process.
    Process(i32),
}

impl ShmLink {
    /// Does `work` if the target allows it; engaged with its key, so that the target cannot take the memory away.
    #[inline]
    fn act<T>(
        &mut self,
        target: &DirectTarget,
        right: u64,
        work: impl FnOnce(Way) -> Result<T, DirectCopyError>,
    ) -> Option<T> {
        self.engagement.engage(mark(target.peer.0, target.memory.rkey.0));
        let standing = self.grants.find(target).filter(|grant| target.len_bytes > 0 && grant.stands());
        let way = match standing {
            Some(grant) => self.way(grant, target, right),
            None => self.ask(target, right),
        };
        let done = way.and_then(|way| work(way).ok());
        self.engagement.release();
        done
    }

    /// The way to a target, if the grant covers it.
    #[inline]
    fn way(&self, grant: &Grant, target: &DirectTarget, right: u64) -> Option<Way> {
        if !grant.covers(target, right) {
            return None;
        }
        grant.mapped(target).map(Way::Mapped).or_else(|| self.way_to_process(target.peer.0))
    }

    /// The way to a target by what its own tables say now; what they grant is remembered.
    #[cold]
    fn ask(&mut self, target: &DirectTarget, right: u64) -> Option<Way> {
        let peer = self.peers.get(target.peer.0 as usize).filter(|peer| !peer.lost)?;
        if life::has_left(&peer.identity) {
            return None;
        }
        if target.len_bytes == 0 {
            // No bytes are in no region: no key counts.
            let connected = peer.connected(self.me, target).filter(|(_, granted)| granted & right != 0);
            return connected.and_then(|_| self.way_to_process(target.peer.0));
        }
        let grant = peer.grant(self.me, target, self.segment.shape().arena_bytes as u64)?;
        let way = self.way(&grant, target, right);
        self.grants.keep(grant);
        way
    }

    /// The process whose private memory can be copied from here.
    fn way_to_process(&self, place: u32) -> Option<Way> {
        let peer = self.peers.get(place as usize).filter(|peer| peer.reached)?;
        peer.mark.map(|mark| Way::Process(mark.process_id as i32))
    }

    /// True if these bytes are of this process's arena.
    fn is_own_mapped(&self, region: &MemoryRegion) -> bool {
        let start = self.segment.arena_address(self.me).map(|start| start as u64);
        start.is_some_and(|start| {
            let end = start + self.segment.shape().arena_bytes as u64;
            region.address >= start && region.address.checked_add(region.len_bytes).is_some_and(|last| last <= end)
        })
    }

    fn own(&self) -> Option<&Peer> {
        self.peers.get(self.me as usize)
    }

    fn lives(&self, place: u32) -> bool {
        let mark = self.segment.identity(place).and_then(|identity| ProcessMark::of(&identity));
        mark.is_some_and(ProcessMark::is_alive)
    }
}

impl Peer {
    /// Its queue pair, and what that allows and in which domain, if it is connected to the one of process `me`.
    fn connected(&self, me: u32, target: &DirectTarget) -> Option<(Look, u64)> {
        let (index, generation) = split(target.remote_qp);
        let look = self.queue_pairs.look(index, generation)?;
        let [connected, granted, _] = look.words;
        (connected == u64::from(me) << 32 | u64::from(target.local_qp)).then_some((look, granted))
    }

    /// What its own tables grant process `me` of the memory that a target names.
    fn grant(&self, me: u32, target: &DirectTarget, arena_bytes: u64) -> Option<Grant> {
        let (queue_pair, granted) = self.connected(me, target)?;
        let (index, generation) = split(target.memory.rkey.0);
        let region = self.regions.look(index, generation)?;
        let [start, len_bytes, allowed] = region.words;
        if allowed >> 32 != granted >> 32 {
            return None;
        }
        let here = if allowed & MAPPED == 0 { None } else { Some(self.mapped(start, len_bytes, arena_bytes)?) };
        let rights = granted & allowed & (READ | WRITE | ATOMIC);
        let (queue_pair, region) = (self.queue_pairs.remember(&queue_pair), self.regions.remember(&region));
        Some(Grant { key: Key::of(target), rights, start, len_bytes, here, queue_pair, region })
    }

    /// Where these bytes of its arena are mapped here; whatever it says, they lie in there.
    fn mapped(&self, start: u64, len_bytes: u64, arena_bytes: u64) -> Option<usize> {
        let theirs = self.identity.word(ARENA_ADDRESS).load(Ordering::Relaxed);
        let offset = start.checked_sub(theirs)?;
        let is_inside = offset.checked_add(len_bytes).is_some_and(|end| end <= arena_bytes);
        self.arena.filter(|_| is_inside)?.checked_add(usize::try_from(offset).ok()?)
    }
}

/// Copies to mapped memory, for whoever polls its last word.
#[inline]
fn write_mapped(from: &[ReadRange], to: WriteRange) {
    match from {
        [range] => {
            // SAFETY: bytes that were promised readable while the request lives, and that nobody changes meanwhile.
            let bytes = unsafe { std::slice::from_raw_parts(range.address() as *const u8, range.len_bytes()) };
            copying::scatter_in_order(bytes, &[to]);
        }
        _ => {
            copying::copy(from, &[to]);
        }
    }
}
