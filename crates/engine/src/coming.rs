//! Messages that come whole, without a request, in more than one piece: their receiver copies one while the next is
//! written.
//!
//! The sender finds room for all of them before the first one leaves (`crate::eager`), so nothing else comes between them,
//! and a peer has one such message under way at most.

use base::SlabKey;
use datatype::RecvBuf;
use protocol::rendezvous::WHOLE_MAX_BYTES;

use crate::core::Core;
use crate::deliver::{Content, Unexpected, Written, outcome, read_all, split};
use crate::request::{Completion, Envelope, Incoming, IncomingWay, PeerId, Request, RequestId, State};

/// The sender's request of a message that has none.
const NO_REQUEST: u64 = u64::MAX;

/// Where the pieces of a peer's message go.
#[derive(Clone, Copy)]
pub(crate) enum Coming {
    /// To this receive.
    Received(SlabKey),
    /// To what is kept until there is a receive.
    Kept(SlabKey),
}

/// What has come of a message that came before its receive.
pub(crate) struct Kept {
    data: Vec<u8>,
    len_bytes: u64,
}

impl Core {
    /// The first piece of a message of `len_bytes`.
    #[inline(never)]
    pub(crate) fn arrive_first(&mut self, peer: PeerId, key: u64, len_bytes: u64, data: Written<'_>) {
        if len_bytes > WHOLE_MAX_BYTES || !matches!(self.peers.get(peer as usize), Some(Some(_))) {
            // Nobody was given leave for that.
            return self.refuse();
        }
        let (context, tag) = split(key);
        let envelope = Envelope { peer, tag, len_bytes };
        let coming = match self.posted.arrive(context, peer, tag) {
            Some(receive) => {
                let Some(buf) = self.take_posted_buf(receive) else { return };
                self.go_on_into(receive, buf, envelope, 0);
                Coming::Received(receive)
            }
            None => {
                let kept = self.kept.insert(Kept { data: Vec::with_capacity(len_bytes as usize), len_bytes });
                self.store(context, Unexpected { envelope, content: Content::Coming { kept } });
                self.note_early(peer);
                Coming::Kept(kept)
            }
        };
        self.set_coming(peer, Some(coming));
        self.arrive_more(peer, 0, data);
    }

    /// The next piece of the message that a peer has begun.
    #[inline(never)]
    pub(crate) fn arrive_more(&mut self, peer: PeerId, offset: u64, data: Written<'_>) {
        let Some(Some(entry)) = self.peers.get(peer as usize) else { return self.refuse() };
        let len_bytes = offset.saturating_add(data.len_bytes());
        let is_over = match entry.coming {
            Some(Coming::Received(receive)) => self.take_piece(receive, peer, offset, data),
            Some(Coming::Kept(kept)) => self.keep_piece(kept, offset, data),
            None => None,
        };
        match is_over {
            Some(false) => {}
            Some(true) => {
                self.set_coming(peer, None);
                self.note_whole(peer, len_bytes);
                self.ends_turn = true;
            }
            None => self.refuse(),
        }
    }

    /// A piece for a receive; whether that was the last, or nothing if it does not fit.
    fn take_piece(&mut self, receive: SlabKey, peer: PeerId, offset: u64, data: Written<'_>) -> Option<bool> {
        let Request { state: State::Incoming(incoming), .. } = self.requests.get_mut(receive)? else { return None };
        let Incoming { buf, envelope, way: IncomingWay::Staged { received }, .. } = &mut **incoming else {
            return None;
        };
        let (len, capacity_bytes) = (data.len_bytes(), buf.len_bytes());
        if envelope.peer != peer || offset != *received || len > envelope.len_bytes - offset {
            return None;
        }
        data.up_to(capacity_bytes.saturating_sub(offset)).read_into(buf, offset);
        *received += len;
        let envelope = *envelope;
        let is_over = *received == envelope.len_bytes;
        if is_over {
            self.complete(receive, Completion { envelope, outcome: outcome(envelope.len_bytes, capacity_bytes) });
        }
        Some(is_over)
    }

    /// A piece of a message whose receive is not there, as `take_piece` takes one.
    fn keep_piece(&mut self, kept: SlabKey, offset: u64, data: Written<'_>) -> Option<bool> {
        let Kept { data: bytes, len_bytes } = self.kept.get_mut(kept)?;
        if offset != bytes.len() as u64 || data.len_bytes() > *len_bytes - offset {
            return None;
        }
        data.append_to(bytes);
        Some(bytes.len() as u64 == *len_bytes)
    }

    /// A receive meets a message of which all, or a part, has come.
    pub(crate) fn receive_kept(&mut self, kept: SlabKey, mut buf: RecvBuf, envelope: Envelope) -> RequestId {
        self.unexpected_bytes -= envelope.len_bytes as usize;
        let receive = self.completed(envelope);
        let Some(Kept { data, len_bytes }) = self.kept.remove(kept) else { return receive };
        read_all(&mut buf, &data);
        if data.len() as u64 == len_bytes {
            let outcome = outcome(len_bytes, buf.len_bytes());
            self.complete(receive.0, Completion { envelope, outcome });
        } else {
            self.go_on_into(receive.0, buf, envelope, data.len() as u64);
            self.set_coming(envelope.peer, Some(Coming::Received(receive.0)));
            self.fail_if_lost(receive.0, envelope);
        }
        receive
    }

    /// The rest of a message, of which so much has been `received`, goes to this receive.
    fn go_on_into(&mut self, receive: SlabKey, buf: RecvBuf, envelope: Envelope, received: u64) {
        if let Some(request) = self.requests.get_mut(receive) {
            let incoming = Incoming::new(buf, envelope, NO_REQUEST, true);
            request.state = State::Incoming(Box::new(Incoming { way: IncomingWay::Staged { received }, ..incoming }));
        }
    }

    fn set_coming(&mut self, peer: PeerId, coming: Option<Coming>) {
        if let Some(Some(entry)) = self.peers.get_mut(peer as usize) {
            entry.coming = coming;
        }
    }
}
