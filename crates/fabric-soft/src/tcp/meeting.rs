//! How connections come to be and end: dialling, greeting, agreeing which one counts, going on where one broke off.

use std::time::Duration;

use base::log::Level;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

use super::address::Address;
use super::connection::{Connection, Ending, Stage, Step};
use super::frame::Kind;
use super::greeting::{CHALLENGE_BYTES, HELLO_BYTES, Meeting, Nonce, PROOF_BYTES};
use super::interfaces;
use super::link::TcpLink;
use super::peer::{Peer, Trouble};
use super::socket;
use crate::link::{LinkPeer, Responder};

/// Until when a connection must be live.
const GREETING_MAX: Duration = Duration::from_secs(3);
/// Connections that have proved nothing, at most; past it newcomers are hung up on.
const STRANGERS_MAX: usize = 64;
/// Peers at most.
const PEERS_MAX: usize = 1 << 16;
/// For how long nobody may listen at a peer's addresses.
const REFUSED_MAX: Duration = Duration::from_millis(500);
/// How long the process that does not choose leaves dialling to the other when a connection breaks.
const YIELD: Duration = Duration::from_millis(20);
const RETRY_MIN: Duration = Duration::from_millis(2);
const RETRY_MAX: Duration = Duration::from_millis(200);
/// Connections in a row, with something to do and without any progress, until a peer is lost.
const FRUITLESS_MAX: u32 = 64;
/// Times one connection is read before the next has its turn.
const READS_PER_TURN: u32 = 64;

impl TcpLink {
    pub(super) fn nonce() -> rustix::io::Result<Nonce> {
        let mut nonce = [0; 32];
        // Up to 256 bytes come whole.
        rustix::rand::getrandom(&mut nonce, GetRandomFlags::empty())?;
        Ok(nonce)
    }

    /// The peer with this identity, new or not.
    pub(super) fn acquaint(&mut self, mut address: Address) -> Option<u32> {
        if let Some(known) = self.by_identity.get(&address.identity) {
            return Some(*known);
        }
        if self.peers.len() >= PEERS_MAX {
            return None;
        }
        interfaces::order(&mut address.sockets, &self.interfaces);
        let index = self.peers.len() as u32;
        self.by_identity.insert(address.identity, index);
        self.peers.push(Peer::new(address.identity, address.sockets));
        Some(index)
    }

    /// A connection to this peer is wanted, from `now` on, dialled after `wait`.
    pub(super) fn want(&mut self, index: u32, now: Duration, wait: Duration) {
        let peer = &mut self.peers[index as usize];
        if peer.is_lost || peer.trouble.since.is_some() {
            return;
        }
        peer.trouble.since = Some(now);
        peer.trouble.retry_at = now + wait;
        self.wanted.push(index);
    }

    pub(super) fn accept(&mut self, listener: usize, now: Duration) {
        while let Ok(Some(socket)) = socket::accept(&self.listeners[listener]) {
            let strangers = self.connections.iter().flatten();
            let count = strangers.filter(|one| matches!(one.stage, Stage::Accepted | Stage::Challenged(_))).count();
            if count >= STRANGERS_MAX {
                self.refuse("too many others greet at the same time");
                continue;
            }
            self.add(socket, Stage::Accepted, now);
        }
    }

    fn dial(&mut self, index: u32, now: Duration) {
        let peer = &mut self.peers[index as usize];
        let target = peer.sockets[peer.trouble.failures as usize % peer.sockets.len()];
        match socket::dial(&target) {
            Ok(socket) => {
                let slot = self.add(socket, Stage::Dialling(index), now);
                self.peers[index as usize].attempt = slot;
                if slot.is_none() {
                    self.failed(index, false, now);
                }
            }
            Err(error) => self.failed(index, error == Errno::CONNREFUSED, now),
        }
    }

    fn add(&mut self, socket: rustix::fd::OwnedFd, stage: Stage, now: Duration) -> Option<usize> {
        socket::tune(&socket, self.options.patience).ok()?;
        let slot = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
        if slot == self.connections.len() {
            self.connections.push(None);
            self.generations.push(0);
        }
        let connection = Connection::new(socket, stage, now + GREETING_MAX);
        let token = epoll::EventData::new_u64(self.token(slot));
        epoll::add(&self.epoll, &connection.socket, token, flags(connection.watches_room)).ok()?;
        self.connections[slot] = Some(connection);
        self.greeting_count += 1;
        Some(slot)
    }

    /// Something may have happened on a connection.
    pub(super) fn serve(&mut self, slot: usize, responder: &mut dyn Responder, now: Duration) {
        let Some(mut connection) = self.connections[slot].take() else { return };
        let served = self.serve_taken(slot, &mut connection, responder, now);
        self.connections[slot] = Some(connection);
        match served {
            Ok(()) => self.watch(slot),
            Err(ending) => self.end(slot, ending, now),
        }
    }

