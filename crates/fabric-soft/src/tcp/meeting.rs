//! How connections come to be and end: dialling, greeting, agreeing which one counts, going on where one broke off.

use std::time::Duration;

use base::log::Level;
use rustix::event::epoll;
use rustix::rand::GetRandomFlags;

use super::address::Address;
use super::connection::{Connection, Ending, Stage, Step};
use super::frame::Kind;
use super::greeting::{CHALLENGE_BYTES, HELLO_BYTES, Meeting, Nonce, PROOF_BYTES};
use super::interfaces;
use super::link::TcpLink;
use super::peer::{At, Hearing, Lane, Peer, Trouble};
use super::socket;
use crate::link::{Link as _, Responder};

/// Until when a connection to one of a peer's several addresses must be made, at first, and at last or to its only one.
const CONNECT_MAX: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));
/// Until when the process behind one of several addresses must have greeted, at first: a wrong one may never.
const GREETING_MAX: Duration = Duration::from_secs(3);
/// Peers at most.
const PEERS_MAX: usize = 1 << 16;
/// For how long nobody may listen at a peer's addresses.
const REFUSED_MAX: Duration = Duration::from_millis(500);
/// How long the process that does not choose leaves dialling to the other when a connection breaks.
const YIELD: Duration = Duration::from_millis(20);
/// How long a peer may owe an answer before it is lost, unless the options say: one that answers without its process
/// polling, and one that may be busy with other things.
const SILENCE_ASYNCHRONOUS: Duration = Duration::from_secs(30);
const SILENCE_POLLING: Duration = Duration::from_secs(3600);
const RETRY_MIN: Duration = Duration::from_millis(2);
const RETRY_MAX: Duration = Duration::from_millis(200);
/// Connections in a row, with something to do and without any progress, until a peer is lost.
const FRUITLESS_MAX: u32 = 64;
/// Times one connection is read before the next has its turn.
const READS_PER_TURN: u32 = 64;

