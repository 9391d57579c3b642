//! Settings that are one of a few words.

/// Whether processes on one host may copy from each other's private memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrossMemory {
    /// Try, and stage through shared memory where the kernel refuses.
    Auto,
    /// Never try.
    Off,
}

/// Who moves the bytes of a large message on shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LargeCopy {
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

impl InitialErrors {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Fatal, "mpi_errors_are_fatal"), (Self::Abort, "mpi_errors_abort"), (Self::Return, "mpi_errors_return")];

    /// As users write it.
    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(one, _)| *one == self).map_or("", |(_, name)| name)
    }

    /// What users wrote.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, one)| *one == name).map(|(value, _)| *value)
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