    fn serve_taken(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        responder: &mut dyn Responder,
        now: Duration,
    ) -> Result<(), Ending> {
        if let Stage::Dialling(index) = connection.stage {
            socket::outcome(&connection.socket).map_err(|error| match error {
                Errno::CONNREFUSED => Ending::Unanswered,
                _ => Ending::Broken,
            })?;
            let meeting = Meeting {
                dialler: self.own.identity,
                acceptor: self.peers[index as usize].identity,
                dialler_nonce: Self::nonce().map_err(std::io::Error::from)?,
                acceptor_nonce: [0; 32],
            };
            connection.say(&meeting.hello());
            connection.stage = Stage::Greeting(index, meeting);
        }
        for _ in 0..READS_PER_TURN {
            let peer = live_peer(connection).map(|index| &mut self.peers[index as usize]);
            let more = connection.fill(peer)?;
            while self.advance(slot, connection, responder, now)? {}
            if !more {
                break;
            }
        }
        let peer = live_peer(connection).map(|index| &mut self.peers[index as usize]);
        connection.flush(peer)
    }

    /// Does the next thing that what has come allows; false if there is none.
    fn advance(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        responder: &mut dyn Responder,
        now: Duration,
    ) -> Result<bool, Ending> {
        match connection.stage {
            Stage::Dialling(_) => Ok(false),
            Stage::Accepted => {
                let Some(hello) = connection.take::<HELLO_BYTES>() else { return Ok(false) };
                let nonce = Self::nonce().map_err(std::io::Error::from)?;
                let meeting = Meeting::of_hello(&hello, self.own.identity, nonce)
                    .ok_or(Ending::Stranger("it does not greet as a process that means this one"))?;
                connection.say(&meeting.challenge(&self.options.secret));
                connection.stage = Stage::Challenged(meeting);
                Ok(true)
            }
            Stage::Greeting(index, mut meeting) => {
                let Some(challenge) = connection.take::<CHALLENGE_BYTES>() else { return Ok(false) };
                if !meeting.believe_challenge(&challenge, &self.options.secret) {
                    return Err(Ending::Stranger("who answered does not know the job's secret"));
                }
                connection.say(&meeting.proof(&self.options.secret, &self.own));
                self.proven(slot, connection, index, now);
                Ok(true)
            }
            Stage::Challenged(meeting) => {
                let Some(proof) = connection.take::<PROOF_BYTES>() else { return Ok(false) };
                let address = meeting
                    .believe_proof(&proof, &self.options.secret)
                    .ok_or(Ending::Stranger("it does not know the job's secret"))?;
                let index = self.acquaint(address).ok_or(Ending::Broken)?;
                if self.peers[index as usize].is_lost {
                    return Err(Ending::Broken);
                }
                self.proven(slot, connection, index, now);
                Ok(true)
            }
            Stage::Proven(index) | Stage::Live(index) => {
                let peer = &mut self.peers[index as usize];
                match connection.deliver(LinkPeer(index), peer, responder)? {
                    Step::NeedInput => Ok(false),
                    Step::Resume { epoch, received } => {
                        self.resume(slot, connection, index, (epoch, received), now)?;
                        Ok(true)
                    }
                }
            }
        }
    }

    /// True if this process chooses which connection to the peer counts.
    fn chooses(&self, index: u32) -> bool {
        self.own.identity < self.peers[index as usize].identity
    }

    fn proven(&mut self, slot: usize, connection: &mut Connection, index: u32, now: Duration) {
        connection.trust(index);
        if self.chooses(index) {
            self.replace(slot, index, now);
            let peer = &mut self.peers[index as usize];
            peer.epoch += 1;
            connection.say_head(Kind::Resume { epoch: peer.epoch }, peer.received);
        }
    }

    /// From now on this is the peer's connection, if it becomes live.
    fn replace(&mut self, slot: usize, index: u32, now: Duration) {
        if let Some(old) = self.peers[index as usize].connection.filter(|old| *old != slot) {
            self.end(old, Ending::Broken, now);
        }
        self.peers[index as usize].connection = Some(slot);
    }

    fn resume(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        index: u32,
        (epoch, received): (u64, u64),
        now: Duration,
    ) -> Result<(), Ending> {
        let peer = &self.peers[index as usize];
        if self.chooses(index) {
            if peer.connection != Some(slot) || epoch != peer.epoch {
                return Err(Ending::Broken);
            }
        } else {
            if epoch <= peer.epoch {
                return Err(Ending::Broken);
            }
            self.replace(slot, index, now);
            let peer = &mut self.peers[index as usize];
            peer.epoch = epoch;
            connection.say_head(Kind::Resume { epoch }, peer.received);
        }
        let peer = &mut self.peers[index as usize];
        if peer.is_lost || !peer.outbox.resume(received) {
            return Err(Ending::PeerGone);
        }
        connection.stage = Stage::Live(index);
        self.greeting_count -= usize::from(connection.deadline.take().is_some());
        let fruitless = peer.trouble.fruitless;
        peer.trouble = Trouble { fruitless, mark: peer.mark(), ..Trouble::default() };
        if let Some(other) = peer.attempt.take().filter(|other| *other != slot) {
            self.end(other, Ending::Broken, now);
        }
        Ok(())
    }

