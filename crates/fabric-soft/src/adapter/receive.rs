//! Receive queues: what is posted, who waits for it.

use std::collections::VecDeque;

use base::SlabKey;
use base::memory::WriteRange;
use fabric::{FabricError, ReceiveRequest, ScatterGather};
use smallvec::SmallVec;

use super::regions::{Regions, Targets};

/// A scatter/gather list kept with a request.
pub(super) type List = SmallVec<[ScatterGather; 2]>;

/// A receive that a message may fill.
#[derive(Clone, Debug)]
pub(super) struct Receive {
    pub(super) id: u64,
    pub(super) list: List,
    /// Instead of a list: memory that is this receive's alone.
    pub(super) own: Option<WriteRange>,
}

impl Receive {
    pub(super) fn of(request: &ReceiveRequest<'_>) -> Self {
        Self { id: request.id, list: List::from_slice(request.list), own: None }
    }

    /// One that brings its memory along.
    pub(super) fn lone(id: u64, memory: WriteRange) -> Self {
        Self { id, list: List::new(), own: Some(memory) }
    }

    /// Where its bytes go; `None` if a key, a bound or the domain is wrong.
    pub(super) fn targets(&self, regions: &Regions, domain: u32) -> Option<Targets> {
        match self.own {
            Some(memory) => Some([memory].into_iter().collect()),
            None => regions.targets(domain, &self.list),
        }
    }

    /// Bytes of the longest message it takes.
    pub(super) fn capacity_bytes(&self) -> u64 {
        match self.own {
            Some(memory) => memory.len_bytes() as u64,
            None => self.list.iter().map(|entry| u64::from(entry.len_bytes)).sum(),
        }
    }
}

/// One entry of a receive queue.
#[derive(Clone, Debug)]
pub(super) enum Posted {
    Here(Receive),
    /// In the adapter's table of receives that stand in several queues.
    InSeveral(SlabKey),
}

/// A receive queue, of a queue pair or shared.
pub(super) struct ReceiveQueue {
    /// Some of the entries in several queues may be gone already.
    pub(super) posted: VecDeque<Posted>,
    /// Entries that are not gone.
    pub(super) live: u32,
    pub(super) depth: u32,
    pub(super) entries_max: u32,
    /// Queue pairs whose peers were told to come again.
    pub(super) waiting: VecDeque<u32>,
}

impl ReceiveQueue {
    pub(super) fn new(depth: u32, entries_max: u32) -> Self {
        Self { posted: VecDeque::new(), live: 0, depth, entries_max, waiting: VecDeque::new() }
    }

    /// Takes as many as there is room for.
    pub(super) fn post(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<usize, FabricError> {
        for (index, request) in requests.iter().enumerate() {
            if let Err(error) = self.fits(request) {
                return if index == 0 { Err(error) } else { Ok(index) };
            }
            if self.is_full() {
                return Ok(index);
            }
            self.push(Posted::Here(Receive::of(request)));
        }
        Ok(requests.len())
    }

    pub(super) fn fits(&self, request: &ReceiveRequest<'_>) -> Result<(), FabricError> {
        if request.list.len() > self.entries_max as usize {
            return Err(FabricError::BeyondLimit {
                what: "entries of a receive",
                asked: request.list.len() as u64,
                max: self.entries_max.into(),
            });
        }
        Ok(())
    }

    pub(super) fn is_full(&self) -> bool {
        self.live >= self.depth
    }

    pub(super) fn push(&mut self, entry: Posted) {
        self.posted.push_back(entry);
        self.live += 1;
    }

    /// An entry that stands here and elsewhere is gone. `is_live` tells which of the others are not.
    pub(super) fn forget_one(&mut self, is_live: impl Fn(SlabKey) -> bool) {
        self.live -= 1;
        // The dead are swept out when they are the majority: the cost per receive stays constant.
        if self.posted.len() > 16 && self.posted.len() > 2 * self.live as usize {
            self.posted.retain(|entry| match entry {
                Posted::Here(_) => true,
                Posted::InSeveral(number) => is_live(*number),
            });
        }
    }

    /// A queue pair waits here, once.
    pub(super) fn wait(&mut self, qp: u32) {
        if !self.waiting.contains(&qp) {
            self.waiting.push_back(qp);
        }
    }
}
