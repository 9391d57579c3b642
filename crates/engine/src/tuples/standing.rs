//! How it stands with a peer, as far as tuple queues know.

use std::fmt::Write;

use super::Tuples;
use crate::request::PeerId;

impl Tuples {
    /// The tuples of messages to and from a peer, and what the device has of those to it.
    pub(crate) fn write_standing(&self, text: &mut String, peer: PeerId) -> std::fmt::Result {
        let flights = self.flights.iter().filter(|(_, flight)| flight.to == peer).count();
        let held = self.ways.get(&peer).map_or(0, |way| way.held.len());
        let is_stuck = self.stuck.contains(&peer);
        write!(text, "\n  {flights} messages on the device, {held} held back, stuck {is_stuck}")?;
        write!(text, ", {} of all being cancelled", self.cancelling.len())?;
        for (tuple, sending) in self.sending.of(peer) {
            write!(text, "\n  to its tuple {:x}: {sending:?}", tuple.1)?;
        }
        for (tuple, receiving) in self.receiving.of(peer) {
            write!(text, "\n  from its tuple {:x}: {receiving}", tuple.1)?;
        }
        Ok(())
    }
}
