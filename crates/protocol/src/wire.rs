//! The records of the fast path.
//!
//! ```text
//!   kind           long (128 bits)            payload
//!   eager          match key, 0               data
//!   eager-sync     match key, send id         data                               answered by acknowledge
//!   request        match key, send id         length, address, rkey, kind of layout [, scattered]
//!                                                                                "request to send"
//!   ahead          send id, offset            data                               follows the request of that message
//!   first          match key, length          data                               a message that comes whole, in pieces:
//!                                                                                nothing else comes between them
//!   more           offset, 0                  data                               the next of its pieces
//!   clear          send id, receive id        —                                  send it through the channel;
//!                                                                                short bit 0: what went ahead was taken
//!   clear-shared   send id, receive id        address, rkey, cell, generation, chunk length [, scattered]
//!                                                                                short bit 0: the sender copies alone
//!   data           receive id, offset         data                               short bit 0: last of its range
//!   finished       send id, 0                 —                                  the receiver has everything
//!   acknowledge    send id, 0                 —                                  matched
//!   withdraw       match key, send id         —                                  the sender cancels
//!   withdrawn      send id, 0                 —                                  it was not matched and is gone
//!   clear-write    send id, 0                 address, rkey, number              write it there, tell with number;
//!                                                                                short bit 0: packed in segments
//!   clear-segment  send id, 0                 as clear-write, and length         the same for the next bytes of it
//!   clear-blocks   send id, receive id        see `crate::blocks`                write each block where it belongs
//!   open           0                          —                                  the next records come through a channel
//!   close          0                          —                                  and those after this one do not
//!   want           design, length             address, rkey                      a channel that is written there; the
//!                                                                                place for what its receiver shows
//!   grant          0                          [address, rkey]                    its memory; empty: none
//!   closed         0                          —                                  nobody writes to the place for what the
//!                                                                                receiver of the channel before showed
//!   home           0                          —                                  the shuttle that comes with it is the
//!                                                                                receiver's own
//! ```
//! *scattered* is origin, count, and a reference to a layout: index, version, address, rkey and length of its wire form.

use fabric::{RemoteMemory, Rkey};
use lockfree::Record;

const EAGER: u8 = 1;
const EAGER_SYNC: u8 = 2;
const REQUEST: u8 = 3;
const CLEAR: u8 = 4;
const CLEAR_SHARED: u8 = 5;
const DATA: u8 = 6;
const FINISHED: u8 = 7;
const ACKNOWLEDGE: u8 = 8;
const WITHDRAW: u8 = 9;
const WITHDRAWN: u8 = 10;
const CLEAR_WRITE: u8 = 11;
const CLEAR_SEGMENT: u8 = 12;
const CLEAR_BLOCKS: u8 = 13;
const AHEAD: u8 = 14;
const FIRST: u8 = 15;
const MORE: u8 = 16;
const OPEN: u8 = 48;
const CLOSE: u8 = 49;
const WANT: u8 = 50;
const GRANT: u8 = 51;
const CLOSED: u8 = 52;
const HOME: u8 = 53;
/// Set in the kind of a record that credits go along with, behind its payload.
const WITH_CREDITS: u8 = 0x40;
/// What credits add to the payload of a record.
pub const CREDITS_BYTES: usize = 8;

/// Payload of the longest control record, in bytes.
pub const CONTROL_MAX_BYTES: usize = 64;

/// What a sender offers for rendezvous.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RendezvousOffer {
    /// Length of the message in bytes.
    pub len_bytes: u64,
    /// Where it lies, if it lies in one piece and is registered.
    pub memory: Option<RemoteMemory>,
    /// How it lies there.
    pub layout: SourceLayout,
    /// The channel to the receiver.
    pub channel: OfferedChannel,
}

/// What a sender knows of the channel that a long message may come through, and of its own time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OfferedChannel {
    /// What is written there is found in a cache that both share.
    pub is_near: bool,
    /// One record takes all of the message, now or once the channel is as long as for such messages.
    pub takes_whole: bool,
    /// The sender waits for messages, too: who has it help to copy holds these up.
    pub awaits: bool,
}

