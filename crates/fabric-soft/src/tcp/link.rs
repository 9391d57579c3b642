//! The link's public face: what the adapter calls.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use base::log::Level;
use base::memory::ReadRange;
use fabric::{DeviceKind, FabricError, WriteOrder};
use rustix::event::{Timespec, epoll};
use rustix::time::{ClockId, clock_gettime};
use smallvec::SmallVec;

use super::address::{Address, Identity, SOCKETS_MAX};
use super::connection::{Connection, Ending};
use super::frame::Kind;
use super::interfaces::Interface;
use super::meeting::live_at;
use super::outbox::{COPIED_WRITE_MAX_BYTES, SPARE_MAX_BYTES, What};
use super::peer::{At, LANES_MAX, Lane, Peer, part_of};
use super::{Progress, TcpOptions};
use super::{socket, strangers};
use crate::link::{HEADER_BYTES, Link, LinkPeer, LinkProperties, Outgoing, Placement, Responder, SendOutcome};

/// Longest payload, in bytes.
pub(super) const MESSAGE_MAX_BYTES: u64 = 1 << 30;
/// Shortest part of a payload that travels over several connections, in bytes.
const PART_MIN_BYTES: u64 = 64 << 10;
/// How often silent peers are looked for, at most and at least.
const LISTEN_EVERY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));
/// Calls of `progress` from one look at the clock to the next.
const TURNS_PER_LOOK: u32 = 63;
/// Looks at one busy connection between two looks at all: at first, and where those bring nothing again and again.
const TURNS_HOT: (u32, u32) = (15, 63);
/// Looks in vain after which it is not busy any more.
const MISSES_MAX: u32 = 200;
/// Looks in vain from one look at the clock to the next. What is found is taken to have come at the last of these: too
/// early, where its owner did something else in between.
const MISSES_PER_CLOCK: u32 = 8;
/// Pauses after a look in vain: a processor that shares its units with that of the sender holds it up the less.
const PAUSES: u32 = 2;
/// Finds in a row, at looks at all, after which a connection is looked at before the others, where there are some: who talks
/// to several in turn would look at the wrong one mostly.
const FINDS_MIN: u32 = 4;
/// Looks that found something, with nothing elsewhere and no sleep between them, after which the kernel need not tell of
/// it any more: a packet for a socket that somebody is told of takes it longer.
const HITS_ASIDE: u32 = 64;
/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 64;
/// Tokens from here on are listeners.
pub(super) const LISTENERS: u64 = u64::MAX - SOCKETS_MAX as u64;

/// The one connection on which something came lately.
#[derive(Clone, Copy)]
struct Hot {
    slot: usize,
    /// Looks in vain since then.
    misses: u32,
    /// Looks that found something.
    hits: u32,
}

/// A process's end of its connections.
pub struct TcpLink {
    pub(super) options: TcpOptions,
    pub(super) own: Address,
    /// Where this host is, to judge which of a peer's addresses are near.
    pub(super) interfaces: Vec<Interface>,
    properties: LinkProperties,
    pub(super) epoll: OwnedFd,
    pub(super) listeners: Vec<OwnedFd>,
    pub(super) peers: Vec<Peer>,
    pub(super) by_identity: HashMap<Identity, u32>,
    pub(super) connections: Vec<Option<Box<Connection>>>,
    /// What the connection that is being looked at reads into.
    pub(super) room: Vec<u8>,
    /// How often each place was used: an event for what was there before is none.
    pub(super) generations: Vec<u32>,
    /// Connections that are not live yet.
    pub(super) greeting_count: usize,
    /// Lanes for which a connection is to be made.
    pub(super) wanted: Vec<At>,
    /// Connections to be looked at again because another lane went on.
    pub(super) again: Vec<usize>,
    /// Lanes with something to say that more may follow.
    unflushed: Vec<At>,
    hot: Option<Hot>,
    /// Where something was found at the last looks at all, nothing being found elsewhere, and how often in a row.
    found_alone: (usize, u32),
    /// Calls of `progress` until all others are looked at, too.
    turns_hot: u32,
    /// How many there are between two such looks.
    turns_between: u32,
    /// When silent peers are looked for.
    listen_at: Duration,
    /// Calls of `progress` until the clock is looked at for that.
    turns_left: u32,
    /// Peers the adapter is to be told of.
    pub(super) lost: Vec<u32>,
    pub(super) refused: u64,
    /// Connections that have proved nothing, at most.
    pub(super) strangers_max: usize,
    /// When somebody may be let in again, if there was no descriptor for it.
    pub(super) accept_at: Option<Duration>,
    /// That was so before.
    pub(super) has_rested: bool,
    /// When something was found last, or looked for in vain.
    found_at: Duration,
}

