//! The link of software adapters on one host: a channel in shared memory from each to each.
//!
//! Small payloads travel in the channel. A large one is described there and copied by the receiver straight from the
//! sender's memory (cross-memory attach) to where it belongs; where the kernel refuses that, it is cut into pieces that
//! go through the channel. Reads and writes are done by the initiator's processor, see [`super::direct`]; so are atomics
//! on memory that was allocated in the segment.

use std::time::{Duration, Instant};

use base::memory::ReadRange;
use base::sync::Ordering;
use fabric::{DeviceKind, FabricError, PeerIndex, RemotePiece, SharedMemory, WriteOrder};
use lockfree::{Announcements, BlockReceiver, BlockSender, Doorbell, Engagement, PublishedTable};
use smallvec::SmallVec;
use std::os::fd::BorrowedFd;

use super::arena::Arena;
use super::board::ShmBoard;
use super::cross_memory;
use super::grants::Grants;
use super::life::{self, ProcessMark};
use super::packets::{self, LENT_RANGES_MAX, Parsed};
use super::segment::Segment;
use super::sleeper::Sleeper;
use super::wakeup::{imposed_barrier, ring};
use super::watch::{Found, StopPolicy, Watch};
use crate::copying;
use crate::link::{
    Board, Direct, HEADER_BYTES, Link, LinkPeer, LinkProperties, Outgoing, Placement, Responder, SendOutcome,
};

/// Shortest payload that is not put into the channel whole, in bytes.
const LENT_MIN_BYTES: u64 = 4 << 10;
/// Shortest average piece of a gathered payload that is lent, in bytes: the kernel takes longer to find a piece than it takes
/// to copy a shorter one twice.
const LENT_PIECE_MIN_BYTES: u64 = 8 << 10;
/// Payload of one piece of a long message, in bytes.
const PIECE_BYTES: usize = 8 << 10;
/// Records taken from one channel before the next has its turn.
const RECORDS_PER_TURN: usize = 64;
/// How often peers are looked after while this process polls.
const CHECK_EVERY: Duration = Duration::from_millis(20);
/// And how much later while it sleeps.
const CHECK_EVERY_ASLEEP: Duration = Duration::from_millis(500);
/// Calls of `progress` from one look at the clock to the next.
const TURNS_PER_LOOK: u32 = 15;
/// What a process reads of another to find out whether it can.
static PROBE: u64 = u64::from_le_bytes(*b"reachme!");
/// Where an identity holds the probe's address.
const PROBE_ADDRESS: usize = 16;
/// And where its owner has its arena.
pub(super) const ARENA_ADDRESS: usize = 24;
pub(super) const REACHED: u64 = 1;
const REFUSED: u64 = 2;
/// The peer was stopped for too long.
pub(super) const GIVEN_UP: u64 = 3;

/// One adapter's end of the shared segment.
pub struct ShmLink {
    pub(super) segment: Segment,
    pub(super) me: u32,
    cross_memory: Result<(), String>,
    properties: LinkProperties,
    pub(super) peers: Vec<Peer>,
    announcements: Announcements,
    /// Channels into which somebody has begun to write.
    receivers: Vec<(u32, BlockReceiver)>,
    /// Peers with a long payload under way to them.
    streaming: Vec<u32>,
    arena: Arena,
    /// What this process is engaged with.
    pub(super) engagement: Engagement,
    /// What peers allow it.
    pub(super) grants: Grants,
    /// The place behind the last that a queue pair of this process was shown at.
    pub(super) queue_pairs_end: u32,
    sleeper: Sleeper,
    watch: Watch,
    /// Why peers were given up, by place.
    given_up: Vec<(u32, String)>,
    start: Instant,
    check_at: Duration,
    /// Calls of `progress` until the clock is looked at.
    turns_left: u32,
}