/// How the data of a long message lies at its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceLayout {
    /// In one piece.
    InOnePiece,
    /// Scattered; it is packed or gathered on its way out.
    Scattered {
        /// Blocks of consecutive bytes that it consists of.
        block_count: u64,
    },
    /// Scattered over registered memory, as described.
    Described(ScatteredMemory),
}

/// Elements of a datatype in a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScatteredMemory {
    /// The peer's address of displacement 0 of the first element.
    pub origin: u64,
    /// How many elements there are.
    pub count: u64,
    /// Their layout.
    pub layout: LayoutReference,
}

/// A layout of a peer: its place in the peer's table, and where to read it if that place holds another version than the
/// one read last. Paper: datatypes §5.4.2
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayoutReference {
    /// Its place.
    pub index: u32,
    /// How often the place was filled.
    pub version: u32,
    /// Where its wire form lies.
    pub memory: RemoteMemory,
    /// Length of the wire form.
    pub len_bytes: u32,
}

/// How two sides share the copying of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedCopy {
    /// Where it is to go.
    pub target: RemoteMemory,
    /// How it is to lie there, if not in one piece.
    pub scattered: Option<ScatteredMemory>,
    /// The sender copies alone.
    pub alone: bool,
    /// The receiver's claim cell.
    pub cell: u32,
    /// The cell's generation for this message.
    pub generation: u32,
    /// Bytes of a chunk; the last may be shorter.
    pub chunk_bytes: u32,
}

/// One record, understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A whole message whose sender waits until it is matched.
    EagerSync {
        /// What it matches by.
        key: u64,
        /// The sender's request.
        send: u64,
        /// Its bytes.
        data: &'a [u8],
    },
    /// Request to send: the envelope of a message that waits at the sender.
    Request {
        /// What it matches by.
        key: u64,
        /// The sender's request.
        send: u64,
        /// Length and place.
        offer: RendezvousOffer,
    },
    /// Clear to send through the channel.
    Clear {
        /// The sender's request.
        send: u64,
        /// The receiver's request.
        receive: u64,
        /// The receive waited for the request, so that what followed it was taken.
        took_ahead: bool,
        /// So many messages of like length may come whole, without a request.
        whole: u8,
    },
    /// A piece of the message whose request was the last one to come from this peer, sent before the answer.
    Ahead {
        /// The sender's request.
        send: u64,
        /// Where in the message the piece begins, in bytes.
        offset: u64,
        /// Its bytes.
        data: &'a [u8],
    },
    /// The first piece of a message that comes whole, without a request.
    First {
        /// Match key.
        key: u64,
        /// Length of the message in bytes.
        len_bytes: u64,
        /// The piece.
        data: &'a [u8],
    },
    /// Another piece of it; they come in order.
    More {
        /// Where in the message it belongs, in bytes.
        offset: u64,
        /// The piece.
        data: &'a [u8],
    },
    /// Clear to send: both sides copy.
    ClearShared {
        /// The sender's request.
        send: u64,
        /// The receiver's request.
        receive: u64,
        /// Who copies what.
        copy: SharedCopy,
    },
    /// Clear to send by RDMA write.
    ClearWrite {
        /// The sender's request.
        send: u64,
        /// Comes with the last write, as immediate data.
        number: u32,
        /// Where it is to go.
        target: RemoteMemory,
        /// From packed segments, not from where it lies.
        packed: bool,
    },
    /// Clear to send the next bytes of a message by RDMA write.
    ClearSegment {
        /// The sender's request.
        send: u64,
        /// Comes with the last write, as immediate data.
        number: u32,
        /// Where they are to go.
        target: RemoteMemory,
        /// How many bytes.
        len_bytes: u32,
        /// From a packed segment, not from where they lie.
        packed: bool,
    },
    /// Clear to send each block by RDMA write to where it belongs.
    ClearBlocks {
        /// The sender's request.
        send: u64,
        /// The receiver's request.
        receive: u64,
        /// Which blocks.
        blocks: &'a [u8],
    },
    /// A piece of a message.
    Data {
        /// The receiver's request.
        receive: u64,
        /// Where in the message the piece begins, in bytes.
        offset: u64,
        /// It ends the range that is sent this way.
        last: bool,
        /// Its bytes.
        data: &'a [u8],
    },
    /// The receiver has everything.
    Finished {
        /// The sender's request.
        send: u64,
    },
    /// The receiver has matched a synchronous message.
    Acknowledge {
        /// The sender's request.
        send: u64,
    },
    /// The sender cancels a message; no answer if that comes too late.
    Withdraw {
        /// What it matches by.
        key: u64,
        /// The sender's request.
        send: u64,
    },
    /// The message was not matched, and is gone.
    Withdrawn {
        /// The sender's request.
        send: u64,
    },
    /// The sender's next records come through its channel, or through the one granted last.
    Open,
    /// The sender has given its channel up: its next records do not come through it.
    Close,
    /// The sender asks for a channel that it writes by RDMA.
    Want {
        /// Its design and length as a number.
        geometry: u64,
        /// Where the sender wants to be shown credits.
        control: RemoteMemory,
    },
    /// The answer: where the channel is; `None`: there is none for it now.
    Grant(Option<RemoteMemory>),
    /// The receiver of a channel that is written by RDMA is through with it, given up or followed by another.
    Closed,
    /// Nothing but the shuttle in the receiver's memory, which goes home.
    Home,
}

