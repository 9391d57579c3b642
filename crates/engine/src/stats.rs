//! Counters: what took which way.

use base::config::DatatypeScheme;
use protocol::registration::CacheStats;

/// Counts of one process since it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Messages sent eagerly.
    pub eager_sent: u64,
    /// Their bytes.
    pub eager_sent_bytes: u64,
    /// Eager messages that waited for room in the channel.
    pub eager_waited: u64,
    /// Messages sent by rendezvous.
    pub rendezvous_sent: u64,
    /// Their bytes.
    pub rendezvous_sent_bytes: u64,
    /// Messages to this process itself.
    pub self_sent: u64,
    /// Messages taken by reading alone.
    pub read_received: u64,
    /// Messages that both sides copied.
    pub shared_received: u64,
    /// Chunks that this process wrote for a receiver.
    pub chunks_written: u64,
    /// Messages taken through the channel piece by piece.
    pub staged_received: u64,
    /// Long messages whose first part followed their request before there was an answer.
    pub ahead_sent: u64,
    /// Long messages that needed no request, by their receiver's leave.
    pub whole_sent: u64,
    /// Of those, such as went in pieces.
    pub whole_in_pieces: u64,
    /// Bytes of first parts that found their receive waiting.
    pub ahead_taken_bytes: u64,
    /// Bytes of those whose receive came later or went another way.
    pub ahead_dropped_bytes: u64,
    /// Messages that came before their receive.
    pub unexpected: u64,
    /// Long messages that stayed in their channel until there was a receive for them.
    pub met_in_channel: u64,
    /// Messages that went aboard shuttles.
    pub aboard_sent: u64,
    /// Shuttles that went back empty.
    pub empty_sent: u64,
    /// Most bytes of unexpected data held at once.
    pub unexpected_peak_bytes: u64,
    /// Times senders were held back because the budget was used up.
    pub held_back: u64,
    /// Collectives that went over boards.
    pub board_collectives: u64,
    /// Of these, those whose data was read straight from the memory of who had it.
    pub straight_collectives: u64,
    /// And those in which members added to one value in turn.
    pub chain_collectives: u64,
    /// Records that made no sense and were dropped.
    pub refused_records: u64,
    /// Long messages received of which one side was not in one piece, by scheme.
    pub schemes: SchemeCounts,
    /// Long messages that found no room for packed data in the pool and went through the channel.
    pub packed_refused: u64,
    /// Most bytes of packed data held at once.
    pub packed_peak_bytes: u64,
    /// RDMA writes that gathered blocks, or put one where it belongs.
    pub block_writes: u64,
    /// RDMA reads that scattered over blocks.
    pub block_reads: u64,
    /// Segments of packed data sent by RDMA write.
    pub segments_packed: u64,
    /// Segments of packed data that peers wrote and this process unpacked.
    pub segments_unpacked: u64,
    /// Regions registered around blocks, or found registered.
    pub block_regions: u64,
    /// Layouts of datatypes read from peers, or sent by them.
    pub layouts_read: u64,
    /// Long messages that named a layout which was not kept any more.
    pub layouts_forgotten: u64,
    /// Messages sent to the queue of their tuple.
    pub tuple_sent: u64,
    /// Those among them that found their receive there.
    pub tuple_hits: u64,
    /// Messages received from the queue of their tuple.
    pub tuple_received: u64,
    /// Those that a receive met which could not stand in the queue: a wildcard, or one behind a wildcard.
    pub tuple_fallbacks: u64,
    /// Queues made for tuples.
    pub tuple_queues: u64,
    /// Messages held back while the device had no room for them.
    pub tuple_held: u64,
    /// What the cache of registered memory has done.
    pub registrations: CacheStats,
    /// Long messages that this side read over verbs.
    pub get_received: u64,
    /// Long messages that the sender wrote over verbs.
    pub put_received: u64,
    /// Connections over verbs made so far.
    pub connections: u64,
    /// Times a record found no credit for its connection, or no room in its channel over verbs.
    pub credit_stalls: u64,
    /// Credits that were returned in messages of their own.
    pub credits_alone: u64,
    /// Credits given to senders that had waited for some.
    pub credits_granted: u64,
    /// Of these, given back by senders that did not use them.
    pub credits_returned: u64,
    /// Records written into channels by RDMA.
    pub written_sent: u64,
    /// Bytes of memory that packed forms left and that is kept for the next, now.
    pub packed_kept_bytes: u64,
    /// Bytes of registered buffers for messages and segments, now.
    pub pool_bytes: u64,
    /// Most of them at once.
    pub pool_peak_bytes: u64,
    /// Bytes of them given back because they were not used.
    pub pool_given_back_bytes: u64,
    /// Eager messages to peers to which there was no channel: through a mailbox, or a receive queue.
    pub slow_sent: u64,
    /// Records that had to be announced, because their receiver did not poll the channel, as it found out.
    pub announced: u64,
    /// Credits returned with a record of the other direction, times.
    pub credits_carried: u64,
    /// Credits returned in the control line, times.
    pub credits_explicit: u64,
    /// Channels to others opened so far.
    pub channels_opened: u64,
    /// Channels to others given up because they were not used.
    pub channels_closed: u64,
    /// Channels from others whose memory was given back.
    pub channels_retired: u64,
    /// Times a block to another grew or shrank.
    pub blocks_resized: u64,
    /// Channels from others now.
    pub channels_live: u64,
    /// Of these, how many are polled in every turn.
    pub channels_polled: u64,
    /// Bytes of channels from others, and of copies kept for channels to others.
    pub channel_bytes: u64,
}