/// A place in the segment, taken or not.
pub(super) struct Peer {
    sender: Option<BlockSender>,
    pub(super) doorbell: Doorbell,
    pub(super) identity: SharedMemory,
    /// What it lets others reach.
    pub(super) regions: PublishedTable,
    pub(super) queue_pairs: PublishedTable,
    /// Where its arena is mapped here, if it has one.
    pub(super) arena: Option<usize>,
    pub(super) mark: Option<ProcessMark>,
    /// This process can read and write its memory.
    pub(super) reached: bool,
    pub(super) lost: bool,
    stream: Option<Stream>,
    arriving: Option<Arriving>,
}

/// A long payload on its way out.
struct Stream {
    ranges: SmallVec<[ReadRange; 4]>,
    /// Instead of `ranges`, what was copied.
    owned: Vec<u8>,
    sent: u64,
    len_bytes: u64,
}

/// A long payload on its way in.
struct Arriving {
    placement: Placement,
    got: u64,
    len_bytes: u64,
}

/// What others announce to `owner`.
fn announcements(segment: &Segment, owner: u32) -> Option<Announcements> {
    let memory = segment.area(fabric::MappedArea::Announcements { owner: PeerIndex(owner) })?;
    Some(Announcements::new(memory, segment.shape().process_count as usize + 1))
}

impl ShmLink {
    /// Takes place `me` of `segment`, once in its life; `cross_memory` says whether to reach private memory at all.
    ///
    /// # Errors
    /// [`FabricError::NoSuchPeer`] if there is no such place, [`FabricError::InUse`] if it was taken before,
    /// [`FabricError::System`] when the system refuses a descriptor.
    pub fn join(segment: Segment, me: PeerIndex, cross_memory: Result<(), String>) -> Result<Self, FabricError> {
        let count = segment.shape().process_count;
        let barrier = imposed_barrier();
        let peers: Vec<Peer> = (0..count)
            .filter_map(|place| {
                Some(Peer {
                    sender: None,
                    doorbell: segment.doorbell(place, barrier)?,
                    identity: segment.identity(place)?,
                    regions: segment.published_regions(place)?,
                    queue_pairs: segment.published_queue_pairs(place)?,
                    arena: segment.arena_address(place),
                    mark: None,
                    reached: false,
                    lost: false,
                    stream: None,
                    arriving: None,
                })
            })
            .collect();
        let own = peers.get(me.0 as usize).ok_or(FabricError::NoSuchPeer(me.0))?;
        if ProcessMark::of(&own.identity).is_some() {
            return Err(FabricError::InUse { object: "place in the segment", by: "process" });
        }
        if cross_memory.is_ok() {
            cross_memory::allow_peers();
        }
        own.doorbell.own();
        own.identity.word(PROBE_ADDRESS).store(&raw const PROBE as u64, Ordering::Relaxed);
        own.identity.word(ARENA_ADDRESS).store(segment.arena_address(me.0).unwrap_or(0) as u64, Ordering::Relaxed);
        ProcessMark::own().publish(&own.identity);
        let announcements = announcements(&segment, me.0).ok_or(FabricError::NoSuchPeer(me.0))?;
        let properties = LinkProperties {
            kind: DeviceKind::Shm,
            description: format!("shared memory of this host, {count} places"),
            message_max_bytes: 1 << 30,
            datagram_max_bytes: 4096,
            asynchronous: Err("reads, writes, sends to shared receive queues of an XRC domain and atomics on mapped \
                               memory need nobody's help; other messages and atomics are done while their target polls"
                .into()),
            single_copy: cross_memory.clone(),
            multicast: true,
            mapped_memory: segment.shape().arena_bytes > 0,
            answers_ride: false,
            write_order: WriteOrder::ByWord,
            writes_wake: true,
            peer_bytes: (size_of::<Peer>() + BlockSender::footprint(segment.shape().channel_bytes)) as u64,
        };
        let arena = Arena::new(segment.arena(me.0).ok_or(FabricError::NoSuchPeer(me.0))?);
        let engagement = segment.engagement(me.0).ok_or(FabricError::NoSuchPeer(me.0))?;
        let sleeper = Sleeper::new(own.doorbell.clone())?;
        Ok(Self {
            watch: Watch::new(segment.clone(), me.0, StopPolicy::patient()),
            given_up: Vec::new(),
            segment,
            me: me.0,
            cross_memory,
            properties,
            peers,
            announcements,
            receivers: Vec::new(),
            streaming: Vec::new(),
            arena,
            engagement,
            grants: Grants::default(),
            queue_pairs_end: 0,
            sleeper,
            start: Instant::now(),
            check_at: Duration::ZERO,
            turns_left: 0,
        })
    }

