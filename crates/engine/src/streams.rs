//! Messages that leave through channels piece by piece: a burst of one to each peer in a turn of progress.
//!
//! ```text
//!   to peer 3   message ─ message ─ message ─▶ the first: as many pieces as have room, a burst at most; then it is the last
//!                                              it waits for a shuttle: so do all behind it
//!   to peer 5   message ─▶ likewise
//! ```

use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};

use base::SlabKey;
use datatype::SendBuf;
use lockfree::{CACHE_LINE_BYTES, Record};
use protocol::Link;
use protocol::wire;
use smallvec::SmallVec;

use crate::core::{Core, pack_all, write_all};
use crate::request::{Completion, Outcome, PeerId, Request, State};
use crate::shuttles::{PATIENCE, Ride};

/// Bytes of a piece of a staged message, a quarter of it within these bounds: the receiver copies one piece while the next is
/// written, and each begins with lines that nobody has asked for yet. Nothing is written any more while it copies the last,
/// so those at the end are shorter.
pub(crate) const PIECE_BYTES: RangeInclusive<u64> = 8 << 10..=32 << 10;
/// Bytes of one message that leave before this side takes in what has arrived: where both send at once, each reads what
/// the other wrote while it is near.
pub(crate) const BURST_BYTES: u64 = 128 << 10;

/// Streams of which the memory is kept, however many there were.
const SPARE_STREAMS: usize = 64;

/// A message that leaves through the channel piece by piece.
pub(crate) struct Stream {
    pub(crate) to: PeerId,
    pub(crate) send: SlabKey,
    pub(crate) receive: u64,
    pub(crate) next: u64,
    pub(crate) end: u64,
    /// Pieces do not cross multiples of this; the receiver is told of the last of each such part.
    pub(crate) chunk_bytes: u64,
    /// It carries the whole message, not one chunk of it.
    pub(crate) whole: bool,
    /// A message came the same way from its receiver meanwhile.
    pub(crate) crosses: bool,
    /// Turns that its next piece still waits for a shuttle, see [`Core::waits_for_shuttle`].
    pub(crate) patience: u32,
}

impl Stream {
    /// These bytes of a message, which are the last of it.
    pub(crate) fn of(to: PeerId, send: SlabKey, receive: u64, bytes: Range<u64>) -> Self {
        Self { whole: true, ..Self::of_chunks(to, send, receive, bytes.clone(), bytes.end) }
    }

    /// These bytes of a message that consists of chunks, whose receiver is told of each that is there.
    pub(crate) fn of_chunks(to: PeerId, send: SlabKey, receive: u64, bytes: Range<u64>, chunk_bytes: u64) -> Self {
        let Range { start: next, end } = bytes;
        Self { to, send, receive, next, end, chunk_bytes, whole: false, crosses: false, patience: PATIENCE }
    }
}

/// The streams of a process.
#[derive(Default)]
pub(crate) struct Streams {
    lanes: Vec<Lane>,
    /// A lane that has ended, whose memory the next one has.
    spare: VecDeque<Stream>,
}

/// Those to one peer, at least one of them.
struct Lane {
    to: PeerId,
    streams: VecDeque<Stream>,
}

impl Streams {
    pub(crate) fn push(&mut self, stream: Stream) {
        if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.to == stream.to) {
            return lane.streams.push_back(stream);
        }
        let to = stream.to;
        let mut streams = std::mem::take(&mut self.spare);
        streams.push_back(stream);
        self.lanes.push(Lane { to, streams });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.streams.len()).sum()
    }

    /// So many of them are to this peer.
    pub(crate) fn count_to(&self, peer: PeerId) -> usize {
        self.lanes.iter().find(|lane| lane.to == peer).map_or(0, |lane| lane.streams.len())
    }

    /// None waits for a shuttle any longer.
    pub(crate) fn hurry(&mut self) {
        self.lanes.iter_mut().flat_map(|lane| &mut lane.streams).for_each(|stream| stream.patience = 0);
    }

    /// The first of a lane, which is put back unless it has ended; the lane is then closed if it is over.
    fn take_first(&mut self, lane: usize) -> Option<Stream> {
        self.lanes.get_mut(lane)?.streams.pop_front()
    }

    /// Puts back what `moved` behind the others of its lane, and what waits where it was.
    fn put_back(&mut self, lane: usize, stream: Stream, moved: bool) {
        match self.lanes.get_mut(lane) {
            Some(lane) if moved => lane.streams.push_back(stream),
            Some(lane) => lane.streams.push_front(stream),
            None => {}
        }
    }

    /// True if nothing is left in a lane, in whose place another one is then.
    fn close_if_over(&mut self, lane: usize) -> bool {
        let is_over = self.lanes.get(lane).is_some_and(|lane| lane.streams.is_empty());
        if is_over {
            self.spare = self.lanes.swap_remove(lane).streams;
            self.spare.shrink_to(SPARE_STREAMS);
        }
        is_over
    }
}

