//! The way to one peer: the channel, or that there is a connection, and what waits for room.
//!
//! Records leave in the order they were given. While anything waits, everything later waits behind it: that is
//! what keeps MPI's ordering of messages (MPI: §3.5).
//!
//! ```text
//!               a place is taken            idle: close, the last record in the channel
//!   mailbox ──── open, in the mailbox ───▶ channel ─────▶ closing ──── the receiver is through with it ───▶ mailbox
//! ```
//! A peer that is mapped is reached through a channel of its own, or, where it grants none, through the mailbox that
//! all such senders share. Each change of the way is a record in the way before it, so nothing is overtaken.

use std::collections::VecDeque;

use fabric::SharedMemory;
use lockfree::fastpath::{RecordSender, Retired};
use lockfree::{
    Aboard, BlockSender, MEDIUM_MIN_BYTES, MailboxSender, Reader, Record, STREAMING_MIN_BYTES, Shuttle, Shuttles,
    Stores, mailbox,
};

use crate::fastpath::{COLD, Geometry, HOLD_BACK, Idleness, OtherSender};
use crate::wire::{self, Control, Message, OfferedChannel};

/// Something that found no room.
#[derive(Clone, Copy, Debug)]
pub enum Outgoing {
    /// A control record, whole.
    Control(Control),
    /// An eager message whose bytes still lie with the engine's request of this number.
    Eager(u64),
    /// Where the blocks of the engine's receive of this number belong, to be put together when it leaves.
    Clear(u64),
}

/// How records reach a peer.
enum Way {
    /// Through a block in its memory.
    Block(BlockSender),
    /// Through a channel of another design.
    Other(Box<OtherSender>),
    /// Through the mailbox in its memory that it has for all.
    Mailbox(Box<MailboxSender>),
    /// The channel is closed; the mailbox is next, when the peer has read to the end.
    Closing(Box<(Retired, MailboxSender)>),
    /// As messages, which the engine's port posts; here they only wait for their turn.
    Port {
        /// Longest payload of one record, in bytes.
        payload_max_bytes: usize,
    },
}

/// Whom a record has to be announced to, after it was pushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Announce {
    /// Nobody: the peer polls.
    Nothing,
    /// The peer does not poll the channel.
    Channel,
    /// The peer does not poll its mailbox.
    Mailbox,
}

/// The sending side of one peer.
pub struct Link {
    way: Way,
    waiting: VecDeque<Outgoing>,
    /// There is more to a push than the push: something waits, or credits go along.
    detour: bool,
    /// What was consumed of the peer's channel to us, to go along with the next record.
    credits: Option<u64>,
    slow_records: u64,
    /// When the peer is asked for a channel, counted in these.
    request_at: u64,
    idleness: Idleness,
    /// Our own shuttle has come back with the end of a channel.
    shuttle_came: bool,
}

impl Link {
    /// A link through a channel of its own in the peer's memory.
    ///
    /// # Panics
    /// If the geometry has no channels.
    pub fn fast(geometry: &Geometry, memory: &SharedMemory) -> Self {
        Self::over(fast_way(geometry, memory).expect("whoever takes a place has a design for it"))
    }

    /// A link through the peer's mailbox.
    pub fn slow(mailbox: MailboxSender) -> Self {
        Self::over(Way::Mailbox(Box::new(mailbox)))
    }

    /// A link whose records, with payloads of at most `payload_max_bytes`, are posted to a connection.
    pub fn over_port(payload_max_bytes: usize) -> Self {
        Self::over(Way::Port { payload_max_bytes })
    }

    fn over(way: Way) -> Self {
        Self {
            way,
            waiting: VecDeque::new(),
            detour: false,
            credits: None,
            slow_records: 0,
            request_at: 0,
            idleness: Idleness::default(),
            shuttle_came: false,
        }
    }

    /// The block, if a record can be pushed to it just so. Whoever does looks at [`BlockSender::hint`], as
    /// [`Link::holds_back_eager`] before and [`Link::announce`] after.
    #[inline]
    pub fn hot(&mut self) -> Option<&mut BlockSender> {
        match &mut self.way {
            Way::Block(block) if !self.detour => Some(block),
            _ => None,
        }
    }

    /// True if records are posted to a connection: [`Link::try_push`] never sends one.
    #[inline]
    pub fn is_port(&self) -> bool {
        matches!(self.way, Way::Port { .. })
    }

