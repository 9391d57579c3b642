//! The software adapter: queue pairs, keys, matching, retries, completions, over any [`Link`].
//!
//! It does no I/O and reads no clock: packets and time come from the link. Everything happens inside the calls of
//! [`fabric::Context`]: posting starts what can be started, polling moves what has come. A queue pair is one
//! [`QueuePairObject`](queue_pair::QueuePairObject); the initiator's half of its work is in `initiator`, the target's
//! in `responder`.

mod completion;
mod context;
mod core;
mod initiator;
mod lines;
mod queue_pair;
mod receive;
mod regions;
mod responder;
#[cfg(test)]
mod retries;
mod riding;
mod shown;

use std::time::Duration;

use fabric::{Capabilities, Context, Device, FabricError, Limits};

use self::core::{Core, MULTI_QUEUE_MAX, OBJECTS_MAX, OWN, QUEUE_PAIRS_MAX};
use self::initiator::Riders;
pub use self::queue_pair::WINDOW_MAX;
use self::queue_pair::{QueuePairObject, READS_MAX};
use self::regions::REGIONS_MAX;
use self::responder::DATAGRAM_HEADER_BYTES;
use self::riding::{POLLS_HELD, POLLS_HELD_UNHURRIED, SOON};
use crate::copying;
use crate::link::{Link, Responder};

/// Entries of a queue, at most.
const DEPTH_MAX: u32 = 1 << 16;
/// Entries of a scatter/gather list, at most.
const SCATTER_GATHER_MAX: u32 = 64;
/// Bytes of an inline payload, at most.
const INLINE_MAX_BYTES: u32 = 1024;

/// A software device that is not open yet.
pub struct SoftDevice<L> {
    link: L,
}

impl<L: Link> SoftDevice<L> {
    /// The device over `link`.
    pub const fn new(link: L) -> Self {
        Self { link }
    }
}

impl<L: Link + 'static> Device for SoftDevice<L> {
    fn capabilities(&self) -> Capabilities {
        capabilities(&self.link)
    }

    fn open(self: Box<Self>) -> Result<Box<dyn Context>, FabricError> {
        Ok(Box::new(SoftContext::new(self.link)))
    }
}

/// An adapter at work.
pub struct SoftContext<L: Link> {
    link: L,
    core: Core,
    capabilities: Capabilities,
    address: Vec<u8>,
    /// Rounds of work done.
    rounds: u64,
}

impl<L: Link> SoftContext<L> {
    /// An adapter over `link`.
    pub fn new(link: L) -> Self {
        let mut link = link;
        let board = link.board();
        let capabilities = capabilities(&link);
        let address = link.address();
        let core = Core::new(board, link.properties().answers_ride);
        Self { link, core, capabilities, address, rounds: 0 }
    }

    /// Packets that were none, or not for us: what a broken or hostile peer sent.
    pub fn refused_packets(&self) -> u64 {
        self.core.refused_packets
    }

    /// The link below.
    pub fn link(&mut self) -> &mut L {
        &mut self.link
    }

