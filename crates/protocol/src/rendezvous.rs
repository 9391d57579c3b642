//! Who moves the bytes of a long message.
//!
//! ```text
//!   read                       shared                         staged
//!   S ── request ──▶ R         S ── request ──▶ R             S ── request ──▶ R
//!        RDMA read             S ◀─ clear-shared ─ R          S ◀── clear ──── R
//!   S ◀─ finished ── R         RDMA write │ RDMA read         S ── data … ───▶ R
//!                              chunk by chunk, whoever is free
//!                              S ◀─ finished ── R
//! ```
//! *read* costs one copy and a system call per [`Thresholds::read_step_bytes`]; *shared* halves the time when both
//! processes are in the library; *staged* costs two copies and works where the kernel forbids the others and for
//! data that is not in one piece.

use base::Config;
use base::config::{LargeCopy, Rendezvous};

use crate::experience::{CopyWay, CopyWays};

/// Where processes outnumber processors, messages of up to so many bytes are staged: up to there the kernel spends more on
/// taking the pages of both one by one than a second copy costs.
const STAGED_CROWDED_MAX_BYTES: u64 = 128 << 10;

/// Longest message that comes without a request, whatever is configured, in bytes: it may come before its receive, and is kept
/// then.
pub const WHOLE_MAX_BYTES: u64 = 256 << 10;

/// The sizes at which protocols change, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// Longest message sent eagerly to a mapped peer; to any where none is mapped.
    pub eager_max_bytes: usize,
    /// Longest message sent eagerly to a peer that is reached over a connection.
    pub posted_eager_max_bytes: usize,
    /// Shortest message that is copied across memory; shorter ones are staged.
    pub cross_memory_min_bytes: u64,
    /// Longest message that may be staged all the same where that is the faster way.
    pub staged_near_max_bytes: u64,
    /// Bytes of a long message that follow its request before there is an answer, at most.
    pub ahead_bytes: u64,
    /// Shortest message that both sides copy.
    pub shared_min_bytes: u64,
    /// Most that a receiver reads before it looks at its channels again.
    pub read_step_bytes: usize,
    /// Who moves large messages.
    pub large_copy: LargeCopy,
    /// Processes outnumber processors: whoever helps to copy keeps somebody else from running.
    pub is_crowded: bool,
    /// How long messages cross verbs.
    pub rendezvous: Rendezvous,
}

/// How a receiver takes a long message over verbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RdmaPlan {
    /// It reads: RGET.
    Get,
    /// The sender writes: RPUT.
    Put,
    /// Through the channel.
    Staged,
}

/// How a receiver takes a long message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyPlan {
    /// It reads alone.
    Read,
    /// Both sides copy chunks of this many bytes.
    Shared {
        /// Bytes of a chunk.
        chunk_bytes: u32,
    },
    /// Through the channel.
    Staged,
}

/// What is known about reaching a peer's private memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reach {
    /// Not tried yet.
    #[default]
    Unknown,
    /// It worked before.
    Works,
    /// The kernel refused.
    Refused,
}

impl CopyPlan {
    /// The plan for a message of `len_bytes` that goes this way.
    pub fn of(way: CopyWay, len_bytes: u64) -> Self {
        match way {
            CopyWay::Read => CopyPlan::Read,
            CopyWay::Shared => CopyPlan::Shared { chunk_bytes: Chunks::bytes_for(len_bytes) },
            CopyWay::Staged => CopyPlan::Staged,
        }
    }

    /// The way it stands for.
    pub fn way(self) -> CopyWay {
        match self {
            CopyPlan::Read => CopyWay::Read,
            CopyPlan::Shared { .. } => CopyWay::Shared,
            CopyPlan::Staged => CopyWay::Staged,
        }
    }
}

impl Thresholds {
    /// The sizes as configured, where an eager message to a mapped peer, and one over a connection, are no longer than these.
    pub fn configured(config: &Config, eager_max_bytes: usize, posted_eager_max_bytes: usize) -> Self {
        Self {
            eager_max_bytes,
            posted_eager_max_bytes,
            cross_memory_min_bytes: config.cross_memory_min_bytes as u64,
            staged_near_max_bytes: config.staged_near_max_bytes as u64,
            ahead_bytes: config.ahead_bytes as u64,
            shared_min_bytes: config.shared_copy_min_bytes as u64,
            read_step_bytes: 256 << 10,
            large_copy: config.large_copy,
            is_crowded: false,
            rendezvous: config.rendezvous,
        }
    }

