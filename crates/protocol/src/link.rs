//! The way to one peer: the channel, or that there is a connection, and what waits for room.
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

/// How records reach a peer.
enum Way {
    /// Through a block in its memory.
    Mapped(BlockSender),
    /// As messages, which the engine's port posts; here they only wait for their turn.
    Port {
        /// Longest payload of one record, in bytes.
        payload_max_bytes: usize,
    },
}

/// The sending side of one peer.
pub struct Link {
    way: Way,
    waiting: VecDeque<Outgoing>,
    /// The peer has been told that this channel is in use.
    pub introduced: bool,
}

impl Link {
    /// A link over the channel in the peer's memory.
    pub fn new(memory: SharedMemory, channel_bytes: usize) -> Self {
        let way = Way::Mapped(BlockSender::new(memory, channel_bytes));
        Self { way, waiting: VecDeque::new(), introduced: false }
    }

    /// A link whose records, with payloads of at most `payload_max_bytes`, are posted to a connection.
    pub fn over_port(payload_max_bytes: usize) -> Self {
        let way = Way::Port { payload_max_bytes };
        Self { way, waiting: VecDeque::new(), introduced: true }
    }

    /// True if records are posted to a connection: [`Link::try_push`] never sends one.
    #[inline]
    pub fn is_port(&self) -> bool {
        matches!(self.way, Way::Port { .. })
    }

    /// True if nothing waits for room.
    #[inline]
    pub fn is_clear(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A mapped peer asks for no eager data now: its store of unexpected messages is full. Others say so to the port.
    #[inline]
    pub fn holds_back_eager(&self) -> bool {
        match &self.way {
            Way::Mapped(channel) => channel.hint() != 0,
            Way::Port { .. } => false,
        }
    }

    /// Longest payload of one record, in bytes.
    pub fn payload_max_bytes(&self) -> usize {
        match &self.way {
            Way::Mapped(channel) => channel.payload_max_bytes(),
            Way::Port { payload_max_bytes } => *payload_max_bytes,
        }
    }

    /// Writes a record to a mapped peer now if nothing waits before it and there is room.
    #[inline]
    pub fn try_push(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        match &mut self.way {
            Way::Mapped(channel) => self.waiting.is_empty() && channel.push(record, len_bytes, fill),
            Way::Port { .. } => false,
        }
    }

    /// Writes the record that is first in the queue to a mapped peer; true if it left and the queue moved on.
    pub fn push_first(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let Way::Mapped(channel) = &mut self.way else { return false };
        let pushed = channel.push(record, len_bytes, fill);
        if pushed {
            self.waiting.pop_front();
        }
        pushed
    }

    /// Queues a control record.
    pub fn queue_control(&mut self, control: Control) {
        self.waiting.push_back(Outgoing::Control(control));
    }

    /// Queues an eager message of the engine's request `request`.
    pub fn queue_eager(&mut self, request: u64) {
        self.waiting.push_back(Outgoing::Eager(request));
    }

    /// What is first in the queue.
    pub fn first_waiting(&self) -> Option<Outgoing> {
        self.waiting.front().copied()
    }

    /// Drops all that waits: there is nobody to get it.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Drops the first in the queue: it was posted, or its request is gone.
    pub fn skip_first(&mut self) {
        self.waiting.pop_front();
    }
}
