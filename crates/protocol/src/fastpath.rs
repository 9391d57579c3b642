//! Which design a fast path has, and what that means for its memory.

use base::Config;
use base::config::{FastPath, Medium};
use fabric::{DeviceKind, SharedMemory};
use lockfree::block;
use lockfree::fastpath::fixed::{self, Fill, FixedReceiver, FixedSender};
use lockfree::fastpath::variable_top::{self, VariableTopReceiver, VariableTopSender};
use lockfree::fastpath::{CONTROL_BYTES, Carried, Mapped, RecordReceiver, RecordSender, Target, VariableBottomSender};
use lockfree::{Allowance, BlockReceiver, BlockSender, Bounds, CACHE_LINE_BYTES, Record, mailbox};

/// In a hint: the receiver asks for no eager data now.
pub const HOLD_BACK: u64 = 1;
/// In a hint: the receiver does not poll this channel; records are announced.
pub const COLD: u64 = 2;
/// In the hint of a mailbox: its owner needs nothing more of anybody, and may read no more.
pub const LEFT: u64 = 4;

/// Records the slow way between two requests for a channel, where the peer grants none.
pub const RECORDS_PER_REQUEST: u64 = 64;

/// Slots of the original design. Paper: veloblock §5.4.
const SLOT_COUNT: usize = 32;
/// Slots of the original design reduced to 32 KiB, the sender's copy included. Paper: veloblock §6.2.
const SLOT_COUNT_REDUCED: usize = 2;

/// In the number of a geometry: where the design stands, and what is below.
const DESIGN_SHIFT: u32 = 56;
const LENGTH_MASK: u64 = (1 << DESIGN_SHIFT) - 1;
/// Blocks are multiples of this.
const BLOCK_STEP_BYTES: usize = 4 * CACHE_LINE_BYTES;

/// Length of blocks for long records, at least and at most, in bytes. The least takes messages of
/// [`WHOLE_MAX_BYTES`](crate::rendezvous::WHOLE_MAX_BYTES) in one record.
const LONG_BYTES: (usize, usize) = (768 << 10, 2 << 20);

/// The design of all channels of a job, and how long they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    design: FastPath,
    block_bytes: usize,
    bounds: Bounds,
    /// The longest block of any process.
    longest_bytes: usize,
    shuttle_bytes: usize,
}

/// The sending end of a channel, but for a block in mapped memory.
pub enum AnySender<T> {
    /// Fixed slots.
    Fixed(FixedSender<T>),
    /// A block filled from its top.
    VariableTop(VariableTopSender<T>),
    /// A block filled from its bottom.
    VariableBottom(VariableBottomSender<T>),
}

/// The sending end of a channel in mapped memory that is not a block filled from its bottom.
pub(crate) type OtherSender = AnySender<Mapped>;

/// The receiving end of such a channel.
pub enum OtherReceiver {
    /// Fixed slots.
    Fixed(FixedReceiver),
    /// A block filled from its top.
    VariableTop(VariableTopReceiver),
}

/// The receiving end of a channel, whatever its design.
pub enum Receiver {
    /// A Veloblock.
    Block(BlockReceiver),
    /// Another design.
    Other(OtherReceiver),
}

/// What channels over a device of this kind go through.
pub fn medium_of(kind: DeviceKind) -> Medium {
    if kind == DeviceKind::Tcp { Medium::Sockets } else { Medium::Memory }
}

/// How long a block for long records is where nothing is set: so long that the caches next to both cores have lost a line before
/// it is written again, and not longer. Measured on an AMD EPYC of the third generation, 512 KiB next to a core, a stream of
/// 32 KiB each through a bare ring of a quarter, one, two and four times that: 2.7, 1.9, 1.3 and 1.5 us.
fn long_bytes(near_cache_bytes: Option<usize>) -> usize {
    let (least, most) = LONG_BYTES;
    near_cache_bytes.map_or(most, |bytes| bytes.saturating_mul(2).clamp(least, most) & !(BLOCK_STEP_BYTES - 1))
}

impl Geometry {
    /// The geometry over mapped memory, as configured.
    pub fn new(config: &Config) -> Self {
        Self::through(config, Medium::Memory)
    }