    /// True if records go through the mailbox, now or soon.
    pub fn is_slow(&self) -> bool {
        matches!(self.way, Way::Mailbox(_) | Way::Closing(_))
    }

    /// True if nothing waits for room.
    #[inline]
    pub fn is_clear(&self) -> bool {
        self.waiting.is_empty()
    }

    /// What a receiver is told of the channel that may bring a message of `len_bytes`.
    pub fn offer(&self, len_bytes: u64) -> OfferedChannel {
        let Way::Block(block) = &self.way else { return OfferedChannel::default() };
        let takes_whole = len_bytes <= block.long_payload_max_bytes() as u64;
        OfferedChannel { is_near: block.is_near(), takes_whole, awaits: false }
    }

    /// Before a record with a payload of `len_bytes`, not one of several reserved: where its reader runs.
    pub fn prepare(&mut self, len_bytes: usize, reader: Reader) {
        if let Way::Block(block) = &mut self.way
            && len_bytes >= STREAMING_MIN_BYTES
        {
            block.prepare(len_bytes, reader);
        }
    }

    /// Records that wait for room.
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    fn hint(&self) -> u64 {
        match &self.way {
            Way::Block(block) => block.hint(),
            Way::Other(channel) => channel.hint(),
            Way::Mailbox(mailbox) => mailbox.hint(),
            Way::Closing(_) | Way::Port { .. } => 0,
        }
    }

    /// A mapped peer asks for no eager data now: its store of unexpected messages is full. Others say so to the port.
    #[inline]
    pub fn holds_back_eager(&self) -> bool {
        self.hint() & HOLD_BACK != 0
    }

    /// What is to be done after a push, and after the barrier that comes with ringing the peer's doorbell.
    #[inline]
    pub fn announce(&self) -> Announce {
        match self.hint() & COLD {
            0 => Announce::Nothing,
            _ if self.is_slow() => Announce::Mailbox,
            _ => Announce::Channel,
        }
    }

    /// Longest payload of one record, in bytes; no block has to grow for it beyond its first length.
    pub fn payload_max_bytes(&self) -> usize {
        match &self.way {
            Way::Block(block) => block.first_payload_max_bytes(),
            Way::Other(channel) => channel.payload_max_bytes(),
            Way::Mailbox(_) | Way::Closing(_) => mailbox::PAYLOAD_MAX_BYTES,
            Way::Port { payload_max_bytes } => *payload_max_bytes,
        }
    }

    /// As [`Link::payload_max_bytes`], of what a block takes as long as it is now, in bytes.
    pub fn present_payload_max_bytes(&self) -> usize {
        match &self.way {
            Way::Block(block) => block.present_payload_max_bytes(),
            _ => self.payload_max_bytes(),
        }
    }

    /// True if records with payloads of these lengths can be written to a block now one after the other, and none will be
    /// refused. Nothing waits then, and nothing else may be pushed between them.
    pub fn reserve(&mut self, payloads: impl Iterator<Item = usize>) -> bool {
        // They go along with the first.
        let credits = if self.credits.is_some() { wire::CREDITS_BYTES } else { 0 };
        let payloads = payloads.enumerate().map(|(at, len)| if at == 0 { len + credits } else { len });
        match &mut self.way {
            Way::Block(block) if self.waiting.is_empty() => block.reserve(payloads),
            _ => false,
        }
    }