impl TcpLink {
    /// Listens.
    ///
    /// # Errors
    /// [`FabricError::InvalidRequest`] if there is no address or one that peers cannot reach;
    /// [`FabricError::BeyondLimit`] if there are too many; [`FabricError::System`] if one cannot be listened at.
    pub fn new(options: TcpOptions) -> Result<Self, FabricError> {
        if options.listen.is_empty() || options.listen.iter().any(|one| one.ip().is_unspecified()) {
            let reason = "it listens at addresses that peers can dial";
            return Err(FabricError::InvalidRequest { operation: "making a tcp link", reason });
        }
        if options.listen.len() > SOCKETS_MAX {
            let asked = options.listen.len() as u64;
            return Err(FabricError::BeyondLimit { what: "addresses of a tcp link", asked, max: SOCKETS_MAX as u64 });
        }
        if !(1..=LANES_MAX).contains(&options.connections) {
            let (asked, max) = (options.connections as u64, LANES_MAX as u64);
            return Err(FabricError::BeyondLimit { what: "tcp connections to one peer", asked, max });
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|why| refused("making an epoll", &why))?;
        let (mut listeners, mut sockets) = (Vec::new(), Vec::new());
        for (index, address) in options.listen.iter().enumerate() {
            let (listener, bound) =
                socket::listen(address).map_err(|why| refused("listening for peers", &format!("{address}: {why}")))?;
            let token = epoll::EventData::new_u64(LISTENERS + index as u64);
            epoll::add(&epoll, &listener, token, epoll::EventFlags::IN)
                .map_err(|why| refused("watching for peers", &why))?;
            listeners.push(listener);
            sockets.push(bound);
        }
        let random = Self::nonce().map_err(|why| refused("drawing an identity", &why))?;
        let identity: Identity = std::array::from_fn(|index| random[index]);
        let listed: Vec<String> = sockets.iter().map(SocketAddr::to_string).collect();
        let properties = LinkProperties {
            kind: DeviceKind::Tcp,
            description: format!("sockets at {}", listed.join(", ")),
            message_max_bytes: MESSAGE_MAX_BYTES,
            datagram_max_bytes: 4096,
            asynchronous: match options.progress {
                Progress::Caller => Err("work is done while this process polls".into()),
                Progress::Thread => Ok(()),
            },
            single_copy: if options.check_payloads {
                Err("payload is copied to be checked".into())
            } else {
                Err("payload goes through the kernel's socket buffers".into())
            },
            multicast: false,
            mapped_memory: false,
            answers_ride: true,
            // What is damaged has been put down when that is found out.
            writes_wake: true,
            write_order: if options.check_payloads { WriteOrder::Unknown } else { WriteOrder::ByWord },
            peer_bytes: (size_of::<Peer>() + size_of::<Connection>() + COPIED_WRITE_MAX_BYTES + SPARE_MAX_BYTES) as u64,
        };
        Ok(Self {
            options,
            own: Address { identity, sockets },
            // Without them addresses are dialled in the peer's order.
            interfaces: Interface::all().unwrap_or_default(),
            properties,
            epoll,
            listeners,
            peers: Vec::new(),
            by_identity: HashMap::new(),
            connections: Vec::new(),
            room: Vec::new(),
            generations: Vec::new(),
            greeting_count: 0,
            wanted: Vec::new(),
            again: Vec::new(),
            unflushed: Vec::new(),
            hot: None,
            found_alone: (0, 0),
            turns_hot: 0,
            turns_between: TURNS_HOT.0,
            listen_at: Duration::ZERO,
            turns_left: 0,
            lost: Vec::new(),
            refused: 0,
            strangers_max: strangers::limit(),
            accept_at: None,
            has_rested: false,
            found_at: Duration::ZERO,
        })
    }

