//! What is kept of a peer across its connections: what was sent and not acknowledged, and what is arriving.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use base::memory::ReadRange;
use smallvec::SmallVec;

use super::address::Identity;
use super::frame::{CHECK_BYTES, Head, Kind, LONG_BYTES, SHORT_BYTES};
use crate::copying;
use crate::link::{HEADER_BYTES, Outgoing, Placement};

/// Frames kept for a peer, at most.
const FRAMES_MAX: usize = 1024;
/// Copied payload kept for a peer, at most, unless it is one message.
const OWNED_MAX_BYTES: usize = 8 << 20;
/// Parts of one gathered write, about.
const PARTS_MAX: usize = 64;
/// Bytes of one gathered write, about.
const WRITE_MAX_BYTES: u64 = 1 << 20;

/// A packet until it is acknowledged.
struct Frame {
    /// Written anew, with what has been received, whenever it is begun.
    head: [u8; LONG_BYTES],
    lent: SmallVec<[ReadRange; 2]>,
    /// Instead of `lent`, what was copied.
    owned: Vec<u8>,
    payload_bytes: u64,
    check: Option<[u8; CHECK_BYTES]>,
}

impl Frame {
    fn len_bytes(&self) -> u64 {
        LONG_BYTES as u64 + self.payload_bytes + self.check.map_or(0, |check| check.len() as u64)
    }

    fn stamp(&mut self, sequence: u64, received: u64) {
        let header: [u8; HEADER_BYTES] = std::array::from_fn(|index| self.head[SHORT_BYTES + index]);
        let (payload_bytes, is_checked) = (self.payload_bytes, self.check.is_some());
        self.head = Head { kind: Kind::Packet { sequence, header, payload_bytes, is_checked }, received }.to_bytes().0;
    }
}

/// What goes to a peer, in order.
#[derive(Default)]
pub(super) struct Outbox {
    frames: VecDeque<Frame>,
    /// Sequence of the first of them.
    first: u64,
    /// Index of the first that is not written whole on this connection.
    next: usize,
    /// Bytes of it that are.
    offset: u64,
    /// All frames before this sequence were written whole once.
    written_once: u64,
    owned_bytes: usize,
}

impl Outbox {
    /// Keeps a packet; false if there is no room.
    pub(super) fn push(&mut self, header: &[u8; HEADER_BYTES], payload: Outgoing<'_>, check: bool) -> bool {
        let len = payload.len_bytes();
        let copies = len > 0 && (!payload.lent || check);
        // Half of it is more than a peer leaves untold, so a message that waits finds room in the end.
        let owned = self.owned_bytes;
        let has_room = !copies || owned <= OWNED_MAX_BYTES / 2 || owned + len as usize <= OWNED_MAX_BYTES;
        if self.frames.len() >= FRAMES_MAX || !has_room {
            return false;
        }
        let mut frame =
            Frame { head: [0; LONG_BYTES], lent: SmallVec::new(), owned: Vec::new(), payload_bytes: len, check: None };
        frame.head[SHORT_BYTES..].copy_from_slice(header);
        if copies {
            frame.owned = copying::gather(payload.ranges);
            self.owned_bytes += frame.owned.len();
            frame.check = check.then(|| crc32c::crc32c(&frame.owned).to_le_bytes());
        } else {
            frame.lent.extend(payload.ranges.iter().copied().filter(|range| range.len_bytes() > 0));
        }
        self.frames.push_back(frame);
        true
    }

    /// True if everything is acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// True if something is to be written.
    pub(super) fn has_unsent(&self) -> bool {
        self.next < self.frames.len()
    }

    /// True between frames.
    pub(super) fn is_at_boundary(&self) -> bool {
        self.offset == 0
    }