    fn through(config: &Config, medium: Medium) -> Self {
        let block_bytes = config.sizes(medium).channel_bytes;
        let bounds = Bounds {
            min_bytes: config.channel_min_bytes,
            max_bytes: config.channel_max_bytes,
            long_bytes: config.channel_long_bytes.unwrap_or_else(|| long_bytes(config.near_cache_bytes)),
            shared_bytes: 0,
        };
        let long_bytes_max = config.channel_long_bytes.unwrap_or(LONG_BYTES.1);
        let longest_bytes = long_bytes_max.max(bounds.max_bytes).max(block_bytes);
        let design = match config.fastpath {
            FastPath::Auto => FastPath::Veloblock,
            design => design,
        };
        let shuttle_bytes = config.shuttle_bytes.next_multiple_of(CACHE_LINE_BYTES);
        Self { design, block_bytes, bounds, longest_bytes, shuttle_bytes }
    }

    /// The geometry where the blocks of `peer_count` peers may be longer by `memory_bytes` all together than in the beginning.
    pub fn sharing(self, memory_bytes: usize, peer_count: u32) -> Self {
        let share = self.block_bytes.saturating_add(memory_bytes / peer_count.max(1) as usize);
        let shared_bytes = share.min(self.bounds.long_bytes) & !(BLOCK_STEP_BYTES - 1);
        Self { bounds: Bounds { shared_bytes, ..self.bounds }, ..self }
    }

    /// The geometry of channels that are written by RDMA over a device of this kind, if there are any. A block that is to
    /// have another length is another channel: registered memory is spent whether it is used or not. There is none for
    /// long records, whose sender writes to memory of its own first.
    pub fn by_rdma(config: &Config, kind: DeviceKind) -> Option<Self> {
        let design = match config.fastpath {
            FastPath::Auto => automatic(kind),
            design => design,
        };
        let geometry = Self::through(config, medium_of(kind));
        let bounds = Bounds { long_bytes: 0, ..geometry.bounds };
        (design != FastPath::Off).then_some(Self { design, bounds, ..geometry })
    }

    /// The same design, with blocks of another length.
    pub fn with_block(self, block_bytes: usize) -> Self {
        Self { block_bytes, ..self }
    }

    /// The geometry of a channel that a peer asks for by its number: the same design, with a block of any length within
    /// the bounds; `None` if it is not that.
    pub fn asked(&self, number: u64) -> Option<Self> {
        let len = usize::try_from(number & LENGTH_MASK).ok()?;
        let asked = if self.slots().is_some() { *self } else { self.with_block(len) };
        let longest = self.bounds.max_bytes.max(self.block_bytes);
        let shortest = self.bounds.min_bytes.min(self.block_bytes);
        let follows = self.design == FastPath::Veloblock
            && (shortest..=longest).contains(&len)
            && len.is_multiple_of(BLOCK_STEP_BYTES);
        (asked.number() == number && (asked == *self || follows)).then_some(asked)
    }

    /// Bytes that a channel of this geometry takes beyond one as it is in the beginning.
    pub fn beyond(&self, first: &Self) -> u64 {
        self.block_bytes.saturating_sub(first.block_bytes) as u64
    }

    /// Design and length as a number, the same at both ends of a channel.
    pub fn number(&self) -> u64 {
        let design = match self.design {
            FastPath::Auto | FastPath::Off => 0,
            FastPath::FixedTop => 1,
            FastPath::FixedTopReduced => 2,
            FastPath::FixedBottom => 3,
            FastPath::VariableTop => 4,
            FastPath::Veloblock => 5,
        };
        let len = if self.slots().is_some() { 0 } else { self.block_bytes as u64 };
        design << DESIGN_SHIFT | len
    }

    /// Bytes of the receiver's memory for a channel that is written by RDMA, with the control line.
    pub fn footprint(&self) -> usize {
        CONTROL_BYTES + self.channel_bytes().0
    }

    /// Bytes of a sender's copy, with the control line; 0 if it keeps none.
    pub fn copy_bytes(&self) -> usize {
        match self.channel_bytes().1 {
            0 => 0,
            bytes => CONTROL_BYTES + bytes,
        }
    }

    /// The sending end that writes by RDMA to `target`; of a channel that comes after `before`, if there is one.
    pub fn by_rdma_to(&self, target: Carried, before: Option<&AnySender<Carried>>) -> AnySender<Carried> {
        let len = self.block_bytes;
        match (self.design, self.slots(), before) {
            (_, Some((fill, count)), _) => AnySender::Fixed(FixedSender::new(target, fill, count)),
            (FastPath::VariableTop, None, _) => AnySender::VariableTop(VariableTopSender::new(target, len)),
            (_, None, Some(AnySender::VariableBottom(before))) => {
                AnySender::VariableBottom(VariableBottomSender::after(before, target, len))
            }
            _ => AnySender::VariableBottom(VariableBottomSender::new(target, len, self.bounds)),
        }
    }