    /// From now on this is done about processes that are stopped; before, they are waited for.
    pub fn set_stop_policy(&mut self, policy: StopPolicy) {
        self.watch = Watch::new(self.segment.clone(), self.me, policy);
    }

    /// Why a peer was given up though its process has not ended; `None` if it was not.
    pub fn why_given_up(&self, peer: LinkPeer) -> Option<&str> {
        self.given_up.iter().find(|(place, _)| *place == peer.0).map(|(_, why)| why.as_str())
    }

    /// Finds out who a peer is and whether its memory can be reached, and tells it.
    fn meet(&mut self, place: u32) {
        let Some(peer) = self.peers.get_mut(place as usize) else { return };
        if peer.mark.is_some() || place == self.me {
            return;
        }
        peer.mark = ProcessMark::of(&peer.identity);
        let Some(mark) = peer.mark else { return };
        let address = peer.identity.word(PROBE_ADDRESS).load(Ordering::Relaxed);
        let mut found = 0u64;
        // SAFETY: `found` is 8 bytes of this frame, and nobody else knows it.
        let mut read = || unsafe { cross_memory::read(mark.process_id as i32, &raw mut found as usize, address, 8) };
        peer.reached = self.cross_memory.is_ok() && read().is_ok() && found == PROBE;
        if let Some(reach) = self.segment.reach(self.me) {
            reach.word(place as usize * 8).store(if peer.reached { REACHED } else { REFUSED }, Ordering::Release);
        }
    }

    /// Makes channels of those who have begun to write.
    fn discover(&mut self) {
        if self.announcements.are_none() {
            return;
        }
        let mut places = Vec::new();
        self.announcements.take(|place| places.push(place));
        for place in places {
            let known = place == self.me || self.receivers.iter().any(|(from, _)| *from == place);
            let channel =
                self.segment.area(fabric::MappedArea::Channel { from: PeerIndex(place), to: PeerIndex(self.me) });
            if let (false, Some(memory)) = (known, channel) {
                let channel_bytes = self.segment.shape().channel_bytes;
                self.receivers.push((place, BlockReceiver::new(memory, channel_bytes)));
                self.meet(place);
            }
        }
    }

    /// Opens the channel to a peer, and tells it, once.
    fn introduce(&mut self, to: u32) -> bool {
        let Some(peer) = self.peers.get_mut(to as usize) else { return false };
        if peer.sender.is_some() {
            return true;
        }
        let area = fabric::MappedArea::Channel { from: PeerIndex(self.me), to: PeerIndex(to) };
        let (Some(memory), Some(theirs)) = (self.segment.area(area), announcements(&self.segment, to)) else {
            return false;
        };
        peer.sender = Some(BlockSender::new(memory, self.segment.shape().channel_bytes));
        theirs.announce(self.me);
        true
    }

    /// True if `to` can copy from this process.
    fn reaches_us(&self, to: u32) -> bool {
        self.segment.reach(to).is_some_and(|reach| {
            // Acquire is for tidiness: the word stands for itself.
            reach.word(self.me as usize * 8).load(Ordering::Acquire) == REACHED
        })
    }

