//! What was sent on one lane of a peer and is not acknowledged: written in order, and again from where the receiver
//! stands when a connection was lost.

use std::collections::VecDeque;

use base::memory::ReadRange;
use smallvec::SmallVec;

use super::frame::{self, CHECK_BYTES, Kind, LONG_BYTES};
use crate::copying;
use crate::link::{HEADER_BYTES, Outgoing};

/// Frames kept for a lane, at most.
const FRAMES_MAX: usize = 1024;
/// Copied payload kept for a lane, at most, unless it is one message.
const OWNED_MAX_BYTES: usize = 8 << 20;
/// Parts of one gathered write, about.
const PARTS_MAX: usize = 64;
/// Bytes of one gathered write, about.
const WRITE_MAX_BYTES: u64 = 1 << 20;
/// Frames of so many bytes at most are copied to be written: the kernel takes one piece sooner than a list.
const COPIED_MAX_BYTES: u64 = 1 << 10;
/// Bytes copied for one write, at most.
pub(super) const COPIED_WRITE_MAX_BYTES: usize = 8 << 10;
/// Payload of so many bytes at most is kept behind its head, where both can be written as they are.
const BEHIND_HEAD_MAX_BYTES: usize = 64;
/// Frames that nobody uses and that are kept to be used again, at most.
const SPARE_MAX: usize = 32;
/// And bytes of them.
pub(super) const SPARE_MAX_BYTES: usize = SPARE_MAX * (size_of::<Frame>() + size_of::<Box<Frame>>());

/// What a frame is, but for its place in the order.
#[derive(Clone, Copy)]
pub(super) enum What<'a> {
    /// A packet, whose payload has so many bytes and travels in so many parts, the first of them with it.
    Packet { header: &'a [u8; HEADER_BYTES], payload_bytes: u64, part_count: u16 },
    /// A further part of packet `packet` of the first lane.
    Part { packet: u64 },
}

/// A frame until it is acknowledged.
struct Frame {
    /// Its head, stamped with what has been received whenever it is begun, and short payload behind it.
    start: [u8; LONG_BYTES + BEHIND_HEAD_MAX_BYTES],
    /// Bytes of it that are the head's.
    head_bytes: usize,
    /// Bytes of it that count.
    start_bytes: usize,
    /// Payload that is not in `start`.
    lent: SmallVec<[ReadRange; 2]>,
    /// Instead of `lent`, what was copied.
    owned: Vec<u8>,
    /// Of `lent` or `owned`.
    rest_bytes: u64,
    check: Option<[u8; CHECK_BYTES]>,
}

impl Frame {
    fn new() -> Self {
        Self {
            start: [0; LONG_BYTES + BEHIND_HEAD_MAX_BYTES],
            head_bytes: 0,
            start_bytes: 0,
            lent: SmallVec::new(),
            owned: Vec::new(),
            rest_bytes: 0,
            check: None,
        }
    }

    fn len_bytes(&self) -> u64 {
        self.start_bytes as u64 + self.rest_bytes + self.check.map_or(0, |check| check.len() as u64)
    }

    fn stamp(&mut self, received: u64) {
        frame::stamp(&mut self.start[..self.head_bytes], received);
    }

    /// Becomes another frame.
    fn set(&mut self, kind: Kind<'_>, payload: Outgoing<'_>, len: u64, check: bool) {
        self.head_bytes = kind.put(self.start.first_chunk_mut().expect("a head is the first part of it"));
        self.start_bytes = self.head_bytes;
        self.lent.clear();
        self.rest_bytes = 0;
        self.check = None;
        if len <= BEHIND_HEAD_MAX_BYTES as u64 && !check {
            let (from, behind) = (self.head_bytes, len as usize);
            copying::gather_into(payload.ranges, &mut self.start[from..from + behind]);
            self.start_bytes += behind;
            return;
        }
        self.rest_bytes = len;
        if check || !payload.lent {
            self.owned = copying::gather(payload.ranges);
            self.check = check.then(|| crc32c::crc32c(&self.owned).to_le_bytes());
        } else if let [range] = payload.ranges {
            self.lent.push(*range);
        } else {
            self.lent.extend(payload.ranges.iter().copied().filter(|range| range.len_bytes() > 0));
        }
    }
}

