//! One socket: bytes in, bytes out.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use base::memory::WriteRange;
use smallvec::SmallVec;

use super::frame::{self, BadHead, CHECK_BYTES, Head, Kind};
use super::greeting::{Meeting, PROOF_BYTES};
use super::peer::{Arriving, Peer};
use super::socket;
use crate::copying;
use crate::link::{LinkPeer, Responder};

/// Room for the bytes of somebody who has proved nothing.
const STRANGER_BYTES: usize = 1 << 10;
/// Room for those of a peer, besides payload that is read straight to its place.
const BUFFER_BYTES: usize = 16 << 10;
/// Packets, and payload bytes, after which a peer is told if nothing goes to it anyway.
const UNTOLD_MAX: (u32, u64) = (32, 256 << 10);

const _: () = assert!(PROOF_BYTES <= STRANGER_BYTES);

/// How far a connection has come.
#[derive(Clone, Copy)]
pub(super) enum Stage {
    /// Being made to this peer.
    Dialling(u32),
    /// The hello is sent.
    Greeting(u32, Meeting),
    /// Somebody came and has said nothing yet.
    Accepted,
    /// Was challenged.
    Challenged(Meeting),
    /// Both have proved themselves; which connection counts is not agreed yet.
    Proven(u32),
    /// Carries frames.
    Live(u32),
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// The socket broke: the peer may come again.
    Broken,
    /// Nobody listens there.
    Unanswered,
    /// The other side is none of ours, and why.
    Stranger(&'static str),
    /// The peer does not keep to the protocol, or has left.
    PeerGone,
}

impl From<io::Error> for Ending {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

/// What the link has to do.
pub(super) enum Step {
    /// Wait for more.
    NeedInput,
    /// Agree which connection counts.
    Resume { epoch: u64, received: u64 },
}

pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) stage: Stage,
    /// Until when it must be live.
    pub(super) deadline: Option<Duration>,
    /// The kernel took nothing last time.
    pub(super) is_blocked: bool,
    /// It is told when the kernel takes something again.
    pub(super) watches_room: bool,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The head of the packet now arriving has come.
    in_payload: bool,
    /// Greetings and frames without packets, written between frames.
    control: Vec<u8>,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, stage: Stage, deadline: Duration) -> Self {
        Self {
            socket,
            stage,
            deadline: Some(deadline),
            is_blocked: false,
            watches_room: matches!(stage, Stage::Dialling(_)),
            buffer: vec![0; STRANGER_BYTES],
            start: 0,
            end: 0,
            in_payload: false,
            control: Vec::new(),
        }
    }

    /// The other side has proved itself.
    pub(super) fn trust(&mut self, peer: u32) {
        self.stage = Stage::Proven(peer);
        self.buffer.resize(BUFFER_BYTES, 0);
    }

    /// Writes `bytes` before the next frame.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.control.extend_from_slice(bytes);
    }

    pub(super) fn say_head(&mut self, kind: Kind, received: u64) {
        let (bytes, len) = Head { kind, received }.to_bytes();
        self.say(&bytes[..len]);
    }

    /// Exactly `N` bytes, once they have come.
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = *self.buffer[self.start..self.end].first_chunk::<N>()?;
        self.start += N;
        Some(bytes)
    }

    /// Reads what has come; false if nothing more is to be expected now.
    pub(super) fn fill(&mut self, peer: Option<&mut Peer>) -> Result<bool, Ending> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let mut parts: SmallVec<[WriteRange; 8]> = SmallVec::new();
        let mut arriving = peer.and_then(|peer| peer.arriving.as_mut()).filter(|_| self.in_payload && self.end == 0);
        let straight = arriving.as_ref().map_or(0, |arriving| add_places(arriving, &mut parts));
        let space = &mut self.buffer[self.end..];
        // SAFETY: the buffer is this connection's, and is not used until the read is over.
        parts.push(unsafe { WriteRange::new(space.as_mut_ptr(), space.len()) });
        let Some(count) = socket::receive(self.socket.as_fd(), &parts)? else { return Ok(false) };
        if count == 0 {
            return Err(Ending::Broken);
        }
        let placed = (count as u64).min(straight);
        if let Some(arriving) = &mut arriving {
            arriving.got += placed;
        }
        self.end += count - placed as usize;
        Ok(count == parts.iter().map(|part| part.len_bytes()).sum())
    }

    /// Hands over what is in the buffer, until more is needed or the link has something to do.
    pub(super) fn deliver(
        &mut self,
        id: LinkPeer,
        peer: &mut Peer,
        responder: &mut dyn Responder,
    ) -> Result<Step, Ending> {
        loop {
            if self.in_payload {
                if !self.deliver_payload(peer)? {
                    return Ok(Step::NeedInput);
                }
                self.in_payload = false;
                peer.received += 1;
                let bytes = peer.arriving.take().map_or(0, |arriving| arriving.payload_bytes);
                peer.untold = (peer.untold.0 + 1, peer.untold.1 + bytes);
                responder.finish(id);
                continue;
            }
            let (head, len) = match frame::parse(&self.buffer[self.start..self.end]) {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(Step::NeedInput),
                Err(BadHead::Damaged) => return Err(Ending::Broken),
                Err(BadHead::Nonsense) => return Err(Ending::PeerGone),
            };
            self.start += len;
            let is_live = matches!(self.stage, Stage::Live(_));
            match head.kind {
                Kind::Resume { epoch } if !is_live => return Ok(Step::Resume { epoch, received: head.received }),
                _ if !is_live || !peer.outbox.acknowledged(head.received) => return Err(Ending::PeerGone),
                Kind::Acknowledge => {}
                Kind::Resume { .. } | Kind::Goodbye => return Err(Ending::PeerGone),
                Kind::Packet { sequence, header, payload_bytes, is_checked } => {
                    if sequence != peer.received || payload_bytes > super::link::MESSAGE_MAX_BYTES {
                        return Err(Ending::PeerGone);
                    }
                    // What was begun on a lost connection is filled anew.
                    let placement = match peer.arriving.take() {
                        Some(begun) if begun.payload_bytes == payload_bytes => begun.placement,
                        Some(_) => return Err(Ending::PeerGone),
                        None => responder.begin(id, &header, payload_bytes),
                    };
                    peer.arriving = Some(Arriving { placement, got: 0, payload_bytes, is_checked, check: 0 });
                    self.in_payload = true;
                }
            }
        }
    }

    /// Moves payload from the buffer to its place; true if it is whole.
    fn deliver_payload(&mut self, peer: &mut Peer) -> Result<bool, Ending> {
        let arriving = peer.arriving.as_mut().ok_or(Ending::PeerGone)?;
        let buffered = &self.buffer[self.start..self.end];
        let count = (arriving.payload_bytes - arriving.got).min(buffered.len() as u64) as usize;
        if count > 0 {
            copying::scatter(&buffered[..count], &copying::behind(&arriving.placement.ranges, arriving.got as usize));
            if arriving.is_checked {
                arriving.check = crc32c::crc32c_append(arriving.check, &buffered[..count]);
            }
            arriving.got += count as u64;
            self.start += count;
        }
        if arriving.got < arriving.payload_bytes {
            return Ok(false);
        }
        if !arriving.is_checked {
            return Ok(true);
        }
        let expected = arriving.check.to_le_bytes();
        match self.take::<CHECK_BYTES>() {
            None => Ok(false),
            Some(check) if check == expected => Ok(true),
            // It comes again on the next connection.
            Some(_) => Err(Ending::Broken),
        }
    }

    /// Writes what the kernel takes.
    pub(super) fn flush(&mut self, mut peer: Option<&mut Peer>) -> Result<(), Ending> {
        self.is_blocked = false;
        let is_live = matches!(self.stage, Stage::Live(_));
        if let Some(peer) = peer.as_deref_mut().filter(|peer| is_live && !peer.outbox.has_unsent())
            && (peer.untold.0 >= UNTOLD_MAX.0 || peer.untold.1 >= UNTOLD_MAX.1)
        {
            peer.untold = (0, 0);
            self.say_head(Kind::Acknowledge, peer.received);
        }
        loop {
            let may_interrupt = peer.as_ref().is_none_or(|peer| !is_live || peer.outbox.is_at_boundary());
            if !self.control.is_empty() && may_interrupt {
                match socket::send(&self.socket, &[copying::borrowed(&self.control)])? {
                    Some(count) => drop(self.control.drain(..count)),
                    None => break self.is_blocked = true,
                }
                continue;
            }
            let Some(peer) = peer.as_deref_mut().filter(|peer| is_live && peer.outbox.has_unsent()) else { break };
            peer.untold = (0, 0);
            let parts = peer.outbox.parts(peer.received);
            match socket::send(&self.socket, &parts)? {
                Some(count) => peer.outbox.wrote(count),
                None => break self.is_blocked = true,
            }
        }
        Ok(())
    }
}

/// Adds the places of what is still to come; returns how many bytes they hold.
fn add_places(arriving: &Arriving, parts: &mut SmallVec<[WriteRange; 8]>) -> u64 {
    // What is checked goes through the buffer, where the check is made.
    let mut left = if arriving.is_checked { 0 } else { arriving.payload_bytes - arriving.got };
    let mut total = 0;
    for range in copying::behind(&arriving.placement.ranges, arriving.got as usize) {
        let here = left.min(range.len_bytes() as u64);
        parts.extend(range.part(0, here as usize).filter(|part| part.len_bytes() > 0));
        left -= here;
        total += here;
    }
    total
}