    /// The ways that a message of `len_bytes` from a peer of this `reach` may take; `in_one_piece` on both sides and
    /// registered. Which of several is the fastest shows in what they take ([`crate::experience`]).
    pub fn ways(&self, len_bytes: u64, in_one_piece: bool, reach: Reach) -> CopyWays {
        let first = self.plan(len_bytes, in_one_piece, reach).way();
        let is_open = self.large_copy == LargeCopy::Auto && !self.is_crowded && reach == Reach::Works;
        if first == CopyWay::Staged || !is_open {
            return CopyWays::only(first);
        }
        CopyWays::only(first).and(CopyWay::Read, true).and(CopyWay::Staged, len_bytes <= self.staged_near_max_bytes)
    }

    /// The plan for a message of `len_bytes` from a peer of this `reach`, as long as nothing else is known; `in_one_piece`
    /// on both sides and registered.
    pub fn plan(&self, len_bytes: u64, in_one_piece: bool, reach: Reach) -> CopyPlan {
        if !in_one_piece
            || reach == Reach::Refused
            || self.large_copy == LargeCopy::Staged
            || len_bytes < self.cross_memory_min_bytes
            || self.is_staged_where_crowded(len_bytes)
        {
            return CopyPlan::Staged;
        }
        // The first read from a peer is made alone: should the kernel refuse, nothing has been shared out yet.
        let both = self.large_copy == LargeCopy::Both || self.large_copy == LargeCopy::Auto && !self.is_crowded;
        if both && len_bytes >= self.shared_min_bytes && reach == Reach::Works {
            return CopyPlan::of(CopyWay::Shared, len_bytes);
        }
        CopyPlan::Read
    }

    /// Longest message that may come whole, without a request, once its receiver has said so.
    ///
    /// Where processes outnumber processors `FERROVIA_STAGED_NEAR_MAX` does not limit it: each answer waits for a turn of somebody
    /// else.
    pub fn whole_max_bytes(&self) -> u64 {
        match self.ahead_bytes {
            0 => 0,
            _ if self.is_crowded => WHOLE_MAX_BYTES,
            _ => WHOLE_MAX_BYTES.min(self.staged_near_max_bytes),
        }
    }

    /// Longest of these that goes in one record; longer ones go in pieces. Where one waits for the other's processor, nobody
    /// copies a piece while the next is written. Nor where both write at once: who `waits_for_some` message itself is likely
    /// to exchange them. (Two processors of an AMD EPYC of the third generation that share a cache: 64 KiB in 5.3 us, not 6.5;
    /// but 128 KiB in 14, not 12.)
    pub fn whole_record_max_bytes(&self, waits_for_some: bool) -> u64 {
        match self.is_crowded {
            true => WHOLE_MAX_BYTES,
            false if waits_for_some => self.ahead_bytes.saturating_mul(2),
            false => self.ahead_bytes,
        }
    }

    /// True for messages that are staged where processes outnumber processors if one record takes all of it.
    pub fn is_whole_where_crowded(&self, len_bytes: u64) -> bool {
        self.is_crowded_up_to(self.whole_max_bytes(), len_bytes)
    }

    fn is_staged_where_crowded(&self, len_bytes: u64) -> bool {
        self.is_crowded_up_to(STAGED_CROWDED_MAX_BYTES, len_bytes)
    }

    fn is_crowded_up_to(&self, most: u64, len_bytes: u64) -> bool {
        let most = most.min(self.staged_near_max_bytes);
        self.large_copy == LargeCopy::Auto && self.is_crowded && len_bytes <= most
    }
}

impl Thresholds {
    /// The plan for a message of `len_bytes` over verbs, in one piece on both sides and registered; `prefers_reads` is what
    /// suits the device.
    pub fn plan_rdma(&self, len_bytes: u64, prefers_reads: bool) -> RdmaPlan {
        match self.rendezvous {
            _ if len_bytes < self.cross_memory_min_bytes => RdmaPlan::Staged,
            Rendezvous::Staged => RdmaPlan::Staged,
            Rendezvous::Rget => RdmaPlan::Get,
            Rendezvous::Rput => RdmaPlan::Put,
            _ if prefers_reads => RdmaPlan::Get,
            _ => RdmaPlan::Put,
        }
    }
}