    /// The next moment at which there may be something to do though nothing has come.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        // Found only between two calls: who is about to sleep has sent what was held.
        let held = self.core.holds_answers().then(|| self.link.now().saturating_add(SOON));
        [self.core.next_deadline(), self.link.deadline(), held].into_iter().flatten().min()
    }

    /// Whoever has armed a queue polls once more and may sleep then: what that poll has begun is looked after in time.
    #[cold]
    fn wake_in_time(&self, queue: u32) {
        let Some(deadline) = self.deadline() else { return };
        let notifier = self.core.completions.get(queue).and_then(|queue| queue.notifier(self.link.descriptor()).ok());
        if let Some(notifier) = notifier.filter(|notifier| !notifier.wakes_by(deadline)) {
            notifier.wake_at(Some(deadline), self.link.now());
        }
    }

    /// Answers go that waited for a packet to ride with, and whatever the link holds back.
    fn send_held(&mut self) {
        self.core.settle();
        self.core.send_answers(&mut self.link, Riders::GoAlone);
        self.link.flush();
    }

    /// Does all there is to do; what comes from now on makes the link's descriptor readable.
    pub(crate) fn work_until_asleep(&mut self) {
        self.link.woken();
        self.progress();
        self.send_held();
        // A link that cannot be slept on has no descriptor either.
        let _ = self.link.prepare_sleep();
        self.progress();
        self.send_held();
    }

    /// Moves what has come, answers it, and starts what may start.
    fn progress(&mut self) {
        self.rounds += 1;
        if self.core.fresh.is_some() {
            // It waits from when it was found, which the link knows until it looks again.
            self.core.settle();
            self.core.send_answers(&mut self.link, Riders::Wait);
        }
        let begun = self.core.begun_packets;
        self.link.progress(&mut self.core);
        self.core.look_at_board();
        self.core.polls_in_vain = if self.core.begun_packets == begun { self.core.polls_in_vain + 1 } else { 0 };
        match self.core.polls_in_vain {
            POLLS_HELD => self.core.send_answers(&mut self.link, Riders::WaitLonger),
            POLLS_HELD_UNHURRIED => {
                self.core.polls_in_vain = 0;
                self.core.send_answers(&mut self.link, Riders::GoAlone);
            }
            _ => {}
        }
        // Most polls of who waits find nothing: they do no more than they must.
        if !self.core.is_idle() {
            self.push();
        }
    }

    /// Sends what can be sent, until what this adapter sends itself has settled.
    fn push(&mut self) {
        /// More rounds than a message to oneself takes; what is left waits for the next call.
        const ROUNDS: u32 = 8;
        for _ in 0..ROUNDS {
            self.core.send_answers(&mut self.link, Riders::Wait);
            self.core.start_all(&mut self.link);
            if self.core.own_packets.is_empty() {
                break;
            }
            self.deliver_own();
        }
        self.link.flush();
        while let Some(number) = self.core.unpublish.pop() {
            if let Some(direct) = self.link.direct() {
                direct.withdraw_queue_pair(number);
            }
        }
    }

    fn deliver_own(&mut self) {
        while let Some((header, bytes)) = self.core.own_packets.pop_front() {
            let placement = self.core.begin(OWN, &header, bytes.len() as u64);
            copying::scatter(&bytes, &placement.ranges);
            self.core.finish(OWN);
        }
    }
}

/// Who waits for our answers is not left without them.
impl<L: Link> Drop for SoftContext<L> {
    fn drop(&mut self) {
        self.send_held();
    }
}

fn capabilities(over: &impl Link) -> Capabilities {
    let (link, completion_descriptor) = (over.properties(), over.descriptor().is_some());
    Capabilities {
        kind: link.kind,
        description: link.description.clone(),
        reliable_connections: true,
        xrc: true,
        datagrams: true,
        multicast: link.multicast,
        atomics: true,
        completion_descriptor,
        multi_queue_receives: true,
        independent_queues: true,
        mapped_memory: link.mapped_memory,
        translation: over.translation(),
        asynchronous: link.asynchronous.clone(),
        single_copy: link.single_copy.clone(),
        write_order: link.write_order,
        writes_wake: link.writes_wake,
        limits: Limits {
            queue_pairs_max: QUEUE_PAIRS_MAX,
            completion_queues_max: OBJECTS_MAX,
            shared_receive_queues_max: OBJECTS_MAX,
            protection_domains_max: OBJECTS_MAX,
            memory_regions_max: REGIONS_MAX,
            address_handles_max: OBJECTS_MAX,
            send_depth_max: DEPTH_MAX,
            receive_depth_max: DEPTH_MAX,
            completion_depth_max: DEPTH_MAX,
            scatter_gather_max: SCATTER_GATHER_MAX,
            inline_max_bytes: INLINE_MAX_BYTES,
            message_max_bytes: link.message_max_bytes,
            datagram_max_bytes: link.datagram_max_bytes,
            datagram_header_bytes: DATAGRAM_HEADER_BYTES as u32,
            memory_region_max_bytes: isize::MAX as u64,
            reads_in_flight_max: READS_MAX,
            multi_queue_max: MULTI_QUEUE_MAX as u32,
            // The object and, while they are full, two queues of 64 entries.
            queue_pair_full_bytes: (size_of::<QueuePairObject>()
                + 64 * (size_of::<queue_pair::Send>() + size_of::<receive::Posted>()))
                as u64,
            peer_full_bytes: size_of::<self::core::PeerState>() as u64 + link.peer_bytes,
        },
    }
}

// A budget: a queue pair costs this, besides its queues while they are filled.
const _: () = assert!(size_of::<QueuePairObject>() <= 512);