/// What goes to a peer on one lane, in order.
#[derive(Default)]
pub(super) struct Outbox {
    frames: VecDeque<Box<Frame>>,
    /// Kept for their memory.
    #[expect(clippy::vec_box, reason = "a frame is long, and stays where it is on its way from here to `frames`")]
    spare: Vec<Box<Frame>>,
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
    /// True if a frame with this payload can be kept.
    pub(super) fn has_room(&self, payload: Outgoing<'_>, check: bool) -> bool {
        // Half of it is more than a peer leaves untold, so a message that waits finds room in the end.
        if self.frames.len() >= FRAMES_MAX {
            return false;
        }
        if self.owned_bytes <= OWNED_MAX_BYTES / 2 {
            return true;
        }
        let len = payload.len_bytes();
        let copies = len > 0 && (!payload.lent || check);
        !copies || self.owned_bytes + len as usize <= OWNED_MAX_BYTES
    }

    /// Keeps a frame, for which there is room.
    pub(super) fn push(&mut self, what: What<'_>, payload: Outgoing<'_>, check: bool) {
        let len = payload.len_bytes();
        let is_checked = check && len > 0;
        let kind = match what {
            What::Packet { header, payload_bytes, part_count } => {
                Kind::Packet { sequence: self.next_sequence(), header, payload_bytes, part_count, is_checked }
            }
            What::Part { packet } => Kind::Part { packet, payload_bytes: len, is_checked },
        };
        let mut frame = self.spare.pop().unwrap_or_else(|| Box::new(Frame::new()));
        frame.set(kind, payload, len, is_checked);
        self.owned_bytes += frame.owned.len();
        self.frames.push_back(frame);
    }

    /// The sequence number of the next frame.
    pub(super) fn next_sequence(&self) -> u64 {
        self.first + self.frames.len() as u64
    }

