//! How it stands: what is held, and with a peer, in words and in figures, what whoever must find out why a message does not
//! come wants to read first. Both sides of it, one under the other, show what one has that the other waits for.

use std::fmt::Write;

use fabric::MappedArea;
use protocol::Outgoing;

use crate::Holdings;
use crate::core::Engine;
use crate::request::{PeerId, State};

/// Credits of one connection. While nothing is under way, what one side has granted is what it owes, and what the other
/// has and has set aside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreditBalance {
    /// Buffers posted for the peer, but for the reserved ones.
    pub granted: u32,
    /// Of those, free again and not told of.
    pub owed: u32,
    /// Records that this side may still send.
    pub available: u32,
    /// Credits that the peer has asked for and not got yet.
    pub set_aside: u32,
}

impl Engine {
    /// What this process owes a peer, has under way to it and awaits from it, in a few lines. For people; its form may
    /// change.
    pub fn standing(&self, peer: PeerId) -> String {
        let mut text = format!("process {} towards {peer}", self.core.me);
        // Writing to a string does not fail.
        let _ = self.write_standing(&mut text, peer);
        text
    }

    /// What is held at this moment.
    pub fn holdings(&self) -> Holdings {
        let core = &self.core;
        Holdings {
            requests: core.requests.len(),
            unexpected_messages: core.unexpected.len(),
            unexpected_bytes: core.unexpected_bytes,
            matched_messages: core.matched.len(),
            pending_sends: self.pending_sends(),
            copies: core.copying.len() + core.helping.len(),
            claim_cells: MappedArea::CLAIM_CELLS_MAX as usize - core.free_cells.len(),
            packed_bytes: core.packed.used_bytes() + core.port.as_ref().map_or(0, |port| port.segment_bytes_in_use()),
            registered_bytes: core.registrations.stats().bytes,
            cancellations: core.tuples.each().map(|tuples| tuples.cancelling()).sum(),
            receives_astray: core.port.as_ref().map_or(0, |port| port.receives_astray()),
            lost_remembered: self.lost_remembered(),
        }
    }

    /// The credits between this process and a peer that is reached over a connection; `None` if there is none, or not any
    /// more.
    pub fn credit_balance(&self, peer: PeerId) -> Option<CreditBalance> {
        self.core.port.as_ref()?.credit_balance(peer)
    }

    /// Lost peers for which something is kept that is of use only with them.
    pub(crate) fn lost_remembered(&self) -> usize {
        let core = &self.core;
        let is_remembered = |peer: &PeerId| {
            self.inbound.held_from(*peer) > 0
                || core.port.as_ref().is_some_and(|port| port.has_channels(*peer))
                || core.tuples.each().any(|tuples| tuples.knows(*peer))
        };
        (0..core.size).filter(|peer| core.lost(*peer).is_some()).filter(is_remembered).count()
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
        let streams = core.streams.count_to(peer);
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
        core.tuples.each().filter(|tuples| tuples.knows(peer)).try_for_each(|tuples| tuples.write_standing(text, peer))
    }
}
