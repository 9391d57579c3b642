//! Short messages: straight into the receiver's memory, or to whatever leads to it.

use datatype::SendBuf;
use fabric::PeerIndex;
use lockfree::{MEDIUM_MIN_BYTES, Reader, Record, STREAMING_MIN_BYTES, Stores};
use protocol::fastpath::{COLD, HOLD_BACK};
use protocol::wire;

use crate::core::{Core, match_key, pack_all, write_all};
use crate::peer::Peer;
use crate::request::{ContextId, PeerId, Tag};
use crate::shuttles::{ABOARD_MIN_BYTES, Ride};
use crate::streams::{pieces_of, push_piece};

impl Core {
    #[inline]
    pub(crate) fn try_eager(&mut self, to: PeerId, context: ContextId, tag: Tag, buf: &SendBuf) -> bool {
        let len = buf.len_bytes() as usize;
        if len > self.thresholds.eager_max_bytes {
            return self.try_whole(to, context, tag, buf);
        }
        if to == self.me {
            return self.send_to_self(context, tag, buf);
        }
        let record = wire::eager(match_key(context, tag), None);
        if len >= ABOARD_MIN_BYTES && self.push_aboard(to, record, buf) {
            self.eager_left(to, len as u64);
            return true;
        }
        if self.thresholds.is_crowded && len >= STREAMING_MIN_BYTES {
            self.prepare(to, len);
        }
        if let Some(Some(peer)) = self.peers.get_mut(to as usize)
            && let Peer { link, traffic, .. } = &mut **peer
            && let Some(block) = link.hot()
        {
            if block.hint() & HOLD_BACK != 0 {
                return false;
            }
            let pushed = if len < MEDIUM_MIN_BYTES {
                block.push(record, len, |space| write_all(buf, 0, space, Stores::Streaming))
            } else {
                block.push_long(record, len, |space, stores| write_all(buf, 0, space, stores))
            };
            if !pushed {
                return false;
            }
            traffic.count_eager(len as u64);
            if len > STREAMING_MIN_BYTES {
                self.readying = Some(to);
            }
            self.context.notify(PeerIndex(to));
            // After the barrier that comes with the bell: see `inbound`.
            if block.hint() & COLD != 0 {
                self.announce_cold(to);
            }
            return true;
        }
        self.try_eager_by_detour(to, record, buf)
    }

    /// Sends a longer message without a request, to a peer that has given leave to: as if it were a short one, or in pieces, of
    /// which the receiver copies one while the next is written where it can (see [`Thresholds::whole_record_max_bytes`]).
    ///
    /// [`Thresholds::whole_record_max_bytes`]: protocol::rendezvous::Thresholds::whole_record_max_bytes
    #[inline(never)]
    fn try_whole(&mut self, to: PeerId, context: ContextId, tag: Tag, buf: &SendBuf) -> bool {
        let (key, len_bytes) = (match_key(context, tag), buf.len_bytes());
        let Some(Some(peer)) = self.peers.get(to as usize) else { return false };
        if len_bytes > self.thresholds.whole_max_bytes() {
            // Like those that leave was given for are some that are longer than any may be.
            return false;
        }
        let may = peer.whole.permits(len_bytes) && buf.as_contiguous().is_some() && !peer.link.holds_back_eager();
        if !may {
            // One that has to ask is written there, too, once it is answered.
            self.prepare(to, len_bytes as usize);
            return false;
        }
        if self.lacks_shuttle(to, len_bytes) {
            return false;
        }
        let in_one_record = len_bytes <= self.thresholds.whole_record_max_bytes(!self.posted.is_empty());
        let is_gone = match in_one_record {
            true => self.push_whole(to, key, buf),
            false => self.push_pieces(to, key, buf),
        };
        if let Some(Some(peer)) = self.peers.get_mut(to as usize)
            && is_gone
        {
            peer.whole.spend(len_bytes);
            self.stats.whole_sent += 1;
            self.stats.whole_in_pieces += u64::from(!in_one_record);
            self.shuttles.note_went(to, len_bytes);
            self.readying = Some(to);
            self.eager_left(to, len_bytes);
        }
        is_gone
    }

    /// Before a record with a payload of `len_bytes` to a mapped peer, not one of several reserved: says where its reader runs,
    /// if processes share processors.
    #[inline]
    pub(crate) fn prepare(&mut self, to: PeerId, len_bytes: usize) {
        if self.thresholds.is_crowded
            && let Some(Some(peer)) = self.peers.get_mut(to as usize)
        {
            let is_here = self.context.runs_here(PeerIndex(to));
            peer.link.prepare(len_bytes, if is_here { Reader::Here } else { Reader::Elsewhere });
        }
    }

