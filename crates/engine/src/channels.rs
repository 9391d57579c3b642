//! Channels to peers: opened on demand under a limit that their receiver sets, given up when they are not used.

use fabric::{FabricError, MappedArea, PeerIndex, RemoteMemory};
use lockfree::fastpath::{RecordReceiver, retire};
use lockfree::{Announcements, MailboxSender, Record, Shuttle};
use protocol::Link;
use protocol::fastpath::{LEFT, RECORDS_PER_REQUEST};
use protocol::link::Announce;
use protocol::wire;

use crate::EngineError;
use crate::core::{Core, Engine};
use crate::inbound::Turn;
use crate::request::PeerId;
use crate::stats::Stats;

impl Core {
    /// A link to a mapped peer: through a channel if it grants one, or else through its mailbox.
    pub(crate) fn link_to(&mut self, to: PeerId) -> Result<Link, EngineError> {
        let granted = self.announcements_of(to).is_some_and(|theirs| theirs.take_place(self.channels_max));
        let memory = self.context.mapped(self.channel_to(to));
        if granted && let Some(memory) = memory {
            self.stats.channels_opened += 1;
            self.held_bytes += self.geometry.channel_bytes().1 as u64;
            // Its receiver does not poll it before it has heard of it.
            lockfree::fastpath::hint_sender(&memory, protocol::fastpath::COLD);
            let mut link = Link::fast(&self.geometry, &memory);
            link.equip(self.shuttles_with(to));
            return Ok(link);
        }
        Ok(Link::slow(self.mailbox_of(to).ok_or(FabricError::NoSuchPeer(to))?))
    }

    /// Bytes of the copy kept for the channel to a peer.
    pub(crate) fn copy_bytes_to(&self, to: PeerId) -> u64 {
        match (&self.port, self.peers.get(to as usize)) {
            (Some(port), _) if port.reaches(to) => port.copy_bytes_to(to),
            (_, Some(Some(peer))) if !peer.link.is_slow() && to != self.me => self.geometry.channel_bytes().1 as u64,
            _ => 0,
        }
    }

    fn channel_to(&self, to: PeerId) -> MappedArea {
        MappedArea::Channel { from: PeerIndex(self.me), to: PeerIndex(to) }
    }

    fn mailbox_of(&self, to: PeerId) -> Option<MailboxSender> {
        let memory = self.context.mapped(MappedArea::Mailbox { owner: PeerIndex(to) })?;
        Some(MailboxSender::new(memory, self.me))
    }

    fn announcements_of(&self, to: PeerId) -> Option<Announcements> {
        let memory = self.context.mapped(MappedArea::Announcements { owner: PeerIndex(to) })?;
        Some(Announcements::new(memory, announced_places(self.mailbox_place)))
    }