/// A record's header and, for control records, its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control {
    /// The header.
    pub record: Record,
    payload: [u8; CONTROL_MAX_BYTES],
    len: u8,
}

impl Control {
    /// The payload.
    pub fn payload(&self) -> &[u8] {
        &self.payload[..usize::from(self.len)]
    }
}

/// A control record of another module's kind.
pub fn control_of(record: Record, payload: [u8; CONTROL_MAX_BYTES], len: usize) -> Control {
    Control { record, payload, len: len.min(CONTROL_MAX_BYTES) as u8 }
}

fn record(kind: u8, first: u64, second: u64) -> Record {
    Record { kind, short: 0, long: u128::from(second) << 64 | u128::from(first), ..Record::default() }
}

/// Header of an eager message; with `send`, one that is acknowledged.
#[inline]
pub fn eager(key: u64, send: Option<u64>) -> Record {
    match send {
        None => record(EAGER, key, 0),
        Some(send) => record(EAGER_SYNC, key, send),
    }
}

/// Header of the record that says where the blocks of a message belong; its payload is a [`crate::blocks::RemoteBlocks`].
pub fn clear_blocks(send: u64, receive: u64) -> Record {
    record(CLEAR_BLOCKS, send, receive)
}

/// Header of a piece of a message.
pub fn data(receive: u64, offset: u64, last: bool) -> Record {
    Record { short: last.into(), ..record(DATA, receive, offset) }
}

/// Header of a piece of a message that follows its request.
pub fn ahead(send: u64, offset: u64) -> Record {
    record(AHEAD, send, offset)
}

/// The record before the first piece of a message of `len_bytes` that comes whole; its data is the payload.
pub fn first(key: u64, len_bytes: u64) -> Record {
    record(FIRST, key, len_bytes)
}

/// The record before another piece of it; its data is the payload.
pub fn more(offset: u64) -> Record {
    record(MORE, offset, 0)
}

/// The record whose payload is longer by [`CREDITS_BYTES`], in which credits go along. [`parse`] does not know such
/// records.
pub fn with_credits(record: Record) -> Record {
    debug_assert!(record.kind < WITH_CREDITS);
    Record { kind: record.kind | WITH_CREDITS, ..record }
}

/// Writes the payload of such a record: what `fill` writes, and what was consumed.
pub fn put_credits(space: &mut [u8], consumed: u64, fill: impl FnOnce(&mut [u8])) {
    let (payload, credits) = space.split_at_mut(space.len() - CREDITS_BYTES);
    fill(payload);
    credits.copy_from_slice(&consumed.to_ne_bytes());
}

/// The record as it was, its payload, and the credits; `None` if none went along.
pub fn without_credits(record: Record, payload: &[u8]) -> Option<(Record, &[u8], u64)> {
    let plain = Record { kind: record.kind ^ WITH_CREDITS, ..record };
    let (payload, credits) = payload.split_last_chunk()?;
    let has_credits = record.kind < 2 * WITH_CREDITS && record.kind & WITH_CREDITS != 0;
    has_credits.then_some((plain, payload, u64::from_ne_bytes(*credits)))
}