    /// Sends a longer message in one record, aboard a shuttle if there is one.
    fn push_whole(&mut self, to: PeerId, key: u64, buf: &SendBuf) -> bool {
        let len_bytes = buf.len_bytes();
        let shuttle = self.take_shuttle_for_all(to, len_bytes);
        if shuttle.is_none() {
            self.prepare(to, len_bytes as usize);
        }
        let Some(Some(peer)) = self.peers.get_mut(to as usize) else { return false };
        let fits = shuttle.is_some() || len_bytes as usize <= peer.link.present_payload_max_bytes();
        let (record, ride) = (wire::eager(key, None), Ride::of_all(shuttle, len_bytes));
        let is_gone = fits && push_piece(&mut peer.link, record, buf, (0, len_bytes), ride);
        self.end_aboard(to, shuttle, is_gone);
        is_gone
    }

    /// Sends a longer message in pieces, if there is room for all of them: the first ones aboard a shuttle, if there is one, as
    /// far as what has come in it.
    fn push_pieces(&mut self, to: PeerId, key: u64, buf: &SendBuf) -> bool {
        let len_bytes = buf.len_bytes();
        let passage = self.take_shuttle(to, len_bytes);
        if passage.is_none() {
            self.prepare(to, len_bytes as usize);
        }
        let Some(Some(peer)) = self.peers.get_mut(to as usize) else { return false };
        let pieces = pieces_of(&peer.link, len_bytes);
        let ride = passage.and_then(|passage| Ride::of_pieces(passage, &pieces));
        let rides = |offset: u64| ride.is_some_and(|ride| ride.has(offset));
        let in_block = |(offset, len)| if rides(offset) { lockfree::shuttle::PLACE_BYTES } else { len as usize };
        let has_room = peer.link.reserve(pieces.iter().copied().map(in_block));
        self.end_aboard(to, passage.map(|passage| passage.shuttle), has_room && ride.is_some());
        if !has_room {
            return false;
        }
        for (offset, len) in pieces {
            if offset > 0 {
                // The one before; the last is announced with the message.
                self.announce_record(to);
            }
            let Some(Some(peer)) = self.peers.get_mut(to as usize) else { return false };
            let record = if offset == 0 { wire::first(key, len_bytes) } else { wire::more(offset) };
            let pushed = push_piece(&mut peer.link, record, buf, (offset, len), ride.filter(|_| rides(offset)));
            assert!(pushed, "there is room for it");
        }
        true
    }

    /// As `try_eager`, to a peer whose channel is no block, or a block that does not take records just so.
    #[inline(never)]
    fn try_eager_by_detour(&mut self, to: PeerId, record: Record, buf: &SendBuf) -> bool {
        let len = buf.len_bytes() as usize;
        let Ok(peer) = self.peer(to) else { return false };
        if peer.link.is_port() {
            return self.try_eager_posted(to, record, buf);
        }
        if peer.link.holds_back_eager()
            || len > peer.link.payload_max_bytes()
            || !peer.link.try_push(record, len, |space, stores| write_all(buf, 0, space, stores))
        {
            return false;
        }
        self.eager_left(to, len as u64);
        true
    }

    /// An eager message has gone to a mapped peer.
    pub(crate) fn eager_left(&mut self, to: PeerId, len_bytes: u64) {
        if let Some(Some(peer)) = self.peers.get_mut(to as usize) {
            peer.traffic.count_eager(len_bytes);
        }
        self.announce_record(to);
        if matches!(self.peers.get(to as usize), Some(Some(peer)) if peer.link.is_slow()) {
            self.sent_slowly(to);
        }
    }

    /// As `try_eager`, to a peer that is reached through the port.
    #[inline(never)]
    fn try_eager_posted(&mut self, to: PeerId, record: Record, buf: &SendBuf) -> bool {
        let (Some(Some(peer)), Some(port)) = (self.peers.get_mut(to as usize), &mut self.port) else { return false };
        let posted = peer.link.is_port()
            && peer.link.is_clear()
            && !port.holds_back(to)
            && port.push(to, record, buf.len_bytes() as usize, |space| pack_all(buf, 0, space));
        if posted {
            peer.traffic.count_eager(buf.len_bytes());
            peer.traffic.slow_sent += u64::from(!port.is_fast(to));
        }
        posted
    }

    /// Sends a record now if there is room and, unless it stands `first` in the queue, nothing waits before it. `fill`
    /// writes the payload, which is short.
    pub(crate) fn push(
        &mut self,
        to: PeerId,
        record: Record,
        len_bytes: usize,
        first: bool,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let Some(Some(peer)) = self.peers.get_mut(to as usize) else { return false };
        if let Some(port) = self.port.as_mut().filter(|_| peer.link.is_port()) {
            let may = first || peer.link.is_clear();
            let pushed = may && port.push(to, record, len_bytes, fill);
            if pushed && first {
                peer.link.skip_first();
            }
            return pushed;
        }
        let fill = |space: &mut [u8], _| fill(space);
        let pushed = if first {
            peer.link.push_first(record, len_bytes, fill)
        } else {
            peer.link.try_push(record, len_bytes, fill)
        };
        if pushed {
            self.announce_record(to);
        }
        pushed
    }
}