    /// The design.
    pub fn design(&self) -> FastPath {
        self.design
    }

    fn slots(&self) -> Option<(Fill, usize)> {
        match self.design {
            FastPath::FixedTop => Some((Fill::Top, SLOT_COUNT)),
            FastPath::FixedTopReduced => Some((Fill::Top, SLOT_COUNT_REDUCED)),
            FastPath::FixedBottom => Some((Fill::Bottom, SLOT_COUNT)),
            FastPath::Auto | FastPath::Off | FastPath::VariableTop | FastPath::Veloblock => None,
        }
    }

    /// Bytes to set aside for each channel in its receiver's memory, besides the control line. They cost nothing before
    /// they are used.
    pub fn reserved_bytes(&self) -> usize {
        match (self.design, self.slots()) {
            (_, Some((_, count))) => count * fixed::SLOT_BYTES,
            (FastPath::Veloblock, None) => self.longest_bytes,
            _ => self.block_bytes,
        }
    }

    /// Bytes to set aside for each shuttle ([`lockfree::shuttle`]) between two processes; 0 if there are none. They cost nothing
    /// before they are used.
    pub fn shuttle_bytes(&self) -> usize {
        if self.design == FastPath::Veloblock { self.shuttle_bytes } else { 0 }
    }

    /// Longest payload of a record in a channel as it is in the beginning, in bytes; those who have none send shorter ones.
    pub fn payload_max_bytes(&self) -> usize {
        match self.design {
            FastPath::Off => mailbox::PAYLOAD_MAX_BYTES,
            FastPath::VariableTop => variable_top::payload_max_bytes(self.block_bytes),
            FastPath::Auto | FastPath::Veloblock => block::payload_max_bytes(self.block_bytes),
            FastPath::FixedTop | FastPath::FixedTopReduced | FastPath::FixedBottom => fixed::PAYLOAD_MAX_BYTES,
        }
    }

    /// Bytes that one channel takes when it begins: in the receiver's memory, and the sender's copy.
    pub fn channel_bytes(&self) -> (usize, usize) {
        match (self.design, self.slots()) {
            (FastPath::Off, _) => (0, 0),
            (_, Some((Fill::Top, count))) => (count * fixed::SLOT_BYTES, count * fixed::SLOT_BYTES),
            (_, Some((Fill::Bottom, count))) => (count * fixed::SLOT_BYTES, 0),
            (FastPath::VariableTop, None) => (self.block_bytes, self.block_bytes),
            (_, None) => (self.block_bytes, 0),
        }
    }

    /// The block filled from its bottom in zeroed `memory`, if that is the design.
    pub(crate) fn block(&self, memory: &SharedMemory) -> Option<BlockSender> {
        (self.design == FastPath::Veloblock)
            .then(|| BlockSender::resizable(memory.clone(), self.block_bytes, self.bounds))
    }

    /// The sending end in zeroed `memory`, if there is another design.
    pub(crate) fn other(&self, memory: &SharedMemory) -> Option<OtherSender> {
        match (self.design, self.slots()) {
            (_, Some((fill, count))) => Some(OtherSender::Fixed(FixedSender::mapped(memory.clone(), fill, count))),
            (FastPath::VariableTop, None) => {
                Some(OtherSender::VariableTop(VariableTopSender::mapped(memory.clone(), self.block_bytes)))
            }
            _ => None,
        }
    }

    /// The receiving end over zeroed `memory`, which grows as far as `allowance` goes; `None` if there are no channels.
    pub fn receiver(&self, memory: SharedMemory, allowance: &Allowance) -> Option<Receiver> {
        match (self.design, self.slots()) {
            (FastPath::Off, _) => None,
            (_, Some((fill, count))) => {
                Some(Receiver::Other(OtherReceiver::Fixed(FixedReceiver::new(memory, fill, count))))
            }
            (FastPath::VariableTop, None) => {
                let receiver = VariableTopReceiver::new(memory, self.block_bytes);
                Some(Receiver::Other(OtherReceiver::VariableTop(receiver)))
            }
            (_, None) => Some(Receiver::Block(BlockReceiver::new(memory, self.block_bytes).within(allowance.clone()))),
        }
    }
}

