//! Settings that are one of a few words, and those that belong together.

use std::time::Duration;

use crate::log::Level;

/// The words that users write for the values of a type.
macro_rules! words {
    ($type:ident: $($value:ident = $word:literal),+ $(,)?) => {
        impl $type {
            /// Every value with the word that asks for it.
            pub const ALL: &'static [(&'static str, Self)] = &[$(($word, Self::$value)),+];

            /// What users write.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $word),+
                }
            }

            /// What users wrote.
            pub(super) fn from_word(text: &str) -> Option<Self> {
                Self::ALL.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
            }
        }
    };
}

words!(CrossMemory: Auto = "auto", Off = "off");
words!(ShuttleCopy: Auto = "auto", Loop = "loop", Instruction = "instruction");
words!(LargeCopy: Auto = "auto", Both = "both", Read = "read", Staged = "staged");
words!(
    Rendezvous: Auto = "auto",
    Rput = "rput",
    Rget = "rget",
    Staged = "staged",
    TupleQueue = "tupleq",
    TupleQueueCopy = "tupleq-copy",
);
words!(RegistrationScheme: Interval = "interval", Dme = "dme", Off = "off");
words!(
    InitialErrors: Fatal = "mpi_errors_are_fatal",
    Abort = "mpi_errors_abort",
    Return = "mpi_errors_return",
);
words!(
    FastPath: Auto = "auto",
    Off = "off",
    FixedTop = "fixed-top",
    FixedTopReduced = "fixed-top-reduced",
    FixedBottom = "fixed-bottom",
    VariableTop = "variable-top",
    Veloblock = "veloblock",
);
words!(
    DeviceChoice: Auto = "auto",
    Shm = "shm",
    ShmVerbs = "shm-verbs",
    Tcp = "tcp",
    Verbs = "verbs",
    ShmAndTcp = "shm+tcp",
    ShmAndVerbs = "shm+verbs",
);
words!(
    DatatypeScheme: Auto = "auto",
    Generic = "generic",
    BcSpup = "bc-spup",
    RwgUp = "rwg-up",
    PRrs = "p-rrs",
    MultiW = "multi-w",
    Direct = "direct",
);
words!(Level: Error = "error", Warn = "warn", Info = "info", Debug = "debug");

/// Whether processes on one host may copy from each other's private memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrossMemory {
    /// Try, and stage through shared memory where the kernel refuses.
    Auto,
    /// Never try.
    Off,
}

/// How long messages are copied into shuttles and out of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShuttleCopy {
    /// As was the fastest lately, which each side finds out for itself.
    Auto,
    /// By a loop of loads and stores.
    Loop,
    /// By the processor's own instruction for copying.
    Instruction,
}

impl ShuttleCopy {
    /// Whether by the instruction, if that is certain.
    pub fn by_instruction(self) -> Option<bool> {
        match self {
            Self::Auto => None,
            Self::Loop => Some(false),
            Self::Instruction => Some(true),
        }
    }
}

/// Who moves the bytes of a large message on shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LargeCopy {
    /// Where there is a processor for each process, as was the fastest lately; where there is not, the receiver alone, or
    /// both through the channel if it is short.
    Auto,
    /// Both sides copy chunks when both are in the library.
    Both,
    /// The receiver reads alone.
    Read,
    /// Always staged through the channel.
    Staged,
}

/// How messages that may be long are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rendezvous {
    /// By what is best for the device.
    Auto,
    /// Over verbs the sender writes, and tells the receiver with the last piece.
    Rput,
    /// Over verbs the receiver reads.
    Rget,
    /// Over verbs they go piece by piece through the channel.
    Staged,
    /// Every message goes to a receive queue of its tuple.
    TupleQueue,
    /// So, and short ones that have to wait are copied by their sender.
    TupleQueueCopy,
}

