//! The receiving channels: which are polled, which announce themselves, and which are given up.
//!
//! ```text
//!   hot ── two looks without a record ──▶ cold: the sender announces what it brings
//!    ▲                                      │
//!    └────────── announced ─────────────────┘
//! ```
//! A turn of progress polls the hot channels and one word for all others, so that what it costs does not grow with the
//! peers that have nothing to say. A channel becomes cold in two steps: the sender is told, a barrier is imposed (as
//! before sleeping, see [`lockfree::doorbell`]), and the channel is polled until the next look. A record pushed before
//! the sender could know is found by those polls.

use std::fmt::Write;

use fabric::MappedArea;
use fabric::{PeerIndex, SharedMemory};
use lockfree::fastpath::RecordReceiver;
use lockfree::{Allowance, Announcements, BlockReceiver, MailboxReceiver};
use protocol::fastpath::{COLD, Geometry, HOLD_BACK, LEFT, OtherReceiver, Receiver};

use crate::core::Core;
use crate::deliver::PATIENCE_TURNS;
use crate::request::PeerId;

/// Records taken from one channel before the next is looked at.
const RECORDS_PER_TURN: usize = 64;
/// Longest payload that is no burden for a caller with other work to do, in bytes.
const TALK_MAX_BYTES: usize = 1024;
/// Such turns in which a channel that was given up is emptied, at most: more than the longest block has lines.
const LAST_TURNS_MAX: usize = 1024;

/// What a peer says of its channel in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// It is used from now on.
    Opened,
    /// It was used for the last time.
    Closed,
    /// There is something in it, and it may not be polled.
    Announced,
}

/// A channel, and what was seen of it.
struct Polled<R> {
    peer: PeerId,
    channel: R,
    /// What it had consumed at the last look.
    seen: u64,
    /// The sender has been told that it is cold.
    cooling: bool,
    /// Turns in which the next record was left where it is.
    turns_left_alone: u32,
}

/// The channels of one design.
pub(crate) struct Polls<R> {
    hot: Vec<Polled<R>>,
    cold: Vec<Polled<R>>,
}

impl<R: RecordReceiver> Polls<R> {
    fn new() -> Self {
        Self { hot: Vec::new(), cold: Vec::new() }
    }

    fn add(&mut self, peer: PeerId, channel: R, hint: u64) {
        channel.set_hint(hint);
        self.hot.push(Polled { peer, channel, seen: 0, cooling: false, turns_left_alone: 0 });
    }

    /// Takes what has arrived; true if anything moved.
    #[inline]
    fn take_in(&mut self, core: &mut Core) -> bool {
        let mut moved = false;
        for polled in &mut self.hot {
            moved |= polled.take_in(core);
        }
        moved
    }

    /// Takes what asks or answers and has arrived before any data; true if anything moved.
    fn take_in_talk(&mut self, core: &mut Core) -> bool {
        let mut moved = false;
        for polled in &mut self.hot {
            moved |= polled.take_in_talk(core);
        }
        moved
    }

    /// Polls the channel from `peer` from now on, of which its sender is told; false if it has none here. What announced
    /// it may have been under way for long: one that is about to become cold would become so behind its sender's back.
    fn warm(&mut self, peer: PeerId, hint: u64) -> bool {
        if let Some(polled) = self.hot.iter_mut().find(|polled| polled.peer == peer) {
            if std::mem::replace(&mut polled.cooling, false) {
                polled.channel.set_hint(hint);
            }
            return true;
        }
        let Some(index) = self.cold.iter().position(|polled| polled.peer == peer) else { return false };
        let mut polled = self.cold.swap_remove(index);
        polled.channel.set_hint(hint);
        polled.cooling = false;
        self.hot.push(polled);
        true
    }

    /// Takes what has arrived from one peer, polled or not; true if anything moved.
    fn take_from(&mut self, core: &mut Core, peer: PeerId) -> bool {
        let polled = self.hot.iter_mut().chain(&mut self.cold).find(|polled| polled.peer == peer);
        polled.is_some_and(|polled| polled.take_in(core))
    }

    fn has(&self, peer: PeerId) -> bool {
        self.hot.iter().chain(&self.cold).any(|polled| polled.peer == peer)
    }