/// To be told of input alone.
const INPUT: (bool, bool) = (true, false);

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

    /// The lane, which exists.
    pub(super) fn lane(&mut self, at: At) -> &mut Lane {
        &mut self.peers[at.peer as usize].lanes[usize::from(at.lane)]
    }

    /// A connection for this lane is wanted, from `now` on, dialled after `wait`.
    pub(super) fn want(&mut self, at: At, now: Duration, wait: Duration) {
        let is_lost = self.peers[at.peer as usize].is_lost();
        let trouble = &mut self.lane(at).trouble;
        if is_lost || trouble.since.is_some() {
            return;
        }
        trouble.since = Some(now);
        trouble.retry_at = now + wait;
        self.wanted.push(at);
    }

    fn dial(&mut self, at: At, now: Duration) {
        let peer = &self.peers[at.peer as usize];
        let count = peer.sockets.len();
        let lane = &peer.lanes[usize::from(at.lane)];
        let index = lane.address_to_dial(count);
        let target = peer.sockets[index];
        let (first, last) = CONNECT_MAX;
        let rounds = 1 + lane.trouble.failures / count.max(1) as u32;
        let patience = if count > 1 { (first * rounds).min(last) } else { last };
        self.lane(at).dialled = index;
        match self.dial_past_strangers(&target, now) {
            Ok(socket) => {
                let slot = self.add(socket, Stage::Dialling(at), now + patience);
                self.lane(at).attempt = slot;
                if slot.is_none() {
                    self.failed(at, Ending::Broken, now);
                }
            }
            Err(error) => self.failed(at, Ending::Failed(error), now),
        }
    }

    pub(super) fn add(&mut self, socket: rustix::fd::OwnedFd, stage: Stage, deadline: Duration) -> Option<usize> {
        socket::tune(&socket, self.options.patience).ok()?;
        let slot = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
        if slot == self.connections.len() {
            self.connections.push(None);
            self.generations.push(0);
        }
        let mut connection = Connection::new(socket, stage, deadline);
        let (token, wanted) =
            (epoll::EventData::new_u64(self.token(slot)), (true, matches!(stage, Stage::Dialling(_))));
        epoll::add(&self.epoll, &connection.socket, token, flags(wanted)).ok()?;
        connection.watches = Some(wanted);
        self.connections[slot] = Some(Box::new(connection));
        self.greeting_count += 1;
        Some(slot)
    }

    /// Something may have happened on a connection.
    /// `is_read`: what has come was read just now, all of it.
    pub(super) fn serve(&mut self, slot: usize, responder: &mut dyn Responder, now: Duration, is_read: bool) {
        self.serve_one(slot, responder, now, is_read);
        // Lanes that waited for this one, or for one of those: a loop, for how many follow is the peer's to say.
        while let Some(next) = self.again.pop() {
            self.serve_one(next, responder, now, false);
        }
    }

    fn serve_one(&mut self, slot: usize, responder: &mut dyn Responder, now: Duration, is_read: bool) {
        let Some(mut connection) = self.connections[slot].take() else { return };
        let served = self.serve_taken(slot, &mut connection, responder, now, is_read);
        connection.leave(&mut self.room);
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
        is_read: bool,
    ) -> Result<(), Ending> {
        if let Stage::Dialling(at) = connection.stage {
            socket::outcome(&connection.socket)?;
            self.connected(connection, at, now)?;
        }
        connection.is_stalled = false;
        while self.advance(slot, connection, responder, now)? {}
        let mut more = !is_read;
        for _ in 0..READS_PER_TURN {
            if connection.is_stalled || !more {
                break;
            }
            let peer = live_at(connection).map(|at| &mut self.peers[at.peer as usize]);
            more = connection.fill(peer, &mut self.room)?;
            while self.advance(slot, connection, responder, now)? {}
        }
        let peer = live_at(connection).map(|at| &mut self.peers[at.peer as usize]);
        let flushed = connection.flush(peer);
        if flushed.is_err_and(Ending::is_cut) && more && !connection.is_stalled {
            // It ends when all that came is read.
            connection.is_blocked = true;
            return Ok(());
        }
        flushed
    }

    /// The peer's system has taken the connection: its process is greeted.
    fn connected(&mut self, connection: &mut Connection, at: At, now: Duration) -> Result<(), Ending> {
        let peer = &self.peers[at.peer as usize];
        let count = peer.sockets.len();
        let rounds = peer.lanes[usize::from(at.lane)].trouble.failures / count.max(1) as u32;
        let silence = self.silence_max(peer);
        let patience = if count > 1 { (GREETING_MAX * (1 << rounds.min(16))).min(silence) } else { silence };
        let meeting = Meeting {
            dialler: self.own.identity,
            acceptor: peer.identity,
            dialler_nonce: Self::nonce()?,
            acceptor_nonce: [0; 32],
            lane: at.lane,
        };
        connection.say(&meeting.hello());
        connection.stage = Stage::Greeting(at, meeting);
        connection.deadline = Some(now + patience);
        Ok(())
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
                let nonce = Self::nonce()?;
                let meeting = Meeting::of_hello(&hello, self.own.identity, nonce)
                    .ok_or(Ending::Stranger("it does not greet as a process that means this one"))?;
                connection.say(&meeting.challenge(&self.options.secret));
                connection.stage = Stage::Challenged(meeting);
                Ok(true)
            }
            Stage::Greeting(at, mut meeting) => {
                let Some(challenge) = connection.take::<CHALLENGE_BYTES>() else { return Ok(false) };
                if !meeting.believe_challenge(&challenge, &self.options.secret) {
                    return Err(Ending::Stranger("who answered does not know the job's secret"));
                }
                connection.say(&meeting.proof(&self.options.secret, &self.own));
                self.proven(slot, connection, at, now);
                Ok(true)
            }
            Stage::Challenged(meeting) => {
                let Some(proof) = connection.take::<PROOF_BYTES>() else { return Ok(false) };
                let address = meeting
                    .believe_proof(&proof, &self.options.secret)
                    .ok_or(Ending::Stranger("it does not know the job's secret"))?;
                let index = self.acquaint(address).ok_or(Ending::Broken)?;
                let peer = &mut self.peers[index as usize];
                if peer.is_lost() || peer.lane(usize::from(meeting.lane)).is_none() {
                    return Err(Ending::Broken);
                }
                self.proven(slot, connection, At { peer: index, lane: meeting.lane }, now);
                Ok(true)
            }
            Stage::Proven(at) | Stage::Live(at) => {
                let peer = &mut self.peers[at.peer as usize];
                match connection.deliver(at, peer, responder)? {
                    Step::NeedInput => Ok(false),
                    Step::Stalled => {
                        connection.is_stalled = true;
                        Ok(false)
                    }
                    Step::Others => {
                        let others = peer.lanes.iter().filter_map(|lane| lane.connection);
                        self.again.extend(others.filter(|other| *other != slot));
                        Ok(true)
                    }
                    Step::Resume { epoch, received, is_asynchronous } => {
                        peer.is_asynchronous = is_asynchronous;
                        self.resume(slot, connection, at, (epoch, received), now)?;
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

    fn proven(&mut self, slot: usize, connection: &mut Connection, at: At, now: Duration) {
        connection.stage = Stage::Proven(at);
        if self.chooses(at.peer) {
            self.replace(slot, at, now);
            self.peers[at.peer as usize].expect_again(usize::from(at.lane));
            let is_asynchronous = self.is_asynchronous();
            let lane = self.lane(at);
            lane.epoch += 1;
            connection.say_head(Kind::Resume { epoch: lane.epoch, is_asynchronous }, lane.received);
        }
    }

    /// From now on this is the lane's connection, if it becomes live.
    fn replace(&mut self, slot: usize, at: At, now: Duration) {
        if let Some(old) = self.lane(at).connection.filter(|old| *old != slot) {
            self.end(old, Ending::Broken, now);
        }
        self.lane(at).connection = Some(slot);
    }

    fn resume(
        &mut self,
        slot: usize,
        connection: &mut Connection,
        at: At,
        (epoch, received): (u64, u64),
        now: Duration,
    ) -> Result<(), Ending> {
        let is_asynchronous = self.is_asynchronous();
        let chooses = self.chooses(at.peer);
        let lane = self.lane(at);
        if chooses {
            if lane.connection != Some(slot) || epoch != lane.epoch {
                return Err(Ending::Broken);
            }
        } else {
            if epoch <= lane.epoch {
                return Err(Ending::Broken);
            }
            self.replace(slot, at, now);
            self.peers[at.peer as usize].expect_again(usize::from(at.lane));
            let lane = self.lane(at);
            lane.epoch = epoch;
            connection.say_head(Kind::Resume { epoch, is_asynchronous }, lane.received);
        }
        let peer = &mut self.peers[at.peer as usize];
        let lane = &mut peer.lanes[usize::from(at.lane)];
        if peer.lost.is_some() || !lane.outbox.resume(received) {
            return Err(Ending::PeerWrong);
        }
        connection.stage = Stage::Live(at);
        self.greeting_count -= usize::from(connection.deadline.take().is_some());
        let fruitless = lane.trouble.fruitless;
        lane.trouble = Trouble { fruitless, mark: lane.mark(), ..Trouble::default() };
        lane.hearing = Hearing::default();
        match lane.attempt.take() {
            Some(other) if other == slot => lane.good = lane.dialled,
            Some(other) => self.end(other, Ending::Broken, now),
            None => {}
        }
        Ok(())
    }

    /// Looks after what takes too long, and dials.
    pub(super) fn look_after(&mut self, now: Duration) {
        self.go_on_accepting(now);
        if self.greeting_count > 0 {
            let late = |one: &Option<Box<Connection>>| one.as_ref()?.deadline.filter(|deadline| *deadline <= now);
            let late: Vec<usize> =
                (0..self.connections.len()).filter(|at| late(&self.connections[*at]).is_some()).collect();
            late.into_iter().for_each(|slot| self.end(slot, Ending::Late, now));
        }
        for at in std::mem::take(&mut self.wanted) {
            let peer = &self.peers[at.peer as usize];
            let lane = &peer.lanes[usize::from(at.lane)];
            let Some(since) = lane.trouble.since.filter(|_| !peer.is_lost()) else { continue };
            if let Some(why) = self.given_up(peer, lane, now.saturating_sub(since), now) {
                let why = format!("{why}: {}", peer.what_was_tried());
                self.lose(at.peer, why, now);
                continue;
            }
            let dials = lane.attempt.is_none() && lane.connection.is_none() && lane.trouble.retry_at <= now;
            self.wanted.push(at);
            if dials {
                self.dial(at, now);
            }
        }
    }

    /// Why no connection is to be expected any more after waiting so long.
    fn given_up(&self, peer: &Peer, lane: &Lane, waited: Duration, now: Duration) -> Option<String> {
        if lane.trouble.refusals as usize >= peer.sockets.len() && waited > REFUSED_MAX {
            return Some("nobody listens at its addresses".into());
        }
        // Whose system takes connections is there, though its process may be busy.
        let is_taken = |slot: &usize| {
            let connection = self.connections[*slot].as_ref();
            connection.is_some_and(|connection| !matches!(connection.stage, Stage::Dialling(_)))
        };
        let is_reached = [lane.attempt, lane.connection].iter().flatten().any(is_taken);
        let unreachable = lane.trouble.reached.map_or(waited, |reached| now.saturating_sub(reached));
        if !is_reached && unreachable > self.options.patience {
            return Some(format!("it could not be reached for {:?}", self.options.patience));
        }
        let silence = self.silence_max(peer).max(self.options.patience);
        (waited > silence).then(|| format!("its process has not greeted for {silence:?}"))
    }

    /// How long a peer may owe an answer.
    pub(super) fn silence_max(&self, peer: &Peer) -> Duration {
        let automatic = if peer.is_asynchronous { SILENCE_ASYNCHRONOUS } else { SILENCE_POLLING };
        self.options.silence.unwrap_or(automatic)
    }

    /// Looks for peers that owe an answer and are silent: their hosts may be gone, or their processes stopped. Where a
    /// silence was asked for, who owes nothing is asked whether it is there, so that it does.
    pub(super) fn listen_for(&mut self, now: Duration) {
        for index in 0..self.peers.len() {
            for lane in 0..self.peers[index].lanes.len() {
                self.listen_for_lane(At { peer: index as u32, lane: lane as u8 }, now);
            }
        }
    }

    /// True if even who owes nothing is not to be silent: somebody may be waiting for it.
    pub(super) fn asks_all(&self) -> bool {
        self.options.silence.is_some()
    }

    fn listen_for_lane(&mut self, at: At, now: Duration) {
        let peer = &self.peers[at.peer as usize];
        let (silence, is_lost) = (self.silence_max(peer), peer.is_lost());
        let is_asked_anyhow = self.asks_all() && at.lane == 0;
        let lane = &mut self.peers[at.peer as usize].lanes[usize::from(at.lane)];
        let Some(slot) = lane.connection.filter(|_| !is_lost && lane.trouble.since.is_none()) else { return };
        let Some(connection) = self.connections[slot].as_mut() else { return };
        // What waits for the other lanes is not read: nothing can be heard on it.
        let owes = !lane.outbox.is_empty() || is_asked_anyhow && !connection.is_stalled;
        if lane.hearing.signs != connection.signs || !owes {
            lane.hearing = Hearing { signs: connection.signs, ..Hearing::default() };
            return;
        }
        let silent = now.saturating_sub(*lane.hearing.since.get_or_insert(now));
        let (received, asked) = (lane.received, lane.hearing.asked);
        // Who was away itself has not asked in time.
        if silent > silence && asked.is_some_and(|asked| now.saturating_sub(asked) > silence / 2) {
            return self.lose(at.peer, format!("it has owed an answer for {silence:?}"), now);
        }
        let patience = self.options.patience;
        if silent > patience && socket::is_unanswered(&connection.socket, patience) {
            return self.end(slot, Ending::Late, now);
        }
        if silent > silence / 2 && asked.is_none() {
            lane.hearing.asked = Some(now);
            connection.say_head(Kind::Ask, received);
            let flushed = connection.flush(Some(&mut self.peers[at.peer as usize]));
            match flushed {
                Ok(()) => self.watch(slot),
                Err(ending) => self.end(slot, ending, now),
            }
        }
    }

    fn failed(&mut self, at: At, ending: Ending, now: Duration) {
        let peer = &mut self.peers[at.peer as usize];
        let lane = &mut peer.lanes[usize::from(at.lane)];
        peer.tried[lane.dialled] = Some(ending.to_string());
        let trouble = &mut lane.trouble;
        trouble.failures += 1;
        trouble.refusals = if ending.is_refusal() { trouble.refusals + 1 } else { 0 };
        trouble.retry_at = now + (RETRY_MIN * (1 << trouble.failures.min(10))).min(RETRY_MAX);
    }

    /// Closes a connection and draws the consequences.
    pub(super) fn end(&mut self, slot: usize, ending: Ending, now: Duration) {
        let Some(connection) = self.connections[slot].take() else { return };
        self.generations[slot] = self.generations[slot].wrapping_add(1);
        self.greeting_count -= usize::from(connection.deadline.is_some());
        // Its descriptor may be what somebody waits for.
        self.accept_at = self.accept_at.map(|_| now);
        match (ending, &connection.stage) {
            (Ending::Stranger(why), _) => self.refuse(why),
            // Who said nothing before the connection broke may have been one of ours.
            (_, Stage::Accepted) if connection.has_read || ending == Ending::Late => {
                self.refuse("it does not prove that it belongs to the job");
            }
            _ => {}
        }
        let Some(at) = connection.stage.at() else { return };
        let was_reached = !matches!(connection.stage, Stage::Dialling(_));
        drop(connection);
        let chooses = self.chooses(at.peer);
        let peer = &mut self.peers[at.peer as usize];
        let is_incoming = peer.incoming.as_ref().is_some_and(|incoming| incoming.missing & 1 << at.lane != 0);
        let says_more = peer.lanes[0].connection.is_some();
        let lane = &mut peer.lanes[usize::from(at.lane)];
        let was_attempt = lane.attempt.take_if(|attempt| *attempt == slot).is_some();
        let did_count = lane.connection.take_if(|connection| *connection == slot).is_some();
        if ending == Ending::PeerLeft && at.lane > 0 && says_more {
            // What came on the first lane, before that says so, too, may not have been read.
            return;
        }
        if matches!(ending, Ending::PeerWrong | Ending::PeerLeft) {
            return self.lose(at.peer, ending.to_string(), now);
        }
        let was_live = did_count && lane.trouble.since.is_none();
        if was_live {
            let moved = lane.trouble.mark != lane.mark();
            let had_work = is_incoming || !lane.outbox.is_empty();
            lane.trouble.fruitless = if had_work && !moved { lane.trouble.fruitless + 1 } else { 0 };
            if lane.trouble.fruitless > FRUITLESS_MAX {
                let why = format!("{FRUITLESS_MAX} connections in a row broke before anything came through");
                return self.lose(at.peer, why, now);
            }
            self.want(at, now, if chooses { Duration::ZERO } else { YIELD });
        } else if was_attempt || did_count {
            // A process that is busy is late; one that hangs up is another.
            if was_reached && ending == Ending::Late {
                lane.trouble.reached = Some(now);
            }
            self.failed(at, ending, now);
        }
    }

    /// The peer is given up; the adapter is told at the end of the next progress.
    fn lose(&mut self, index: u32, why: String, now: Duration) {
        let peer = &mut self.peers[index as usize];
        if peer.is_lost() {
            return;
        }
        if why != Ending::PeerLeft.to_string() {
            self.options.log.say(Level::Warn, format_args!("tcp: a peer is lost: {why}"));
        }
        peer.lost = Some(why);
        peer.incoming = None;
        let mut slots = Vec::new();
        for lane in &mut peer.lanes {
            lane.outbox = super::outbox::Outbox::default();
            lane.arriving = None;
            slots.extend([lane.connection.take(), lane.attempt.take()].into_iter().flatten());
        }
        self.lost.push(index);
        slots.into_iter().for_each(|slot| self.end(slot, Ending::Broken, now));
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

    /// Asks to be told of what can be gone on with: of room where there was none, of input unless that must wait.
    pub(super) fn watch(&mut self, slot: usize) {
        let Some(connection) = &self.connections[slot] else { return };
        let wanted = (!connection.is_stalled, connection.is_blocked);
        if connection.watches.is_some() || wanted != INPUT {
            self.be_told(slot, wanted);
        }
    }

    /// Nothing is told of a connection that is looked at again and again, until it is taken back or needs more than
    /// looks.
    pub(super) fn put_aside(&mut self, slot: usize) {
        let Some(connection) = self.connections[slot].as_mut().filter(|one| one.watches == Some(INPUT)) else { return };
        if epoll::delete(&self.epoll, &connection.socket).is_ok() {
            connection.watches = None;
        }
    }

    /// It is told of again.
    pub(super) fn take_back(&mut self, slot: usize) {
        if self.connections[slot].as_ref().is_some_and(|connection| connection.watches.is_none()) {
            self.be_told(slot, INPUT);
        }
    }

    fn be_told(&mut self, slot: usize, wanted: (bool, bool)) {
        let data = epoll::EventData::new_u64(self.token(slot));
        let Some(connection) = &mut self.connections[slot] else { return };
        let told = match connection.watches.replace(wanted) {
            Some(watches) if watches == wanted => return,
            // A socket of ours that is being watched can be watched otherwise.
            Some(_) => epoll::modify(&self.epoll, &connection.socket, data, flags(wanted)),
            None => epoll::add(&self.epoll, &connection.socket, data, flags(wanted)),
        };
        if let Err(errno) = told {
            // Without it nobody would wake up: it is made again.
            self.end(slot, Ending::Failed(errno), self.now());
        }
    }
}

fn flags((input, room): (bool, bool)) -> epoll::EventFlags {
    let none = epoll::EventFlags::empty();
    let input = if input { epoll::EventFlags::IN } else { none };
    input | if room { epoll::EventFlags::OUT } else { none }
}

pub(super) fn live_at(connection: &Connection) -> Option<At> {
    if let Stage::Live(at) = connection.stage { Some(at) } else { None }
}