    /// Frames acknowledged so far.
    pub(super) fn acknowledged_count(&self) -> u64 {
        self.first
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
            let Some(frame) = self.frames.get_mut(index) else { break };
            if index > self.next || self.offset == 0 {
                frame.stamp(received);
            }
            bytes += frame.len_bytes();
            let owned = (!frame.owned.is_empty()).then(|| copying::borrowed(&frame.owned));
            let check = frame.check.as_ref().map(|check| copying::borrowed(check));
            let payload = frame.lent.iter().copied().chain(owned);
            for range in [copying::borrowed(&frame.start[..frame.start_bytes])].into_iter().chain(payload).chain(check)
            {
                let here = skip.min(range.len_bytes() as u64) as usize;
                skip -= here as u64;
                parts.extend(range.part(here, range.len_bytes() - here).filter(|part| part.len_bytes() > 0));
            }
        }
        parts
    }

    /// What to write next in one piece, if all there is are short frames of which nothing is written: where it lies, or
    /// put together in `copied`.
    pub(super) fn in_one_piece<'a>(&'a mut self, received: u64, copied: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        if self.offset > 0 {
            return None;
        }
        if self.next + 1 == self.frames.len() && self.frames.back().is_some_and(|frame| frame.rest_bytes == 0) {
            let frame = self.frames.back_mut()?;
            frame.stamp(received);
            return Some(&frame.start[..frame.start_bytes]);
        }
        copied.clear();
        for frame in self.frames.range_mut(self.next..) {
            let len = frame.len_bytes();
            if len > COPIED_MAX_BYTES {
                return None;
            }
            if copied.len() + len as usize > COPIED_WRITE_MAX_BYTES {
                break;
            }
            frame.stamp(received);
            copied.extend_from_slice(&frame.start[..frame.start_bytes]);
            copying::append(&frame.lent, copied);
            if !frame.owned.is_empty() {
                copied.extend_from_slice(&frame.owned);
                copied.extend_from_slice(frame.check.as_ref().map_or(&[], |check| check));
            }
        }
        Some(copied)
    }

    /// The kernel took `bytes` of what `parts` or `in_one_piece` named.
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
        if let Some(mut frame) = self.frames.pop_front() {
            self.owned_bytes -= frame.owned.len();
            if self.spare.len() < SPARE_MAX {
                frame.owned = Vec::new();
                self.spare.push(frame);
            }
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

#[cfg(test)]
mod tests {
    use super::super::frame::{Head, SHORT_BYTES};
    use super::*;
    use proptest::prelude::*;

    fn outgoing(ranges: &[ReadRange]) -> Outgoing<'_> {
        Outgoing { ranges, lent: true, is_answer: false, more: false }
    }

    proptest! {
        /// Against the naive way: whole frames one after the other, from the one asked for on.
        #[test]
        fn every_byte_is_written_in_order_however_it_is_cut(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..8),
            cuts in prop::collection::vec((1usize..400, any::<bool>()), 1..40), check: bool, recalled: bool,
        ) {
            let mut outbox = Outbox::default();
            for payload in &payloads {
                let ranges = [copying::borrowed(payload)];
                let header = [payload.len() as u8; HEADER_BYTES];
                let what = What::Packet { header: &header, payload_bytes: payload.len() as u64, part_count: 1 };
                outbox.push(what, outgoing(&ranges), check);
            }
            let mut stream = Vec::new();
            for (cut, copies) in cuts.iter().cycle() {
                if recalled {
                    outbox.recall(|_, _| true);
                }
                let mut copied = Vec::new();
                let piece = if *copies { outbox.in_one_piece(5, &mut copied).map(<[u8]>::to_vec) } else { None };
                let bytes = piece.unwrap_or_else(|| copying::gather(&outbox.parts(5)));
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
                let kind =
                    Kind::Packet { sequence: index as u64, header: &header, payload_bytes, part_count: 1, is_checked };
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
            // Frames that were used before are as new.
            prop_assert_eq!(outbox.spare.len(), payloads.len());
            for payload in &payloads {
                let ranges = [copying::borrowed(payload)];
                outbox.push(What::Part { packet: 7 }, outgoing(&ranges), !check);
                let bytes = copying::gather(&outbox.parts(5));
                let (head, len) = super::super::frame::parse(&bytes).unwrap().unwrap();
                let (payload_bytes, is_checked) = (payload.len() as u64, !check && !payload.is_empty());
                prop_assert_eq!(head.kind, Kind::Part { packet: 7, payload_bytes, is_checked });
                let check_bytes = if is_checked { CHECK_BYTES } else { 0 };
                prop_assert_eq!((&bytes[len..len + payload.len()], bytes.len()),
                    (&payload[..], len + payload.len() + check_bytes));
                outbox.wrote(bytes.len());
            }
        }
    }

    #[test]
    fn parts_name_their_packet() {
        let mut outbox = Outbox::default();
        let bytes = [1, 2, 3];
        outbox.push(What::Part { packet: 7 }, outgoing(&[copying::borrowed(&bytes)]), true);
        let stream = copying::gather(&outbox.parts(9));
        let (head, len) = super::super::frame::parse(&stream).unwrap().unwrap();
        assert_eq!(head, Head { kind: Kind::Part { packet: 7, payload_bytes: 3, is_checked: true }, received: 9 });
        assert_eq!((&stream[len..len + 3], stream.len()), (&bytes[..], SHORT_BYTES + 3 + CHECK_BYTES));
    }

    #[test]
    fn limits_hold() {
        let mut outbox = Outbox::default();
        let big = vec![1u8; OWNED_MAX_BYTES + 1];
        let ranges = [copying::borrowed(&big)];
        let copied = Outgoing { lent: false, ..outgoing(&ranges) };
        let what = What::Part { packet: 0 };
        assert!(outbox.has_room(copied, false), "one message always fits");
        outbox.push(what, copied, false);
        assert!(!outbox.has_room(copied, false));
        for _ in 1..FRAMES_MAX {
            assert!(outbox.has_room(Outgoing::NONE, false));
            outbox.push(what, Outgoing::NONE, false);
        }
        assert!(!outbox.has_room(Outgoing::NONE, false));
    }
}