/// How registered memory is kept for the next message from or to the same place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegistrationScheme {
    /// Found again if it covers the buffer.
    Interval,
    /// Found again if it begins at the same address and is long enough (the dynamic memory engine).
    Dme,
    /// Registered for every message.
    Off,
}

/// What happens on errors until a program has chosen for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitialErrors {
    /// All processes end.
    Fatal,
    /// The processes of the communicator end.
    Abort,
    /// The call returns.
    Return,
}

/// How short messages reach a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastPath {
    /// Through blocks filled from their end over mapped memory and over devices where that is faster; over others as
    /// messages.
    Auto,
    /// Through the mailbox that all senders share, or as messages.
    Off,
    /// Slots of 8 KiB filled from their start, and a copy of them at the sender.
    FixedTop,
    /// As before, with only as many slots as take 32 KiB with the copy.
    FixedTopReduced,
    /// Slots of 8 KiB filled to their end.
    FixedBottom,
    /// A block filled from its start, and a copy of it at the sender.
    VariableTop,
    /// A block filled from its end.
    Veloblock,
}

/// Which device carries the messages of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceChoice {
    /// Shared memory among the processes of a host; between hosts an adapter if all processes have one on one network, and
    /// otherwise sockets.
    Auto,
    /// Mapped memory of one host.
    Shm,
    /// Verbs in software over the shared memory of one host.
    ShmVerbs,
    /// Verbs in software over sockets.
    Tcp,
    /// An adapter.
    Verbs,
    /// Mapped memory on each host, sockets between hosts.
    ShmAndTcp,
    /// Mapped memory on each host, an adapter between hosts.
    ShmAndVerbs,
}

/// How data that does not lie in one piece gets across.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DatatypeScheme {
    /// Chosen for each message.
    #[default]
    Auto,
    /// Pack all, send, unpack all.
    Generic,
    /// Pack, transfer and unpack segments at the same time.
    BcSpup,
    /// The sender gathers into packed segments at the receiver.
    RwgUp,
    /// The receiver scatters what it reads of the sender's packed form.
    PRrs,
    /// The sender writes every piece where it belongs.
    MultiW,
    /// Both sides copy from layout to layout.
    Direct,
}

/// Settings of messages whose data does not lie in one piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatatypeSettings {
    /// How long ones get across.
    pub scheme: DatatypeScheme,
    /// A packed form is unpacked segment by segment as it arrives.
    pub segment_unpack: bool,
    /// Many pieces are handed to the device at once.
    pub list_post: bool,
    /// Packed forms held at once, in bytes.
    pub pool_max_bytes: usize,
}

impl Default for DatatypeSettings {
    fn default() -> Self {
        Self { scheme: DatatypeScheme::Auto, segment_unpack: true, list_post: true, pool_max_bytes: 20 << 20 }
    }
}

/// Which adapter, port, GID and partition to use for RDMA; `None` leaves it to us.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VerbsChoice {
    /// The adapter's name.
    pub device: Option<String>,
    /// The port's number, from 1.
    pub port: Option<u8>,
    /// Index into the port's GID table.
    pub gid_index: Option<u32>,
    /// The partition key, with or without its membership bit.
    pub partition: Option<u16>,
    /// The longest packet, in bytes, where the port's own is longer.
    pub mtu_bytes: Option<u32>,
}

/// How sockets to other hosts are used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpChoice {
    /// Which of this host's addresses to listen at, as `FERROVIA_TCP_INTERFACES` is written.
    pub interfaces: String,
    /// A checksum behind each payload.
    pub check_payloads: bool,
    /// Connections to each peer.
    pub connections: usize,
    /// How long a peer may be out of reach until it is lost.
    pub patience: Duration,
    /// A thread works while the process does something else.
    pub thread: bool,
}

impl Default for TcpChoice {
    fn default() -> Self {
        Self {
            interfaces: "auto".into(),
            check_payloads: false,
            connections: 1,
            patience: Duration::from_secs(10),
            thread: false,
        }
    }
}