    /// After a record was pushed: its receiver is woken if it sleeps, and told where to look if it does not poll.
    #[inline]
    pub(crate) fn announce_record(&mut self, to: PeerId) {
        self.context.notify(PeerIndex(to));
        if let Some(Some(peer)) = self.peers.get(to as usize)
            && peer.link.announce() != Announce::Nothing
        {
            self.announce_cold(to);
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn announce_cold(&mut self, to: PeerId) {
        let Some(Some(peer)) = self.peers.get(to as usize) else { return };
        let place = match peer.link.announce() {
            Announce::Nothing => return,
            Announce::Channel => self.place,
            Announce::Mailbox => self.mailbox_place,
        };
        if let Some(theirs) = self.announcements_of(to) {
            theirs.announce(place);
            self.context.notify(PeerIndex(to));
        }
    }

    /// After an eager message went through a mailbox: asks for a channel now and then.
    #[cold]
    pub(crate) fn sent_slowly(&mut self, to: PeerId) {
        let Some(Some(peer)) = self.peers.get_mut(to as usize) else { return };
        peer.traffic.slow_sent += 1;
        if peer.link.wants_channel() {
            self.open_channel(to);
        }
    }

    fn open_channel(&mut self, to: PeerId) {
        let Some(theirs) = self.announcements_of(to) else { return };
        if !theirs.take_place(self.channels_max) {
            if let Some(Some(peer)) = self.peers.get_mut(to as usize) {
                peer.link.ask_later(RECORDS_PER_REQUEST);
            }
            return;
        }
        let memory = self.context.mapped(self.channel_to(to));
        let shuttles = self.shuttles_with(to);
        let link = self.peers.get_mut(to as usize).and_then(Option::as_mut).map(|peer| &mut peer.link);
        let (Some(memory), Some(link)) = (memory, link) else { return theirs.give_place_back() };
        if !link.open(&self.geometry, &memory) {
            return theirs.give_place_back();
        }
        link.equip(shuttles);
        self.stats.channels_opened += 1;
        self.held_bytes += self.geometry.channel_bytes().1 as u64;
        // Whether its receiver polls the mailbox or not: the link does not know of that hint any more.
        theirs.announce(self.mailbox_place);
        self.context.notify(PeerIndex(to));
    }

    /// Gives up the channels that were not used for a long time.
    #[cold]
    pub(crate) fn close_idle(&mut self) {
        for to in 0..self.size {
            if let Some(port) = self.port.as_mut().filter(|port| port.reaches(to)) {
                port.close_idle(to, self.idle_looks_max);
                continue;
            }
            let Some(Some(peer)) = self.peers.get_mut(to as usize) else { continue };
            if !peer.link.is_idle(self.idle_looks_max) {
                continue;
            }
            let (Some(memory), Some(mailbox)) = (self.context.mapped(self.channel_to(to)), self.mailbox_of(to)) else {
                continue;
            };
            let shuttle = self.shuttles.take_foreign(to);
            let Some(Some(peer)) = self.peers.get_mut(to as usize) else { continue };
            if let Some(retired) = peer.link.close(&memory, shuttle) {
                self.announce_record(to);
                if let Some(Some(peer)) = self.peers.get_mut(to as usize) {
                    peer.link.begin_closing(retired, mailbox);
                }
                self.stats.channels_closed += 1;
                self.held_bytes -= self.geometry.channel_bytes().1 as u64;
                self.retire_shuttle(to);
                self.closing.push(to);
            } else {
                shuttle.into_iter().for_each(|shuttle| self.shuttles.keep(to, shuttle));
            }
        }
    }

    /// Looks whether peers have read to the end of channels that were given up.
    #[cold]
    pub(crate) fn end_closing(&mut self) {
        for to in std::mem::take(&mut self.closing) {
            let Some(Some(peer)) = self.peers.get_mut(to as usize) else { continue };
            match peer.link.end_closing() {
                Some(true) => {
                    self.shuttles.keep(to, Shuttle::Here);
                    self.retire_shuttle(to);
                }
                Some(false) => {}
                None => self.closing.push(to),
            }
        }
    }

    /// The sender of a channel to us is through with it, and so are we: gives its memory back.
    pub(crate) fn retire_channel(&mut self, peer: PeerId, ours: &Announcements) {
        let area = MappedArea::Channel { from: PeerIndex(peer), to: PeerIndex(self.me) };
        if let Some(memory) = self.context.mapped(area) {
            let cleared_from = self.context.give_back(area, 0).unwrap_or(memory.len_bytes());
            let shuttle = self.shuttles.take_foreign(peer);
            retire(&memory, cleared_from, shuttle.is_some());
            self.stats.channels_retired += 1;
        }
        self.retire_shuttle(peer);
        ours.give_place_back();
        self.context.notify(PeerIndex(peer));
    }

    /// Credits for what was consumed of a channel: along with the next record to its sender, or at once if none went
    /// since the last time.
    #[cold]
    #[inline(never)]
    pub(crate) fn return_credits<R: RecordReceiver>(&mut self, peer: PeerId, channel: &mut R) {
        if let Some(port) = self.port.as_mut().filter(|port| port.reaches(peer)) {
            let carried = channel.return_credits(port.can_carry(peer));
            port.carry(peer, carried);
            self.stats.credits_explicit += u64::from(carried.is_none());
            return;
        }
        let link = self.peers.get_mut(peer as usize).and_then(Option::as_deref_mut).map(|peer| &mut peer.link);
        if let Some(from) = channel.take_spare() {
            let area = MappedArea::Channel { from: PeerIndex(peer), to: PeerIndex(self.me) };
            self.context.give_back(area, from);
        }
        let carried = channel.return_credits(link.as_ref().is_some_and(|link| link.can_carry_credits()));
        if let Some(link) = link {
            link.carry_credits(carried);
        }
        if carried.is_none() {
            self.stats.credits_explicit += 1;
            self.context.notify(PeerIndex(peer));
        }
    }

    /// A peer wants to write into a channel here.
    #[cold]
    pub(crate) fn arrive_want(&mut self, peer: PeerId, geometry: u64, control: RemoteMemory) {
        let (Some(ours), channels_max) = (self.announcements_of(self.me), self.channels_max) else {
            return self.refuse();
        };
        let Some(port) = self.port.as_mut().filter(|port| port.reaches(peer)) else { return self.refuse() };
        // One that follows another takes its place.
        let takes_place = !port.has_inward(peer);
        let may = !takes_place || ours.take_place(channels_max);
        let memory = if may { port.grant(peer, geometry, control) } else { None };
        if may && takes_place && memory.is_none() {
            ours.give_place_back();
        }
        port.answer_want(peer, memory);
    }

    /// The channel from a peer over the port has been given up, or its sender is lost: its memory is given back.
    pub(crate) fn close_inward(&mut self, peer: PeerId, ours: &Announcements) {
        if self.port.as_mut().is_some_and(|port| port.close_inward(peer)) {
            ours.give_place_back();
            self.stats.channels_retired += 1;
        }
    }

    /// What a peer says to our wish for a channel.
    #[cold]
    pub(crate) fn arrive_grant(&mut self, peer: PeerId, memory: Option<RemoteMemory>) {
        if !self.port.as_mut().is_some_and(|port| port.granted(peer, memory)) {
            self.refuse();
        }
    }

    /// A peer is through with the channel that we have given up.
    #[cold]
    pub(crate) fn arrive_closed(&mut self, peer: PeerId) {
        if !self.port.as_mut().is_some_and(|port| port.closed(peer)) {
            self.refuse();
        }
    }

    /// A peer has written into a channel that may not be polled.
    #[cold]
    pub(crate) fn arrive_unpolled(&mut self, peer: PeerId) {
        self.turned.push((peer, Turn::Announced));
    }

    /// A record that came through the mailbox, from whom it says.
    pub(crate) fn arrive_in_mailbox(&mut self, from: u32, record: Record, payload: &[u8]) {
        if from >= self.size || from == self.me {
            return self.refuse();
        }
        self.arrive(from, record, payload);
    }

    /// Something that one of those who share memory with this process may be asleep for: nobody knows who.
    #[cold]
    pub(crate) fn notify_all(&self) {
        let peers = (0..self.context.place_count()).filter_map(|place| self.context.peer_at(place));
        peers.filter(|peer| peer.0 != self.me).for_each(|peer| self.context.notify(peer));
    }

    /// True if a mapped peer has said that it needs nothing more. What has found no room there stays where it is.
    pub(crate) fn has_left(&self, peer: PeerId) -> bool {
        self.mailbox_of(peer).is_some_and(|mailbox| mailbox.hint() & LEFT != 0)
    }

    /// A record that is not simply a message.
    #[cold]
    #[inline(never)]
    pub(crate) fn arrive_otherwise(&mut self, peer: PeerId, record: Record, payload: &[u8]) {
        let Some((record, payload, count)) = wire::without_credits(record, payload) else { return self.refuse() };
        match self.port.as_mut().filter(|port| port.reaches(peer)) {
            Some(port) => port.credit(peer, count),
            None => {
                if let Some(Some(peer)) = self.peers.get_mut(peer as usize) {
                    peer.link.credit(count);
                }
            }
        }
        self.stats.credits_carried += 1;
        self.arrive(peer, record, payload);
    }
}

impl Engine {
    /// Tells peers, once there are no pending sends, that this process needs nothing more of them: what they have to say and
    /// find no room for keeps none of them from ending. What it owes them goes, for nobody may poll any more.
    pub fn leave(&mut self) {
        self.inbound.leave(true);
        if let Some(port) = &mut self.core.port {
            port.context().rest();
        }
        self.core.notify_all();
    }

    /// Takes that back: this process goes on.
    pub fn come_back(&mut self) {
        self.inbound.leave(false);
    }

    /// This process ends, after [`Engine::leave`]: peers that are still there hear of it at once.
    pub fn part(&mut self) {
        if let Some(port) = &mut self.core.port {
            port.context().part();
        }
    }

    /// The counters with what channels hold now.
    pub(crate) fn with_channels(&self, stats: Stats) -> Stats {
        let (channels_live, bytes) = self.inbound.held();
        let resized = self.core.peers.iter().flatten().map(|peer| peer.link.resized());
        Stats {
            channels_live,
            channels_polled: self.inbound.polled() as u64,
            channel_bytes: bytes + self.core.held_bytes + self.core.shuttles.all_held_bytes(),
            blocks_resized: resized.sum(),
            ..stats
        }
    }
}

/// Places in the announcements to a process: one for the channel of each that is mapped, and then one for the mailbox.
pub(crate) fn announced_places(mapped_count: u32) -> usize {
    mapped_count as usize + 1
}
