//! How data that does not lie in one piece gets across. Paper: datatypes §4, §5, §6
//!
//! ```text
//!   generic   pack all ─▶ one long message ─▶ unpack all               memory for both packed forms each time
//!   bc-spup   pack a segment │ transfer │ unpack a segment              through the channel, at the same time
//!   rwg-up    the sender gathers into the receiver's segments ─▶ unpack one packed form, at the receiver
//!   p-rrs     pack all ─▶ the receiver scatters what it reads           one packed form, at the sender
//!   multi-w   the sender writes each piece where it belongs             no packed form; the receiver's layout is sent
//!   direct    both sides copy pieces from layout to layout              no packed form; both layouts are sent
//! ```
//! [`Facts::scheme`] compares what the ways would take by the number of blocks on either side. Its constants were measured on
//! one machine (Zen 4, Linux 6); they matter by their ratios: a block of the peer costs the kernel as much as copying
//! 5 KiB, a block of this process as much as 400 bytes. Where they come close, what messages really took decides
//! ([`crate::experience`]).

pub use base::config::DatatypeScheme as Scheme;
use base::config::Medium;

use crate::experience::{CopyWay, CopyWays};

/// By how much the estimates may be wrong on another machine.
const DOUBT: u64 = 3;

/// Time to copy 1,024 bytes across memory, in nanoseconds.
const CROSS_KIB_NS: u64 = 73;
/// Time that a block of the other process costs when it is copied across memory, in nanoseconds.
const REMOTE_BLOCK_NS: u64 = 330;
/// Time that a block of this process costs when it is copied across memory, in nanoseconds.
const LOCAL_BLOCK_NS: u64 = 28;
/// Time that 1,024 bytes take through the channel when both sides keep up, in nanoseconds; 68 where both share a cache.
const STAGED_KIB_NS: u64 = 118;
/// Time to pack or unpack one more block, in nanoseconds.
const PACK_BLOCK_NS: u64 = 2;
/// Shortest average block that is gathered by a device, in bytes; shorter ones are packed faster than they are listed.
const GATHER_MIN_BYTES: u64 = 512;
/// Longest message that is packed as a whole where a processor moves it, in bytes: past it, packing, moving and unpacking are
/// worth overlapping.
const PACK_WHOLE_MAX_BYTES: u64 = 1 << 20;
/// Shortest average block that gets an operation of its own, in bytes.
const BLOCK_WRITE_MIN_BYTES: u64 = 8 << 10;
/// Most blocks of a message that are written each by itself though a processor does it, and the length past which that pays:
/// packing and unpacking take longer then than so many operations.
const FEW_BLOCKS: u64 = 20;
const FEW_BLOCKS_MIN_BYTES: u64 = 512 << 10;
/// Longest packed message that is scattered as it comes out of a socket, in bytes: past it, a read for each block costs more
/// than unpacking what one write has brought.
const SCATTERED_READ_MAX_BYTES: u64 = 256 << 10;
/// Segments of a packed form are between these; of one longer than the shorter, there are at least two. Paper: datatypes §7.2
const SEGMENT_BYTES: (u64, u64) = (8 << 10, 128 << 10);
/// The longest where sockets carry them, and each takes some system calls on both sides.
const SOCKETS_SEGMENT_MAX_BYTES: u64 = 512 << 10;

/// One side of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Side {
    /// Blocks of consecutive bytes that its data is cut into.
    pub block_count: u64,
    /// The other side may copy from or to it.
    pub is_reachable: bool,
}

/// What is known when a message has met its receive, of which one at least is not in one piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Length of the message.
    pub len_bytes: u64,
    /// Where it comes from.
    pub source: Side,
    /// Where it goes to.
    pub target: Side,
    /// The processes may copy from each other's memory at all.
    pub may_reach: bool,
    /// Both sides may copy at the same time.
    pub may_share: bool,
}