impl Stats {
    /// Eager messages that found room in a channel at once.
    pub fn fast_sent(&self) -> u64 {
        self.eager_sent.saturating_sub(self.eager_waited + self.slow_sent)
    }
}

/// What an engine holds at this moment; nothing at all once everything is over and received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holdings {
    /// Requests that are not over, or not fetched.
    pub requests: usize,
    /// Messages that came before their receive.
    pub unexpected_messages: usize,
    /// Their bytes.
    pub unexpected_bytes: usize,
    /// Messages that a matched probe took and nobody has received.
    pub matched_messages: usize,
    /// Sends whose data others still need, peers with records that wait for room, messages that leave piece by piece.
    pub pending_sends: usize,
    /// Long messages that this side copies, as receiver or for one.
    pub copies: usize,
    /// Cells by which two sides share a copy.
    pub claim_cells: usize,
    /// Bytes registered for peers.
    pub registered_bytes: u64,
    /// Bytes of packed forms and of segments in use.
    pub packed_bytes: u64,
    /// Sends whose receivers were asked to throw a message out of a queue of its tuple and have not answered.
    pub cancellations: usize,
    /// Buffers posted for messages beyond those that peers have credits for or are reserved for them, less those that are
    /// to leave the queue of the device; below 0 there are too few.
    pub receives_astray: i64,
    /// Peers that are lost and for which channels, queues of tuples or the ways to them are kept.
    pub lost_remembered: usize,
}

/// A type of counts, and the row of numbers as which they travel.
macro_rules! counts {
    ($(#[$about:meta])* $name:ident { $($(#[$each:meta])* $field:ident,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            $($(#[$each])* pub $field: u64,)+
        }

        impl $name {
            /// Counts in one.
            pub const WORDS: usize = [$(stringify!($field)),+].len();

            /// All counts, to be sent to another process.
            pub fn to_words(self) -> [u64; Self::WORDS] {
                [$(self.$field),+]
            }

            /// And back.
            pub fn from_words(words: [u64; Self::WORDS]) -> Self {
                let [$($field),+] = words;
                Self { $($field),+ }
            }
        }
    };
}

counts!(
    /// Counts of one process towards one of its peers since it started.
    PeerStats {
        /// Messages sent to it eagerly.
        eager_sent,
        /// Their bytes.
        eager_sent_bytes,
        /// Eager messages that waited for room in the channel, or for a credit.
        eager_waited,
        /// Eager messages for which there was no channel to it.
        slow_sent,
        /// Messages sent to it by rendezvous.
        rendezvous_sent,
        /// Their bytes.
        rendezvous_sent_bytes,
        /// Messages taken from it by rendezvous.
        rendezvous_received,
        /// Their bytes.
        rendezvous_received_bytes,
        /// Buffers of long messages to or from it that were registered already.
        registrations_found,
        /// Messages sent to queues of their tuples there.
        tuple_sent,
        /// Those among them that found their receive.
        tuple_hits,
        /// Messages of its tuples that met a receive outside their queue.
        tuple_fallbacks,
        /// Bytes of the channel from it, and of the copy kept for the channel to it, now.
        held_bytes,
    }
);