    /// Looks after what takes too long, and dials.
    pub(super) fn look_after(&mut self, now: Duration) {
        if self.greeting_count > 0 {
            let late = |one: &Option<Connection>| one.as_ref()?.deadline.filter(|deadline| *deadline <= now);
            let late: Vec<usize> =
                (0..self.connections.len()).filter(|at| late(&self.connections[*at]).is_some()).collect();
            late.into_iter().for_each(|slot| self.end(slot, Ending::Broken, now));
        }
        for index in std::mem::take(&mut self.wanted) {
            let peer = &self.peers[index as usize];
            let Some(since) = peer.trouble.since.filter(|_| !peer.is_lost) else { continue };
            let waited = now.saturating_sub(since);
            let nobody = peer.trouble.refusals as usize >= peer.sockets.len();
            if waited > self.options.patience || nobody && waited > REFUSED_MAX {
                self.lose(index, now);
                continue;
            }
            self.wanted.push(index);
            let peer = &self.peers[index as usize];
            if peer.attempt.is_none() && peer.connection.is_none() && peer.trouble.retry_at <= now {
                self.dial(index, now);
            }
        }
    }

    fn failed(&mut self, index: u32, is_refusal: bool, now: Duration) {
        let trouble = &mut self.peers[index as usize].trouble;
        trouble.failures += 1;
        trouble.refusals = if is_refusal { trouble.refusals + 1 } else { 0 };
        trouble.retry_at = now + (RETRY_MIN * (1 << trouble.failures.min(10))).min(RETRY_MAX);
    }

    /// Closes a connection and draws the consequences.
    pub(super) fn end(&mut self, slot: usize, ending: Ending, now: Duration) {
        let Some(connection) = self.connections[slot].take() else { return };
        self.generations[slot] = self.generations[slot].wrapping_add(1);
        self.greeting_count -= usize::from(connection.deadline.is_some());
        match ending {
            Ending::Stranger(why) => self.refuse(why),
            Ending::Broken if matches!(connection.stage, Stage::Accepted | Stage::Challenged(_)) => {
                self.refuse("it does not prove that it belongs to the job");
            }
            _ => {}
        }
        let (Stage::Dialling(index) | Stage::Greeting(index, _) | Stage::Proven(index) | Stage::Live(index)) =
            connection.stage
        else {
            return;
        };
        drop(connection);
        let peer = &mut self.peers[index as usize];
        let was_attempt = peer.attempt.take_if(|attempt| *attempt == slot).is_some();
        let did_count = peer.connection.take_if(|connection| *connection == slot).is_some();
        if ending == Ending::PeerGone {
            return self.lose(index, now);
        }
        let was_live = did_count && peer.trouble.since.is_none();
        if was_live {
            let moved = peer.trouble.mark != peer.mark();
            let had_work = peer.arriving.is_some() || !peer.outbox.is_empty();
            peer.trouble.fruitless = if had_work && !moved { peer.trouble.fruitless + 1 } else { 0 };
            if peer.trouble.fruitless > FRUITLESS_MAX {
                return self.lose(index, now);
            }
            let wait = if self.chooses(index) { Duration::ZERO } else { YIELD };
            self.want(index, now, wait);
        } else if was_attempt || did_count {
            self.failed(index, ending == Ending::Unanswered, now);
        }
    }

    /// The peer is given up; the adapter is told at the end of the next progress.
    fn lose(&mut self, index: u32, now: Duration) {
        let peer = &mut self.peers[index as usize];
        if std::mem::replace(&mut peer.is_lost, true) {
            return;
        }
        peer.outbox = super::peer::Outbox::default();
        peer.arriving = None;
        let slots = [peer.connection.take(), peer.attempt.take()];
        self.lost.push(index);
        slots.into_iter().flatten().for_each(|slot| self.end(slot, Ending::Broken, now));
    }

    fn refuse(&mut self, why: &str) {
        self.refused += 1;
        if self.refused == 1 {
            self.options.log.say(
                Level::Warn,
                format_args!("tcp: a connection was refused: {why}; further ones are counted and not told of"),
            );
        }
    }

    /// Asks to be told of room where there was none.
    pub(super) fn watch(&mut self, slot: usize) {
        let token = self.token(slot);
        let Some(connection) = &mut self.connections[slot] else { return };
        if connection.watches_room != connection.is_blocked {
            connection.watches_room = connection.is_blocked;
            let data = epoll::EventData::new_u64(token);
            // A socket of ours that is being watched can be watched otherwise.
            let _ = epoll::modify(&self.epoll, &connection.socket, data, flags(connection.watches_room));
        }
    }
}

fn flags(room: bool) -> epoll::EventFlags {
    if room { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN }
}

pub(super) fn live_peer(connection: &Connection) -> Option<u32> {
    if let Stage::Live(index) = connection.stage { Some(index) } else { None }
}