    /// The addresses it listens at, with their ports.
    pub fn listening(&self) -> &[SocketAddr] {
        &self.own.sockets
    }

    /// Connections refused because the other side did not prove that it belongs to the job.
    pub fn refused_connections(&self) -> u64 {
        self.refused
    }

    /// How often connections to peers became live.
    pub fn connections_made(&self) -> u64 {
        // An epoch may be the peer's to say.
        self.peers.iter().flat_map(|peer| &peer.lanes).map(|lane| lane.epoch).fold(0, u64::saturating_add)
    }

    /// System calls that wrote something on the connections there are.
    pub fn writes(&self) -> u64 {
        self.connections.iter().flatten().map(|connection| connection.writes).sum()
    }

    /// Connections that somebody who sleeps on the link's descriptor would be woken by.
    pub fn watched_connections(&self) -> usize {
        self.connections.iter().flatten().filter(|connection| connection.watches.is_some()).count()
    }

    /// As if the network had failed: every connection is cut, and what is on its way is lost. Peers are not.
    pub fn cut_connections(&mut self) {
        let now = self.now();
        for slot in 0..self.connections.len() {
            if let Some(connection) = &self.connections[slot] {
                socket::close_hard(&connection.socket);
                self.end(slot, Ending::Broken, now);
            }
        }
    }

    pub(super) fn token(&self, slot: usize) -> u64 {
        u64::from(self.generations[slot]) << 32 | slot as u64
    }

    /// Writes what a lane has to say, if its connection takes it; asks for one if there is none.
    fn flush_lane(&mut self, at: At) {
        let Some(slot) = self.lane(at).connection else {
            let now = self.now();
            return self.want(at, now, Duration::ZERO);
        };
        let Some(connection) = self.connections[slot].as_mut() else { return };
        if live_at(connection).is_none() || connection.is_blocked {
            return;
        }
        match connection.flush(Some(&mut self.peers[at.peer as usize])) {
            Ok(()) => self.watch(slot),
            Err(ending) if ending.is_cut() => {
                // What came before is still to be read: a peer that has left may have said so.
                connection.is_blocked = true;
                self.watch(slot);
            }
            Err(ending) => {
                let now = self.now();
                self.end(slot, ending, now);
            }
        }
    }

    /// Sends a long payload over several lanes, if all of them have room.
    fn send_in_parts(
        &mut self,
        to: LinkPeer,
        header: &[u8; HEADER_BYTES],
        payload: Outgoing<'_>,
        part_count: u16,
    ) -> SendOutcome {
        let check = self.options.check_payloads;
        let peer = &mut self.peers[to.0 as usize];
        let payload_bytes = payload.len_bytes();
        // All of it must fit where a part will: the simple rule is also a safe one.
        let has_room = |index| peer.lane(index).is_some_and(|lane| lane.outbox.has_room(payload, check));
        if !(0..usize::from(part_count)).all(has_room) {
            return SendOutcome::Full;
        }
        let packet = peer.lanes[0].outbox.next_sequence();
        let mut rest = payload.ranges.iter().copied();
        let mut range = rest.next();
        for index in 0..usize::from(part_count) {
            let (_, mut wanted) = part_of(payload_bytes, part_count, index);
            let mut ranges: SmallVec<[ReadRange; 4]> = SmallVec::new();
            while let Some(here) = range.filter(|_| wanted > 0) {
                let len = wanted.min(here.len_bytes() as u64) as usize;
                ranges.extend(here.part(0, len));
                wanted -= len as u64;
                range = here.part(len, here.len_bytes() - len).filter(|left| left.len_bytes() > 0);
                range = range.or_else(|| rest.next());
            }
            let what = match index {
                0 => What::Packet { header, payload_bytes, part_count },
                _ => What::Part { packet },
            };
            peer.lanes[index].outbox.push(what, Outgoing { ranges: &ranges, ..payload }, check);
        }
        (0..part_count as u8).for_each(|lane| self.flush_lane(At { peer: to.0, lane }));
        SendOutcome::Taken
    }

