//! The header of a packet between two software adapters.
//!
//! ```text
//!    0  kind:1  flags:1  status:1  version:1      16  sequence:4
//!    4  immediate:4                               20  shared receive queue or datagram key:4
//!    8  destination queue pair:4                  24  remote key:4, acknowledged sequence:4
//!   12  source queue pair:4                       32  address:8  length:8  operand:8  operand:8
//! ```
//! Little endian. [`parse`] takes anything; what it returns has a kind and a status that exist, and nothing more is
//! known about it.

use crate::link::HEADER_BYTES;

const VERSION: u8 = 2;
const FLAG_SOLICITED: u8 = 1;
const FLAG_IMMEDIATE: u8 = 2;
const FLAG_ACKNOWLEDGES: u8 = 4;
const FLAG_UNHURRIED: u8 = 8;
const OF_REQUESTS: u8 = FLAG_ACKNOWLEDGES | FLAG_UNHURRIED;

/// What a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Send = 1,
    Write = 2,
    /// An RDMA write that consumes a receive.
    WriteWithImmediate = 3,
    Read = 4,
    FetchAdd = 5,
    CompareSwap = 6,
    Datagram = 7,
    /// A send to a shared queue that waits for no other queue.
    QueueSend = 8,
    /// The header of one, whose bytes come when the target calls for them.
    QueueHeader = 9,
    /// All requests up to `sequence` are done.
    Acknowledge = 16,
    ReadResponse = 17,
    AtomicResponse = 18,
    /// Request `sequence` failed; `status` says how.
    Refuse = 19,
    /// A receive was posted for a request that was refused for want of one.
    Ready = 20,
    /// All sends to queue `selector` up to `sequence` are done.
    QueueAcknowledge = 21,
    /// Send `sequence` to queue `selector` failed, or must wait.
    QueueRefuse = 22,
    /// A receive is there for send `sequence` to queue `selector`.
    QueueReady = 23,
}

impl Kind {
    const fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Send,
            2 => Self::Write,
            3 => Self::WriteWithImmediate,
            4 => Self::Read,
            5 => Self::FetchAdd,
            6 => Self::CompareSwap,
            7 => Self::Datagram,
            8 => Self::QueueSend,
            9 => Self::QueueHeader,
            16 => Self::Acknowledge,
            17 => Self::ReadResponse,
            18 => Self::AtomicResponse,
            19 => Self::Refuse,
            20 => Self::Ready,
            21 => Self::QueueAcknowledge,
            22 => Self::QueueRefuse,
            23 => Self::QueueReady,
            _ => return None,
        })
    }

    /// True for what a target answers.
    pub(crate) const fn is_request(self) -> bool {
        (self as u8) < Self::Acknowledge as u8 && !matches!(self, Self::Datagram)
    }

    /// True for what is about a line of sends to one shared queue.
    pub(crate) const fn is_of_line(self) -> bool {
        use Kind::{QueueAcknowledge, QueueHeader, QueueReady, QueueRefuse, QueueSend};
        matches!(self, QueueSend | QueueHeader | QueueAcknowledge | QueueRefuse | QueueReady)
    }

    /// True for what is followed by as many bytes as its length says.
    pub(crate) const fn has_payload(self) -> bool {
        !matches!(self, Self::Read | Self::QueueHeader)
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(crate) enum Refusal {
    #[default]
    None = 0,
    /// No receive is posted.
    ReceiverNotReady = 1,
    /// The queue pair is not connected yet.
    NotConnected = 2,
    /// The queue pair is gone or has failed.
    Gone = 3,
    Invalid = 4,
    Access = 5,
    Operation = 6,
}

impl Refusal {
    const fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::None,
            1 => Self::ReceiverNotReady,
            2 => Self::NotConnected,
            3 => Self::Gone,
            4 => Self::Invalid,
            5 => Self::Access,
            6 => Self::Operation,
            _ => return None,
        })
    }
}

/// A header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packet {
    pub(crate) kind: Kind,
    pub(crate) refusal: Refusal,
    pub(crate) solicited: bool,
    /// Requests only: nobody waits for its acknowledgement.
    pub(crate) unhurried: bool,
    pub(crate) immediate: Option<u32>,
    /// Requests only: all requests of the other direction up to this one are done, too.
    pub(crate) acknowledged: Option<u32>,
    pub(crate) destination: u32,
    pub(crate) source: u32,
    pub(crate) sequence: u32,
    /// Shared receive queue of an XRC request, or of the answer to one that waits for no other, or key of a datagram.
    pub(crate) selector: u32,
    pub(crate) rkey: u32,
    pub(crate) address: u64,
    /// Of the message; the payload's, except in a read request and in the header of a send.
    pub(crate) len_bytes: u64,
    pub(crate) operands: [u64; 2],
}