    /// Moves channels that are not used out of the way, all but `min`; true if a barrier has to be imposed.
    fn cool(&mut self, hint: u64, min: usize) -> bool {
        let mut told = false;
        let mut index = 0;
        while index < self.hot.len() {
            let spare = self.hot.len() > min;
            let polled = &mut self.hot[index];
            // What is left alone in it is not announced again.
            let used = polled.channel.consumed() != polled.seen || polled.channel.peek().is_some();
            polled.seen = polled.channel.consumed();
            match (polled.cooling, used || !spare) {
                (true, true) => {
                    polled.cooling = false;
                    polled.channel.set_hint(hint);
                }
                (true, false) => {
                    let polled = self.hot.swap_remove(index);
                    self.cold.push(polled);
                    continue;
                }
                (false, true) => {}
                (false, false) => {
                    polled.cooling = true;
                    polled.channel.set_hint(hint | COLD);
                    told = true;
                }
            }
            index += 1;
        }
        told
    }

    fn hint_all(&self, hint: u64) {
        for polled in &self.hot {
            polled.channel.set_hint(if polled.cooling { hint | COLD } else { hint });
        }
        for polled in &self.cold {
            polled.channel.set_hint(hint | COLD);
        }
    }

    /// Forgets the channel from `peer`; true if there was one.
    fn remove(&mut self, peer: PeerId) -> bool {
        let mut removed = false;
        for list in [&mut self.hot, &mut self.cold] {
            list.retain_mut(|polled| {
                if polled.peer == peer {
                    // Whoever uses the channel next goes on from there.
                    polled.channel.return_credits(false);
                    removed = true;
                }
                polled.peer != peer
            });
        }
        removed
    }

    fn write_standing(&self, text: &mut String, peer: PeerId) -> std::fmt::Result {
        for (list, what) in [(&self.hot, "polled"), (&self.cold, "not polled")] {
            for Polled { channel, cooling, .. } in list.iter().filter(|polled| polled.peer == peer) {
                write!(text, "\n  its channel is {what}, cooling {cooling}, {} taken", channel.consumed())?;
            }
        }
        Ok(())
    }

    fn count(&self) -> usize {
        self.hot.len() + self.cold.len()
    }
}

impl<R: RecordReceiver> Polled<R> {
    #[inline]
    fn take_in(&mut self, core: &mut Core) -> bool {
        let mut count = 0;
        while count < RECORDS_PER_TURN {
            if core.is_patient && self.leaves_alone(core) || !self.take_one(core) {
                break;
            }
            count += 1;
            if core.ends_turn {
                // Who waited for it goes on first: the next may be for the receive that is posted then.
                core.ends_turn = false;
                if core.shuttles.take_stirred() && self.channel.may_read_by_instruction() {
                    core.send_back_empty(self.peer);
                }
                break;
            }
        }
        count > 0
    }

    fn take_in_talk(&mut self, core: &mut Core) -> bool {
        let mut count = 0;
        while count < RECORDS_PER_TURN
            && let Some((record, len_bytes)) = self.channel.peek()
            && len_bytes <= TALK_MAX_BYTES
            && core.is_talk(self.peer, record)
            && self.take_one(core)
        {
            count += 1;
        }
        count > 0
    }

    /// Takes the next record, if one has arrived.
    #[inline(always)]
    fn take_one(&mut self, core: &mut Core) -> bool {
        let peer = self.peer;
        let popped = self.channel.pop(|record, payload| {
            core.arrive(peer, record, payload);
            if let Some(brought) = record.brings {
                core.shuttles.welcome(peer, brought);
                core.ends_turn = true;
            }
        });
        if popped && self.channel.credits_due() {
            core.return_credits(peer, &mut self.channel);
        }
        popped
    }

    /// True if the next record, and what comes behind it, stays where it is for this turn: a message whose receive may be
    /// posted soon. Once one has waited in vain, others do no longer until one of its kind has met its receive.
    fn leaves_alone(&mut self, core: &mut Core) -> bool {
        let Some((record, len_bytes)) = self.channel.peek() else { return false };
        match core.has_receive(self.peer, record, len_bytes) {
            Some(true) => {
                core.stats.met_in_channel += u64::from((1..PATIENCE_TURNS).contains(&self.turns_left_alone));
                self.turns_left_alone = 0;
                false
            }
            Some(false) if self.turns_left_alone < PATIENCE_TURNS => {
                self.turns_left_alone += 1;
                true
            }
            Some(false) | None => false,
        }
    }
}