    /// What to write next; good until the outbox is used again.
    pub(super) fn parts(&mut self, received: u64) -> SmallVec<[ReadRange; 32]> {
        let mut parts = SmallVec::new();
        let (mut skip, mut bytes) = (self.offset, 0);
        for index in self.next..self.frames.len() {
            if parts.len() >= PARTS_MAX || bytes >= WRITE_MAX_BYTES {
                break;
            }
            let sequence = self.first + index as u64;
            let Some(frame) = self.frames.get_mut(index) else { break };
            if index > self.next || self.offset == 0 {
                frame.stamp(sequence, received);
            }
            bytes += frame.len_bytes();
            let owned = (!frame.owned.is_empty()).then(|| copying::borrowed(&frame.owned));
            let check = frame.check.as_ref().map(|check| copying::borrowed(check));
            let payload = frame.lent.iter().copied().chain(owned);
            for range in [copying::borrowed(&frame.head)].into_iter().chain(payload).chain(check) {
                let here = skip.min(range.len_bytes() as u64) as usize;
                skip -= here as u64;
                parts.extend(range.part(here, range.len_bytes() - here).filter(|part| part.len_bytes() > 0));
            }
        }
        parts
    }

    /// The kernel took `bytes` of what `parts` named.
    pub(super) fn wrote(&mut self, bytes: usize) {
        let mut left = bytes as u64;
        while let Some(frame) = self.frames.get(self.next) {
            let rest = frame.len_bytes() - self.offset;
            if left < rest {
                self.offset += left;
                break;
            }
            left -= rest;
            self.next += 1;
            self.offset = 0;
        }
        self.written_once = self.written_once.max(self.first + self.next as u64);
    }

    /// The peer has everything before `received`; false if it cannot.
    pub(super) fn acknowledged(&mut self, received: u64) -> bool {
        if received > self.first + self.next as u64 {
            return false;
        }
        while self.first < received {
            self.forget_first();
            self.next -= 1;
        }
        true
    }

    /// A new connection begins, and the peer has everything before `received`; false if it cannot, or had more.
    pub(super) fn resume(&mut self, received: u64) -> bool {
        if received < self.first || received > self.written_once {
            return false;
        }
        while self.first < received {
            self.forget_first();
        }
        self.next = 0;
        self.offset = 0;
        true
    }

    fn forget_first(&mut self) {
        if let Some(frame) = self.frames.pop_front() {
            self.owned_bytes -= frame.owned.len();
        }
        self.first += 1;
    }

    /// Copies what lies where `touches` says.
    pub(super) fn recall(&mut self, touches: impl Fn(usize, usize) -> bool) {
        for frame in &mut self.frames {
            if frame.lent.iter().any(|range| touches(range.address(), range.len_bytes())) {
                frame.owned = copying::gather(&frame.lent);
                frame.lent.clear();
                self.owned_bytes += frame.owned.len();
            }
        }
    }
}

/// A payload on its way in.
pub(super) struct Arriving {
    pub(super) placement: Placement,
    pub(super) got: u64,
    pub(super) payload_bytes: u64,
    pub(super) is_checked: bool,
    /// CRC32C of what was got, if it is checked.
    pub(super) check: u32,
}

/// A peer.
pub(super) struct Peer {
    pub(super) identity: Identity,
    pub(super) sockets: Vec<SocketAddr>,
    /// The connection that counts.
    pub(super) connection: Option<usize>,
    /// The one that is being dialled.
    pub(super) attempt: Option<usize>,
    /// Of the connection that counts, or did last.
    pub(super) epoch: u64,
    pub(super) outbox: Outbox,
    /// Packets finished.
    pub(super) received: u64,
    pub(super) arriving: Option<Arriving>,
    /// Packets and bytes the peer has not been told of.
    pub(super) untold: (u32, u64),
    pub(super) is_lost: bool,
    pub(super) trouble: Trouble,
}

/// How it goes with making a connection.
#[derive(Default)]
pub(super) struct Trouble {
    /// Since when there is none though one is wanted.
    pub(super) since: Option<Duration>,
    pub(super) retry_at: Duration,
    pub(super) failures: u32,
    /// How many of them in a row because nobody listens.
    pub(super) refusals: u32,
    /// Connections in a row on which nothing was received or acknowledged.
    pub(super) fruitless: u32,
    /// Received and acknowledged when the connection began.
    pub(super) mark: (u64, u64),
}

