//! How it stands with a peer, in words: what whoever must find out why a message does not come wants to read first. Both
//! sides of it, one under the other, show what one has that the other waits for.

use std::fmt::Write;

use protocol::Outgoing;

use crate::core::Engine;
use crate::request::{PeerId, State};

impl Engine {
    /// What this process owes a peer, has under way to it and awaits from it, in a few lines. For people; its form may
    /// change.
    pub fn standing(&self, peer: PeerId) -> String {
        let mut text = format!("process {} towards {peer}", self.core.me);
        // Writing to a string does not fail.
        let _ = self.write_standing(&mut text, peer);
        text
    }

    fn write_standing(&self, text: &mut String, peer: PeerId) -> std::fmt::Result {
        let core = &self.core;
        if let Some(lost) = core.lost(peer) {
            write!(text, ", {lost}")?;
        }
        if let Some(Some(entry)) = core.peers.get(peer as usize) {
            let waiting = entry.link.waiting_count();
            write!(text, "\n  {waiting} records wait, listed {}", entry.listed)?;
            match entry.link.first_waiting() {
                Some(Outgoing::Control(control)) => write!(text, ", first of kind {}", control.record.kind)?,
                Some(other) => write!(text, ", first {other:?}")?,
                None => {}
            }
        }
        let streams = core.streams.iter().filter(|stream| stream.to == peer).count();
        let transfers = core.transfers.iter().filter(|(_, transfer)| transfer.peer == peer).count();
        write!(text, "\n  {streams} messages leave by pieces, {transfers} by transfers; requests:")?;
        for (_, request) in core.requests.iter() {
            match &request.state {
                State::Outgoing(send) if send.envelope.peer == peer => {
                    let envelope = send.envelope;
                    write!(text, " send(tag {}, {} bytes)", envelope.tag, envelope.len_bytes)?;
                }
                State::Incoming(incoming) if incoming.envelope.peer == peer => {
                    let envelope = incoming.envelope;
                    write!(
                        text,
                        " receive({}, tag {}, {} bytes)",
                        incoming.way.name(),
                        envelope.tag,
                        envelope.len_bytes
                    )?;
                }
                _ => {}
            }
        }
        self.inbound.write_standing(text, peer)?;
        if let Some(port) = core.port.as_ref().filter(|port| port.reaches(peer)) {
            port.write_standing(text, peer)?;
        }
        match &core.tuples {
            Some(tuples) => tuples.write_standing(text, peer),
            None => Ok(()),
        }
    }
}
