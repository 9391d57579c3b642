//! What the engine keeps per peer it talks to, made when the first message goes out.

use base::sync::Ordering;
use fabric::{FabricError, MappedArea, MappedPeers, PeerIndex};
use protocol::Link;
use protocol::rendezvous::Reach;

use crate::EngineError;
use crate::request::PeerId;
use crate::stats::PeerStats;

/// One peer: the way to it, and what is known about it.
pub(crate) struct Peer {
    pub(crate) link: Link,
    pub(crate) reach: Reach,
    /// It stands in the list of peers whose records wait for room.
    pub(crate) listed: bool,
    pub(crate) traffic: PeerStats,
}

// A budget: this is paid once per peer talked to, besides the channel itself.
const _: () = assert!(size_of::<Peer>() <= 256);

impl Peer {
    /// The way from this process to `to`.
    pub(crate) fn connect(context: &dyn MappedPeers, to: PeerId, channel_bytes: usize) -> Result<Self, EngineError> {
        let area = MappedArea::Channel { from: context.local_peer(), to: PeerIndex(to) };
        let memory = context.mapped(area).ok_or(FabricError::NoSuchPeer(to))?;
        let reach = if context.direct_copies().is_ok() { Reach::Unknown } else { Reach::Refused };
        Ok(Self { link: Link::new(memory, channel_bytes), reach, listed: false, traffic: PeerStats::default() })
    }

    /// Tells the peer that this channel is in use from now on, once.
    #[inline]
    pub(crate) fn introduce(&mut self, context: &dyn MappedPeers, to: PeerId) {
        if self.link.introduced {
            return;
        }
        self.link.introduced = true;
        let me = context.local_peer().0 as usize;
        if let Some(memory) = context.mapped(MappedArea::Introductions { owner: PeerIndex(to) }) {
            // Release: whoever sees the bit finds the channel. Pairs with the load in `discover`.
            memory.word(me / 64 * 8).fetch_or(1 << (me % 64), Ordering::Release);
        }
    }
}