impl Peer {
    pub(super) fn new(identity: Identity, sockets: Vec<SocketAddr>) -> Self {
        Self {
            identity,
            sockets,
            connection: None,
            attempt: None,
            epoch: 0,
            outbox: Outbox::default(),
            received: 0,
            arriving: None,
            untold: (0, 0),
            is_lost: false,
            trouble: Trouble::default(),
        }
    }

    /// What was received and acknowledged so far.
    pub(super) fn mark(&self) -> (u64, u64) {
        (self.received, self.outbox.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn outgoing(ranges: &[ReadRange]) -> Outgoing<'_> {
        Outgoing { ranges, lent: true, is_answer: false }
    }

    proptest! {
        /// Against the naive way: whole frames one after the other, from the one asked for on.
        #[test]
        fn every_byte_is_written_in_order_however_it_is_cut(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..8),
            cuts in prop::collection::vec(1usize..400, 1..40), check: bool, recalled: bool,
        ) {
            let mut outbox = Outbox::default();
            for payload in &payloads {
                let ranges = [copying::borrowed(payload)];
                prop_assert!(outbox.push(&[payload.len() as u8; HEADER_BYTES], outgoing(&ranges), check));
            }
            let mut stream = Vec::new();
            for cut in cuts.iter().cycle() {
                if recalled {
                    outbox.recall(|_, _| true);
                }
                let bytes = copying::gather(&outbox.parts(5));
                if bytes.is_empty() {
                    break;
                }
                let cut = (*cut).min(bytes.len());
                stream.extend_from_slice(&bytes[..cut]);
                outbox.wrote(cut);
            }
            let mut rest = &stream[..];
            for (index, payload) in payloads.iter().enumerate() {
                let (head, len) = super::super::frame::parse(rest).unwrap().unwrap();
                let payload_bytes = payload.len() as u64;
                let header = [payload.len() as u8; HEADER_BYTES];
                let is_checked = check && payload_bytes > 0;
                let kind = Kind::Packet { sequence: index as u64, header, payload_bytes, is_checked };
                prop_assert_eq!(head, Head { kind, received: 5 });
                prop_assert_eq!(&rest[len..len + payload.len()], &payload[..]);
                rest = &rest[len + payload.len()..];
                if is_checked {
                    prop_assert_eq!(&rest[..4], &crc32c::crc32c(payload).to_le_bytes()[..]);
                    rest = &rest[4..];
                }
            }
            prop_assert!(rest.is_empty() && !outbox.has_unsent());
            let count = payloads.len() as u64;
            prop_assert!(!outbox.acknowledged(count + 1) && !outbox.resume(count + 1), "never sent");
            prop_assert!(outbox.resume(count - 1));
            prop_assert!(count == 1 || !outbox.resume(count - 2), "it had more");
            let again = copying::gather(&outbox.parts(5));
            prop_assert!(stream.ends_with(&again) && again.len() >= LONG_BYTES);
            outbox.wrote(again.len());
            prop_assert!(outbox.acknowledged(count) && outbox.frames.is_empty() && outbox.owned_bytes == 0);
        }
    }

    #[test]
    fn limits_hold() {
        let mut outbox = Outbox::default();
        let big = vec![1u8; OWNED_MAX_BYTES + 1];
        let ranges = [copying::borrowed(&big)];
        let copied = Outgoing { lent: false, ..outgoing(&ranges) };
        assert!(outbox.push(&[0; HEADER_BYTES], copied, false), "one message always fits");
        assert!(!outbox.push(&[0; HEADER_BYTES], copied, false));
        for _ in 1..FRAMES_MAX {
            assert!(outbox.push(&[0; HEADER_BYTES], Outgoing::NONE, false));
        }
        assert!(!outbox.push(&[0; HEADER_BYTES], Outgoing::NONE, false));
    }
}
