//! Which design a fast path has, and what that means for its memory.

use base::Config;
use base::config::FastPath;
use fabric::{DeviceKind, SharedMemory};
use lockfree::block::{self, Allowance, BlockReceiver, BlockSender, Bounds};
use lockfree::fastpath::fixed::{self, Fill, FixedReceiver, FixedSender};
use lockfree::fastpath::variable_top::{self, VariableTopReceiver, VariableTopSender};
use lockfree::fastpath::{CONTROL_BYTES, Carried, Mapped, RecordReceiver, RecordSender, Target, VariableBottomSender};
use lockfree::{Record, mailbox};

/// In a hint: the receiver asks for no eager data now.
pub const HOLD_BACK: u64 = 1;
/// In a hint: the receiver does not poll this channel; records are announced.
pub const COLD: u64 = 2;

/// Slots of the original design. Paper: veloblock §5.4.
const SLOT_COUNT: usize = 32;
/// Slots of the original design reduced to 32 KiB, the sender's copy included. Paper: veloblock §6.2.
const SLOT_COUNT_REDUCED: usize = 2;

/// The design of all channels of a job, and how long they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    design: FastPath,
    block_bytes: usize,
    bounds: Bounds,
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

impl Geometry {
    /// The geometry over mapped memory, as configured.
    pub fn new(config: &Config) -> Self {
        let block_bytes = config.channel_bytes;
        let bounds = Bounds {
            min_bytes: config.channel_min_bytes,
            max_bytes: config.channel_max_bytes,
            long_bytes: config.channel_long_bytes,
        };
        let design = match config.fastpath {
            FastPath::Auto => FastPath::Veloblock,
            design => design,
        };
        Self { design, block_bytes, bounds }
    }

    /// The geometry of channels that are written by RDMA over a device of this kind, if there are any. They stay as long as
    /// they are: registered memory is spent whether it is used or not.
    pub fn by_rdma(config: &Config, kind: DeviceKind) -> Option<Self> {
        let design = match config.fastpath {
            FastPath::Auto => automatic(kind),
            design => design,
        };
        let block_bytes = config.channel_bytes;
        let bounds = Bounds { min_bytes: block_bytes, max_bytes: block_bytes, long_bytes: 0 };
        (design != FastPath::Off).then_some(Self { design, block_bytes, bounds })
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
        design << 56 | len
    }

    /// Bytes of the receiver's memory, with the control line.
    pub fn footprint(&self) -> usize {
        CONTROL_BYTES + self.reserved_bytes()
    }

    /// Bytes of a sender's copy, with the control line; 0 if it keeps none.
    pub fn copy_bytes(&self) -> usize {
        match self.channel_bytes().1 {
            0 => 0,
            bytes => CONTROL_BYTES + bytes,
        }
    }

    /// The sending end that writes by RDMA to `target`.
    pub fn by_rdma_to(&self, target: Carried) -> AnySender<Carried> {
        match (self.design, self.slots()) {
            (_, Some((fill, count))) => AnySender::Fixed(FixedSender::new(target, fill, count)),
            (FastPath::VariableTop, None) => AnySender::VariableTop(VariableTopSender::new(target, self.block_bytes)),
            _ => AnySender::VariableBottom(VariableBottomSender::new(target, self.block_bytes)),
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
            (FastPath::Veloblock, None) => self.bounds.max_bytes.max(self.bounds.long_bytes).max(self.block_bytes),
            _ => self.block_bytes,
        }
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