/// A control record from its message.
///
/// # Panics
/// If `message` carries user data or a list of blocks: those are written straight into the channel.
pub fn control(message: Message<'_>) -> Control {
    let mut payload = [0u8; CONTROL_MAX_BYTES];
    let (record, len) = match message {
        Message::Request { key, send, offer } => {
            let nowhere = match offer.layout {
                // The place of the address tells of how many blocks there are.
                SourceLayout::Scattered { block_count } => block_count,
                SourceLayout::InOnePiece | SourceLayout::Described(_) => 0,
            };
            let memory = offer.memory.unwrap_or(RemoteMemory { address: nowhere, rkey: Rkey(0) });
            payload[..8].copy_from_slice(&offer.len_bytes.to_ne_bytes());
            payload[8..16].copy_from_slice(&memory.address.to_ne_bytes());
            payload[16..20].copy_from_slice(&memory.rkey.0.to_ne_bytes());
            let OfferedChannel { is_near, takes_whole, awaits } = offer.channel;
            payload[20] = u8::from(offer.memory.is_some())
                | kind_of(offer.layout) << 1
                | u8::from(is_near) << 3
                | u8::from(takes_whole) << 4
                | u8::from(awaits) << 5;
            let len = match offer.layout {
                SourceLayout::Described(scattered) => put_scattered(&mut payload, scattered),
                SourceLayout::InOnePiece | SourceLayout::Scattered { .. } => SHORT_BYTES,
            };
            (record(REQUEST, key, send), len)
        }
        Message::Clear { send, receive, took_ahead, whole } => {
            (Record { short: u32::from(took_ahead) | u32::from(whole) << 8, ..record(CLEAR, send, receive) }, 0)
        }
        Message::ClearShared { send, receive, copy } => {
            payload[..8].copy_from_slice(&copy.target.address.to_ne_bytes());
            for (at, value) in [copy.target.rkey.0, copy.cell, copy.generation, copy.chunk_bytes].iter().enumerate() {
                payload[8 + 4 * at..12 + 4 * at].copy_from_slice(&value.to_ne_bytes());
            }
            let len = match copy.scattered {
                Some(scattered) => put_scattered(&mut payload, scattered),
                None => SHORT_BYTES,
            };
            (Record { short: copy.alone.into(), ..record(CLEAR_SHARED, send, receive) }, len)
        }
        Message::ClearWrite { send, number, target, packed } => {
            put_memory(&mut payload, target);
            payload[12..16].copy_from_slice(&number.to_ne_bytes());
            (Record { short: packed.into(), ..record(CLEAR_WRITE, send, 0) }, 16)
        }
        Message::ClearSegment { send, number, target, len_bytes, packed } => {
            put_memory(&mut payload, target);
            payload[12..16].copy_from_slice(&number.to_ne_bytes());
            payload[16..20].copy_from_slice(&len_bytes.to_ne_bytes());
            (Record { short: packed.into(), ..record(CLEAR_SEGMENT, send, 0) }, 20)
        }
        Message::Finished { send } => (record(FINISHED, send, 0), 0),
        Message::Acknowledge { send } => (record(ACKNOWLEDGE, send, 0), 0),
        Message::Withdraw { key, send } => (record(WITHDRAW, key, send), 0),
        Message::Withdrawn { send } => (record(WITHDRAWN, send, 0), 0),
        Message::Open => (record(OPEN, 0, 0), 0),
        Message::Close => (record(CLOSE, 0, 0), 0),
        Message::Want { geometry, control } => (record(WANT, geometry, 0), put_memory(&mut payload, control)),
        Message::Grant(memory) => (record(GRANT, 0, 0), memory.map_or(0, |memory| put_memory(&mut payload, memory))),
        Message::Closed => (record(CLOSED, 0, 0), 0),
        Message::Home => (record(HOME, 0, 0), 0),
        Message::EagerSync { .. }
        | Message::Data { .. }
        | Message::Ahead { .. }
        | Message::First { .. }
        | Message::More { .. }
        | Message::ClearBlocks { .. } => unreachable!("user data and lists of blocks are not control records"),
    };
    Control { record, payload, len: len as u8 }
}

/// What a whole message matches by whose payload is all of its bytes; `None` for records of other kinds. The most common
/// kind, understood on its own: the others are many, and take a call.
#[inline]
pub fn parse_eager(record: Record) -> Option<u64> {
    (record.kind == EAGER).then_some(record.long as u64)
}