    /// Looks for silent peers when it is time to, and at the clock every few calls.
    fn listen_now_and_then(&mut self, responder: &mut dyn Responder) {
        if self.turns_left > 0 {
            self.turns_left -= 1;
            return;
        }
        self.turns_left = TURNS_PER_LOOK;
        let now = self.now();
        if now >= self.listen_at {
            // What has come while this process was elsewhere counts.
            for _ in 0..=self.connections.len() / EVENTS_MAX {
                self.take_events(responder);
            }
            self.look_at_hot(responder);
            self.listen_for(now);
            let shortest = self.options.silence.unwrap_or(Duration::MAX).min(self.options.patience);
            let (least, most) = LISTEN_EVERY;
            self.listen_at = now + (shortest / 8).clamp(least, most);
        }
    }

    pub(super) fn is_asynchronous(&self) -> bool {
        self.properties.asynchronous.is_ok()
    }

    /// Why a peer was given up; `None` if it was not.
    pub fn why_lost(&self, peer: LinkPeer) -> Option<&str> {
        self.peers.get(peer.0 as usize)?.lost.as_deref()
    }

    /// Reads from the connection on which something came lately without asking which has something; true if the others
    /// can wait for their turn.
    fn look_at_hot(&mut self, responder: &mut dyn Responder) -> bool {
        let Some(Hot { slot, misses, hits }) = self.hot.filter(|_| self.turns_hot > 0) else { return false };
        self.turns_hot -= 1;
        let live = self.connections[slot].as_mut().filter(|one| !one.is_stalled && !one.is_blocked);
        let Some((connection, at)) = live.and_then(|one| live_at(one).map(|at| (one, at))) else {
            self.cool();
            return false;
        };
        // In vain mostly: nothing but the one system call is done for it.
        connection.has_read = false;
        let filled = connection.fill(self.peers.get_mut(at.peer as usize), &mut self.room);
        let (has_read, is_told) = (connection.has_read, connection.watches.is_some());
        if !has_read {
            connection.leave(&mut self.room);
        }
        // Where there is but one, it is looked at however long nothing comes.
        if !has_read && misses >= MISSES_MAX && self.connections.len() > 1 {
            self.cool();
        } else if has_read {
            self.hot = Some(Hot { slot, misses: 0, hits: hits.saturating_add(1) });
            if misses == 0 {
                self.found_at = self.now();
            }
            // An adapter's thread may sleep while others look, and who has armed a queue may sleep at any time.
            if is_told && hits >= HITS_ASIDE && !self.is_asynchronous() && !responder.is_armed() {
                self.put_aside(slot);
            }
        } else {
            // What the next look finds need not wait for the clock.
            if misses.is_multiple_of(MISSES_PER_CLOCK) {
                self.found_at = self.now();
            }
            self.hot = Some(Hot { slot, misses: misses.saturating_add(1), hits });
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        match filled {
            Ok(more) if has_read => {
                if more || !self.hand_over(slot, at, responder) {
                    self.serve(slot, responder, self.now(), !more);
                }
            }
            Ok(_) => {}
            Err(ending) => self.end(slot, ending, self.now()),
        }
        true
    }

    /// Hands over what was read from the connection looked at; false if there is more to do with it.
    #[inline]
    fn hand_over(&mut self, slot: usize, at: At, responder: &mut dyn Responder) -> bool {
        let connection = self.connections[slot].as_mut();
        let (Some(connection), Some(peer)) = (connection, self.peers.get_mut(at.peer as usize)) else { return false };
        match connection.deliver_all(at, peer, responder) {
            Ok(true) => connection.leave(&mut self.room),
            Ok(false) => return false,
            Err(ending) => {
                connection.leave(&mut self.room);
                self.end(slot, ending, self.now());
            }
        }
        true
    }

    /// A look at all has found something here, and at `count` connections all together; true if this one is to be looked at
    /// before the others.
    fn note_found(&mut self, slot: usize, count: usize) -> bool {
        let (before, times) = self.found_alone;
        let times = if before == slot { times.saturating_add(1) } else { 1 };
        self.found_alone = (slot, if count == 1 { times } else { 0 });
        count == 1 && (times >= FINDS_MIN || self.connections.len() == 1)
    }

    /// No connection is looked at before the others any more, and the kernel tells of all.
    fn cool(&mut self) {
        if let Some(Hot { slot, .. }) = self.hot.take() {
            self.take_back(slot);
        }
    }

    fn take_events(&mut self, responder: &mut dyn Responder) {
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; EVENTS_MAX];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An interrupted look is made again by the next progress.
        let count = epoll::wait(&self.epoll, &mut events[..], Some(&zero)).unwrap_or(0);
        let hot = self.hot;
        let hits_of = |slot| hot.filter(|hot| hot.slot == slot).map(|hot| hot.hits);
        let is_other = |event: &epoll::Event| hits_of((event.data.u64() & 0xffff_ffff) as usize).is_none();
        let (first, most) = TURNS_HOT;
        // Connections that are being made have deadlines, which a caller who seldom polls would miss.
        let is_quiet = self.greeting_count == 0 && self.wanted.is_empty() && !events[..count].iter().any(is_other);
        self.turns_between = if is_quiet { (2 * self.turns_between + 1).min(most) } else { first };
        self.turns_hot = self.turns_between;
        if count == 0 {
            return;
        }
        let now = self.now();
        self.found_at = now;
        self.cool();
        let is_listener = |event: &&epoll::Event| event.data.u64() >= LISTENERS;
        for event in events[..count].iter().filter(|event| !is_listener(event)) {
            let token = event.data.u64();
            let slot = (token & 0xffff_ffff) as usize;
            if self.generations.get(slot).is_none_or(|generation| u64::from(*generation) != token >> 32) {
                continue;
            }
            let told = event.flags;
            let is_over = told.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            // What waits for another lane does not read the end of its socket.
            if is_over && self.connections[slot].as_ref().is_some_and(|connection| connection.is_stalled) {
                self.end(slot, Ending::Broken, now);
            } else {
                self.serve(slot, responder, now, false);
                let hits = hits_of(slot).unwrap_or(0);
                if self.note_found(slot, count) {
                    self.hot = Some(Hot { slot, misses: 0, hits });
                }
            }
        }
        // Those who are let in already are heard first: they may give way.
        for event in events[..count].iter().filter(is_listener) {
            self.accept((event.data.u64() - LISTENERS) as usize, now);
        }
    }
}

