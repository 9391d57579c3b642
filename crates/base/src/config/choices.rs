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