impl PeerStats {
    /// Both counts together.
    pub fn plus(self, other: Self) -> Self {
        let (ours, theirs) = (self.to_words(), other.to_words());
        Self::from_words(std::array::from_fn(|at| ours[at] + theirs[at]))
    }

    /// Eager messages that found room in a channel at once.
    pub fn fast_sent(&self) -> u64 {
        self.eager_sent.saturating_sub(self.eager_waited + self.slow_sent)
    }

    /// Bytes of messages sent to it.
    pub fn sent_bytes(&self) -> u64 {
        self.eager_sent_bytes + self.rendezvous_sent_bytes
    }

    #[inline]
    pub(crate) fn count_eager(&mut self, len_bytes: u64) {
        self.eager_sent += 1;
        self.eager_sent_bytes += len_bytes;
    }
}

/// Messages by the scheme that took them across.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SchemeCounts {
    /// Packed, sent, unpacked.
    pub generic: u64,
    /// Packed and unpacked in segments through the channel.
    pub bc_spup: u64,
    /// Gathered by the sender, unpacked by the receiver.
    pub rwg_up: u64,
    /// Packed by the sender, scattered by the receiver.
    pub p_rrs: u64,
    /// Written piece by piece by the sender.
    pub multi_w: u64,
    /// Copied from layout to layout.
    pub direct: u64,
}

impl SchemeCounts {
    /// The count of one scheme; a message is never counted as `auto`.
    pub(crate) fn of(&mut self, scheme: DatatypeScheme) -> &mut u64 {
        match scheme {
            DatatypeScheme::Generic => &mut self.generic,
            DatatypeScheme::Auto | DatatypeScheme::BcSpup => &mut self.bc_spup,
            DatatypeScheme::RwgUp => &mut self.rwg_up,
            DatatypeScheme::PRrs => &mut self.p_rrs,
            DatatypeScheme::MultiW => &mut self.multi_w,
            DatatypeScheme::Direct => &mut self.direct,
        }
    }
}

/// How a counter changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterKind {
    /// It only grows.
    Total,
    /// It is the greatest value so far of something that rises and falls.
    Peak,
    /// It rises and falls.
    Level,
}

/// One counter: what it is called and where it stands.
pub struct Counter {
    /// A few words.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// How it changes.
    pub kind: CounterKind,
    /// Its value.
    pub value: fn(&Stats) -> u64,
}

const fn total(name: &'static str, help: &'static str, value: fn(&Stats) -> u64) -> Counter {
    Counter { name, help, kind: CounterKind::Total, value }
}

const fn peak(name: &'static str, help: &'static str, value: fn(&Stats) -> u64) -> Counter {
    Counter { name, help, kind: CounterKind::Peak, value }
}

const fn level(name: &'static str, help: &'static str, value: fn(&Stats) -> u64) -> Counter {
    Counter { name, help, kind: CounterKind::Level, value }
}