impl Packet {
    pub(crate) fn new(kind: Kind, source: u32, destination: u32, sequence: u32) -> Self {
        Self {
            kind,
            refusal: Refusal::None,
            solicited: false,
            unhurried: false,
            immediate: None,
            acknowledged: None,
            destination,
            source,
            sequence,
            selector: 0,
            rkey: 0,
            address: 0,
            len_bytes: 0,
            operands: [0; 2],
        }
    }

    /// True for an answer to a request of a peer's window; receives call for lines of sends by themselves.
    pub(crate) const fn counts(&self) -> bool {
        !matches!(self.kind, Kind::QueueReady)
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let solicited = if self.solicited { FLAG_SOLICITED } else { 0 };
        let immediate = if self.immediate.is_some() { FLAG_IMMEDIATE } else { 0 };
        let acknowledges = if self.acknowledged.is_some() { FLAG_ACKNOWLEDGES } else { 0 };
        let unhurried = if self.unhurried { FLAG_UNHURRIED } else { 0 };
        let flags = solicited | immediate | acknowledges | unhurried;
        bytes[..4].copy_from_slice(&[self.kind as u8, flags, self.refusal as u8, VERSION]);
        let (immediate, acknowledged) = (self.immediate.unwrap_or(0), self.acknowledged.unwrap_or(0));
        let halves = [immediate, self.destination, self.source, self.sequence, self.selector, self.rkey, acknowledged];
        for (index, half) in halves.into_iter().enumerate() {
            bytes[4 + index * 4..8 + index * 4].copy_from_slice(&half.to_le_bytes());
        }
        let words = [self.address, self.len_bytes, self.operands[0], self.operands[1]];
        for (index, word) in words.into_iter().enumerate() {
            bytes[32 + index * 8..40 + index * 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// What came from another adapter, if it is a packet of this version.
pub(crate) fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Packet> {
    let half = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
    let [kind, flags, refusal, version, ..] = *bytes;
    if version != VERSION || flags & !(FLAG_SOLICITED | FLAG_IMMEDIATE | OF_REQUESTS) != 0 {
        return None;
    }
    let kind = Kind::parse(kind)?;
    if flags & OF_REQUESTS != 0 && !kind.is_request() {
        return None;
    }
    Some(Packet {
        kind,
        refusal: Refusal::parse(refusal)?,
        solicited: flags & FLAG_SOLICITED != 0,
        immediate: (flags & FLAG_IMMEDIATE != 0).then(|| half(4)),
        unhurried: flags & FLAG_UNHURRIED != 0,
        acknowledged: (flags & FLAG_ACKNOWLEDGES != 0).then(|| half(28)),
        destination: half(8),
        source: half(12),
        sequence: half(16),
        selector: half(20),
        rkey: half(24),
        address: word(32),
        len_bytes: word(40),
        operands: [word(48), word(56)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read_again(
            kind in 0u8..32, refusal in 0u8..8, solicited: bool, unhurried: bool, immediate: Option<u32>,
            acknowledged: Option<u32>, halves: [u32; 5], words: [u64; 4],
        ) {
            let (Some(kind), Some(refusal)) = (Kind::parse(kind), Refusal::parse(refusal)) else { return Ok(()) };
            let (acknowledged, unhurried) = (acknowledged.filter(|_| kind.is_request()), unhurried && kind.is_request());
            let [destination, source, sequence, selector, rkey] = halves;
            let [address, len_bytes, first, second] = words;
            let packet = Packet {
                kind, refusal, solicited, unhurried, immediate, acknowledged, destination, source, sequence, selector, rkey,
                address, len_bytes, operands: [first, second],
            };
            prop_assert_eq!(parse(&packet.to_bytes()), Some(packet));
        }

        #[test]
        fn any_bytes_are_refused_or_understood_once(bytes: [[u8; 32]; 2]) {
            let mut whole = [0; HEADER_BYTES];
            whole[..32].copy_from_slice(&bytes[0]);
            whole[32..].copy_from_slice(&bytes[1]);
            whole[1] &= 15;
            whole[3] = VERSION;
            if let Some(packet) = parse(&whole) {
                prop_assert_eq!(parse(&packet.to_bytes()), Some(packet));
            }
        }
    }
}
