//! What the two ends of a substitute say to each other.
//!
//! ```text
//!   version | kind | names a queue | 0 | queue number:4 | queue pair:4 | sequence number:4 | queue pair to close:4 | 0:12
//! ```
//! Numbers are little endian.

use crate::address::SEQUENCE_NUMBER_MAX;

const VERSION: u8 = 1;
/// Bytes of a message.
pub(crate) const BYTES: usize = 32;
/// Queue pair numbers have 24 bits.
const QUEUE_PAIR_MAX: u32 = 0xff_ffff;

/// One end of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LaneEnd {
    /// Number of the queue pair.
    pub(crate) number: u32,
    /// The first packet sequence number it sends.
    pub(crate) sequence_number: u32,
}

/// A message between the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// Initiator: make me a lane to the shared receive queue of this number, or to none, for operations on memory only.
    Open {
        /// Number of the shared receive queue.
        queue: Option<u32>,
        /// The initiator's end.
        end: LaneEnd,
        /// A lane, named by the target's end, that is not used any more.
        close: Option<u32>,
    },
    /// Target: here is my end.
    Opened(LaneEnd),
    /// Target: there is no such queue.
    Refused,
}

impl Message {
    pub(crate) fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let mut put = |at: usize, number: u32| bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        let (kind, names_queue) = match self {
            Self::Open { queue, end, close } => {
                put(4, queue.unwrap_or(0));
                put(8, end.number);
                put(12, end.sequence_number);
                put(16, close.unwrap_or(0));
                (1, queue.is_some())
            }
            Self::Opened(end) => {
                put(8, end.number);
                put(12, end.sequence_number);
                (2, false)
            }
            Self::Refused => (3, false),
        };
        bytes[..3].copy_from_slice(&[VERSION, kind, u8::from(names_queue)]);
        bytes
    }

    /// What the other end sent; `None` if it makes no sense.
    pub(crate) fn parse(bytes: &[u8; BYTES]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let end = LaneEnd { number: number(8), sequence_number: number(12) };
        let close = (number(16) != 0).then_some(number(16));
        let message = match (bytes[1], bytes[2]) {
            (1, 0) => Self::Open { queue: None, end, close },
            (1, 1) => Self::Open { queue: Some(number(4)), end, close },
            (2, 0) => Self::Opened(end),
            (3, 0) => Self::Refused,
            _ => return None,
        };
        let sensible = end.number <= QUEUE_PAIR_MAX && end.sequence_number <= SEQUENCE_NUMBER_MAX;
        (sensible && message.to_bytes() == *bytes).then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const END: LaneEnd = LaneEnd { number: 0x12_3456, sequence_number: 0xab_cdef };

    fn messages() -> [Message; 4] {
        [
            Message::Open { queue: Some(7), end: END, close: None },
            Message::Open { queue: None, end: END, close: Some(9) },
            Message::Opened(END),
            Message::Refused,
        ]
    }

    #[test]
    fn messages_survive_the_wire() {
        for message in messages() {
            assert_eq!(Message::parse(&message.to_bytes()), Some(message));
        }
        let beyond = LaneEnd { number: 1 << 24, ..END };
        assert_eq!(Message::parse(&Message::Opened(beyond).to_bytes()), None);
    }

    #[test]
    fn damaged_messages_are_refused_or_mean_what_they_say() {
        for message in messages() {
            for at in 0..BYTES {
                for byte in 0..=255 {
                    let mut damaged = message.to_bytes();
                    damaged[at] = byte;
                    if let Some(read) = Message::parse(&damaged) {
                        assert_eq!(read.to_bytes(), damaged);
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_stand_for_themselves(
            // Mostly zeros, which reserved bytes must be.
            mut bytes in prop::array::uniform32(prop_oneof![9 => Just(0u8), 1 => any::<u8>()]),
            kind in 0..5u8,
        ) {
            (bytes[0], bytes[1]) = (VERSION, kind);
            if let Some(read) = Message::parse(&bytes) {
                prop_assert_eq!(read.to_bytes(), bytes);
            }
        }
    }
}
