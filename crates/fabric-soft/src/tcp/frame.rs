//! Frames: what travels once both sides have proved themselves.
//!
//! ```text
//!    0  kind:1  flags:1  zero:2       16  received: frames the sender has of the receiver:8
//!    4  CRC32C of the head:4          24  payload bytes:8
//!    8  sequence, or epoch:8          32  the packet's header:64 (packets only)
//! ```
//! Little endian; the payload follows, and its CRC32C if the flag says so.

use crate::link::HEADER_BYTES;

/// Bytes of a head without a packet's header.
pub(super) const SHORT_BYTES: usize = 32;
/// Bytes of a head with one.
pub(super) const LONG_BYTES: usize = SHORT_BYTES + HEADER_BYTES;
/// Bytes of the check behind a payload.
pub(super) const CHECK_BYTES: usize = 4;
const FLAG_CHECKED: u8 = 1;

/// A frame's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// Packets the sender has received, all up to this one.
    pub(super) received: u64,
}

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Number `sequence` of this direction.
    Packet { sequence: u64, header: [u8; HEADER_BYTES], payload_bytes: u64, is_checked: bool },
    /// Nothing but what has been received.
    Acknowledge,
    /// This connection counts, until one with a higher epoch does.
    Resume { epoch: u64 },
    /// The sender leaves for good.
    Goodbye,
}

/// Why bytes are no head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BadHead {
    /// They were damaged on their way.
    Damaged,
    /// They were meant so.
    Nonsense,
}

impl Head {
    /// The head's bytes, and how many of them count.
    pub(super) fn to_bytes(self) -> ([u8; LONG_BYTES], usize) {
        let mut bytes = [0; LONG_BYTES];
        let (code, word, payload_bytes) = match &self.kind {
            Kind::Packet { sequence, header, payload_bytes, is_checked } => {
                bytes[1] = if *is_checked { FLAG_CHECKED } else { 0 };
                bytes[SHORT_BYTES..].copy_from_slice(header);
                (1, *sequence, *payload_bytes)
            }
            Kind::Acknowledge => (2, 0, 0),
            Kind::Resume { epoch } => (3, *epoch, 0),
            Kind::Goodbye => (4, 0, 0),
        };
        bytes[0] = code;
        bytes[8..16].copy_from_slice(&word.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.received.to_le_bytes());
        bytes[24..32].copy_from_slice(&payload_bytes.to_le_bytes());
        let len = if code == 1 { LONG_BYTES } else { SHORT_BYTES };
        let check = crc32c::crc32c(&bytes[..len]);
        bytes[4..8].copy_from_slice(&check.to_le_bytes());
        (bytes, len)
    }
}

/// The head at the beginning of `bytes` and its length; `None` if there are not enough of them yet.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, BadHead> {
    let Some(short) = bytes.first_chunk::<SHORT_BYTES>() else { return Ok(None) };
    let len = if short[0] == 1 { LONG_BYTES } else { SHORT_BYTES };
    let Some(whole) = bytes.get(..len) else { return Ok(None) };
    let zeroed = crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&whole[..4]), &[0; 4]), &whole[8..]);
    if zeroed.to_le_bytes() != short[4..8] {
        return Err(BadHead::Damaged);
    }
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| short[at + index]));
    let (first, payload_bytes) = (word(8), word(24));
    let kind = match (short[0], short[1]) {
        (1, flags @ (0 | FLAG_CHECKED)) => {
            let header = *whole.last_chunk::<HEADER_BYTES>().ok_or(BadHead::Nonsense)?;
            Kind::Packet { sequence: first, header, payload_bytes, is_checked: flags != 0 }
        }
        (2, 0) if first == 0 => Kind::Acknowledge,
        (3, 0) => Kind::Resume { epoch: first },
        (4, 0) if first == 0 => Kind::Goodbye,
        _ => return Err(BadHead::Nonsense),
    };
    if short[2..4] != [0, 0] || len == SHORT_BYTES && payload_bytes != 0 {
        return Err(BadHead::Nonsense);
    }
    Ok(Some((Head { kind, received: word(16) }, len)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_kind() -> impl Strategy<Value = Kind> {
        prop_oneof![
            (any::<u64>(), any::<[u8; 32]>(), any::<u64>(), any::<bool>()).prop_map(
                |(sequence, half, payload_bytes, is_checked)| {
                    let header = std::array::from_fn(|index| half[index % 32]);
                    Kind::Packet { sequence, header, payload_bytes, is_checked }
                }
            ),
            Just(Kind::Acknowledge),
            any::<u64>().prop_map(|epoch| Kind::Resume { epoch }),
            Just(Kind::Goodbye),
        ]
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_again_and_damage_is_seen(kind in any_kind(), received: u64, bit in 0usize..768) {
            let head = Head { kind, received };
            let (bytes, len) = head.to_bytes();
            prop_assert_eq!(parse(&bytes), Ok(Some((head, len))));
            prop_assert_eq!(parse(&bytes[..len - 1]), Ok(None));
            let mut damaged = bytes;
            damaged[bit % (len * 8) / 8] ^= 1 << (bit % 8);
            prop_assert!(!matches!(parse(&damaged), Ok(Some(_))), "one bit");
        }

        /// Anything, with a right check so that it is looked at.
        #[test]
        fn any_bytes_are_refused_or_stand_for_themselves(
            code in 0u8..6, flags in 0u8..4, rest in prop::collection::vec(any::<u8>(), LONG_BYTES), clear: u8,
        ) {
            let mut bytes: [u8; LONG_BYTES] = rest.try_into().expect("as many");
            bytes[..8].copy_from_slice(&[code, flags, clear & 1, 0, 0, 0, 0, 0]);
            for at in [8, 24] {
                if clear & 2 != 0 {
                    bytes[at..at + 8].fill(0);
                }
            }
            let len = if code == 1 { LONG_BYTES } else { SHORT_BYTES };
            let check = crc32c::crc32c(&bytes[..len]);
            bytes[4..8].copy_from_slice(&check.to_le_bytes());
            if let Ok(parsed) = parse(&bytes) {
                let (head, used) = parsed.expect("there are enough bytes");
                prop_assert_eq!(used, len);
                prop_assert_eq!(&head.to_bytes().0[..len], &bytes[..len]);
            }
        }
    }
}
