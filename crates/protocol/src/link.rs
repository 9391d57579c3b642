//! The way to one peer: the channel, and what waits for room in it.
//!
//! Records leave in the order they were given. While anything waits, everything later waits behind it: that is
//! what keeps MPI's ordering of messages (MPI: §3.5).

use std::collections::VecDeque;

use fabric::SharedMemory;
use lockfree::{BlockSender, Record};

use crate::wire::Control;

/// Something that found no room.
#[derive(Clone, Copy, Debug)]
pub enum Outgoing {
    /// A control record, whole.
    Control(Control),
    /// An eager message whose bytes still lie with the engine's request of this number.
    Eager(u64),
}

/// The sending side of one peer.
pub struct Link {
    channel: BlockSender,
    waiting: VecDeque<Outgoing>,
    /// The peer has been told that this channel is in use.
    pub introduced: bool,
}

impl Link {
    /// A link over the channel in the peer's memory.
    pub fn new(memory: SharedMemory, channel_bytes: usize) -> Self {
        Self { channel: BlockSender::new(memory, channel_bytes), waiting: VecDeque::new(), introduced: false }
    }

    /// True if nothing waits for room.
    #[inline]
    pub fn is_clear(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The peer asks for no eager data now: its store of unexpected messages is full.
    #[inline]
    pub fn holds_back_eager(&self) -> bool {
        self.channel.hint() != 0
    }

    /// Longest payload of one record, in bytes.
    pub fn payload_max_bytes(&self) -> usize {
        self.channel.payload_max_bytes()
    }

    /// Sends a record now if nothing waits before it and there is room.
    #[inline]
    pub fn try_push(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        self.waiting.is_empty() && self.channel.push(record, len_bytes, fill)
    }

    /// Sends a control record now or queues it; true if it left.
    pub fn send_control(&mut self, control: Control) -> bool {
        let payload = control.payload();
        if self.try_push(control.record, payload.len(), |space| space.copy_from_slice(payload)) {
            return true;
        }
        self.waiting.push_back(Outgoing::Control(control));
        false
    }

    /// Queues an eager message of the engine's request `request`.
    pub fn queue_eager(&mut self, request: u64) {
        self.waiting.push_back(Outgoing::Eager(request));
    }

    /// What is first in the queue.
    pub fn first_waiting(&self) -> Option<Outgoing> {
        self.waiting.front().copied()
    }

    /// Sends the record that is first in the queue; true if it left and the queue moved on.
    pub fn push_first(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let pushed = self.channel.push(record, len_bytes, fill);
        if pushed {
            self.waiting.pop_front();
        }
        pushed
    }

    /// Drops the first in the queue: its request is gone.
    pub fn skip_first(&mut self) {
        self.waiting.pop_front();
    }
}