/// The match key of an eager message that nobody acknowledges, whether credits go along with it or not.
pub fn key_of_eager(record: Record) -> Option<u64> {
    (record.kind & !WITH_CREDITS == EAGER).then_some(record.long as u64)
}

/// The match key of a record that asks for a long message's receive, whether credits go along with it or not.
pub fn key_of_request(record: Record) -> Option<u64> {
    (record.kind & !WITH_CREDITS == REQUEST).then_some(record.long as u64)
}

/// Understands a record of any other kind than that of [`parse_eager`], or refuses it.
#[inline]
pub fn parse<'a>(record: Record, payload: &'a [u8]) -> Option<Message<'a>> {
    let (first, second) = (record.long as u64, (record.long >> 64) as u64);
    Some(match record.kind {
        EAGER_SYNC => Message::EagerSync { key: first, send: second, data: payload },
        DATA => Message::Data { receive: first, offset: second, last: record.short & 1 != 0, data: payload },
        REQUEST => {
            let memory = RemoteMemory { address: word(payload, 8)?, rkey: Rkey(half(payload, 16)?) };
            let flags = *payload.get(20).filter(|flags| **flags < 64)?;
            let layout = match flags >> 1 & 3 {
                0 => SourceLayout::InOnePiece,
                1 => SourceLayout::Scattered { block_count: memory.address },
                2 => SourceLayout::Described(scattered(payload)?),
                _ => return None,
            };
            let memory = (flags & 1 != 0).then_some(memory);
            let [is_near, takes_whole, awaits] = [8, 16, 32].map(|flag| flags & flag != 0);
            let channel = OfferedChannel { is_near, takes_whole, awaits };
            let offer = RendezvousOffer { len_bytes: word(payload, 0)?, memory, layout, channel };
            Message::Request { key: first, send: second, offer }
        }
        CLEAR => {
            let whole = (record.short >> 8) as u8;
            Message::Clear { send: first, receive: second, took_ahead: record.short & 1 != 0, whole }
        }
        AHEAD => Message::Ahead { send: first, offset: second, data: payload },
        FIRST => Message::First { key: first, len_bytes: second, data: payload },
        MORE => Message::More { offset: first, data: payload },
        CLEAR_SHARED => {
            let copy = SharedCopy {
                target: RemoteMemory { address: word(payload, 0)?, rkey: Rkey(half(payload, 8)?) },
                cell: half(payload, 12)?,
                generation: half(payload, 16)?,
                chunk_bytes: half(payload, 20)?,
                scattered: if payload.len() > SHORT_BYTES { Some(scattered(payload)?) } else { None },
                alone: record.short & 1 != 0,
            };
            Message::ClearShared { send: first, receive: second, copy }
        }
        CLEAR_WRITE => {
            let (number, target) = (half(payload, 12)?, memory(payload)?);
            Message::ClearWrite { send: first, number, target, packed: record.short & 1 != 0 }
        }
        CLEAR_SEGMENT => {
            let target = memory(payload)?;
            let (number, len_bytes, packed) = (half(payload, 12)?, half(payload, 16)?, record.short & 1 != 0);
            Message::ClearSegment { send: first, number, target, len_bytes, packed }
        }
        CLEAR_BLOCKS => Message::ClearBlocks { send: first, receive: second, blocks: payload },
        FINISHED => Message::Finished { send: first },
        ACKNOWLEDGE => Message::Acknowledge { send: first },
        WITHDRAW => Message::Withdraw { key: first, send: second },
        WITHDRAWN => Message::Withdrawn { send: first },
        OPEN => Message::Open,
        CLOSE => Message::Close,
        WANT => Message::Want { geometry: first, control: memory(payload)? },
        GRANT if payload.is_empty() => Message::Grant(None),
        GRANT => Message::Grant(Some(memory(payload)?)),
        CLOSED => Message::Closed,
        HOME => Message::Home,
        _ => return None,
    })
}

/// Length of a payload without the description of scattered memory.
const SHORT_BYTES: usize = 24;

fn kind_of(layout: SourceLayout) -> u8 {
    match layout {
        SourceLayout::InOnePiece => 0,
        SourceLayout::Scattered { .. } => 1,
        SourceLayout::Described(_) => 2,
    }
}

