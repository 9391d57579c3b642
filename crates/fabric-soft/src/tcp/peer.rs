//! What is kept of a peer across its connections.
//!
//! ```text
//!   peer ─┬─ lane 0: packets in order, each with the first part of its payload
//!         ├─ lane 1: second parts of long payloads
//!         └─ …       each lane has one connection that counts, and goes on where it broke off
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use super::address::Identity;
use super::outbox::Outbox;
use crate::link::Placement;

/// Lanes to one peer, at most.
pub(super) const LANES_MAX: usize = 16;
/// Frames, and payload bytes, after which a peer is told if nothing goes to it anyway.
const UNTOLD_MAX: (u32, u64) = (32, 256 << 10);
/// Boundaries between parts are multiples of this, in bytes.
const PART_STEP_BYTES: u64 = 4096;

/// Offset and length of part `index` of a payload that travels in `part_count` parts.
pub(super) fn part_of(payload_bytes: u64, part_count: u16, index: usize) -> (u64, u64) {
    let step = payload_bytes.div_ceil(u64::from(part_count).max(1));
    // A payload of one part need not be rounded, and one that wraps is refused by its length before.
    let step = if part_count > 1 { step.next_multiple_of(PART_STEP_BYTES) } else { step };
    let offset = step.saturating_mul(index as u64).min(payload_bytes);
    (offset, step.min(payload_bytes - offset))
}

/// One lane of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At {
    pub(super) peer: u32,
    pub(super) lane: u8,
}

/// A packet on its way in. Its number is that of packets received on the first lane.
pub(super) struct Incoming {
    pub(super) placement: Placement,
    pub(super) payload_bytes: u64,
    pub(super) part_count: u16,
    /// One bit for each part that has not come whole.
    pub(super) missing: u32,
}

/// A part of a payload on its way in.
pub(super) struct Arriving {
    /// Where in the payload it begins.
    pub(super) offset: u64,
    pub(super) len_bytes: u64,
    pub(super) got: u64,
    pub(super) is_checked: bool,
    /// CRC32C of what was got, if it is checked.
    pub(super) check: u32,
}

/// An ordered stream of frames each way, over one connection after the other.
pub(super) struct Lane {
    /// The connection that counts.
    pub(super) connection: Option<usize>,
    /// The one that is being dialled.
    pub(super) attempt: Option<usize>,
    /// Of the connection that counts, or did last.
    pub(super) epoch: u64,
    pub(super) outbox: Outbox,
    /// Frames finished; on the first lane, packets.
    pub(super) received: u64,
    pub(super) arriving: Option<Arriving>,
    /// Frames and bytes the peer has not been told of.
    pub(super) untold: (u32, u64),
    pub(super) trouble: Trouble,
    /// Index of the address dialled first: the one that answered last.
    pub(super) good: usize,
    /// And of the one that was dialled last.
    pub(super) dialled: usize,
    pub(super) hearing: Hearing,
}

/// Whether a peer that owes an answer is heard of.
#[derive(Clone, Copy, Default)]
pub(super) struct Hearing {
    /// Signs of it on this connection up to the last look.
    pub(super) signs: u64,
    /// When it was asked whether it is there.
    pub(super) asked: Option<Duration>,
    /// Since when it is silent though it owes something.
    pub(super) since: Option<Duration>,
}

/// How it goes with making a connection.
#[derive(Default)]
pub(super) struct Trouble {
    /// Since when there is none though one is wanted.
    pub(super) since: Option<Duration>,
    /// When a connection that the peer's system had taken ended without becoming live.
    pub(super) reached: Option<Duration>,
    pub(super) retry_at: Duration,
    pub(super) failures: u32,
    /// How many of them in a row because nobody listens.
    pub(super) refusals: u32,
    /// Connections in a row on which nothing was received or acknowledged.
    pub(super) fruitless: u32,
    /// Received and acknowledged when the connection began.
    pub(super) mark: (u64, u64),
}

impl Lane {
    fn new(index: usize) -> Self {
        Self {
            connection: None,
            attempt: None,
            epoch: 0,
            outbox: Outbox::default(),
            received: 0,
            arriving: None,
            untold: (0, 0),
            trouble: Trouble::default(),
            good: index,
            dialled: 0,
            hearing: Hearing::default(),
        }
    }