impl Core {
    /// Pushes pieces of long messages while there is room.
    pub(crate) fn push_streams(&mut self) -> bool {
        let (mut moved, mut lane) = (false, 0);
        while let Some(mut stream) = self.streams.take_first(lane) {
            let moves = !(stream.whole && self.waits_for_shuttle(&mut stream)) && self.push_stream(&mut stream);
            moved |= moves;
            if stream.next < stream.end {
                self.streams.put_back(lane, stream, moves);
                lane += 1;
                continue;
            }
            lane += usize::from(!self.streams.close_if_over(lane));
            if !stream.whole {
                continue;
            }
            self.note_crossing(&stream);
            self.shuttles.note_went(stream.to, stream.end);
            if let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(stream.send) {
                let envelope = send.envelope;
                self.finish_send(stream.send, Completion { envelope, outcome: Outcome::Done });
            }
        }
        moved
    }

    /// Sends the first part of a message whose request has just left: while the receiver finds its receive and answers,
    /// it is copied. Not if the receiver was not ready for the last one, or other sends are under way: those fill that
    /// time, and what cannot be taken yet is not to fill the channel. Not either if the request, or this, waits for room.
    pub(crate) fn push_ahead(&mut self, to: PeerId, id: SlabKey) {
        if self.unfinished_sends > 1 {
            return;
        }
        let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(id) else { return };
        let Some(Some(peer)) = self.peers.get(to as usize) else { return };
        if !peer.takes_ahead || peer.link.is_port() || peer.link.is_slow() {
            return;
        }
        let (len_bytes, ahead_bytes) = (send.envelope.len_bytes, self.thresholds.ahead_bytes);
        let piece = next_piece_bytes(&peer.link, len_bytes, len_bytes);
        // Whole pieces, unless there is none: stores are compared by copies of one length.
        let is_whole = len_bytes <= ahead_bytes || ahead_bytes < piece;
        let end = if is_whole { len_bytes.min(ahead_bytes) } else { ahead_bytes / piece * piece };
        let mut sent = send.ahead_bytes;
        while sent < end {
            let Some(Some(peer)) = self.peers.get(to as usize) else { return };
            let len = next_piece_bytes(&peer.link, len_bytes, len_bytes - sent).min(end - sent);
            if !peer.link.is_clear() {
                break;
            }
            let ride = self.ride_of(id, sent);
            if !self.push_piece_of(id, wire::ahead(id.to_bits(), sent), (sent, len), ride) {
                break;
            }
            sent += len;
        }
        if let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get_mut(id) {
            send.ahead_bytes = sent;
        }
        if let Some(Some(peer)) = self.peers.get_mut(to as usize) {
            peer.takes_ahead &= sent == 0;
        }
        if sent > 0 {
            self.stats.ahead_sent += 1;
            self.announce_record(to);
        }
        if sent < end {
            self.announce_refused(to);
        }
    }

    fn push_stream(&mut self, stream: &mut Stream) -> bool {
        let mut moved = false;
        let burst_end = stream.end.min(stream.next.saturating_add(BURST_BYTES));
        let mut is_over = false;
        while stream.next < burst_end && !is_over {
            let ride = if stream.whole { self.ride_of(stream.send, stream.next) } else { None };
            let Some(Some(peer)) = self.peers.get_mut(stream.to as usize) else { break };
            let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(stream.send) else {
                stream.next = stream.end;
                break;
            };
            let len_bytes = send.envelope.len_bytes;
            let left = len_bytes.saturating_sub(stream.next);
            let of_part = ride.and_then(|ride| ride.piece_of_part_bytes(stream.next));
            let len = of_part.unwrap_or_else(|| next_piece_bytes(&peer.link, len_bytes, left));
            let chunk_left = stream.chunk_bytes - stream.next % stream.chunk_bytes;
            let len = len.min(stream.end - stream.next).min(chunk_left);
            let last = stream.next + len == stream.end || len == chunk_left;
            let record = wire::data(stream.receive, stream.next, last);
            let is_port = peer.link.is_port();
            let pushed = match self.port.as_mut().filter(|_| is_port) {
                Some(port) => {
                    peer.link.is_clear()
                        && port.push(stream.to, record, len as usize, |space| pack_all(&send.buf, stream.next, space))
                }
                None if stream.whole => self.push_piece_of(stream.send, record, (stream.next, len), ride),
                None => push_piece(&mut peer.link, record, &send.buf, (stream.next, len), None),
            };
            if !pushed {
                self.announce_refused(stream.to);
                break;
            }
            stream.next += len;
            moved = true;
            // What comes behind it may ride, too, on what the other side brings meanwhile.
            is_over = ride.is_some_and(|ride| ride.ends_with(stream.next));
            if !is_port {
                self.announce_record(stream.to);
            }
        }
        moved
    }
}

/// Bytes of the next piece of a message of `len_bytes`, of which so many are left, on this way: of whole lines, if there is
/// room for one.
fn next_piece_bytes(link: &Link, len_bytes: u64, left_bytes: u64) -> u64 {
    const LINE: u64 = CACHE_LINE_BYTES as u64;
    let most = link.payload_max_bytes() as u64;
    if link.is_port() || most < LINE {
        return most;
    }
    staged_piece_bytes(len_bytes, left_bytes).next_multiple_of(LINE).min(most / LINE * LINE)
}

