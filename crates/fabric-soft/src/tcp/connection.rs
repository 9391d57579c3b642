//! One socket: bytes in, bytes out.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use std::{fmt, io};

use base::memory::WriteRange;
use rustix::io::Errno;
use smallvec::SmallVec;

use super::frame::{self, BadHead, CHECK_BYTES, Head, Kind};
use super::greeting::{Meeting, PROOF_BYTES};
use super::inbox::{Inbox, ROOM_BYTES, STRANGER_BYTES};
use super::peer::{Arriving, At, Incoming, Peer, part_of};
use super::socket;
use crate::copying;
use crate::link::{LinkPeer, Placement, Responder};

const _: () = assert!(PROOF_BYTES <= STRANGER_BYTES);

/// How far a connection has come.
#[derive(Clone, Copy)]
pub(super) enum Stage {
    /// Being made to this peer.
    Dialling(At),
    /// The hello is sent.
    Greeting(At, Meeting),
    /// Somebody came and has said nothing yet.
    Accepted,
    /// Was challenged.
    Challenged(Meeting),
    /// Both have proved themselves; which connection counts is not agreed yet.
    Proven(At),
    /// Carries frames.
    Live(At),
}

impl Stage {
    /// The peer, if it is one that was dialled or has proved itself.
    pub(super) fn at(&self) -> Option<At> {
        match *self {
            Self::Dialling(at) | Self::Greeting(at, _) | Self::Proven(at) | Self::Live(at) => Some(at),
            Self::Accepted | Self::Challenged(_) => None,
        }
    }
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// The other side closed it, or this side for another one: the peer may come again.
    Broken,
    /// The socket failed.
    Failed(Errno),
    /// It took too long.
    Late,
    /// The other side is none of ours, and why.
    Stranger(&'static str),
    /// The peer does not keep to the protocol.
    PeerWrong,
    /// The peer has left.
    PeerLeft,
}

impl Ending {
    /// Whether nobody listens there.
    pub(super) fn is_refusal(self) -> bool {
        self == Self::Failed(Errno::CONNREFUSED)
    }

    /// Whether it is what is told of a write once the other side has cut the connection.
    pub(super) fn is_cut(self) -> bool {
        matches!(self, Self::Failed(Errno::PIPE | Errno::CONNRESET))
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken => f.write_str("it was closed"),
            Self::Failed(errno) => write!(f, "{errno}"),
            Self::Late => f.write_str("no answer in time"),
            Self::Stranger(why) => f.write_str(why),
            Self::PeerWrong => f.write_str("it does not keep to the protocol"),
            Self::PeerLeft => f.write_str("it has left"),
        }
    }
}