impl Facts {
    /// The scheme to use where `asked` is wanted: that one if it can be had, or the channel.
    pub fn scheme(&self, asked: Scheme) -> Scheme {
        let reads = self.may_reach && self.source.is_reachable;
        let possible = match asked {
            Scheme::Auto => return self.choose(),
            Scheme::Generic | Scheme::BcSpup => true,
            Scheme::RwgUp | Scheme::MultiW => self.may_reach && self.target.is_reachable,
            Scheme::PRrs => reads && self.source.block_count == 1,
            Scheme::Direct => reads,
        };
        if possible { asked } else { Scheme::BcSpup }
    }

    /// The ways that may be the fastest on some machine: those estimated to take no more than [`DOUBT`] times as long as
    /// another one.
    pub fn ways(&self) -> CopyWays {
        let (direct, staged) = (self.direct_ns(), self.staged_ns());
        let reads = self.may_reach && self.source.is_reachable;
        if !reads || direct / DOUBT > staged {
            return CopyWays::only(CopyWay::Staged);
        }
        CopyWays::default()
            .and(CopyWay::Read, true)
            .and(CopyWay::Shared, self.is_shared())
            .and(CopyWay::Staged, staged / DOUBT <= direct)
    }

    /// Average block on the side that has the shorter ones, in bytes.
    pub fn block_bytes(&self) -> u64 {
        self.len_bytes / self.source.block_count.max(self.target.block_count).max(1)
    }

    /// The way that is estimated to be the fastest: the channel, or straight from layout to layout.
    fn choose(&self) -> Scheme {
        let reads = self.may_reach && self.source.is_reachable;
        if reads && self.direct_ns() < self.staged_ns() { Scheme::Direct } else { Scheme::BcSpup }
    }

    /// True if both sides had better copy: one that is much slower would keep the last chunk to itself.
    pub fn is_shared(&self) -> bool {
        let (read, write) = (self.read_ns(), self.write_ns());
        self.may_share && self.target.is_reachable && write <= read.saturating_mul(3)
    }

    fn read_ns(&self) -> u64 {
        cross_ns(self.len_bytes, self.source.block_count, self.target.block_count)
    }

    fn write_ns(&self) -> u64 {
        cross_ns(self.len_bytes, self.target.block_count, self.source.block_count)
    }

    fn direct_ns(&self) -> u64 {
        let (read, write) = (self.read_ns(), self.write_ns());
        let together = |read: u64, write: u64| {
            let (read, write) = (u128::from(read), u128::from(write));
            // No more than the smaller of the two.
            (read * write / (read + write).max(1)) as u64
        };
        if self.is_shared() { together(read, write) } else { read }
    }

    fn staged_ns(&self) -> u64 {
        let blocks = self.source.block_count.max(self.target.block_count);
        kib_ns(self.len_bytes, STAGED_KIB_NS).saturating_add(blocks.saturating_mul(PACK_BLOCK_NS))
    }
}

/// The same where a device moves the data. There a block costs a part of an operation if it is gathered or scattered, and an
/// operation if it is written where it belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortFacts {
    /// Length of the message.
    pub len_bytes: u64,
    /// Where it comes from; reachable if it lies in one registered piece.
    pub source: Side,
    /// Where it goes to.
    pub target: Side,
    /// RDMA pays at all.
    pub is_long: bool,
    /// An adapter moves the data, not a processor: each block that it gathers is one that nobody copies.
    pub by_adapter: bool,
    /// What carries it.
    pub medium: Medium,
}

impl PortFacts {
    /// The scheme to use where `asked` is wanted; `None`: through the channel. Direct is Multi-W.
    pub fn scheme(&self, asked: Scheme) -> Option<Scheme> {
        if !self.is_long {
            return None;
        }
        let possible = match asked {
            Scheme::Auto => return Some(self.choose()),
            Scheme::Generic | Scheme::BcSpup | Scheme::RwgUp => true,
            Scheme::MultiW | Scheme::Direct => self.target.is_reachable,
            Scheme::PRrs => self.source.is_reachable,
        };
        Some(match asked {
            Scheme::Direct if possible => Scheme::MultiW,
            asked if possible => asked,
            _ => Scheme::BcSpup,
        })
    }