/// Peers learn at once that this process is gone, if the kernel takes the word.
impl Drop for TcpLink {
    fn drop(&mut self) {
        if self.refused > 1 {
            let told = format_args!("tcp: {} connections were refused in all", self.refused);
            self.options.log.say(Level::Info, told);
        }
        self.part();
    }
}

impl Link for TcpLink {
    fn properties(&self) -> &LinkProperties {
        &self.properties
    }

    fn address(&self) -> Vec<u8> {
        self.own.to_bytes()
    }

    fn resolve(&mut self, address: &[u8]) -> Result<LinkPeer, FabricError> {
        let address = Address::parse(address)?;
        if address.identity == self.own.identity {
            return Err(FabricError::BadEndpoint("it is this process's own"));
        }
        let max = u32::MAX;
        self.acquaint(address).map(LinkPeer).ok_or(FabricError::Exhausted { object: "peers", max })
    }

    fn send(&mut self, to: LinkPeer, header: &[u8; HEADER_BYTES], payload: Outgoing<'_>) -> SendOutcome {
        let Some(peer) = self.peers.get_mut(to.0 as usize).filter(|peer| !peer.is_lost()) else {
            return SendOutcome::Gone;
        };
        let payload_bytes = payload.len_bytes();
        let part_count = (payload_bytes / PART_MIN_BYTES).clamp(1, self.options.connections as u64) as u16;
        if part_count > 1 {
            return self.send_in_parts(to, header, payload, part_count);
        }
        let (check, outbox) = (self.options.check_payloads, &mut peer.lanes[0].outbox);
        if !outbox.has_room(payload, check) {
            return SendOutcome::Full;
        }
        outbox.push(What::Packet { header, payload_bytes, part_count }, payload, check);
        let at = At { peer: to.0, lane: 0 };
        if payload.more {
            if self.unflushed.last() != Some(&at) {
                self.unflushed.push(at);
            }
        } else {
            self.flush_lane(at);
        }
        SendOutcome::Taken
    }