/// Writes the description behind the rest; the length of both.
fn put_scattered(payload: &mut [u8; CONTROL_MAX_BYTES], scattered: ScatteredMemory) -> usize {
    let LayoutReference { index, version, memory, len_bytes } = scattered.layout;
    for (at, value) in [scattered.origin, scattered.count, memory.address].iter().enumerate() {
        payload[SHORT_BYTES + 8 * at..][..8].copy_from_slice(&value.to_ne_bytes());
    }
    for (at, value) in [index, version, memory.rkey.0, len_bytes].iter().enumerate() {
        payload[SHORT_BYTES + 24 + 4 * at..][..4].copy_from_slice(&value.to_ne_bytes());
    }
    CONTROL_MAX_BYTES
}

fn scattered(payload: &[u8]) -> Option<ScatteredMemory> {
    let memory = RemoteMemory { address: word(payload, 40)?, rkey: Rkey(half(payload, 56)?) };
    let (index, version, len_bytes) = (half(payload, 48)?, half(payload, 52)?, half(payload, 60)?);
    let layout = LayoutReference { index, version, memory, len_bytes };
    Some(ScatteredMemory { origin: word(payload, 24)?, count: word(payload, 32)?, layout })
}

/// Writes a place and its key; the length of both.
fn put_memory(payload: &mut [u8; CONTROL_MAX_BYTES], memory: RemoteMemory) -> usize {
    payload[..8].copy_from_slice(&memory.address.to_ne_bytes());
    payload[8..12].copy_from_slice(&memory.rkey.0.to_ne_bytes());
    12
}

fn memory(payload: &[u8]) -> Option<RemoteMemory> {
    Some(RemoteMemory { address: word(payload, 0)?, rkey: Rkey(half(payload, 8)?) })
}