impl From<Errno> for Ending {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

impl From<io::Error> for Ending {
    fn from(error: io::Error) -> Self {
        Errno::from_io_error(&error).map_or(Self::Broken, Self::Failed)
    }
}

/// What the link has to do.
pub(super) enum Step {
    /// Wait for more.
    NeedInput,
    /// Wait for what comes on another lane.
    Stalled,
    /// Agree which connection counts.
    Resume { epoch: u64, received: u64, is_asynchronous: bool },
    /// Go on; what waited for this on other lanes may go on, too.
    Others,
}

pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) stage: Stage,
    /// Until when it must be live.
    pub(super) deadline: Option<Duration>,
    /// The kernel took nothing last time.
    pub(super) is_blocked: bool,
    /// What has come is left where it is until another lane is as far.
    pub(super) is_stalled: bool,
    /// Something was read since this was cleared.
    pub(super) has_read: bool,
    /// Times the kernel took something.
    pub(super) writes: u64,
    /// Signs that the process at the other end is there: it wrote something, or read so that there is room again.
    pub(super) signs: u64,
    /// What it is told of: something to read, room to write; `None` while it is looked at without that.
    pub(super) watches: Option<(bool, bool)>,
    inbox: Inbox,
    /// The head of the packet now arriving has come.
    in_payload: bool,
    /// Greetings and frames without packets, written between frames.
    control: Vec<u8>,
    /// Short frames that are being written, one behind the other.
    copied: Vec<u8>,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, stage: Stage, deadline: Duration) -> Self {
        Self {
            socket,
            stage,
            deadline: Some(deadline),
            is_blocked: false,
            is_stalled: false,
            has_read: false,
            writes: 0,
            signs: 0,
            watches: None,
            inbox: Inbox::of_stranger(),
            in_payload: false,
            control: Vec::new(),
            copied: Vec::new(),
        }
    }

    /// Writes `bytes` before the next frame.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.control.extend_from_slice(bytes);
    }

    pub(super) fn say_head(&mut self, kind: Kind<'_>, received: u64) {
        let (bytes, len) = Head { kind, received }.to_bytes();
        self.say(&bytes[..len]);
    }

    /// Bytes it keeps: what has come and is not used, and what is to be said.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.inbox.unused().len() + self.control.capacity() + self.copied.capacity()
    }

    /// Exactly `N` bytes, once they have come.
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.inbox.take()
    }

    /// Reads what has come, that of a peer into `room`, which the connection has until it [gives it back]; false if nothing
    /// more is to be expected now.
    ///
    /// [gives it back]: Connection::leave
    pub(super) fn fill(&mut self, peer: Option<&mut Peer>, room: &mut Vec<u8>) -> Result<bool, Ending> {
        let reads_straight = self.in_payload && self.inbox.is_empty();
        let arriving = match peer.filter(|_| reads_straight) {
            Some(Peer { lanes, incoming: Some(incoming), .. }) => {
                let lane = self.stage.at().map_or(0, |at| usize::from(at.lane));
                let arriving = lanes.get_mut(lane).and_then(|lane| lane.arriving.as_mut());
                arriving.map(|arriving| (arriving, &incoming.placement))
            }
            _ => None,
        };
        let Some((arriving, placement)) = arriving else { return self.fill_inbox(room) };
        let mut parts: SmallVec<[WriteRange; 8]> = SmallVec::new();
        let straight = add_places(placement, arriving, &mut parts);
        self.inbox.enter(room);
        let space = self.inbox.space();
        // SAFETY: the space is this connection's, and is not used until the read is over.
        parts.push(unsafe { WriteRange::new(space.as_mut_ptr(), space.len()) });
        let Some(count) = socket::receive(self.socket.as_fd(), &parts)? else { return Ok(false) };
        if count == 0 {
            return Err(Ending::Broken);
        }
        self.note_read();
        let placed = (count as u64).min(straight);
        arriving.got += placed;
        self.inbox.came(count - placed as usize);
        Ok(count == parts.iter().map(|part| part.len_bytes()).sum())
    }

    /// Gives the room back that it read into.
    pub(super) fn leave(&mut self, room: &mut Vec<u8>) {
        self.inbox.leave(room);
    }

    fn note_read(&mut self) {
        self.has_read = true;
        self.signs += 1;
    }

    /// Reads what has come behind what is there.
    fn fill_inbox(&mut self, room: &mut Vec<u8>) -> Result<bool, Ending> {
        let is_trusted = matches!(self.stage, Stage::Proven(_) | Stage::Live(_));
        let space = if is_trusted { self.inbox.space_in(room) } else { self.inbox.space() };
        match socket::receive_bytes(self.socket.as_fd(), space)? {
            None => Ok(false),
            Some(0) => Err(Ending::Broken),
            Some(count) => {
                let is_all = count == space.len();
                if is_trusted {
                    self.inbox.enter(room);
                }
                self.inbox.came(count);
                self.note_read();
                Ok(is_all)
            }
        }
    }

    /// Hands over what has come, until more is needed or the link has something to do.
    pub(super) fn deliver(&mut self, at: At, peer: &mut Peer, responder: &mut dyn Responder) -> Result<Step, Ending> {
        let (id, index) = (LinkPeer(at.peer), usize::from(at.lane));
        loop {
            if self.in_payload {
                if !self.deliver_payload(index, peer)? {
                    return Ok(Step::NeedInput);
                }
                self.in_payload = false;
                if finish_part(index, peer, id, responder) && index > 0 {
                    return Ok(Step::Others);
                }
                continue;
            }
            let is_live = matches!(self.stage, Stage::Live(_));
            let waits_for_parts = |incoming: &Incoming| incoming.missing != 0 && incoming.missing & 1 == 0;
            if is_live && index == 0 && peer.incoming.as_ref().is_some_and(waits_for_parts) {
                return Ok(Step::Stalled);
            }
            let (head, len) = match frame::parse(self.inbox.unused()) {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(Step::NeedInput),
                Err(BadHead::Damaged) => return Err(Ending::Broken),
                Err(BadHead::Nonsense) => return Err(Ending::PeerWrong),
            };
            let lane = peer.lanes.get_mut(index).ok_or(Ending::PeerWrong)?;
            if !is_live {
                let Kind::Resume { epoch, is_asynchronous } = head.kind else { return Err(Ending::PeerWrong) };
                let received = head.received;
                self.inbox.use_up(len);
                return Ok(Step::Resume { epoch, received, is_asynchronous });
            }
            if !lane.outbox.acknowledged(head.received) {
                return Err(Ending::PeerWrong);
            }
            let is_of_parts = matches!(head.kind, Kind::Packet { part_count: 2.., .. });
            let begun = match head.kind {
                Kind::Acknowledge => None,
                Kind::Ask => {
                    // What is to be written already is as good an answer; one that asks and does not read gets no more.
                    if self.control.is_empty() {
                        let received = lane.received;
                        self.say_head(Kind::Acknowledge, received);
                    }
                    None
                }
                Kind::Goodbye => return Err(Ending::PeerLeft),
                Kind::Resume { .. } => return Err(Ending::PeerWrong),
                Kind::Part { packet, payload_bytes, is_checked } => {
                    match begin_part(index, peer, packet, payload_bytes, is_checked)? {
                        Some(arriving) => Some(arriving),
                        None => return Ok(Step::Stalled),
                    }
                }
                Kind::Packet { sequence, header, payload_bytes, part_count, is_checked } => {
                    let is_next = index == 0 && sequence == lane.received;
                    if !is_next || payload_bytes > super::link::MESSAGE_MAX_BYTES {
                        return Err(Ending::PeerWrong);
                    }
                    let whole = len + (payload_bytes as usize).min(ROOM_BYTES);
                    if peer.incoming.is_none()
                        && part_count == 1
                        && !is_checked
                        && payload_bytes <= ROOM_BYTES as u64
                        && let Some(payload) = self.inbox.unused().get(len..whole)
                    {
                        // The usual case: it is here already, and keeps nobody waiting.
                        lane.untold = (lane.untold.0 + 1, lane.untold.1 + payload_bytes);
                        lane.received += 1;
                        responder.bring(id, header, payload);
                        self.inbox.use_up(whole);
                        continue;
                    }
                    match &mut peer.incoming {
                        // What was begun on a lost connection is filled anew.
                        Some(begun) if begun.payload_bytes == payload_bytes && begun.part_count == part_count => {}
                        Some(_) => return Err(Ending::PeerWrong),
                        begun @ None => {
                            let placement = responder.begin(id, header, payload_bytes);
                            let missing = (1 << part_count) - 1;
                            *begun = Some(Incoming { placement, payload_bytes, part_count, missing });
                        }
                    }
                    let (offset, len_bytes) = part_of(payload_bytes, part_count, 0);
                    Some(Arriving { offset, len_bytes, got: 0, is_checked, check: 0 })
                }
            };
            self.inbox.use_up(len);
            if begun.is_some() {
                peer.lanes[index].arriving = begun;
                self.in_payload = true;
                if is_of_parts {
                    return Ok(Step::Others);
                }
            }
        }
    }

    /// Hands over what was read, of a peer with one lane; true if nothing is left over and nothing is to be said: the usual
    /// end of a look at a live connection.
    #[inline]
    pub(super) fn deliver_all(
        &mut self,
        at: At,
        peer: &mut Peer,
        responder: &mut dyn Responder,
    ) -> Result<bool, Ending> {
        if peer.lanes.len() > 1 {
            return Ok(false);
        }
        while let Step::Others = self.deliver(at, peer, responder)? {}
        let says = peer.lanes.first().is_none_or(|lane| lane.outbox.has_unsent() || lane.is_to_be_told());
        Ok(self.inbox.is_empty() && self.control.is_empty() && !says)
    }

    /// Moves payload that has come to its place; true if this part of it is whole.
    fn deliver_payload(&mut self, lane: usize, peer: &mut Peer) -> Result<bool, Ending> {
        let arriving = peer.lanes.get_mut(lane).and_then(|lane| lane.arriving.as_mut()).ok_or(Ending::PeerWrong)?;
        let incoming = peer.incoming.as_ref().ok_or(Ending::PeerWrong)?;
        let buffered = self.inbox.unused();
        let left = arriving.len_bytes - arriving.got;
        let count =
            if buffered.len() as u64 >= left { left } else { before_last_word(left).min(buffered.len() as u64) };
        let count = count as usize;
        if count > 0 {
            let place = (arriving.offset + arriving.got) as usize;
            // A payload that is short and new needs no list of what is behind: the usual case.
            if place == 0 {
                copying::scatter_in_order(&buffered[..count], &incoming.placement.ranges);
            } else {
                copying::scatter_in_order(&buffered[..count], &copying::behind(&incoming.placement.ranges, place));
            }
            if arriving.is_checked {
                arriving.check = crc32c::crc32c_append(arriving.check, &buffered[..count]);
            }
            arriving.got += count as u64;
            self.inbox.use_up(count);
        }
        if arriving.got < arriving.len_bytes {
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
    pub(super) fn flush(&mut self, peer: Option<&mut Peer>) -> Result<(), Ending> {
        let (was_blocked, writes_before) = (std::mem::take(&mut self.is_blocked), self.writes);
        let is_live = matches!(self.stage, Stage::Live(_));
        let index = self.stage.at().map_or(0, |at| usize::from(at.lane));
        let mut lane = peer.filter(|_| is_live).and_then(|peer| peer.lanes.get_mut(index));
        if let Some(lane) = lane.as_deref_mut().filter(|lane| !lane.outbox.has_unsent() && lane.is_to_be_told()) {
            lane.untold = (0, 0);
            self.say_head(Kind::Acknowledge, lane.received);
        }
        loop {
            let may_interrupt = lane.as_ref().is_none_or(|lane| lane.outbox.is_at_boundary());
            if !self.control.is_empty() && may_interrupt {
                match socket::send_bytes(&self.socket, &self.control)? {
                    Some(count) => {
                        self.writes += 1;
                        drop(self.control.drain(..count));
                    }
                    None => break self.is_blocked = true,
                }
                continue;
            }
            let Some(lane) = lane.as_deref_mut().filter(|lane| lane.outbox.has_unsent()) else { break };
            lane.untold = (0, 0);
            let sent = match lane.outbox.in_one_piece(lane.received, &mut self.copied) {
                Some(piece) => socket::send_bytes(&self.socket, piece)?,
                None => socket::send(&self.socket, &lane.outbox.parts(lane.received))?,
            };
            match sent {
                Some(count) => {
                    self.writes += 1;
                    lane.outbox.wrote(count);
                }
                None => break self.is_blocked = true,
            }
        }
        if was_blocked && self.writes > writes_before {
            self.signs += 1;
        }
        Ok(())
    }
}

/// A part that came on a lane behind the first; `None` while its packet has not begun.
fn begin_part(
    index: usize,
    peer: &Peer,
    packet: u64,
    payload_bytes: u64,
    is_checked: bool,
) -> Result<Option<Arriving>, Ending> {
    let current = peer.lanes[0].received;
    let Some(incoming) = peer.incoming.as_ref().filter(|_| packet == current) else {
        return if index > 0 && packet >= current { Ok(None) } else { Err(Ending::PeerWrong) };
    };
    let (offset, len_bytes) = part_of(incoming.payload_bytes, incoming.part_count, index);
    if index == 0 || incoming.missing & 1 << index == 0 || payload_bytes != len_bytes {
        return Err(Ending::PeerWrong);
    }
    Ok(Some(Arriving { offset, len_bytes, got: 0, is_checked, check: 0 }))
}

/// The part that arrived on a lane is whole; true if its packet is, too, and was handed over.
fn finish_part(index: usize, peer: &mut Peer, id: LinkPeer, responder: &mut dyn Responder) -> bool {
    let lane = &mut peer.lanes[index];
    let bytes = lane.arriving.take().map_or(0, |part| part.len_bytes);
    lane.untold = (lane.untold.0 + 1, lane.untold.1 + bytes);
    if index > 0 {
        lane.received += 1;
    }
    let is_whole = peer.incoming.as_mut().is_none_or(|incoming| {
        incoming.missing &= !(1 << index);
        incoming.missing == 0
    });
    if is_whole {
        peer.incoming = None;
        peer.lanes[0].received += 1;
        responder.finish(id);
    }
    is_whole
}

/// Adds the places of what is still to come; returns how many bytes they hold.
fn add_places(placement: &Placement, arriving: &Arriving, parts: &mut SmallVec<[WriteRange; 8]>) -> u64 {
    // What is checked goes through the room, where the check is made.
    let mut left = if arriving.is_checked { 0 } else { before_last_word(arriving.len_bytes - arriving.got) };
    let mut total = 0;
    for range in copying::behind(&placement.ranges, (arriving.offset + arriving.got) as usize) {
        let here = left.min(range.len_bytes() as u64);
        parts.extend(range.part(0, here as usize).filter(|part| part.len_bytes() > 0));
        left -= here;
        total += here;
    }
    total
}

/// Of so many bytes that are to come, how many may be put down as they come: the last eight are kept back until all of
/// them are there, for somebody may be polling them.
fn before_last_word(left: u64) -> u64 {
    left.saturating_sub(8)
}

#[cfg(test)]
mod guards;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::super::frame::SHORT_BYTES;
    use super::*;
    use crate::link::HEADER_BYTES;

    /// An adapter to which nothing comes.
    struct Nobody;

    impl Responder for Nobody {
        fn begin(&mut self, _: LinkPeer, _: &[u8; HEADER_BYTES], _: u64) -> Placement {
            panic!("no packet was sent")
        }
        fn finish(&mut self, _: LinkPeer) {}
        fn lost(&mut self, _: LinkPeer) {}
        fn is_armed(&self) -> bool {
            false
        }
    }

    const AT: At = At { peer: 0, lane: 0 };

    /// The far end of a connection, the connection, and its peer.
    pub(super) fn live() -> (UnixStream, Connection, Peer) {
        let (far, near) = UnixStream::pair().expect("a pair");
        let connection = Connection::new(near.into(), Stage::Live(AT), Duration::ZERO);
        (far, connection, Peer::new([1; 16], Vec::new()))
    }

    #[test]
    fn a_peer_that_asks_and_does_not_read_is_kept_one_answer() {
        let (mut far, mut connection, mut peer) = live();
        let mut room = Vec::new();
        for _ in 0..100 {
            let (ask, len) = Head { kind: Kind::Ask, received: 0 }.to_bytes();
            far.write_all(&ask[..len]).expect("there is room");
            assert!(connection.fill(None, &mut room).is_ok());
            assert!(matches!(connection.deliver(AT, &mut peer, &mut Nobody), Ok(Step::NeedInput)));
            connection.leave(&mut room);
        }
        assert_eq!(connection.control.len(), SHORT_BYTES);
    }

    /// Memory of a process that polls it.
    struct Polled {
        words: Box<[u64; 6]>,
        finished: u32,
    }

    impl Responder for Polled {
        fn begin(&mut self, _: LinkPeer, _: &[u8; HEADER_BYTES], len: u64) -> Placement {
            // SAFETY: the box outlives every packet of this test.
            let range = unsafe { WriteRange::new(self.words.as_mut_ptr().cast(), len as usize) };
            Placement::of(range)
        }
        fn finish(&mut self, _: LinkPeer) {
            self.finished += 1;
        }
        fn lost(&mut self, _: LinkPeer) {}
        fn is_armed(&self) -> bool {
            false
        }
    }

    #[test]
    fn the_last_word_of_a_payload_is_put_down_whole_and_last() {
        let payload: Vec<u8> = (1..=48).collect();
        for step in [1, 3, 7, 8, 13, 47] {
            let (mut far, mut connection, mut peer) = live();
            let mut room = Vec::new();
            let mut memory = Polled { words: Box::new([0; 6]), finished: 0 };
            let header = [0; HEADER_BYTES];
            let kind =
                Kind::Packet { sequence: 0, header: &header, payload_bytes: 48, part_count: 1, is_checked: false };
            let (head, len) = Head { kind, received: 0 }.to_bytes();
            far.write_all(&head[..len]).expect("there is room");
            for part in payload.chunks(step) {
                far.write_all(part).expect("there is room");
                assert!(connection.fill(Some(&mut peer), &mut room).is_ok());
                assert!(connection.deliver(AT, &mut peer, &mut memory).is_ok());
                connection.leave(&mut room);
                let is_over = memory.finished > 0;
                let last = if is_over { u64::from_ne_bytes(payload[40..].try_into().expect("eight")) } else { 0 };
                assert_eq!(memory.words[5], last, "in steps of {step}");
                assert!(!is_over || memory.words[0] == u64::from_ne_bytes(payload[..8].try_into().expect("eight")));
            }
            assert_eq!(memory.finished, 1, "in steps of {step}");
        }
    }
}
