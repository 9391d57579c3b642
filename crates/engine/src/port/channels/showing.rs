//! What a receiver shows the senders of its channels, and how those tell it that it must look.
//!
//! A receiver that does not poll a channel any more marks the control line *cold* with a number; a sender that sees a new
//! one, after a write was posted or when it is complete, sends an *announcement*, a message that carries nothing.
//!
//! Over most devices a write wakes nobody either ([`Capabilities::writes_wake`](fabric::Capabilities)). There a receiver
//! marks all channels before it sleeps, and looks once more when its marks are at their places for certain: the writes of
//! them complete, and that wakes it. While they are under way, behind something that a peer who computes does not
//! acknowledge, say, a sender cannot know that it sleeps; nor does a sender hear of room that it sleeps to wait for. So
//! those take *naps*, of [`NAP_MAX`] at most. What is left is a record that is under way longer than a mark that was sent
//! after it, and whose sender does not look again; it is found when the receiver looks for itself, after a second at most.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use fabric::{Operation, Payload, SendRequest};
use lockfree::fastpath::{self, RecordSender, SHOWN_BYTES};
use protocol::fastpath::COLD;
use protocol::verbs_channel::Header;

use super::super::{HURRIED_FROM, Port, SEND_DEPTH, Stage, Work};
use super::Pair;
use crate::request::PeerId;

/// The first nap and the longest; each is twice as long as the one before.
const NAP: Duration = Duration::from_millis(1);
const NAP_MAX: Duration = Duration::from_millis(16);

impl Port {
    /// Somebody will sleep: how long at most, because of channels. Not called where writes wake.
    pub(in crate::port) fn prepare_nap(&mut self) -> Option<Duration> {
        self.mark_all_cold();
        let is_full = |pair: &Pair| pair.open.as_ref().is_some_and(|written| written.is_full);
        let mut pairs = self.connections.iter().flatten().filter_map(|one| one.channels.as_deref());
        let is_uncertain = self.is_showing() || pairs.any(is_full);
        let channels = self.channels.as_mut()?;
        channels.nap = if is_uncertain { (2 * channels.nap).clamp(NAP, NAP_MAX) } else { Duration::ZERO };
        is_uncertain.then_some(channels.nap)
    }

    /// Peers that are to be told that something lies in their channel.
    pub(in crate::port) fn unannounced(&self) -> usize {
        self.channels.as_ref().map_or(0, |channels| channels.to_announce.len())
    }

    /// After a write, and again when it is complete: announces it to a receiver that does not look.
    #[inline]
    pub(in crate::port) fn look_whether_cold(&mut self, to: PeerId) {
        // The receiver marks, then looks once more; this process writes, then looks for the mark.
        fence(Ordering::SeqCst);
        let Some(pair) = self.pair(to) else { return };
        // What lies in the channel before may be all that its receiver has to see.
        if pair.open.iter().chain(&pair.before).any(|written| written.sender.hint() & COLD != 0) {
            self.announce(to);
        }
    }

    #[cold]
    fn announce(&mut self, to: PeerId) {
        let Some(pair) = self.pair(to) else { return };
        let mut is_news = false;
        for written in pair.open.iter_mut().chain(&mut pair.before) {
            let hint = written.sender.hint();
            is_news |= hint & COLD != 0 && std::mem::replace(&mut written.announced, hint) != hint;
        }
        if !is_news {
            return;
        }
        if !std::mem::replace(&mut pair.to_announce, true)
            && let Some(channels) = &mut self.channels
        {
            channels.to_announce.push(to);
        }
        self.send_announcements();
    }

    /// Sends announcements as far as there are credits. Where there are none, messages are on their way, or have come, that
    /// wake the receiver; what it was to be told is said when it has returned them.
    fn send_announcements(&mut self) {
        let Some(channels) = &mut self.channels else { return };
        for to in std::mem::take(&mut channels.to_announce) {
            let may = matches!(&self.connections[to as usize], Some(one) if one.stage == Stage::Open);
            if may && !self.post_announcement(to) {
                self.channels.iter_mut().for_each(|channels| channels.to_announce.push(to));
            } else if let Some(pair) = self.pair(to) {
                pair.to_announce = false;
            }
        }
    }