    fn receive(&mut self, responder: &mut dyn Responder) {
        for (from, receiver) in &mut self.receivers {
            let Some(peer) = self.peers.get_mut(*from as usize) else { continue };
            if peer.lost {
                continue;
            }
            let mut broken = false;
            for _ in 0..RECORDS_PER_TURN {
                let popped = receiver.pop(|record, bytes| {
                    broken = packets::parse(record, bytes)
                        .is_none_or(|parsed| !take(LinkPeer(*from), peer, parsed, responder));
                });
                if !popped || broken {
                    break;
                }
            }
            if broken {
                lose(LinkPeer(*from), peer, &mut self.grants, responder);
            } else if receiver.credits_due() {
                receiver.return_credits(false);
                ring(&peer.doorbell);
            }
        }
    }

    /// Looks after those this process has to do with.
    fn check_peers(&mut self, responder: &mut dyn Responder) {
        if self.turns_left > 0 {
            self.turns_left -= 1;
            return;
        }
        self.turns_left = TURNS_PER_LOOK;
        let now = self.now();
        if now < self.check_at {
            return;
        }
        self.check_at = now + CHECK_EVERY;
        self.watch.begin(now);
        for (place, peer) in (0..).zip(&mut self.peers) {
            let Some(mark) = peer.mark.filter(|_| !peer.lost) else { continue };
            match self.watch.look(place, mark) {
                Found::There if !life::has_left(&peer.identity) => continue,
                Found::There | Found::Ended => {}
                Found::GivenUp(why) => self.given_up.push((place, why)),
            }
            lose(LinkPeer(place), peer, &mut self.grants, responder);
        }
    }
}

/// Hands a record to the adapter; false if it is none that a whole peer sends.
fn take(from: LinkPeer, peer: &mut Peer, parsed: Parsed<'_>, responder: &mut dyn Responder) -> bool {
    if peer.arriving.is_some() != matches!(parsed, Parsed::Piece { .. }) {
        return false;
    }
    match parsed {
        Parsed::Whole { header, payload } => {
            let placement = responder.begin(from, &header, payload.len() as u64);
            copying::scatter(payload, &placement.ranges);
            responder.finish(from);
            true
        }
        Parsed::Lent { header, ranges, len_bytes } => {
            let placement = responder.begin(from, &header, len_bytes);
            let fetched = fetch(peer.mark, &ranges, &placement);
            if fetched {
                responder.finish(from);
            }
            fetched
        }
        Parsed::First { header, len_bytes } => {
            let placement = responder.begin(from, &header, len_bytes);
            if len_bytes == 0 {
                responder.finish(from);
            } else {
                peer.arriving = Some(Arriving { placement, got: 0, len_bytes });
            }
            true
        }
        Parsed::Piece { payload } => {
            let Some(arriving) = peer.arriving.as_mut() else { return false };
            let left = arriving.len_bytes - arriving.got;
            if payload.is_empty() || payload.len() as u64 > left {
                return false;
            }
            copying::scatter(payload, &copying::behind(&arriving.placement.ranges, arriving.got as usize));
            arriving.got += payload.len() as u64;
            if arriving.got == arriving.len_bytes {
                peer.arriving = None;
                responder.finish(from);
            }
            true
        }
    }
}

/// Copies a lent payload from its sender to where it belongs, as far as it fits.
fn fetch(mark: Option<ProcessMark>, ranges: &[RemotePiece], placement: &Placement) -> bool {
    let Some(mark) = mark else { return placement.ranges.is_empty() };
    // SAFETY: the ranges are the link's until the packet is finished; the far side is checked by the kernel.
    unsafe { cross_memory::scatter(mark.process_id as i32, ranges, &placement.ranges) }.is_ok()
}

fn lose(place: LinkPeer, peer: &mut Peer, grants: &mut Grants, responder: &mut dyn Responder) {
    grants.forget(place);
    peer.lost = true;
    peer.stream = None;
    peer.arriving = None;
    responder.lost(place);
}