/// The mailbox, into which all peers write that have no channel.
struct Mailbox {
    receiver: MailboxReceiver,
    is_hot: bool,
    cooling: bool,
    used: bool,
}

impl Mailbox {
    /// Takes in what has arrived, of which there is some, and wakes who waits for room.
    #[inline(never)]
    fn take_in(&mut self, core: &mut Core) {
        self.used = true;
        let mut count = 0;
        while count < RECORDS_PER_TURN
            && self.receiver.pop(|from, record, payload| core.arrive_in_mailbox(from, record, payload))
        {
            count += 1;
            // Who opens a channel writes there at once: it is polled before the next record is, but not before this.
            if !core.turned.is_empty() {
                break;
            }
        }
        if self.receiver.take_awaited() {
            core.notify_all();
        }
    }
}

/// Everything mapped peers write into.
pub(crate) struct Inbound {
    geometry: Geometry,
    /// Channels that are polled whether they are used or not: a few cost less than announcements.
    polled_min: usize,
    me: PeerId,
    /// Where it is announced that there is mail.
    mailbox_place: u32,
    announcements: Announcements,
    /// How much longer all blocks may be than in the beginning.
    allowance: Allowance,
    blocks: Polls<BlockReceiver>,
    others: Polls<OtherReceiver>,
    mailbox: Option<Mailbox>,
    /// There is something to poll besides blocks.
    is_mixed: bool,
    /// A bit per process: it has had a channel. Its first one is announced, later ones are opened in the mailbox.
    met: Vec<u64>,
    /// Senders keep their data now.
    hint: u64,
}

impl Inbound {
    pub(crate) fn new(
        geometry: Geometry,
        (polled_min, allowance): (usize, Allowance),
        (me, size, mailbox_place): (PeerId, u32, u32),
        announcements: Announcements,
        mailbox: Option<SharedMemory>,
    ) -> Self {
        let mailbox = mailbox.map(|memory| Mailbox {
            receiver: MailboxReceiver::new(memory),
            is_hot: true,
            cooling: false,
            used: false,
        });
        let is_mixed = mailbox.is_some();
        let met = vec![0; (size as usize).div_ceil(64)];
        let (blocks, others) = (Polls::new(), Polls::new());
        Self {
            geometry,
            polled_min,
            me,
            mailbox_place,
            announcements,
            allowance,
            blocks,
            others,
            mailbox,
            is_mixed,
            met,
            hint: 0,
        }
    }

    /// Takes in what has arrived; true if anything moved.
    #[inline]
    pub(crate) fn take_in(&mut self, core: &mut Core) -> bool {
        let mut moved = !self.announcements.are_none() && self.attend(core);
        moved |= self.blocks.take_in(core);
        if self.is_mixed {
            moved |= self.others.take_in(core);
            if let Some(mailbox) =
                self.mailbox.as_mut().filter(|mailbox| mailbox.is_hot && !mailbox.receiver.is_empty())
            {
                mailbox.take_in(core);
                moved = true;
            }
        }
        if !core.turned.is_empty() {
            // What was announced lies in a channel that this turn has not polled.
            self.turn(core);
            moved = true;
        }
        moved
    }

    /// Takes in what asks or answers, up to where data lies in its way; true if anything moved.
    pub(crate) fn take_in_talk(&mut self, core: &mut Core) -> bool {
        let mut moved = !self.announcements.are_none() && self.attend(core);
        moved |= self.blocks.take_in_talk(core);
        moved |= self.others.take_in_talk(core);
        if !core.turned.is_empty() {
            self.turn(core);
            moved = true;
        }
        // Nobody waits for it.
        core.ends_turn = false;
        moved
    }

    /// Finds channels that are used for the first time, or again.
    #[cold]
    #[inline(never)]
    fn attend(&mut self, core: &mut Core) -> bool {
        let mut found = Vec::new();
        self.announcements.take(|place| found.push(place));
        for place in &found {
            if *place == self.mailbox_place {
                if let Some(mailbox) = &mut self.mailbox {
                    mailbox.receiver.set_hint(self.hint);
                    (mailbox.is_hot, mailbox.cooling) = (true, false);
                    self.is_mixed = true;
                }
            } else if let Some(PeerIndex(peer)) = core.context.peer_at(*place) {
                self.notice(core, peer);
            }
        }
        !found.is_empty()
    }

