//! How it stands with a peer, as far as the port knows.

use std::fmt::Write;

use super::{Connection, Port};
use crate::request::PeerId;

impl Port {
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