    /// True if the peer is to be told what was received though nothing else is said to it.
    #[inline]
    pub(super) fn is_to_be_told(&self) -> bool {
        self.untold.0 >= UNTOLD_MAX.0 || self.untold.1 >= UNTOLD_MAX.1
    }

    /// What was received and acknowledged so far.
    pub(super) fn mark(&self) -> (u64, u64) {
        (self.received, self.outbox.acknowledged_count())
    }

    /// Which of `count` addresses is to be dialled now.
    pub(super) fn address_to_dial(&self, count: usize) -> usize {
        (self.good + self.trouble.failures as usize) % count.max(1)
    }
}

/// A peer.
pub(super) struct Peer {
    pub(super) identity: Identity,
    pub(super) sockets: Vec<SocketAddr>,
    /// What came of dialling each of them last.
    pub(super) tried: Vec<Option<String>>,
    /// The first carries packets, the others further parts of long payloads. Never empty.
    pub(super) lanes: Vec<Lane>,
    pub(super) incoming: Option<Incoming>,
    /// It answers though its process does not poll.
    pub(super) is_asynchronous: bool,
    /// Why it was given up.
    pub(super) lost: Option<String>,
}

impl Peer {
    pub(super) fn new(identity: Identity, sockets: Vec<SocketAddr>) -> Self {
        let tried = vec![None; sockets.len()];
        let lanes = vec![Lane::new(0)];
        Self { identity, sockets, tried, lanes, incoming: None, is_asynchronous: false, lost: None }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Lane `index`, made if it is not there yet; `None` past the limit.
    pub(super) fn lane(&mut self, index: usize) -> Option<&mut Lane> {
        if index < LANES_MAX {
            let mut next = self.lanes.len();
            while next <= index {
                self.lanes.push(Lane::new(next));
                next += 1;
            }
        }
        self.lanes.get_mut(index)
    }

    /// The peer is about to be told what was received on a lane, and will send what follows: what was arriving comes
    /// again from its beginning. Of a packet that is not finished the first part comes again even if it was whole, and
    /// the packet must not be finished by its other parts before.
    pub(super) fn expect_again(&mut self, lane: usize) {
        self.lanes[lane].arriving = None;
        if let Some(incoming) = self.incoming.as_mut().filter(|_| lane == 0) {
            incoming.missing |= 1;
        }
    }

    /// Its addresses and what came of dialling them, for people.
    pub(super) fn what_was_tried(&self) -> String {
        let told = |(socket, tried): (&SocketAddr, &Option<String>)| match tried {
            Some(why) => format!("{socket} ({why})"),
            None => format!("{socket} (not tried)"),
        };
        self.sockets.iter().zip(&self.tried).map(told).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_lie_one_behind_the_other_and_are_the_whole(payload_bytes in 0u64..1 << 30, part_count in 1u16..=16) {
            let mut end = 0;
            for index in 0..usize::from(part_count) {
                let (offset, len) = part_of(payload_bytes, part_count, index);
                prop_assert_eq!(offset, end);
                end += len;
            }
            prop_assert_eq!(end, payload_bytes);
        }
    }

    /// Between telling the peer where it stands and hearing from it, the other lanes go on.
    #[test]
    fn a_packet_whose_first_part_comes_again_is_not_whole_without_it() {
        let mut peer = Peer::new([1; 16], vec!["127.0.0.1:1".parse().unwrap()]);
        peer.lane(1);
        peer.incoming =
            Some(Incoming { placement: Placement::discard(), payload_bytes: 9, part_count: 2, missing: 0b10 });
        let missing = |peer: &Peer| peer.incoming.as_ref().map(|incoming| incoming.missing);
        peer.expect_again(1);
        assert_eq!(missing(&peer), Some(0b10), "of another lane only what is missing comes");
        peer.expect_again(0);
        assert_eq!(missing(&peer), Some(0b11));
    }

    #[test]
    fn lanes_are_made_up_to_the_limit() {
        let mut peer = Peer::new([1; 16], vec!["127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()]);
        assert!(peer.lane(3).is_some() && peer.lanes.len() == 4);
        assert!(peer.lane(LANES_MAX).is_none() && peer.lanes.len() == 4);
        peer.tried[0] = Some("refused".into());
        assert_eq!(peer.what_was_tried(), "127.0.0.1:1 (refused), [::1]:2 (not tried)");
        assert_eq!([0, 1, 2, 3].map(|lane| peer.lanes[lane].address_to_dial(2)), [0, 1, 0, 1]);
    }
}
