//! What a peer is told of the channels that it asked for and gave up, and of which channel credits are.
//!
//! Two processes whose channels have both become too short for what waits have both asked for longer ones. Were the
//! answers to wait behind that, neither would ever leave. So they go by the queue pair as soon as there is a credit, which
//! comes back whatever waits for room in channels, since what comes by the queue pair is always taken.

use fabric::RemoteMemory;
use protocol::wire::{self, Control, Message};

use super::super::{Port, SEND_DEPTH, Stage};
use crate::request::PeerId;

/// What a peer waits to be told. There is at most one of each: it asks for one channel at a time, and not before it knows
/// that this side is through with the one before.
#[derive(Default, Debug)]
pub(super) struct Answers {
    /// This side is through with the channel that was given up, or followed by another.
    closed: bool,
    /// Whether and where it gets the channel that it asked for.
    grant: Option<Option<RemoteMemory>>,
}

/// Credits that go along with a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::port) struct CreditsOf {
    /// The channel's number: how many there were from its sender, with it.
    pub(super) channel: u64,
    /// What was consumed of it.
    pub(super) consumed: u64,
}

impl Answers {
    fn first(&self) -> Option<Control> {
        match (self.closed, self.grant) {
            (true, _) => Some(wire::control(Message::Closed)),
            (false, Some(memory)) => Some(wire::control(Message::Grant(memory))),
            (false, None) => None,
        }
    }

    fn skip_first(&mut self) {
        if !std::mem::take(&mut self.closed) {
            self.grant = None;
        }
    }
}

impl CreditsOf {
    /// Bits of the word for what was consumed. The others tell one channel from the next.
    const CONSUMED_BITS: u32 = 56;

    /// What goes along.
    pub(in crate::port) fn word(self) -> u64 {
        self.channel << Self::CONSUMED_BITS | self.consumed & ((1 << Self::CONSUMED_BITS) - 1)
    }

    /// What was consumed, if it was of this channel.
    pub(super) fn parse(word: u64, channel: u64) -> Option<u64> {
        let consumed = word & ((1 << Self::CONSUMED_BITS) - 1);
        (word == Self { channel, consumed }.word()).then_some(consumed)
    }
}

impl Port {
    /// A peer that asked for a channel is told where it is, or that it gets none.
    pub(crate) fn answer_want(&mut self, peer: PeerId, memory: Option<RemoteMemory>) {
        self.answer(peer, |answers| answers.grant = Some(memory));
    }

    /// A peer is told that this side is through with the channel that it wrote into before.
    pub(super) fn answer_closed(&mut self, peer: PeerId) {
        self.answer(peer, |answers| answers.closed = true);
    }

    fn answer(&mut self, peer: PeerId, what: impl FnOnce(&mut Answers)) {
        let Some(Some(connection)) = self.connections.get_mut(peer as usize) else { return };
        let pair = connection.channels.get_or_insert_default();
        let is_listed = pair.answers.first().is_some();
        what(&mut pair.answers);
        if !is_listed {
            self.to_answer.push(peer);
        }
        self.send_answers();
    }

    /// Sends answers as far as there are credits.
    pub(in crate::port) fn send_answers(&mut self) {
        for peer in std::mem::take(&mut self.to_answer) {
            if !self.send_answers_to(peer) {
                self.to_answer.push(peer);
            }
        }
    }

    /// True if there is nothing left to be answered.
    fn send_answers_to(&mut self, peer: PeerId) -> bool {
        loop {
            let Some(Some(connection)) = self.connections.get_mut(peer as usize) else { return true };
            let Some(pair) = connection.channels.as_deref_mut() else { return true };
            let Some(answer) = pair.answers.first() else { return true };
            if connection.leaves || matches!(connection.stage, Stage::Lost { .. }) {
                // Nobody waits for it any more.
                pair.answers = Answers::default();
                return true;
            }
            let may = connection.stage == Stage::Open && connection.in_flight < SEND_DEPTH;
            let payload = answer.payload();
            let fill = |space: &mut [u8]| space.copy_from_slice(payload);
            if !(may && self.post_with_credit(peer, answer.record, payload.len(), fill)) {
                return false;
            }
            self.pair(peer).into_iter().for_each(|pair| pair.answers.skip_first());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record with credits may be under way while its receiver goes over to another channel.
    #[test]
    fn credits_are_of_one_channel() {
        for (channel, consumed) in [(1, 0), (2, 7), (255, (1 << 56) - 1), (256, 1), (u64::MAX, 5)] {
            let word = CreditsOf { channel, consumed }.word();
            assert_eq!(CreditsOf::parse(word, channel), Some(consumed));
            assert_eq!(CreditsOf::parse(word, channel.wrapping_add(1)), None);
            assert_eq!(CreditsOf::parse(word, channel - 1), None);
        }
    }

    #[test]
    fn each_answer_is_given_once() {
        let mut answers = Answers { closed: true, grant: Some(None) };
        let mut given = Vec::new();
        while let Some(answer) = answers.first() {
            given.push(answer);
            answers.skip_first();
        }
        assert_eq!(given, [wire::control(Message::Closed), wire::control(Message::Grant(None))]);
    }
}