impl Stats {
    /// Every counter, in the order a reader wants them.
    pub const COUNTERS: &[Counter] = &[
        total("eager sends", "Messages sent eagerly.", |stats| stats.eager_sent),
        total("eager bytes", "Bytes sent eagerly.", |stats| stats.eager_sent_bytes),
        total("eager sends that waited", "Eager messages that waited for room in the channel.", |stats| {
            stats.eager_waited
        }),
        total("rendezvous sends", "Messages sent by rendezvous.", |stats| stats.rendezvous_sent),
        total("rendezvous bytes", "Bytes sent by rendezvous.", |stats| stats.rendezvous_sent_bytes),
        total("sends to self", "Messages to this process itself.", |stats| stats.self_sent),
        total("receives read", "Long messages that the receiver copied alone.", |stats| stats.read_received),
        total("receives copied by both", "Long messages that both sides copied.", |stats| stats.shared_received),
        total("chunks copied for receivers", "Chunks that this process wrote for a receiver.", |stats| {
            stats.chunks_written
        }),
        total("receives staged", "Long messages taken through the channel piece by piece.", |stats| {
            stats.staged_received
        }),
        total("sends ahead of the answer", "Long messages whose first part followed their request.", |stats| {
            stats.ahead_sent
        }),
        total(
            "long sends without a request",
            "Long messages that their receiver took as if they were short.",
            |stats| stats.whole_sent,
        ),
        total(
            "long sends in pieces",
            "Of long sends without a request such as went in pieces, so that one is copied while the next is written.",
            |stats| stats.whole_in_pieces,
        ),
        total("messages aboard shuttles", "Messages written to memory that both processes write by turns.", |stats| {
            stats.aboard_sent
        }),
        total(
            "shuttles sent back empty",
            "Such memory given back to whoever sends one message after the other.",
            |stats| stats.empty_sent,
        ),
        total("bytes ahead, taken", "Bytes of first parts that found their receive waiting.", |stats| {
            stats.ahead_taken_bytes
        }),
        total("bytes ahead, dropped", "Bytes of first parts whose receive came later, or went another way.", |stats| {
            stats.ahead_dropped_bytes
        }),
        total("unexpected messages", "Messages that came before their receive.", |stats| stats.unexpected),
        total(
            "messages left in the channel",
            "Long messages that stayed in their channel until there was a receive, where ranks outnumber cores.",
            |stats| stats.met_in_channel,
        ),
        peak("unexpected bytes, peak", "Most bytes of unexpected data held at once.", |stats| {
            stats.unexpected_peak_bytes
        }),
        total("senders held back, times", "Times senders were held back because the budget was used up.", |stats| {
            stats.held_back
        }),
        total("datatypes generic", "Long messages packed and unpacked as a whole.", |stats| stats.schemes.generic),
        total("datatypes bc-spup", "Long messages packed and unpacked in segments through the channel.", |stats| {
            stats.schemes.bc_spup
        }),
        total("datatypes rwg-up", "Long messages gathered by the sender into packed segments.", |stats| {
            stats.schemes.rwg_up
        }),
        total("datatypes p-rrs", "Long messages packed by the sender and scattered by the receiver.", |stats| {
            stats.schemes.p_rrs
        }),
        total("datatypes multi-w", "Long messages that the sender wrote piece by piece.", |stats| {
            stats.schemes.multi_w
        }),
        total("datatypes direct", "Long messages copied from layout to layout.", |stats| stats.schemes.direct),
        total("packed data refused", "Long messages that found no room for packed data in its pool.", |stats| {
            stats.packed_refused
        }),
        peak("packed bytes, peak", "Most bytes of packed data held at once.", |stats| stats.packed_peak_bytes),
        level("packed bytes kept", "Bytes of memory kept for packed data that comes next.", |stats| {
            stats.packed_kept_bytes
        }),
        total("block writes", "RDMA writes that gathered blocks or put one where it belongs.", |stats| {
            stats.block_writes
        }),
        total("block reads", "RDMA reads that scattered over blocks.", |stats| stats.block_reads),
        total("segments packed", "Segments of packed data sent by RDMA write.", |stats| stats.segments_packed),
        total("segments unpacked", "Segments of packed data that were written by RDMA and unpacked.", |stats| {
            stats.segments_unpacked
        }),
        total("block regions", "Regions around blocks that were registered, or found registered.", |stats| {
            stats.block_regions
        }),
        total("layouts read", "Layouts of datatypes read from other processes, or sent by them.", |stats| {
            stats.layouts_read
        }),
        total(
            "layouts forgotten",
            "Long messages that went through the channel because a layout of theirs was not kept any more.",
            |stats| stats.layouts_forgotten,
        ),
        total("registrations found", "Buffers of long messages that were registered already.", |stats| {
            stats.registrations.hits
        }),
        total("registrations made", "Buffers of long messages that had to be registered.", |stats| {
            stats.registrations.misses
        }),
        total("registrations evicted", "Registrations given up to make room for others.", |stats| {
            stats.registrations.evictions
        }),
        total("registrations changed", "Registrations dropped because other memory was mapped there.", |stats| {
            stats.registrations.changes
        }),
        peak("registered bytes, peak", "Most bytes of buffers registered at once.", |stats| {
            stats.registrations.peak_bytes
        }),
        total(
            "collectives over boards",
            "Collectives that went through memory all processes see, without messages.",
            |stats| stats.board_collectives,
        ),
        total(
            "collectives read straight",
            "Of these, those whose data was read straight from the memory of who had it.",
            |stats| stats.straight_collectives,
        ),
        total(
            "collectives in a chain",
            "Of these, those in which members that share processors added to one value in turn.",
            |stats| stats.chain_collectives,
        ),
        total("refused records", "Records that made no sense and were dropped.", |stats| stats.refused_records),
        total("tuple sends", "Messages sent to the queue of their tuple.", |stats| stats.tuple_sent),
        total("tuple hits", "Messages that found their receive in the queue of their tuple.", |stats| stats.tuple_hits),
        total("tuple receives", "Messages received from the queue of their tuple.", |stats| stats.tuple_received),
        total("tuple fallbacks", "Messages of a tuple with a queue that met a receive outside it.", |stats| {
            stats.tuple_fallbacks
        }),
        total("tuple queues", "Receive queues made for tuples.", |stats| stats.tuple_queues),
        total("tuple sends held", "Messages held back while the device had no room for them.", |stats| {
            stats.tuple_held
        }),
        total("receives by rdma read", "Long messages read over verbs (RGET).", |stats| stats.get_received),
        total("receives by rdma write", "Long messages written over verbs (RPUT).", |stats| stats.put_received),
        total("connections", "Connections over verbs made so far.", |stats| stats.connections),
        total("credit stalls", "Times a record over verbs found no credit or no room.", |stats| stats.credit_stalls),
        total("credit messages", "Credits returned in messages of their own.", |stats| stats.credits_alone),
        total("credits granted", "Credits given to senders that had waited for some.", |stats| stats.credits_granted),
        total("credits taken back", "Credits that senders gave back since they did not use them.", |stats| {
            stats.credits_returned
        }),
        level("pool bytes", "Bytes of registered buffers for messages over verbs.", |stats| stats.pool_bytes),
        peak("pool bytes, peak", "Most bytes of registered buffers for messages over verbs at once.", |stats| {
            stats.pool_peak_bytes
        }),
        total("pool bytes given back", "Bytes of such buffers given back because they were not used.", |stats| {
            stats.pool_given_back_bytes
        }),
        total("fast path sends", "Eager messages that found room in a channel at once.", Stats::fast_sent),
        total("slow path sends", "Eager messages through mailboxes or receive queues, without a channel.", |stats| {
            stats.slow_sent
        }),
        total("records by rdma write", "Records written into channels over verbs.", |stats| stats.written_sent),
        total("records announced", "Announcements of records in channels that were not polled.", |stats| {
            stats.announced
        }),
        total("credits carried, times", "Credits of channels returned with a record.", |stats| stats.credits_carried),
        total("credits on their own, times", "Credits of channels returned in the control line.", |stats| {
            stats.credits_explicit
        }),
        total("channels opened", "Channels to others opened so far.", |stats| stats.channels_opened),
        total("channels torn down", "Channels to others given up because they were not used.", |stats| {
            stats.channels_closed
        }),
        total("channels given back", "Channels from others whose memory was given back.", |stats| {
            stats.channels_retired
        }),
        total("blocks resized", "Times a block to another process grew or shrank.", |stats| stats.blocks_resized),
        level("channels live", "Channels from others now.", |stats| stats.channels_live),
        level("channels polled", "Channels from others that are polled in every turn.", |stats| stats.channels_polled),
        level("channel bytes", "Bytes of channels from others, and of copies kept for channels to others.", |stats| {
            stats.channel_bytes
        }),
    ];

    /// These counts and those kept per peer.
    pub(crate) fn with_peers<'a>(mut self, peers: impl Iterator<Item = &'a PeerStats>) -> Self {
        for peer in peers {
            self.eager_sent += peer.eager_sent;
            self.eager_sent_bytes += peer.eager_sent_bytes;
            self.eager_waited += peer.eager_waited;
            self.slow_sent += peer.slow_sent;
            self.rendezvous_sent += peer.rendezvous_sent;
            self.rendezvous_sent_bytes += peer.rendezvous_sent_bytes;
        }
        self
    }

    /// Every counter's name and value.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Self::COUNTERS.iter().map(|counter| (counter.name, (counter.value)(self)))
    }
}
