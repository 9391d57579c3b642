//! Reads and writes by the initiator's processor: it looks up the target's key in the target's own table and copies by
//! cross-memory attach. The target takes no part, whatever it is doing.
//!
//! ```text
//!   region      address | length | rights, domain << 32
//!   queue pair  peer << 32, its queue pair | rights, domain << 32 | 0
//! ```

use std::time::Duration;

use base::memory::{ReadRange, WriteRange};
use fabric::{Access, DirectCopyError, MemoryRegion};

use super::cross_memory;
use super::life::{self, ProcessMark};
use super::link::ShmLink;
use crate::link::{Direct, DirectOutcome, DirectQueuePair, DirectTarget};

const READ: u64 = 1;
const WRITE: u64 = 2;

fn rights(access: Access) -> u64 {
    let bit = |granted, right| if granted { right } else { 0 };
    bit(access.remote_read, READ) | bit(access.remote_write, WRITE)
}

/// What an initiator is engaged with: a key of a process, never 0.
fn mark(owner: u32, key: u32) -> u64 {
    u64::from(owner + 1) << 32 | u64::from(key)
}

impl Direct for ShmLink {
    fn publish_region(&mut self, region: &MemoryRegion, access: Access, domain: u32) {
        let (index, generation) = split(region.rkey.0);
        if let Some(table) = self.segment.published_regions(self.me)
            && rights(access) != 0
        {
            table.publish(
                index,
                generation,
                [region.address, region.len_bytes, rights(access) | u64::from(domain) << 32],
            );
        }
    }

    fn withdraw_region(&mut self, region: &MemoryRegion) {
        let Some(table) = self.segment.published_regions(self.me) else { return };
        let (index, generation) = split(region.rkey.0);
        if table.look(index, generation).is_none() {
            return;
        }
        table.withdraw(index);
        let mark = mark(self.me, region.rkey.0);
        for place in (0..self.segment.shape().process_count).filter(|place| *place != self.me) {
            let Some(engagement) = self.segment.engagement(place) else { continue };
            // A copy under way is short; one whose process has died is not under way.
            while engagement.is_with(mark) && self.lives(place) {
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    }

    fn publish_queue_pair(&mut self, qp: &DirectQueuePair) {
        let (index, generation) = split(qp.number);
        if let Some(table) = self.segment.published_queue_pairs(self.me) {
            let peer = u64::from(qp.peer.0) << 32 | u64::from(qp.remote);
            table.publish(index, generation, [peer, rights(qp.access) | u64::from(qp.domain) << 32, 0]);
        }
    }

    fn withdraw_queue_pair(&mut self, number: u32) {
        if let Some(table) = self.segment.published_queue_pairs(self.me) {
            table.withdraw(split(number).0);
        }
    }

    fn write(&mut self, target: &DirectTarget, from: &[ReadRange]) -> DirectOutcome {
        self.act(target, WRITE, |process, mut remote| {
            for range in from {
                // SAFETY: the range is registered memory of a request that is not complete.
                unsafe { cross_memory::write(process, range.address(), remote, range.len_bytes()) }?;
                remote += range.len_bytes() as u64;
            }
            Ok(())
        })
    }

    fn read(&mut self, target: &DirectTarget, to: &[WriteRange]) -> DirectOutcome {
        self.act(target, READ, |process, mut remote| {
            for range in to {
                // SAFETY: the range is registered memory of a request that is not complete, for it to fill.
                unsafe { cross_memory::read(process, range.address(), remote, range.len_bytes()) }?;
                remote += range.len_bytes() as u64;
            }
            Ok(())
        })
    }
}

impl ShmLink {
    /// Does `copy` if the target allows it; engaged with its key, so that the target cannot take the memory away.
    fn act(
        &mut self,
        target: &DirectTarget,
        right: u64,
        copy: impl FnOnce(i32, u64) -> Result<(), DirectCopyError>,
    ) -> DirectOutcome {
        let place = target.peer.0;
        let Some(peer) = self.peers.get(place as usize).filter(|peer| peer.reached && !peer.lost) else {
            return DirectOutcome::NotHere;
        };
        let (Some(ProcessMark { process_id, .. }), false) = (peer.mark, self.has_left(place)) else {
            return DirectOutcome::NotHere;
        };
        let Some(engagement) = self.segment.engagement(self.me) else { return DirectOutcome::NotHere };
        engagement.engage(mark(place, target.memory.rkey.0));
        let done = self.allows(target, right) && copy(process_id as i32, target.memory.address).is_ok();
        engagement.release();
        if done { DirectOutcome::Done } else { DirectOutcome::NotHere }
    }

    /// What the target's own tables say.
    fn allows(&self, target: &DirectTarget, right: u64) -> bool {
        let place = target.peer.0;
        let (index, generation) = split(target.remote_qp);
        let queue_pair = self.segment.published_queue_pairs(place).and_then(|table| table.look(index, generation));
        let Some([connected, granted, _]) = queue_pair else { return false };
        if connected != u64::from(self.me) << 32 | u64::from(target.local_qp) || granted & right == 0 {
            return false;
        }
        if target.len_bytes == 0 {
            return true;
        }
        let (index, generation) = split(target.memory.rkey.0);
        let region = self.segment.published_regions(place).and_then(|table| table.look(index, generation));
        let Some([start, len, allowed]) = region else { return false };
        let offset = target.memory.address.wrapping_sub(start);
        allowed & right != 0
            && allowed >> 32 == granted >> 32
            && target.memory.address >= start
            && offset.checked_add(target.len_bytes).is_some_and(|end| end <= len)
    }

    fn has_left(&self, place: u32) -> bool {
        self.segment.identity(place).is_none_or(|identity| life::has_left(&identity))
    }

    fn lives(&self, place: u32) -> bool {
        let mark = self.segment.identity(place).and_then(|identity| ProcessMark::of(&identity));
        mark.is_some_and(ProcessMark::is_alive)
    }
}

/// Place and generation of a number.
fn split(number: u32) -> (u32, u32) {
    (number & 0xffff, number >> 16)
}