/// The design over a device where none was asked for. Over shared memory a write is done while it is posted, and a message
/// of 8 bytes takes half of the time. Over sockets a frame is a frame, whatever it does at its end, and the control
/// lines are frames on top. Adapters of their own have not been measured: Soft-RoCE alone says little about them.
fn automatic(kind: DeviceKind) -> FastPath {
    match kind {
        DeviceKind::Shm => FastPath::Veloblock,
        DeviceKind::Loopback | DeviceKind::Tcp | DeviceKind::Sim | DeviceKind::Verbs => FastPath::Off,
    }
}

impl<T: Target> RecordSender for AnySender<T> {
    fn push(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        match self {
            Self::Fixed(sender) => sender.push(record, len_bytes, fill),
            Self::VariableTop(sender) => sender.push(record, len_bytes, fill),
            Self::VariableBottom(sender) => sender.push(record, len_bytes, fill),
        }
    }

    fn payload_max_bytes(&self) -> usize {
        match self {
            Self::Fixed(sender) => sender.payload_max_bytes(),
            Self::VariableTop(sender) => sender.payload_max_bytes(),
            Self::VariableBottom(sender) => sender.payload_max_bytes(),
        }
    }

    fn hint(&self) -> u64 {
        match self {
            Self::Fixed(sender) => sender.hint(),
            Self::VariableTop(sender) => sender.hint(),
            Self::VariableBottom(sender) => sender.hint(),
        }
    }

    fn credit(&mut self, consumed: u64) {
        match self {
            Self::Fixed(sender) => sender.credit(consumed),
            Self::VariableTop(sender) => sender.credit(consumed),
            Self::VariableBottom(sender) => sender.credit(consumed),
        }
    }

    fn produced(&self) -> u64 {
        match self {
            Self::Fixed(sender) => sender.produced(),
            Self::VariableTop(sender) => sender.produced(),
            Self::VariableBottom(sender) => sender.produced(),
        }
    }
}

impl AnySender<Carried> {
    /// What it writes to.
    pub fn carried(&mut self) -> &mut Carried {
        match self {
            Self::Fixed(sender) => sender.target(),
            Self::VariableTop(sender) => sender.target(),
            Self::VariableBottom(sender) => sender.target(),
        }
    }

    /// How long the block should be instead, in bytes, if it is known that it should.
    #[inline]
    pub fn wanted_bytes(&self) -> Option<usize> {
        match self {
            Self::VariableBottom(sender) => sender.wanted_bytes(),
            Self::Fixed(_) | Self::VariableTop(_) => None,
        }
    }

    /// There will be no block of the length that was asked for; true if a record waits that this one is too short for.
    pub fn declined(&mut self) -> bool {
        match self {
            Self::VariableBottom(sender) => sender.declined(),
            Self::Fixed(_) | Self::VariableTop(_) => false,
        }
    }
}

/// Whether a channel is used, found out by looking now and then what was sent through it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Idleness {
    /// What had been sent at the last look.
    seen: u64,
    /// Looks since which that has not changed.
    looks: u32,
}

impl Idleness {
    /// Notes what has been sent so far, in units of the design; true if that has not changed for `looks_max` looks.
    pub fn look(&mut self, produced: u64, looks_max: u32) -> bool {
        self.looks = if produced == self.seen { self.looks.saturating_add(1) } else { 0 };
        self.seen = produced;
        self.looks >= looks_max
    }
}

impl OtherReceiver {
    /// Bytes of the channel in the receiver's memory, but for the control line.
    pub fn channel_bytes(&self) -> usize {
        match self {
            Self::Fixed(receiver) => receiver.channel_bytes(),
            Self::VariableTop(receiver) => receiver.channel_bytes(),
        }
    }
}

impl RecordReceiver for OtherReceiver {
    fn pop(&mut self, take: impl FnOnce(Record, &[u8])) -> bool {
        match self {
            Self::Fixed(receiver) => receiver.pop(take),
            Self::VariableTop(receiver) => receiver.pop(take),
        }
    }

    fn credits_due(&self) -> bool {
        match self {
            Self::Fixed(receiver) => receiver.credits_due(),
            Self::VariableTop(receiver) => receiver.credits_due(),
        }
    }

