//! How it stands with a peer, as far as the port knows.

use std::fmt::Write;

use protocol::verbs_channel::RESERVED;

use super::{Connection, Port, Stage};
use crate::CreditBalance;
use crate::request::PeerId;

impl Port {
    /// Credits between this process and a peer that is not lost.
    pub(crate) fn credit_balance(&self, peer: PeerId) -> Option<CreditBalance> {
        let connection = self.connections.get(peer as usize)?.as_deref()?;
        let Connection { credits, giving_back, .. } = connection;
        (connection.stage == Stage::Open).then(|| CreditBalance {
            granted: credits.granted(),
            owed: credits.owed(),
            available: credits.available(),
            set_aside: u32::from(*giving_back),
        })
    }

    /// Buffers posted beyond those that connections are to have; below 0, too few.
    pub(crate) fn receives_astray(&self) -> i64 {
        let is_live = |one: &&Connection| one.qp.is_some() && !matches!(one.stage, Stage::Lost { .. });
        let live = self.connections.iter().flatten().map(Box::as_ref).filter(is_live);
        let promised: i64 = live.map(|one| i64::from(one.credits.granted() + RESERVED)).sum();
        self.pool.receives_kept() - promised
    }

    /// True if there is memory of channels to or from a peer.
    pub(crate) fn has_channels(&self, peer: PeerId) -> bool {
        self.connections
            .get(peer as usize)
            .and_then(Option::as_ref)
            .and_then(|one| one.channels.as_deref())
            .is_some_and(|pair| pair.holds_memory())
    }

    /// The connection to a peer and the buffers of all: credits in both directions, what waits to be told.
    pub(crate) fn write_standing(&self, text: &mut String, peer: PeerId) -> std::fmt::Result {
        let Some(Some(connection)) = self.connections.get(peer as usize) else {
            return write!(text, "\n  no connection");
        };
        let Connection { stage, credits, in_flight, giving_back, listed, .. } = &**connection;
        let Connection { told_hold, holds_back, leaves, .. } = &**connection;
        write!(text, "\n  {stage:?}, {in_flight} in flight, {credits:?}, to be told {listed}")?;
        write!(text, "\n  giving back {giving_back}, told to hold back {told_hold}, holds us back {holds_back}")?;
        write!(text, ", leaves {leaves}; {}", self.pool.standing())?;
        match &connection.channels {
            Some(pair) => pair.write_standing(text),
            None => Ok(()),
        }
    }
}