    /// A peer has something in its channel.
    fn notice(&mut self, core: &mut Core, peer: PeerId) {
        core.stats.announced += 1;
        let is_first = self.met[peer as usize / 64] >> (peer % 64) & 1 == 0;
        if is_first {
            self.discover(core, peer);
        } else if !self.blocks.warm(peer, self.hint) {
            self.others.warm(peer, self.hint);
        }
        if let Some(port) = &mut core.port {
            port.warmed(peer);
        }
    }

    /// Polls the channel from `peer` from now on.
    fn discover(&mut self, core: &Core, peer: PeerId) {
        self.met[peer as usize / 64] |= 1 << (peer % 64);
        let area = MappedArea::Channel { from: PeerIndex(peer), to: PeerIndex(self.me) };
        let receiver = match core.port.as_ref().filter(|port| port.reaches(peer)) {
            Some(port) => port.receiver(peer, &self.allowance),
            None => core.context.mapped(area).and_then(|memory| self.geometry.receiver(memory, &self.allowance)),
        };
        match receiver {
            Some(Receiver::Block(channel)) => {
                let channel = channel.equipped(core.shuttles_with(peer));
                self.blocks.add(peer, channel, self.hint);
            }
            Some(Receiver::Other(channel)) => {
                self.others.add(peer, channel, self.hint);
                self.is_mixed = true;
            }
            None => {}
        }
    }

    /// Opens, polls and gives up the channels whose senders said so.
    #[cold]
    #[inline(never)]
    pub(crate) fn turn(&mut self, core: &mut Core) {
        for (peer, turn) in std::mem::take(&mut core.turned) {
            let is_posted = core.port.as_ref().is_some_and(|port| port.reaches(peer));
            match turn {
                Turn::Opened if is_posted => self.follow(core, peer),
                Turn::Closed if is_posted => self.end(core, peer),
                Turn::Opened if !self.blocks.has(peer) && !self.others.has(peer) => self.discover(core, peer),
                Turn::Closed if self.blocks.remove(peer) || self.others.remove(peer) => {
                    core.retire_channel(peer, &self.announcements);
                }
                Turn::Announced => self.notice(core, peer),
                Turn::Opened | Turn::Closed => {}
            }
        }
    }

    /// A peer's next records come through the channel that the port granted it last; the one before has been emptied, for
    /// what says so is the last record in it.
    fn follow(&mut self, core: &mut Core, peer: PeerId) {
        if !core.port.as_mut().is_some_and(|port| port.open_inward(peer)) {
            return core.refuse();
        }
        let _ = self.blocks.remove(peer) || self.others.remove(peer);
        self.discover(core, peer);
    }

    /// A peer writes no more into its channel through the port. What it wrote before is all there.
    fn end(&mut self, core: &mut Core, peer: PeerId) {
        // Nothing of it may be left alone.
        core.is_patient = false;
        for _ in 0..LAST_TURNS_MAX {
            if self.blocks.take_from(core, peer) || self.others.take_from(core, peer) {
                continue;
            }
            // The last record may say that there is another channel.
            let Some(at) = core.turned.iter().position(|turned| *turned == (peer, Turn::Opened)) else { break };
            core.turned.remove(at);
            self.follow(core, peer);
        }
        let _ = self.blocks.remove(peer) || self.others.remove(peer);
        core.close_inward(peer, &self.announcements);
    }

    /// Looks after channels that are not used.
    #[cold]
    pub(crate) fn look_around(&mut self, core: &mut Core) {
        if core.port.as_ref().is_some_and(|port| port.is_showing()) {
            // What was said at the last look is not certain to have arrived.
            return;
        }
        let mut told = self.blocks.cool(self.hint, self.polled_min);
        told |= self.others.cool(self.hint, self.polled_min);
        if let Some(mailbox) = self.mailbox.as_mut().filter(|mailbox| mailbox.is_hot) {
            let used = std::mem::take(&mut mailbox.used);
            match (mailbox.cooling, used) {
                (true, true) => {
                    mailbox.cooling = false;
                    mailbox.receiver.set_hint(self.hint);
                }
                (true, false) => mailbox.is_hot = false,
                (false, true) => {}
                (false, false) => {
                    mailbox.cooling = true;
                    mailbox.receiver.set_hint(self.hint | COLD);
                    told = true;
                }
            }
        }
        self.is_mixed = self.others.count() > 0 || self.mailbox.as_ref().is_some_and(|mailbox| mailbox.is_hot);
        if told {
            // As before sleeping: whoever does not see the hint has pushed before this, and is polled once more.
            let wakeup = core.context.wakeup();
            let _ = wakeup.announce();
            wakeup.withdraw();
        }
        if let Some(port) = &mut core.port {
            port.show_changed();
        }
    }