    fn post_announcement(&mut self, to: PeerId) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(to as usize) else { return true };
        if connection.in_flight >= SEND_DEPTH || !connection.credits.spend() {
            return false;
        }
        let posted = self.post_message(to, Header { announces: true, ..Header::default() });
        if !posted && let Some(Some(connection)) = self.connections.get_mut(to as usize) {
            connection.credits.unspend();
        }
        posted
    }

    /// A peer has announced something, and its channel is polled from now on: it is told so.
    pub(crate) fn warmed(&mut self, peer: PeerId) {
        if let Some(inward) = self.pair(peer).and_then(|pair| pair.inward.as_mut()) {
            inward.told_cold = false;
            fastpath::hint_sender(&inward.memory, 0);
        }
        self.show(peer);
    }

    /// This process will sleep: whoever has a channel to it is told. When that has been done for certain, there is a
    /// completion, which wakes it to look once more.
    fn mark_all_cold(&mut self) {
        if !self.has_granted() {
            return;
        }
        for peer in 0..self.connections.len() as PeerId {
            let Some(inward) = self.pair(peer).and_then(|pair| pair.inward.as_mut()) else { continue };
            if !std::mem::replace(&mut inward.told_cold, true) {
                self.show(peer);
            }
        }
        self.settle_channels();
        // The other half of the rule of `look_whether_cold`.
        fence(Ordering::SeqCst);
    }

    /// True while control lines are under way.
    pub(crate) fn is_showing(&self) -> bool {
        self.channels.as_ref().is_some_and(|channels| channels.showing > 0 || !channels.to_show.is_empty())
    }

    /// Puts a peer into the list of those that are shown a control line.
    pub(crate) fn show(&mut self, peer: PeerId) {
        let Some(pair) = self.pair(peer) else { return };
        if !std::mem::replace(&mut pair.to_show, true)
            && let Some(channels) = &mut self.channels
        {
            channels.to_show.push(peer);
        }
    }

    /// Shows every control line that has changed.
    pub(crate) fn show_changed(&mut self) {
        for peer in 0..self.connections.len() as PeerId {
            let inward = self.pair(peer).and_then(|pair| pair.inward.as_ref());
            if inward.is_some_and(|inward| fastpath::shown(&inward.memory) != inward.shown) {
                self.show(peer);
            }
        }
    }

    /// True if [`Port::settle_channels`] has something to do.
    #[inline]
    pub(in crate::port) fn has_to_show(&self) -> bool {
        self.channels.as_ref().is_some_and(|channels| !channels.to_show.is_empty() || !channels.to_announce.is_empty())
    }

    /// Writes control lines and sends announcements that wait, as far as there is room.
    pub(in crate::port) fn settle_channels(&mut self) {
        let Some(channels) = &mut self.channels else { return };
        for peer in std::mem::take(&mut channels.to_show) {
            let is_open = matches!(&self.connections[peer as usize], Some(one) if one.stage == Stage::Open);
            if is_open && !self.write_control(peer) {
                self.channels.iter_mut().for_each(|channels| channels.to_show.push(peer));
            } else if let Some(pair) = self.pair(peer) {
                pair.to_show = false;
            }
        }
        self.send_announcements();
    }

    /// Writes the control line of the channel from a peer into its memory; false if there is no room for that now.
    fn write_control(&mut self, peer: PeerId) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(peer as usize) else { return true };
        if connection.in_flight >= SEND_DEPTH {
            return false;
        }
        let Some(inward) = connection.channels.as_mut().and_then(|pair| pair.inward.as_mut()) else { return true };
        let Some(qp) = connection.qp else { return true };
        let Some(mut slot) = self.pool.take(self.context.as_mut()) else { return false };
        let mut shown = fastpath::shown(&inward.memory);
        let hint = &mut shown[fastpath::HINT / 8];
        *hint |= if inward.told_cold { COLD } else { 0 };
        if *hint & COLD != 0 {
            inward.marks += 1;
            *hint |= inward.marks << 8;
        }
        inward.shown = fastpath::shown(&inward.memory);
        self.pool.fill(&mut slot, SHOWN_BYTES, |space| {
            for (bytes, word) in space.chunks_exact_mut(8).zip(shown) {
                bytes.copy_from_slice(&word.to_ne_bytes());
            }
        });
        let list = [self.pool.part(&slot, SHOWN_BYTES as u32)];
        let request = SendRequest::new(
            Work::Show(slot.number()).id(),
            Operation::RdmaWrite(inward.control),
            Payload::Memory(&list),
        )
        .with_hurry(connection.in_flight >= HURRIED_FROM);
        let number = self.pool.lend(slot);
        match self.context.post_send(qp, &[request]) {
            Ok(1) => {
                connection.in_flight += 1;
                self.note_send(number, peer, false);
                self.channels.iter_mut().for_each(|channels| channels.showing += 1);
                true
            }
            outcome => {
                if let Some(slot) = self.pool.reclaim(number) {
                    self.pool.give_back(slot);
                }
                if let Err(error) = outcome {
                    self.lose(peer, error.to_string());
                }
                false
            }
        }
    }

    /// A control line has been written.
    pub(in crate::port) fn control_written(&mut self) {
        self.channels.iter_mut().for_each(|channels| channels.showing -= 1);
    }
}