    fn return_credits(&mut self, offer: bool) -> Option<u64> {
        match self {
            Self::Fixed(receiver) => receiver.return_credits(offer),
            Self::VariableTop(receiver) => receiver.return_credits(offer),
        }
    }

    fn set_hint(&self, hint: u64) {
        match self {
            Self::Fixed(receiver) => receiver.set_hint(hint),
            Self::VariableTop(receiver) => receiver.set_hint(hint),
        }
    }

    fn consumed(&self) -> u64 {
        match self {
            Self::Fixed(receiver) => receiver.consumed(),
            Self::VariableTop(receiver) => receiver.consumed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_granted_within_the_bounds_of_whoever_grants_it() {
        let config = Config { fastpath: FastPath::Veloblock, channel_bytes: Some(64 << 10), ..Config::default() };
        let ours = Geometry::by_rdma(&config, DeviceKind::Tcp).expect("asked for");
        for (block_bytes, granted) in [
            (0, false),
            (8 << 10, false),
            (16 << 10, true),
            (24 << 10, true),
            (64 << 10, true),
            (256 << 10, true),
            (384 << 10, false),
            ((16 << 10) + 64, false),
        ] {
            let asked = ours.asked(ours.with_block(block_bytes).number());
            assert_eq!(asked, granted.then_some(ours.with_block(block_bytes)), "{block_bytes} bytes");
        }
        let beyond = [16, 64, 96].map(|kib| ours.with_block(kib << 10).beyond(&ours));
        assert_eq!(beyond, [0, 0, 32 << 10]);
        for fastpath in [FastPath::FixedTop, FastPath::FixedBottom, FastPath::VariableTop] {
            let other = Geometry::by_rdma(&Config { fastpath, ..config.clone() }, DeviceKind::Tcp).expect("asked for");
            assert_eq!(other.asked(other.number()), Some(other));
            assert_eq!(ours.asked(other.number()), None, "{fastpath:?}");
            assert_eq!(other.asked(ours.number()), None, "{fastpath:?}");
            assert_eq!(other.asked(other.number() + 256), None, "{fastpath:?}: it has one length");
        }
        assert_eq!(ours.asked(u64::MAX), None);
    }

    /// Processes on cores of two kinds lay out the memory they share in the same way.
    #[test]
    fn blocks_for_long_records_follow_the_cache_and_their_place_does_not() {
        let geometry = |near_cache_bytes| Geometry::new(&Config { near_cache_bytes, ..Config::default() });
        for (near_kib, long_kib) in
            [(None, 2048), (Some(64), 768), (Some(512), 1024), (Some(1280), 2048), (Some(1 << 40), 2048)]
        {
            let geometry = geometry(near_kib.map(|kib| kib << 10));
            assert_eq!(
                (geometry.bounds.long_bytes, geometry.reserved_bytes()),
                (long_kib << 10, 2 << 20),
                "{near_kib:?}"
            );
        }
        let config = Config { channel_long_bytes: Some(4 << 20), near_cache_bytes: Some(1 << 20), ..Config::default() };
        let asked = Geometry::new(&config);
        assert_eq!((asked.bounds.long_bytes, asked.reserved_bytes()), (4 << 20, 4 << 20), "what is set holds");
        assert!(lockfree::block::payload_max_bytes(LONG_BYTES.0) as u64 >= crate::rendezvous::WHOLE_MAX_BYTES);
    }

    #[test]
    fn where_processors_are_shared_each_block_has_a_share_of_the_memory() {
        let geometry = Geometry::new(&Config { near_cache_bytes: Some(512 << 10), ..Config::default() });
        for (memory_bytes, peer_count, kib) in
            [(700 << 10, 7, 64 + 100), (0, 3, 64), (8 << 20, 3, 1024), (1000, 0, 64), (usize::MAX, 1, 1024)]
        {
            let shared_bytes = geometry.sharing(memory_bytes, peer_count).bounds.shared_bytes;
            assert_eq!(shared_bytes >> 10, kib, "{memory_bytes} for {peer_count}");
        }
    }

    #[test]
    fn a_channel_is_idle_after_looks_without_a_record() {
        let mut idleness = Idleness::default();
        let looks = [1, 1, 1, 5, 5, 5, 5].map(|produced| idleness.look(produced, 2));
        assert_eq!(looks, [false, false, true, false, false, true, true]);
    }
}