    /// The way whose work for the processors is least.
    fn choose(&self) -> Scheme {
        let (source, target) = (self.source.block_count, self.target.block_count);
        let has_long_blocks = self.target.is_reachable && self.block_bytes(target) >= BLOCK_WRITE_MIN_BYTES;
        if !self.by_adapter {
            // Whoever gathers copies block by block; what is packed goes as one long message.
            let comes_scattered = self.medium == Medium::Sockets
                && target > 1
                && has_long_blocks
                && self.len_bytes <= SCATTERED_READ_MAX_BYTES;
            return match self.source.is_reachable {
                true if comes_scattered => Scheme::PRrs,
                true => Scheme::Generic,
                false if is_of_few_blocks(self.len_bytes, source.max(target)) => Scheme::MultiW,
                false => Scheme::BcSpup,
            };
        }
        let gathers = self.block_bytes(source) >= GATHER_MIN_BYTES;
        if target == 1 || has_long_blocks {
            return if gathers { Scheme::MultiW } else { Scheme::BcSpup };
        }
        if gathers { Scheme::RwgUp } else { Scheme::BcSpup }
    }

    fn block_bytes(&self, block_count: u64) -> u64 {
        self.len_bytes / block_count.max(1)
    }
}

/// True of a message of which each block had better be written where it belongs, though it is a processor that does it.
fn is_of_few_blocks(len_bytes: u64, block_count: u64) -> bool {
    block_count <= FEW_BLOCKS && len_bytes > FEW_BLOCKS_MIN_BYTES
}

/// Whether a sender packs all of a message before it offers it over a device.
pub fn packs_first(asked: Scheme, len_bytes: u64, block_count: u64, by_adapter: bool) -> bool {
    match asked {
        Scheme::Generic | Scheme::PRrs => true,
        Scheme::Auto => !by_adapter && len_bytes <= PACK_WHOLE_MAX_BYTES && !is_of_few_blocks(len_bytes, block_count),
        Scheme::BcSpup | Scheme::RwgUp | Scheme::MultiW | Scheme::Direct => false,
    }
}

/// Whether a sender should say where the pieces of a message lie: it pays at least if they go into one piece.
pub fn is_worth_describing(asked: Scheme, len_bytes: u64, block_count: u64) -> bool {
    let target = Side { block_count: 1, is_reachable: true };
    let source = Side { block_count, is_reachable: true };
    let facts = Facts { len_bytes, source, target, may_reach: true, may_share: true };
    match asked {
        Scheme::Auto => facts.ways().has(CopyWay::Read),
        Scheme::Direct => true,
        Scheme::Generic | Scheme::BcSpup | Scheme::RwgUp | Scheme::PRrs | Scheme::MultiW => false,
    }
}

/// Bytes of a segment of a packed form that is copied across memory; all in one if `whole`.
pub fn segment_bytes(len_bytes: u64, whole: bool) -> u32 {
    if whole { u32::try_from(len_bytes.max(1)).unwrap_or(u32::MAX - 63) } else { cut(len_bytes, 8, SEGMENT_BYTES.1) }
}

/// Bytes of a segment of a packed form that a device moves.
pub fn port_segment_bytes(len_bytes: u64, medium: Medium) -> u32 {
    let parts = match medium {
        Medium::Memory => 8,
        Medium::Sockets => 4,
    };
    cut(len_bytes, parts, port_segment_max_bytes(medium))
}

/// The most that [`port_segment_bytes`] says.
pub fn port_segment_max_bytes(medium: Medium) -> u64 {
    match medium {
        Medium::Memory => SEGMENT_BYTES.1,
        Medium::Sockets => SOCKETS_SEGMENT_MAX_BYTES,
    }
}

