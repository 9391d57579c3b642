//! Memory of the port that is not needed is given back: credits are asked for, and chunks of buffers go.
//!
//! This happens in periods of `FERROVIA_POOL_IDLE`, told by the clock now and then, and before a sleep, which is no longer
//! than the rest of a period that may find something. What a period begins, the next one may end: buffers whose credits
//! come back are free then, and chunks of free ones go when they were not touched for a period ([`Buffers`]).
//!
//! Buffers leave the shared receive queue of the device by being filled, in the order in which they were posted. So those
//! that a connection keeps may lie in several chunks, which go once messages have come and better ones were posted.
//!
//! [`Buffers`]: super::buffers::Buffers

use std::time::Duration;

use protocol::verbs_channel::{CREDITS_MAX, Header};

use super::{Connection, Port, SEND_DEPTH, Stage, list};
use crate::request::PeerId;

impl Port {
    /// Looks at the clock, and ends the period if it is over.
    pub(crate) fn tend_buffers(&mut self) {
        let Some(idle) = self.pool_idle else { return };
        let now = (self.clock)();
        if now < self.period_ends {
            return;
        }
        self.period_ends = now + idle;
        let asked = !self.has_left && self.ask_for_credits();
        let context = self.context.as_mut();
        let moved = [
            self.pool.end_period(context),
            self.packing.end_period(context),
            self.unpacking.end_period(context),
            self.packed.end_period(),
        ];
        self.may_shrink = asked || moved.contains(&true);
    }

    /// When to look again at the latest, if there may be something to give back.
    pub(super) fn next_period(&self) -> Option<Duration> {
        let has_grown = self.pool.has_grown()
            || self.packing.has_grown()
            || self.unpacking.has_grown()
            || self.packed.kept_bytes() > 0;
        let waits = (self.may_shrink || has_grown) && self.pool_idle.is_some_and(|idle| !idle.is_zero());
        waits.then_some(self.period_ends)
    }

    /// Asks all peers for credits that they do not use; true if any was asked.
    fn ask_for_credits(&mut self) -> bool {
        let mut any = false;
        for peer in 0..self.connections.len() as PeerId {
            let Some(Some(connection)) = self.connections.get_mut(peer as usize) else { continue };
            let count = connection.credits.surplus(self.credits_initial);
            // One credit at least stays for a record.
            let may = connection.stage == Stage::Open && !connection.leaves && connection.credits.available() > 1;
            if count == 0 || !may || connection.in_flight >= SEND_DEPTH || !connection.credits.spend() {
                continue;
            }
            if self.post_message(peer, Header { asks_back: count, ..Header::default() }) {
                any = true;
                self.credits_of(peer).for_each(|connection| connection.credits.note_asked());
            } else {
                self.credits_of(peer).for_each(|connection| connection.credits.unspend());
            }
        }
        any
    }

    fn credits_of(&mut self, peer: PeerId) -> impl Iterator<Item = &mut Box<Connection>> {
        self.connections.get_mut(peer as usize).into_iter().flatten()
    }

    /// A peer asks for credits, or gives one back; `None` if it had none.
    #[cold]
    pub(super) fn hear_of_credits(&mut self, peer: PeerId, header: &Header) -> Option<()> {
        if header.gives_back {
            return self.given_back(peer);
        }
        self.credits_of(peer).for_each(|connection| connection.credits.asked());
        self.freed.push(peer);
        self.asked_back(peer, header.asks_back);
        Some(())
    }

    /// What can be spared is given back as there is room.
    fn asked_back(&mut self, peer: PeerId, count: u32) {
        let Some(Some(connection)) = self.connections.get_mut(peer as usize) else { return };
        // No more than there can be credits, whatever is asked while nothing can be posted.
        let room = CREDITS_MAX - u32::from(connection.giving_back).min(CREDITS_MAX);
        connection.giving_back += connection.credits.set_aside(count.min(room)) as u16;
        if connection.giving_back > 0 {
            list(&mut self.to_tell, connection, peer);
        }
    }

    /// A peer gives a credit back: one buffer less is posted. `None` if it had none.
    fn given_back(&mut self, peer: PeerId) -> Option<()> {
        let connection = self.connections.get_mut(peer as usize)?.as_deref_mut()?;
        if connection.credits.given_back()? {
            list(&mut self.to_tell, connection, peer);
        }
        self.pool.retire(1);
        self.counters.credits_returned += 1;
        self.may_shrink = true;
        Some(())
    }

    /// Gives credits back as far as there is room.
    pub(super) fn give_back(&mut self, peer: PeerId) {
        loop {
            let Some(Some(connection)) = self.connections.get_mut(peer as usize) else { return };
            if connection.giving_back == 0 || connection.stage != Stage::Open {
                return;
            }
            if connection.in_flight < SEND_DEPTH {
                connection.giving_back -= 1;
                if self.post_message(peer, Header { gives_back: true, ..Header::default() }) {
                    continue;
                }
                self.credits_of(peer).for_each(|connection| connection.giving_back += 1);
            }
            if let Some(Some(connection)) = self.connections.get_mut(peer as usize) {
                list(&mut self.to_tell, connection, peer);
            }
            return;
        }
    }
}