impl Peer {
    /// Sends pieces of the long payload under way while there is room; true if nothing is left of it.
    fn push_stream(&mut self) -> bool {
        let (Some(stream), Some(sender)) = (self.stream.as_mut(), self.sender.as_mut()) else { return true };
        let piece_max = PIECE_BYTES.min(sender.payload_max_bytes());
        let mut moved = false;
        while stream.sent < stream.len_bytes {
            let len = (stream.len_bytes - stream.sent).min(piece_max as u64) as usize;
            if !sender.push(packets::piece(), len, |space| stream.read(space)) {
                break;
            }
            stream.sent += len as u64;
            moved = true;
        }
        let is_over = stream.sent == stream.len_bytes;
        if is_over {
            self.stream = None;
        }
        if moved {
            ring(&self.doorbell);
        }
        is_over
    }
}

impl Stream {
    /// The next bytes.
    fn read(&self, space: &mut [u8]) {
        if self.ranges.is_empty() {
            // What was copied begins where the lending ended.
            let start = self.owned.len() - (self.len_bytes - self.sent) as usize;
            base::copy::copy(space, &self.owned[start..start + space.len()]);
        } else {
            copying::read_behind(&self.ranges, self.sent as usize, space);
        }
    }

    fn own(&mut self) {
        let mut rest = vec![0; (self.len_bytes - self.sent) as usize];
        copying::read_behind(&self.ranges, self.sent as usize, &mut rest);
        self.owned = rest;
        self.ranges.clear();
    }
}

impl Link for ShmLink {
    fn properties(&self) -> &LinkProperties {
        &self.properties
    }

    fn address(&self) -> Vec<u8> {
        [&self.segment.id().to_le_bytes()[..], &self.me.to_le_bytes()[..]].concat()
    }

    fn resolve(&mut self, address: &[u8]) -> Result<LinkPeer, FabricError> {
        let Some((id, place)) = address.split_first_chunk::<8>() else {
            return Err(FabricError::BadEndpoint("not a place in a segment"));
        };
        let place = u32::from_le_bytes(place.try_into().map_err(|_| FabricError::BadEndpoint("not a place"))?);
        if u64::from_le_bytes(*id) != self.segment.id() {
            return Err(FabricError::BadEndpoint("a place in another segment"));
        }
        if place as usize >= self.peers.len() {
            return Err(FabricError::NoSuchPeer(place));
        }
        self.meet(place);
        Ok(LinkPeer(place))
    }

    fn send(&mut self, to: LinkPeer, header: &[u8; HEADER_BYTES], payload: Outgoing<'_>) -> SendOutcome {
        let ranges = payload.ranges.len();
        let gathers_short = ranges > 1 && payload.len_bytes() / (ranges as u64) < LENT_PIECE_MIN_BYTES;
        let lends = payload.lent && !payload.is_answer && ranges <= LENT_RANGES_MAX && !gathers_short;
        if self.peers.get(to.0 as usize).is_none_or(|peer| peer.lost) || !self.introduce(to.0) {
            return SendOutcome::Gone;
        }
        let lends = lends && payload.len_bytes() >= LENT_MIN_BYTES && self.reaches_us(to.0);
        let Some(peer) = self.peers.get_mut(to.0 as usize) else { return SendOutcome::Gone };
        if !peer.push_stream() {
            return SendOutcome::Full;
        }
        let Some(sender) = peer.sender.as_mut() else { return SendOutcome::Gone };
        let len_bytes = payload.len_bytes();
        let whole = HEADER_BYTES as u64 + len_bytes;
        let pushed = if lends && packets::lent_bytes(payload.ranges.len()) <= sender.payload_max_bytes() {
            let len = packets::lent_bytes(payload.ranges.len());
            sender.push(packets::lent(), len, |space| packets::write_lent(space, header, payload.ranges))
        } else if len_bytes < LENT_MIN_BYTES && whole <= sender.payload_max_bytes() as u64 {
            sender.push(packets::whole(), whole as usize, |space| {
                let (head, rest) = space.split_at_mut(HEADER_BYTES);
                head.copy_from_slice(header);
                copying::read_behind(payload.ranges, 0, rest);
            })
        } else {
            let pushed = sender.push(packets::first(len_bytes), HEADER_BYTES, |space| space.copy_from_slice(header));
            if pushed {
                let mut stream = Stream { ranges: payload.ranges.into(), owned: Vec::new(), sent: 0, len_bytes };
                if !payload.lent {
                    stream.own();
                }
                peer.stream = Some(stream);
                if !peer.push_stream() && !self.streaming.contains(&to.0) {
                    self.streaming.push(to.0);
                }
            }
            pushed
        };
        if !pushed {
            return SendOutcome::Full;
        }
        ring(&peer.doorbell);
        SendOutcome::Taken
    }