/// Number of chunks of a message, and the range of chunk `index`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunks {
    len_bytes: u64,
    chunk_bytes: u64,
}

impl Chunks {
    /// Bytes of a chunk of a message that both sides copy: enough chunks for both, and none too short to be worth a claim.
    pub fn bytes_for(len_bytes: u64) -> u32 {
        ((len_bytes / 8).clamp(32 << 10, 256 << 10) & !4095) as u32
    }

    /// Chunks of `chunk_bytes` of a message of `len_bytes`; `None` for sizes that make no sense.
    pub fn new(len_bytes: u64, chunk_bytes: u32) -> Option<Self> {
        let chunks = Self { len_bytes, chunk_bytes: chunk_bytes.into() };
        (chunk_bytes > 0 && len_bytes > 0 && len_bytes.div_ceil(chunk_bytes.into()) <= u32::MAX.into())
            .then_some(chunks)
    }

    /// Bytes of the message.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Bytes of each chunk but the last.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.len_bytes.div_ceil(self.chunk_bytes) as u32
    }

    /// Offset and length of chunk `index`, which is below [`Chunks::count`].
    pub fn range(&self, index: u32) -> (u64, u64) {
        let offset = u64::from(index) * self.chunk_bytes;
        (offset, self.chunk_bytes.min(self.len_bytes - offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLDS: Thresholds = Thresholds {
        eager_max_bytes: 8 << 10,
        posted_eager_max_bytes: 8 << 10,
        cross_memory_min_bytes: 16 << 10,
        staged_near_max_bytes: 0,
        ahead_bytes: 0,
        shared_min_bytes: 128 << 10,
        read_step_bytes: 256 << 10,
        large_copy: LargeCopy::Auto,
        is_crowded: false,
        rendezvous: Rendezvous::Auto,
    };

    #[test]
    fn the_plan_follows_size_shape_and_what_the_kernel_said() {
        let cases = [
            (1 << 20, true, Reach::Works, CopyPlan::Shared { chunk_bytes: 128 << 10 }),
            (1 << 20, true, Reach::Unknown, CopyPlan::Read),
            (1 << 20, true, Reach::Refused, CopyPlan::Staged),
            (1 << 20, false, Reach::Works, CopyPlan::Staged),
            (64 << 10, true, Reach::Works, CopyPlan::Read),
            (10 << 10, true, Reach::Works, CopyPlan::Staged),
        ];
        for (len, in_one_piece, reach, expected) in cases {
            assert_eq!(THRESHOLDS.plan(len, in_one_piece, reach), expected, "{len} {in_one_piece} {reach:?}");
        }
    }

    #[test]
    fn senders_help_where_they_have_a_processor_or_were_told_to() {
        for (large_copy, is_crowded, helps) in [
            (LargeCopy::Auto, false, true),
            (LargeCopy::Auto, true, false),
            (LargeCopy::Both, true, true),
            (LargeCopy::Read, false, false),
        ] {
            let plan = Thresholds { large_copy, is_crowded, ..THRESHOLDS }.plan(1 << 20, true, Reach::Works);
            assert_eq!(plan != CopyPlan::Read, helps, "{large_copy:?} {is_crowded}");
        }
    }

    #[test]
    fn short_copies_are_staged_where_crowded_unless_something_else_was_asked_for() {
        let at_most = STAGED_CROWDED_MAX_BYTES;
        for (large_copy, staged_near_max_bytes, is_crowded, len_bytes, is_staged) in [
            (LargeCopy::Auto, 1 << 20, true, at_most, true),
            (LargeCopy::Auto, 1 << 20, true, at_most + 1, false),
            (LargeCopy::Auto, at_most - 1, true, at_most, false),
            (LargeCopy::Auto, 0, true, 16 << 10, false),
            (LargeCopy::Auto, 1 << 20, false, at_most, false),
            (LargeCopy::Read, 1 << 20, true, at_most, false),
            (LargeCopy::Both, 1 << 20, true, at_most, false),
        ] {
            let thresholds = Thresholds { large_copy, is_crowded, staged_near_max_bytes, ..THRESHOLDS };
            let plan = thresholds.plan(len_bytes, true, Reach::Works);
            assert_eq!(plan == CopyPlan::Staged, is_staged, "{thresholds:?} {len_bytes}");
        }
        let crowded = Thresholds { is_crowded: true, staged_near_max_bytes: 1 << 20, ahead_bytes: 1, ..THRESHOLDS };
        for (thresholds, len_bytes, is_staged) in [
            (crowded, 256 << 10, true),
            (crowded, (256 << 10) + 1, false),
            (Thresholds { is_crowded: false, ..crowded }, 1, false),
            (Thresholds { large_copy: LargeCopy::Read, ..crowded }, 1, false),
            (Thresholds { ahead_bytes: 0, ..crowded }, 1, false),
            (Thresholds { staged_near_max_bytes: 0, ..crowded }, 1, false),
        ] {
            assert_eq!(thresholds.is_whole_where_crowded(len_bytes), is_staged, "{thresholds:?} {len_bytes}");
        }
    }

    #[test]
    fn who_waits_for_a_message_sends_longer_records() {
        let thresholds = Thresholds { ahead_bytes: 32 << 10, ..THRESHOLDS };
        assert_eq!([false, true].map(|waits| thresholds.whole_record_max_bytes(waits)), [32 << 10, 64 << 10]);
        let longest = Thresholds { ahead_bytes: u64::MAX, ..thresholds };
        assert_eq!(longest.whole_record_max_bytes(true), u64::MAX);
        let crowded = Thresholds { is_crowded: true, ..thresholds };
        assert_eq!([false, true].map(|waits| crowded.whole_record_max_bytes(waits)), [256 << 10; 2]);
    }

    #[test]
    fn experience_decides_only_where_nothing_was_asked_for() {
        let open = Thresholds { staged_near_max_bytes: 512 << 10, ..THRESHOLDS };
        let all = CopyWays::only(CopyWay::Read).and(CopyWay::Shared, true).and(CopyWay::Staged, true);
        assert_eq!(open.ways(256 << 10, true, Reach::Works), all);
        assert!(!open.ways(1 << 20, true, Reach::Works).has(CopyWay::Staged));
        assert!(!open.ways(64 << 10, true, Reach::Works).has(CopyWay::Shared));
        for (thresholds, len, in_one_piece, reach, only) in [
            (open, 256 << 10, true, Reach::Unknown, CopyWay::Read),
            (open, 256 << 10, true, Reach::Refused, CopyWay::Staged),
            (open, 256 << 10, false, Reach::Works, CopyWay::Staged),
            (open, 10 << 10, true, Reach::Works, CopyWay::Staged),
            (Thresholds { is_crowded: true, ..open }, 256 << 10, true, Reach::Works, CopyWay::Read),
            (Thresholds { large_copy: LargeCopy::Both, ..open }, 256 << 10, true, Reach::Works, CopyWay::Shared),
            (Thresholds { large_copy: LargeCopy::Read, ..open }, 256 << 10, true, Reach::Works, CopyWay::Read),
        ] {
            assert_eq!(thresholds.ways(len, in_one_piece, reach), CopyWays::only(only), "{thresholds:?} {reach:?}");
        }
    }

    #[test]
    fn rdma_goes_as_asked_for_and_otherwise_as_suits_the_device() {
        use Rendezvous::{Auto, Rget, Rput, Staged};
        let long = THRESHOLDS.cross_memory_min_bytes;
        for (rendezvous, len, prefers_reads, expected) in [
            (Auto, long, true, RdmaPlan::Get),
            (Auto, long, false, RdmaPlan::Put),
            (Rget, long, false, RdmaPlan::Get),
            (Rput, long, true, RdmaPlan::Put),
            (Staged, long, true, RdmaPlan::Staged),
            (Rput, long - 1, true, RdmaPlan::Staged),
        ] {
            let thresholds = Thresholds { rendezvous, ..THRESHOLDS };
            assert_eq!(thresholds.plan_rdma(len, prefers_reads), expected, "{rendezvous:?} {len} {prefers_reads}");
        }
    }

    #[test]
    fn chunks_cover_the_message_once() {
        for (len, chunk) in [(1, 1), (10, 3), (9, 3), (1 << 33, 1 << 20)] {
            let chunks = Chunks::new(len, chunk).expect("sensible");
            let mut next = 0;
            for index in 0..chunks.count() {
                let (offset, part) = chunks.range(index);
                assert_eq!(offset, next);
                assert!(part > 0);
                next += part;
            }
            assert_eq!(next, len);
        }
        assert_eq!(Chunks::new(1, 0), None);
        assert_eq!(Chunks::new(0, 4), None);
        assert_eq!(Chunks::new(u64::MAX, 1), None);
    }
}