fn word(payload: &[u8], at: usize) -> Option<u64> {
    payload.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

fn half(payload: &[u8], at: usize) -> Option<u32> {
    payload.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_records_come_back_as_they_went() {
        let memory = RemoteMemory { address: 0x1234_5678_9abc_def0, rkey: Rkey(77) };
        let layout = LayoutReference { index: 1, version: 2, memory, len_bytes: u32::MAX };
        let scattered = ScatteredMemory { origin: u64::MAX - 1, count: 5, layout };
        let copy =
            SharedCopy { target: memory, scattered: None, alone: false, cell: 3, generation: 9, chunk_bytes: 65536 };
        let written = SharedCopy { scattered: Some(scattered), alone: true, ..copy };
        let layouts =
            [SourceLayout::InOnePiece, SourceLayout::Scattered { block_count: 77 }, SourceLayout::Described(scattered)];
        let offer = |memory: Option<_>, layout| {
            let (is_near, takes_whole) = (memory.is_none(), layout == SourceLayout::InOnePiece);
            let channel = OfferedChannel { is_near, takes_whole, awaits: layout == layouts[1] };
            RendezvousOffer { len_bytes: 3, memory, layout, channel }
        };
        let cases = [
            Message::Request { key: 1, send: 2, offer: offer(Some(memory), layouts[0]) },
            Message::Request { key: u64::MAX, send: 2, offer: offer(None, layouts[0]) },
            Message::Request { key: 1, send: 2, offer: offer(None, layouts[1]) },
            Message::Request { key: 1, send: 2, offer: offer(Some(memory), layouts[2]) },
            Message::ClearShared { send: 5, receive: 6, copy: written },
            Message::Clear { send: 5, receive: u64::MAX, took_ahead: false, whole: 255 },
            Message::Clear { send: 5, receive: 6, took_ahead: true, whole: 0 },
            Message::ClearShared { send: 5, receive: 6, copy },
            Message::ClearWrite { send: 5, number: u32::MAX, target: memory, packed: false },
            Message::ClearWrite { send: 5, number: 1, target: memory, packed: true },
            Message::ClearSegment { send: 5, number: 1, target: memory, len_bytes: u32::MAX - 2, packed: false },
            Message::ClearSegment { send: 5, number: 1, target: memory, len_bytes: 7, packed: true },
            Message::Finished { send: 7 },
            Message::Acknowledge { send: 8 },
            Message::Withdraw { key: 9, send: u64::MAX },
            Message::Withdrawn { send: 10 },
            Message::Open,
            Message::Close,
            Message::Want { geometry: u64::MAX - 2, control: memory },
            Message::Grant(Some(memory)),
            Message::Grant(None),
            Message::Closed,
            Message::Home,
        ];
        for case in cases {
            let control = control(case);
            assert_eq!(parse(control.record, control.payload()), Some(case));
            let carried = with_credits(control.record);
            let mut payload = vec![0; control.payload().len() + CREDITS_BYTES];
            put_credits(&mut payload, 0xabcd_ef01_2345, |space| space.copy_from_slice(control.payload()));
            assert_eq!(parse(carried, &payload), None);
            assert_eq!(without_credits(carried, &payload), Some((control.record, control.payload(), 0xabcd_ef01_2345)));
            assert_eq!(without_credits(carried, &payload[..CREDITS_BYTES - 1]), None);
            assert_eq!(without_credits(control.record, &payload), None);
        }
        assert_eq!((parse_eager(eager(4, None)), parse(eager(4, None), b"x")), (Some(4), None));
        assert_eq!(parse_eager(eager(4, Some(5))), None);
        assert_eq!(parse(eager(4, Some(5)), b""), Some(Message::EagerSync { key: 4, send: 5, data: b"" }));
        let piece = Message::Data { receive: 9, offset: 10, last: true, data: b"yz" };
        assert_eq!(parse(data(9, 10, true), b"yz"), Some(piece));
        assert_eq!(parse(ahead(9, 10), b"yz"), Some(Message::Ahead { send: 9, offset: 10, data: b"yz" }));
        assert_eq!(parse(first(9, 10), b"yz"), Some(Message::First { key: 9, len_bytes: 10, data: b"yz" }));
        assert_eq!(parse(more(9), b"yz"), Some(Message::More { offset: 9, data: b"yz" }));
    }

    #[test]
    fn whatever_a_record_holds_is_refused_or_says_what_it_says_again() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 29
        };
        for _ in 0..50_000 {
            let payload: Vec<u8> = (0..next() % 80).map(|_| next() as u8 % 5).collect();
            let long = u128::from(next()) << 64 | u128::from(next());
            let record = Record { kind: (next() % 64) as u8, short: next() as u32 & 3, long, ..Record::default() };
            match parse(record, &payload) {
                None
                | Some(
                    Message::EagerSync { .. }
                    | Message::Data { .. }
                    | Message::Ahead { .. }
                    | Message::First { .. }
                    | Message::More { .. }
                    | Message::ClearBlocks { .. },
                ) => {}
                Some(message) => {
                    let again = control(message);
                    assert_eq!(parse(again.record, again.payload()), Some(message));
                }
            }
        }
    }

    #[test]
    fn unknown_and_short_records_are_refused() {
        for kind in [0, 17, 200] {
            assert_eq!(parse(Record { kind, ..Record::default() }, &[0; 64]), None);
        }
        for len in 0..21 {
            assert_eq!(parse(record(REQUEST, 1, 2), &vec![0xff; len]), None, "{len} bytes");
        }
        for len in (0..24).chain(25..64) {
            assert_eq!(parse(record(CLEAR_SHARED, 1, 2), &vec![0xff; len]), None, "{len} bytes");
        }
        let mut described = [0; 64];
        described[20] = 2 << 1;
        for len in 21..64 {
            assert_eq!(parse(record(REQUEST, 1, 2), &described[..len]), None, "{len} bytes");
        }
        described[20] = 3 << 1;
        assert_eq!(parse(record(REQUEST, 1, 2), &described), None);
        for len in 0..16 {
            assert_eq!(parse(record(CLEAR_WRITE, 1, 2), &vec![0xff; len]), None, "{len} bytes");
        }
        for len in 1..12 {
            assert_eq!(parse(record(WANT, 1, 2), &vec![0xff; len]), None, "{len} bytes");
            assert_eq!(parse(record(GRANT, 1, 2), &vec![0xff; len]), None, "{len} bytes");
        }
        for len in 0..20 {
            assert_eq!(parse(record(CLEAR_SEGMENT, 1, 2), &vec![0xff; len]), None, "{len} bytes");
        }
    }
}