    fn progress(&mut self, responder: &mut dyn Responder) {
        let peers = &mut self.peers;
        self.streaming.retain(|place| peers.get_mut(*place as usize).is_some_and(|peer| !peer.push_stream()));
        self.discover();
        self.receive(responder);
        self.check_peers(responder);
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn recall(&mut self, address: u64, len_bytes: u64) {
        let touches = |start: usize, len: usize| {
            (start as u64) < address.saturating_add(len_bytes) && address < (start as u64).saturating_add(len as u64)
        };
        for peer in &mut self.peers {
            if let Some(stream) = &mut peer.stream
                && stream.ranges.iter().any(|range| touches(range.address(), range.len_bytes()))
            {
                stream.own();
            }
            if let Some(arriving) = &mut peer.arriving
                && arriving.placement.ranges.iter().any(|range| touches(range.address(), range.len_bytes()))
            {
                arriving.placement = Placement::discard();
            }
        }
    }

    fn deadline(&self) -> Option<Duration> {
        let has_peers = self.peers.iter().any(|peer| peer.mark.is_some() && !peer.lost);
        has_peers.then(|| self.check_at + CHECK_EVERY_ASLEEP)
    }

    fn everyone(&mut self) -> Option<Vec<LinkPeer>> {
        let count = self.peers.len() as u32;
        for place in 0..count {
            self.meet(place);
        }
        let is_there = |place: &u32| {
            let peer = &self.peers[*place as usize];
            peer.mark.is_some() && !peer.lost
        };
        Some((0..count).filter(is_there).map(LinkPeer).collect())
    }

    fn allocate(&mut self, len_bytes: usize) -> Result<Option<SharedMemory>, FabricError> {
        let max = self.segment.shape().arena_bytes;
        if max == 0 {
            return Ok(None);
        }
        let exhausted =
            FabricError::Exhausted { object: "bytes of mapped memory", max: u32::try_from(max).unwrap_or(u32::MAX) };
        self.arena.allocate(len_bytes).map(Some).ok_or(exhausted)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.sleeper.descriptor())
    }

    fn prepare_sleep(&mut self) -> Result<(), FabricError> {
        self.sleeper.watch()
    }

    fn woken(&mut self) {
        self.sleeper.forget();
        self.turns_left = 0;
    }

    fn direct(&mut self) -> Option<&mut dyn Direct> {
        Some(self)
    }

    fn board(&mut self) -> Option<Box<dyn Board>> {
        let own = self.peers.get(self.me as usize)?;
        let doorbells = self.peers.iter().map(|peer| peer.doorbell.clone()).collect();
        let can_reach = self.cross_memory.is_ok() && ProcessMark::of(&own.identity).is_some();
        let board = ShmBoard::new(&self.segment, self.me, doorbells);
        board.filter(|_| can_reach).map(|board| Box::new(board) as Box<dyn Board>)
    }
}

impl Drop for ShmLink {
    fn drop(&mut self) {
        if let Some(own) = self.peers.get(self.me as usize) {
            life::leave(&own.identity);
            // Peers that remember what they were allowed ask again, and are told.
            (0..self.queue_pairs_end).for_each(|index| own.queue_pairs.withdraw(index));
        }
        for peer in self.peers.iter().filter(|peer| peer.mark.is_some()) {
            ring(&peer.doorbell);
        }
    }
}

#[cfg(test)]
mod hostile;