/// Offset and length of each piece of a message of `len_bytes` that goes at once. Nobody copies anything while the first is
/// written: it is shorter.
pub(crate) fn pieces_of(link: &Link, len_bytes: u64) -> SmallVec<[(u64, u64); 16]> {
    let mut offset = 0;
    std::iter::from_fn(|| {
        let left = len_bytes - offset;
        let len = next_piece_bytes(link, len_bytes, left).min(left);
        let len = if offset == 0 { first_piece_bytes(len) } else { len };
        let piece = (left > 0).then_some((offset, len));
        offset += len;
        piece
    })
    .collect()
}

/// Bytes of the next piece of a message of which so many are left: a quarter of all, or half of the rest.
fn staged_piece_bytes(len_bytes: u64, left_bytes: u64) -> u64 {
    let (least, most) = (*PIECE_BYTES.start(), *PIECE_BYTES.end());
    let quarter = len_bytes.div_ceil(4).clamp(least, most);
    if left_bytes < 2 * least { quarter.max(left_bytes) } else { quarter.min((left_bytes / 2).max(least)) }
}

/// Bytes of the first piece, if others of the message have so many.
fn first_piece_bytes(others_bytes: u64) -> u64 {
    (others_bytes / 4 * 3).next_multiple_of(CACHE_LINE_BYTES as u64).max(*PIECE_BYTES.start()).min(others_bytes)
}

/// Pushes `len` bytes of the message in `buf` from `offset` on to a mapped peer, if there is room: aboard a shuttle, if they
/// `ride`.
pub(crate) fn push_piece(
    link: &mut Link,
    record: Record,
    buf: &SendBuf,
    (offset, len): (u64, u64),
    ride: Option<Ride>,
) -> bool {
    let len_bytes = len as usize;
    let Some(ride) = ride else {
        return link.try_push(record, len_bytes, |space, stores| write_all(buf, offset, space, stores));
    };
    link.try_push_aboard(record, len_bytes, ride.aboard(buf, offset, len), |space, stores| {
        write_all(buf, offset, space, stores)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a message of so many bytes.
    fn pieces(len_bytes: u64) -> Vec<u64> {
        let mut left = len_bytes;
        std::iter::from_fn(|| {
            let piece = staged_piece_bytes(len_bytes, left).min(left);
            left -= piece;
            (piece > 0).then_some(piece)
        })
        .collect()
    }

    #[test]
    fn each_lane_has_its_turn_whatever_ends_meanwhile_and_who_waits_stays_the_first() {
        let mut streams = Streams::default();
        let stream = |to, receive| Stream::of(to, SlabKey::from_bits(0), receive, 0..1);
        for (to, receive) in [(7, 0), (7, 1), (3, 2), (5, 3), (7, 4), (3, 5)] {
            streams.push(stream(to, receive));
        }
        assert_eq!((streams.len(), streams.count_to(7), streams.count_to(3), streams.count_to(4)), (6, 3, 2, 0));
        let mut turn = |stays: Option<u64>, moves: bool| {
            let (mut lane, mut seen) = (0, Vec::new());
            while let Some(first) = streams.take_first(lane) {
                seen.push(first.receive);
                if Some(first.receive) == stays {
                    streams.put_back(lane, first, moves);
                    lane += 1;
                } else {
                    lane += usize::from(!streams.close_if_over(lane));
                }
            }
            seen.sort_unstable();
            seen
        };
        assert_eq!([turn(Some(0), false), turn(Some(0), true)], [vec![0, 2, 3], vec![0, 5]]);
        assert_eq!([(); 3].map(|()| turn(None, false)), [[1], [4], [0]]);
        assert!(streams.is_empty() && streams.take_first(0).is_none());
    }

    #[test]
    fn a_first_piece_is_shorter_unless_all_are_short() {
        assert_eq!(
            [100, 8 << 10, 9 << 10, 16 << 10, 32 << 10].map(first_piece_bytes),
            [100, 8 << 10, 8 << 10, 12 << 10, 24 << 10]
        );
    }

    #[test]
    fn pieces_become_shorter_at_the_end_and_none_is_very_short() {
        let kib = |pieces: &[u64]| pieces.iter().map(|piece| piece << 10).collect::<Vec<_>>();
        assert_eq!(pieces(64 << 10), kib(&[16, 16, 16, 8, 8]));
        assert_eq!(pieces(128 << 10), kib(&[32, 32, 32, 16, 8, 8]));
        assert_eq!(pieces(9 << 10), kib(&[9]));
        for len_bytes in (1..300_000).step_by(997) {
            let pieces = pieces(len_bytes);
            assert_eq!(pieces.iter().sum::<u64>(), len_bytes);
            assert!(
                pieces.iter().all(|piece| *piece >= len_bytes.min(*PIECE_BYTES.start())),
                "{len_bytes}: {pieces:?}"
            );
            assert!(pieces.is_sorted_by(|a, b| a >= b || *b < 2 * PIECE_BYTES.start()), "{len_bytes}: {pieces:?}");
        }
    }
}
