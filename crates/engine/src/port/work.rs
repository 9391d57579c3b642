//! What work requests are for.

/// What a work request was for; travels in its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// A slot of the pool that a record fills.
    Receive(u32),
    /// A slot of the pool on its way out.
    Send(u32),
    /// A slot that a hello fills.
    ReceiveHello(u32),
    /// A hello on its way out.
    SendHello(u32),
    /// A piece of a long message, by RDMA.
    Transfer(u32),
    /// Something written into a channel to this peer, before the rest of a record.
    Word(u32),
    /// A record, or the rest of it, written into a channel to this peer.
    Record(u32),
    /// A slot with a control line on its way out.
    Show(u32),
}

impl Work {
    pub(crate) fn id(self) -> u64 {
        let (kind, number) = match self {
            Self::Receive(number) => (0u64, number),
            Self::Send(number) => (1, number),
            Self::ReceiveHello(number) => (2, number),
            Self::SendHello(number) => (3, number),
            Self::Transfer(number) => (4, number),
            Self::Word(peer) => (5, peer),
            Self::Record(peer) => (6, peer),
            Self::Show(number) => (7, number),
        };
        kind << 32 | u64::from(number)
    }

    pub(crate) fn of_id(id: u64) -> Option<Self> {
        let number = id as u32;
        Some(match id >> 32 {
            0 => Self::Receive(number),
            1 => Self::Send(number),
            2 => Self::ReceiveHello(number),
            3 => Self::SendHello(number),
            4 => Self::Transfer(number),
            5 => Self::Word(number),
            6 => Self::Record(number),
            7 => Self::Show(number),
            _ => return None,
        })
    }
}