fn cut(len_bytes: u64, parts: u64, most: u64) -> u32 {
    ((len_bytes / parts).clamp(SEGMENT_BYTES.0, most) & !63) as u32
}

fn cross_ns(len_bytes: u64, remote_blocks: u64, local_blocks: u64) -> u64 {
    kib_ns(len_bytes, CROSS_KIB_NS)
        .saturating_add(remote_blocks.saturating_mul(REMOTE_BLOCK_NS))
        .saturating_add(local_blocks.saturating_mul(LOCAL_BLOCK_NS))
}

fn kib_ns(len_bytes: u64, ns: u64) -> u64 {
    (len_bytes / 16).saturating_mul(ns) / 64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(len_bytes: u64, source_block: u64, target_block: u64) -> Facts {
        let side = |block: u64| Side { block_count: len_bytes.div_ceil(block), is_reachable: true };
        let (source, target) = (side(source_block), side(target_block));
        Facts { len_bytes, source, target, may_reach: true, may_share: true }
    }

    #[test]
    fn large_blocks_are_copied_from_layout_to_layout_and_small_ones_packed() {
        let whole = 1 << 20;
        let cases = [
            (8192, 8192, Scheme::Direct),
            (4096, 4096, Scheme::Direct),
            (1024, 1024, Scheme::BcSpup),
            (64, 64, Scheme::BcSpup),
            (whole, 4096, Scheme::Direct),
            (whole, 1024, Scheme::Direct),
            (whole, 64, Scheme::BcSpup),
            (8192, 64, Scheme::BcSpup),
        ];
        for (source, target, expected) in cases {
            let facts = facts(whole, source, target);
            assert_eq!(facts.scheme(Scheme::Auto), expected, "blocks of {source} to blocks of {target}");
            let refused = Facts { may_reach: false, ..facts };
            assert_eq!(refused.scheme(Scheme::Auto), Scheme::BcSpup);
        }
    }

    #[test]
    fn where_estimates_come_close_both_ways_may_be_tried() {
        // The paper's columns of a matrix of 128 rows, on both sides.
        let columns = |len_bytes: u64| facts(len_bytes, len_bytes / 128, len_bytes / 128).ways();
        for len_bytes in [256 << 10, 512 << 10] {
            assert!(columns(len_bytes).has(CopyWay::Staged) && columns(len_bytes).has(CopyWay::Shared), "{len_bytes}");
        }
        let blocks = |bytes: u64| facts(1 << 20, bytes, bytes).ways();
        assert_eq!(blocks(64), CopyWays::only(CopyWay::Staged), "a block costs the system more than copying it");
        assert!(!facts(1 << 20, 1 << 20, 512).ways().has(CopyWay::Shared), "the sender would be far slower");
        let refused = Facts { may_reach: false, ..facts(1 << 20, 8192, 8192) };
        assert_eq!(refused.ways(), CopyWays::only(CopyWay::Staged));
        assert!(is_worth_describing(Scheme::Auto, 512 << 10, 128));
    }

    #[test]
    fn who_asks_for_a_scheme_gets_it_where_it_can_be_had() {
        let scattered = facts(1 << 20, 64, 64);
        let all = [Scheme::Generic, Scheme::BcSpup, Scheme::RwgUp, Scheme::MultiW, Scheme::Direct];
        for scheme in all {
            assert_eq!(scattered.scheme(scheme), scheme);
        }
        assert_eq!(scattered.scheme(Scheme::PRrs), Scheme::BcSpup, "nothing has been packed");
        assert_eq!(facts(1 << 20, 1 << 20, 64).scheme(Scheme::PRrs), Scheme::PRrs);
        for scheme in [Scheme::RwgUp, Scheme::MultiW, Scheme::Direct] {
            assert_eq!(Facts { may_reach: false, ..scattered }.scheme(scheme), Scheme::BcSpup);
        }
        assert!(!facts(1 << 20, 1 << 20, 64).is_shared(), "the sender would be far slower than the receiver");
        assert!(facts(1 << 20, 8192, 8192).is_shared());
    }

    #[test]
    fn over_a_device_an_adapter_gets_blocks_and_a_processor_packed_data() {
        let facts = |len_bytes: u64, source: u64, target: u64, by_adapter: bool| {
            let source = Side { block_count: len_bytes / source, is_reachable: source == len_bytes };
            let target = Side { block_count: len_bytes / target, is_reachable: true };
            PortFacts { len_bytes, source, target, is_long: true, by_adapter, medium: Medium::Sockets }
        };
        let (whole, part) = (1 << 20, 128 << 10);
        for (len_bytes, source, target, by_adapter, expected) in [
            (whole, 8192, 8192, true, Scheme::MultiW),
            (whole, 8192, 64, true, Scheme::RwgUp),
            (whole, 64, 8192, true, Scheme::BcSpup),
            (whole, 1024, whole, true, Scheme::MultiW),
            (whole, 8192, 8192, false, Scheme::BcSpup),
            (whole, 65536, 65536, false, Scheme::MultiW),
            (whole, 65536, 64, false, Scheme::BcSpup),
            (whole, 65536, whole, false, Scheme::MultiW),
            (whole, whole, 64, false, Scheme::Generic),
            (whole, whole, 8192, false, Scheme::Generic),
            (part, part, 8192, false, Scheme::PRrs),
            (part, part, 64, false, Scheme::Generic),
            (part, part, part, false, Scheme::Generic),
        ] {
            let facts = facts(len_bytes, source, target, by_adapter);
            assert_eq!(facts.scheme(Scheme::Auto), Some(expected), "{facts:?}");
            let over_memory = PortFacts { medium: Medium::Memory, ..facts }.scheme(Scheme::Auto);
            assert_eq!(over_memory, Some(if expected == Scheme::PRrs { Scheme::Generic } else { expected }));
            assert_eq!(facts.scheme(Scheme::Direct), Some(Scheme::MultiW));
            assert_eq!(PortFacts { is_long: false, ..facts }.scheme(Scheme::RwgUp), None);
        }
        let packs = |len_bytes, blocks, by_adapter| packs_first(Scheme::Auto, len_bytes, blocks, by_adapter);
        assert!(packs(whole, 128, false) && !packs(whole + 1, 128, false) && !packs(part, 128, true));
        assert!(!packs(whole, 16, false) && packs(part, 16, false), "few blocks are written where they belong");
        assert!(packs_first(Scheme::PRrs, 1 << 30, 2, true));
    }

    #[test]
    fn segments_are_two_where_they_can_be_and_no_model_overflows() {
        assert_eq!(segment_bytes(16 << 10, false), 8 << 10);
        assert_eq!(segment_bytes(1 << 20, false), 128 << 10);
        assert_eq!(segment_bytes(1 << 20, true), 1 << 20);
        assert_eq!(segment_bytes(3, false), 8 << 10);
        for medium in [Medium::Memory, Medium::Sockets] {
            assert_eq!(port_segment_bytes(16 << 10, medium), 8 << 10);
            assert_eq!(u64::from(port_segment_bytes(u64::MAX, medium)), port_segment_max_bytes(medium));
        }
        assert!(segment_bytes(u64::MAX, true) > 0);
        let huge = facts(u64::MAX, 1, 1);
        assert_ne!(huge.scheme(Scheme::Auto), Scheme::Auto, "some way is chosen");
        assert!(is_worth_describing(Scheme::Auto, 1 << 20, 128));
        assert!(!is_worth_describing(Scheme::Auto, 1 << 20, 1 << 17));
        assert!(is_worth_describing(Scheme::Direct, 1 << 20, 1 << 17));
    }
}