    /// Asks all senders to keep their data, or not to.
    pub(crate) fn hold_back(&mut self, hold: bool) {
        self.hint = self.hint & LEFT | if hold { HOLD_BACK } else { 0 };
        self.blocks.hint_all(self.hint);
        self.others.hint_all(self.hint);
        self.hint_in_mailbox();
    }

    /// Tells everybody that nothing of theirs is needed any more, or that it is again.
    pub(crate) fn leave(&mut self, leaves: bool) {
        self.hint = self.hint & !LEFT | if leaves { LEFT } else { 0 };
        self.hint_in_mailbox();
    }

    fn hint_in_mailbox(&self) {
        if let Some(mailbox) = &self.mailbox {
            let is_cold = mailbox.cooling || !mailbox.is_hot;
            mailbox.receiver.set_hint(if is_cold { self.hint | COLD } else { self.hint });
        }
    }

    /// Channels whose memory is spent here, and the bytes of it.
    pub(crate) fn held(&self) -> (u64, u64) {
        let blocks = self.blocks.hot.iter().chain(&self.blocks.cold);
        let block_bytes: usize = blocks.map(|polled| polled.channel.block_bytes()).sum();
        let others = self.others.hot.iter().chain(&self.others.cold);
        let other_bytes: usize = others.map(|polled| polled.channel.channel_bytes()).sum();
        ((self.blocks.count() + self.others.count()) as u64, (block_bytes + other_bytes) as u64)
    }

    /// Whether the channel from a peer is polled, and what was taken from it.
    pub(crate) fn write_standing(&self, text: &mut String, peer: PeerId) -> std::fmt::Result {
        self.blocks.write_standing(text, peer)?;
        self.others.write_standing(text, peer)
    }

    /// Bytes of the channel from one peer.
    pub(crate) fn held_from(&self, peer: PeerId) -> u64 {
        let block = self.blocks.hot.iter().chain(&self.blocks.cold).find(|polled| polled.peer == peer);
        let other = || self.others.hot.iter().chain(&self.others.cold).find(|polled| polled.peer == peer);
        match block {
            Some(polled) => polled.channel.block_bytes() as u64,
            None => other().map_or(0, |polled| polled.channel.channel_bytes() as u64),
        }
    }

    /// Channels polled in every turn.
    pub(crate) fn polled(&self) -> usize {
        self.blocks.hot.len() + self.others.hot.len()
    }
}

#[cfg(test)]
mod tests {
    use base::Config;
    use lockfree::BlockSender;
    use lockfree::fastpath::{self, HINT};

    use super::*;

    /// An announcement may have been under way since before the channel was polled last. Its sender is told that somebody
    /// looks, so somebody does, until it has been told otherwise.
    #[test]
    fn a_channel_that_is_announced_while_it_cools_is_polled_until_its_sender_is_told_anew() {
        let geometry = Geometry::new(&Config::default());
        let memory = SharedMemory::private(BlockSender::footprint(geometry.channel_bytes().0));
        let Some(Receiver::Block(channel)) = geometry.receiver(memory.clone(), &Allowance::new(0)) else {
            panic!("blocks are the ordinary design")
        };
        let shown = || fastpath::shown(&memory)[HINT / 8];
        let mut polls = Polls::new();
        polls.add(3, channel, 0);
        assert!(polls.cool(0, 0));
        assert_eq!(shown(), COLD);
        assert!(polls.warm(3, 0));
        assert_eq!(shown(), 0);
        assert!(polls.cool(0, 0), "nothing came since the last look, of which the sender hears");
        assert_eq!((polls.hot.len(), shown()), (1, COLD));
        assert!(!polls.cool(0, 0));
        assert_eq!((polls.hot.len(), polls.cold.len()), (0, 1));
    }
}