    /// Writes a record to a mapped peer now if nothing waits before it and there is room; `fill` writes the payload with
    /// the stores it is told.
    #[inline]
    pub fn try_push(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8], Stores)) -> bool {
        match &mut self.way {
            Way::Block(block) if !self.detour => push_to_block(block, record, len_bytes, fill),
            _ => self.waiting.is_empty() && self.push_by_detour(record, len_bytes, fill),
        }
    }

    /// Lets the payloads of records to a mapped peer go aboard, where there is a block.
    pub fn equip(&mut self, shuttles: Option<Shuttles>) {
        if let Way::Block(block) = &mut self.way {
            block.equip(shuttles);
        }
    }

    /// Longest message that may go aboard a shuttle now, in bytes.
    #[inline]
    pub fn aboard_max_bytes(&self) -> usize {
        match &self.way {
            Way::Block(block) if self.waiting.is_empty() && !self.holds_back_eager() => block.shuttle_bytes(),
            _ => 0,
        }
    }

    /// True if shuttles are written faster by the processor's own instruction for copying, as far as is known.
    #[inline]
    pub fn writes_by_instruction(&self) -> bool {
        matches!(&self.way, Way::Block(block) if block.writes_by_instruction())
    }

    /// As [`Link::try_push`], with the payload in a shuttle that this process has.
    pub fn try_push_aboard(
        &mut self,
        record: Record,
        len_bytes: usize,
        aboard: Aboard,
        fill: impl FnOnce(&mut [u8], Stores),
    ) -> bool {
        match &mut self.way {
            Way::Block(block) if self.waiting.is_empty() => block.push_aboard(record, len_bytes, aboard, fill),
            _ => false,
        }
    }

    /// Writes the record that is first in the queue to a mapped peer; true if it left and the queue moved on.
    pub fn push_first(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8], Stores)) -> bool {
        let pushed = self.push_by_detour(record, len_bytes, fill);
        if pushed {
            self.skip_first();
        }
        pushed
    }

    /// Pushes a record whichever way there is, with what is to go along.
    #[inline(never)]
    fn push_by_detour(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8], Stores)) -> bool {
        self.leave_closed();
        let room = self.payload_max_bytes().max(self.present_payload_max_bytes());
        let credits = self.credits.filter(|_| len_bytes + wire::CREDITS_BYTES <= room);
        let pushed = match credits {
            Some(count) => {
                let len_with = len_bytes + wire::CREDITS_BYTES;
                self.push_plain(wire::with_credits(record), len_with, |space, stores| {
                    wire::put_credits(space, count, |space| fill(space, stores));
                })
            }
            None => self.push_plain(record, len_bytes, fill),
        };
        if pushed {
            self.slow_records += u64::from(self.is_slow());
            self.credits = self.credits.filter(|_| credits.is_none());
            self.look();
        }
        pushed
    }

    fn push_plain(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8], Stores)) -> bool {
        match &mut self.way {
            Way::Block(block) => push_to_block(block, record, len_bytes, fill),
            Way::Other(channel) => channel.push(record, len_bytes, |space| fill(space, Stores::Streaming)),
            Way::Mailbox(mailbox) => mailbox.push(record, len_bytes, |space| fill(space, Stores::Streaming)),
            Way::Closing(_) | Way::Port { .. } => false,
        }
    }

    fn look(&mut self) {
        self.detour = !self.waiting.is_empty() || self.credits.is_some();
    }

    /// Queues a control record.
    pub fn queue_control(&mut self, control: Control) {
        self.waiting.push_back(Outgoing::Control(control));
        self.look();
    }

    /// Queues an eager message of the engine's request `request`.
    pub fn queue_eager(&mut self, request: u64) {
        self.waiting.push_back(Outgoing::Eager(request));
        self.look();
    }

    /// Queues what tells where the blocks of the engine's receive `request` belong.
    pub fn queue_clear(&mut self, request: u64) {
        self.waiting.push_back(Outgoing::Clear(request));
        self.look();
    }

    /// What is first in the queue.
    pub fn first_waiting(&self) -> Option<Outgoing> {
        self.waiting.front().copied()
    }

    /// Drops all that waits: there is nobody to get it.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.look();
    }

    /// Drops the first in the queue: it was posted, or its request is gone.
    pub fn skip_first(&mut self) {
        self.waiting.pop_front();
        self.look();
    }

    /// True if credits could go back to the peer along with the next record, and those before are gone.
    pub fn can_carry_credits(&self) -> bool {
        self.credits.is_none() && !matches!(self.way, Way::Port { .. } | Way::Closing(_))
    }

    /// Credits to go along with the next record; with `None`, those that have not gone went another way.
    pub fn carry_credits(&mut self, consumed: Option<u64>) {
        self.credits = consumed;
        self.look();
    }

    /// Credits that the peer sent along with a record.
    pub fn credit(&mut self, consumed: u64) {
        match &mut self.way {
            Way::Block(block) => block.credit(consumed),
            Way::Other(channel) => channel.credit(consumed),
            Way::Mailbox(_) | Way::Closing(_) | Way::Port { .. } => {}
        }
    }

    /// True if it is time to ask the peer for a channel.
    pub fn wants_channel(&self) -> bool {
        matches!(self.way, Way::Mailbox(_)) && self.slow_records >= self.request_at
    }

    /// The peer grants none now: it is asked again after so many records.
    pub fn ask_later(&mut self, records: u64) {
        self.request_at = self.slow_records + records;
    }

    /// From the mailbox to a channel of its own, in `memory`, which the peer has granted; true if the peer could be
    /// told. What waits goes through the channel.
    pub fn open(&mut self, geometry: &Geometry, memory: &SharedMemory) -> bool {
        self.leave_closed();
        let Way::Mailbox(mailbox) = &mut self.way else { return false };
        if !mailbox.push(wire::control(Message::Open).record, 0, |_| ()) {
            return false;
        }
        match fast_way(geometry, memory) {
            Some(way) => self.way = way,
            None => return false,
        }
        self.idleness = Idleness::default();
        true
    }

    /// Notes that the use of the channel is looked at; true if it has not been used for `looks_max` looks.
    pub fn is_idle(&mut self, looks_max: u32) -> bool {
        let produced = match &self.way {
            Way::Block(block) => block.produced(),
            Way::Other(channel) => channel.produced(),
            Way::Mailbox(_) | Way::Closing(_) | Way::Port { .. } => return false,
        };
        self.idleness.look(produced, looks_max)
    }

    /// Gives the channel in `memory` up, if nothing waits for it: the peer is told in the channel, and gets a `shuttle` of
    /// its own with that. Once that was announced, [`Link::begin_closing`].
    pub fn close(&mut self, memory: &SharedMemory, shuttle: Option<Shuttle>) -> Option<Retired> {
        let retired = Retired::expected(memory.clone());
        let record = wire::control(Message::Close).record;
        let closes = self.waiting.is_empty()
            && match &mut self.way {
                Way::Block(block) => match shuttle {
                    Some(shuttle) => {
                        let aboard = Aboard { shuttle, offset: 0, lead: 0, is_last: true };
                        block.push_aboard(record, 0, aboard, |_, _| ())
                    }
                    None => block.push(record, 0, |_| ()),
                },
                Way::Other(channel) => channel.push(record, 0, |_| ()),
                Way::Mailbox(_) | Way::Closing(_) | Way::Port { .. } => false,
            };
        closes.then_some(retired)
    }

    /// The channel was closed; the mailbox is next.
    pub fn begin_closing(&mut self, retired: Retired, mailbox: MailboxSender) {
        self.way = Way::Closing(Box::new((retired, mailbox)));
    }

    /// From a closed channel to the mailbox, if the peer has read to the end.
    fn leave_closed(&mut self) {
        if matches!(&self.way, Way::Closing(closing) if closing.0.is_over())
            && let Way::Closing(closing) = std::mem::replace(&mut self.way, Way::Port { payload_max_bytes: 0 })
        {
            self.shuttle_came |= closing.0.brings_shuttle();
            self.way = Way::Mailbox(Box::new(closing.1));
        }
    }

    /// True if there is no channel any more, and the peer has read to the end of the one that was closed.
    pub fn is_by_mailbox(&mut self) -> bool {
        self.leave_closed();
        matches!(self.way, Way::Mailbox(_))
    }

    /// After a channel was closed: whether our own shuttle came back with its end, once the peer has read to that.
    pub fn end_closing(&mut self) -> Option<bool> {
        self.leave_closed();
        let is_over = !matches!(self.way, Way::Closing(_));
        is_over.then(|| std::mem::take(&mut self.shuttle_came))
    }

    /// Times the block changed its length.
    pub fn resized(&self) -> u64 {
        match &self.way {
            Way::Block(block) => block.resized(),
            Way::Other(_) | Way::Mailbox(_) | Way::Closing(_) | Way::Port { .. } => 0,
        }
    }
}

#[inline]
fn push_to_block(
    block: &mut BlockSender,
    record: Record,
    len_bytes: usize,
    fill: impl FnOnce(&mut [u8], Stores),
) -> bool {
    if len_bytes < MEDIUM_MIN_BYTES {
        block.push(record, len_bytes, |space| fill(space, Stores::Streaming))
    } else {
        block.push_long(record, len_bytes, fill)
    }
}

fn fast_way(geometry: &Geometry, memory: &SharedMemory) -> Option<Way> {
    let block = geometry.block(memory).map(Way::Block);
    block.or_else(|| geometry.other(memory).map(|channel| Way::Other(Box::new(channel))))
}