    fn flush(&mut self) {
        while let Some(at) = self.unflushed.pop() {
            self.flush_lane(at);
        }
    }

    fn progress(&mut self, responder: &mut dyn Responder) {
        if !self.look_at_hot(responder) {
            self.take_events(responder);
        }
        if self.greeting_count > 0 || !self.wanted.is_empty() || self.accept_at.is_some() {
            self.look_after(self.now());
        }
        self.listen_now_and_then(responder);
        for index in std::mem::take(&mut self.lost) {
            responder.lost(LinkPeer(index));
        }
    }

    fn now(&self) -> Duration {
        // Read for single messages, so no beginning is taken off it.
        let now = clock_gettime(ClockId::Monotonic);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }

    fn found_at(&self) -> Duration {
        self.found_at
    }

    fn recall(&mut self, address: u64, len_bytes: u64) {
        let touches = |start: usize, len: usize| {
            (start as u64) < address.saturating_add(len_bytes) && address < (start as u64).saturating_add(len as u64)
        };
        for peer in &mut self.peers {
            peer.lanes.iter_mut().for_each(|lane| lane.outbox.recall(touches));
            if let Some(incoming) = &mut peer.incoming
                && incoming.placement.ranges.iter().any(|range| touches(range.address(), range.len_bytes()))
            {
                incoming.placement = Placement::discard();
            }
        }
    }

    fn deadline(&self) -> Option<Duration> {
        if !self.lost.is_empty() {
            return Some(Duration::ZERO);
        }
        let greetings = self.connections.iter().flatten().filter_map(|connection| connection.deadline);
        let wanted = self.wanted.iter().map(|at| &self.peers[at.peer as usize].lanes[usize::from(at.lane)]);
        let dials = wanted.filter(|lane| lane.attempt.is_none() && lane.connection.is_none());
        let owes = |lane: &Lane| lane.connection.is_some() && self.asks_all() || !lane.outbox.is_empty();
        let owed = self.peers.iter().any(|peer| !peer.is_lost() && peer.lanes.iter().any(owes));
        let dials = dials.map(|lane| lane.trouble.retry_at);
        greetings.chain(dials).chain(owed.then_some(self.listen_at)).chain(self.accept_at).min()
    }

    fn prepare_sleep(&mut self) -> Result<(), FabricError> {
        if let Some(hot) = &mut self.hot {
            hot.hits = 0;
            let slot = hot.slot;
            self.take_back(slot);
        }
        Ok(())
    }

    fn woken(&mut self) {
        self.turns_left = 0;
        self.turns_hot = 0;
    }

    fn part(&mut self) {
        for connection in self.connections.iter_mut().flatten() {
            let Some(at) = live_at(connection) else { continue };
            let peer = &mut self.peers[at.peer as usize];
            // What is not written yet goes before it. Who does not hear it finds nobody listening.
            if connection.flush(Some(peer)).is_ok() {
                connection.say_head(Kind::Goodbye, peer.lanes[usize::from(at.lane)].received);
                let _ = connection.flush(Some(peer));
            }
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }
}

fn refused(operation: &'static str, why: &dyn std::fmt::Display) -> FabricError {
    FabricError::System { operation, reason: why.to_string() }
}
