//! Frames: what travels once both sides have proved themselves.
//!
//! ```text
//!    0  kind:1  flags:1  parts:2      16  received: frames the sender has of this lane:8
//!    4  CRC32C of the head:4          24  payload bytes:8
//!    8  sequence, packet or epoch:8   32  the packet's header:64 (packets only)
//! ```
//! Little endian. The sum of the check begins with the first four bytes and goes on behind it. The payload follows, and
//! its CRC32C if the flag says so. A packet names the bytes of its whole payload; with several parts, the first of them
//! follows it and the others follow a head of their own on other lanes.

use super::peer::LANES_MAX;
use crate::link::HEADER_BYTES;

/// Bytes of a head without a packet's header.
pub(super) const SHORT_BYTES: usize = 32;
/// Bytes of a head with one.
pub(super) const LONG_BYTES: usize = SHORT_BYTES + HEADER_BYTES;
/// Bytes of the check behind a payload.
pub(super) const CHECK_BYTES: usize = 4;
const FLAG_CHECKED: u8 = 1;
const FLAG_ASYNCHRONOUS: u8 = 2;

/// A frame's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head<'a> {
    pub(super) kind: Kind<'a>,
    /// Frames of this lane that the sender has received.
    pub(super) received: u64,
}

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind<'a> {
    /// Number `sequence` of this direction.
    Packet { sequence: u64, header: &'a [u8; HEADER_BYTES], payload_bytes: u64, part_count: u16, is_checked: bool },
    /// The part of packet `packet` that belongs to this lane.
    Part { packet: u64, payload_bytes: u64, is_checked: bool },
    /// Nothing but what has been received.
    Acknowledge,
    /// This connection counts, until one with a higher epoch does. Tells whether the sender answers without its process
    /// polling.
    Resume { epoch: u64, is_asynchronous: bool },
    /// The sender leaves for good.
    Goodbye,
    /// Are you there? An acknowledgement is the answer.
    Ask,
}

/// Why bytes are no head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BadHead {
    /// They were damaged on their way.
    Damaged,
    /// They were meant so.
    Nonsense,
}

impl Head<'_> {
    /// The head's bytes, and how many of them count.
    pub(super) fn to_bytes(self) -> ([u8; LONG_BYTES], usize) {
        let mut bytes = [0; LONG_BYTES];
        let len = self.kind.put(&mut bytes);
        stamp(&mut bytes[..len], self.received);
        (bytes, len)
    }
}

impl Kind<'_> {
    /// Writes a head that is to be stamped still; returns how many of the bytes count.
    pub(super) fn put(&self, bytes: &mut [u8; LONG_BYTES]) -> usize {
        let checked = |is_checked| if is_checked { FLAG_CHECKED } else { 0 };
        let (code, flags, part_count, word, payload_bytes) = match self {
            Self::Packet { sequence, header, payload_bytes, part_count, is_checked } => {
                bytes[SHORT_BYTES..].copy_from_slice(*header);
                (1, checked(*is_checked), *part_count, *sequence, *payload_bytes)
            }
            Self::Acknowledge => (2, 0, 0, 0, 0),
            Self::Resume { epoch, is_asynchronous } => {
                (3, if *is_asynchronous { FLAG_ASYNCHRONOUS } else { 0 }, 0, *epoch, 0)
            }
            Self::Goodbye => (4, 0, 0, 0, 0),
            Self::Part { packet, payload_bytes, is_checked } => (5, checked(*is_checked), 0, *packet, *payload_bytes),
            Self::Ask => (6, 0, 0, 0, 0),
        };
        bytes[..2].copy_from_slice(&[code, flags]);
        bytes[2..4].copy_from_slice(&part_count.to_le_bytes());
        bytes[8..16].copy_from_slice(&word.to_le_bytes());
        bytes[24..32].copy_from_slice(&payload_bytes.to_le_bytes());
        if code == 1 { LONG_BYTES } else { SHORT_BYTES }
    }
}

/// Writes what has been received into a head, all of whose bytes these are, and its check.
pub(super) fn stamp(head: &mut [u8], received: u64) {
    head[16..24].copy_from_slice(&received.to_le_bytes());
    let check = check_of(head);
    head[4..8].copy_from_slice(&check.to_le_bytes());
}

/// The check of a head, all of whose bytes these are: its first word is where the sum begins, so that all that is summed
/// lies in one piece.
fn check_of(head: &[u8]) -> u32 {
    let first = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    crc32c::crc32c_append(first, &head[8..])
}

/// The head at the beginning of `bytes` and its length; `None` if there are not enough of them yet.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Head<'_>, usize)>, BadHead> {
    let Some(short) = bytes.first_chunk::<SHORT_BYTES>() else { return Ok(None) };
    let len = if short[0] == 1 { LONG_BYTES } else { SHORT_BYTES };
    let Some(whole) = bytes.get(..len) else { return Ok(None) };
    if check_of(whole).to_le_bytes() != short[4..8] {
        return Err(BadHead::Damaged);
    }
    let word = |at: usize| u64::from_le_bytes(short[at..at + 8].try_into().expect("eight bytes"));
    let (first, payload_bytes) = (word(8), word(24));
    let part_count = u16::from_le_bytes([short[2], short[3]]);
    let kind = match (short[0], short[1]) {
        (1, flags @ (0 | FLAG_CHECKED)) if (1..=LANES_MAX as u16).contains(&part_count) => {
            let header = whole.last_chunk::<HEADER_BYTES>().ok_or(BadHead::Nonsense)?;
            Kind::Packet { sequence: first, header, payload_bytes, part_count, is_checked: flags != 0 }
        }
        (2, 0) if first == 0 => Kind::Acknowledge,
        (3, flags @ (0 | FLAG_ASYNCHRONOUS)) => Kind::Resume { epoch: first, is_asynchronous: flags != 0 },
        (4, 0) if first == 0 => Kind::Goodbye,
        (5, flags @ (0 | FLAG_CHECKED)) => Kind::Part { packet: first, payload_bytes, is_checked: flags != 0 },
        (6, 0) if first == 0 => Kind::Ask,
        _ => return Err(BadHead::Nonsense),
    };
    let has_payload = matches!(kind, Kind::Packet { .. } | Kind::Part { .. });
    if short[0] != 1 && part_count != 0 || !has_payload && payload_bytes != 0 {
        return Err(BadHead::Nonsense);
    }
    Ok(Some((Head { kind, received: word(16) }, len)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Packets with an empty header.
    fn any_kind() -> impl Strategy<Value = Kind<'static>> {
        prop_oneof![
            (any::<u64>(), any::<u64>(), 1u16..=16, any::<bool>()).prop_map(
                |(sequence, payload_bytes, part_count, is_checked)| {
                    Kind::Packet { sequence, header: &[0; HEADER_BYTES], payload_bytes, part_count, is_checked }
                }
            ),
            (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(packet, payload_bytes, is_checked)| Kind::Part {
                packet,
                payload_bytes,
                is_checked
            }),
            Just(Kind::Acknowledge),
            (any::<u64>(), any::<bool>()).prop_map(|(epoch, is_asynchronous)| Kind::Resume { epoch, is_asynchronous }),
            Just(Kind::Goodbye),
            Just(Kind::Ask),
        ]
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_again_and_damage_is_seen(
            mut kind in any_kind(), half: [u8; 32], received: u64, bit in 0usize..768,
        ) {
            let bytes: [u8; HEADER_BYTES] = std::array::from_fn(|index| half[index % 32]);
            if let Kind::Packet { header, .. } = &mut kind {
                *header = &bytes;
            }
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
            code in 0u8..8, flags in 0u8..4, rest in prop::collection::vec(any::<u8>(), LONG_BYTES), clear: u8,
        ) {
            let mut bytes: [u8; LONG_BYTES] = rest.try_into().expect("as many");
            bytes[..8].copy_from_slice(&[code, flags, clear % 18, 0, 0, 0, 0, 0]);
            for at in [8, 24] {
                if clear & 32 != 0 {
                    bytes[at..at + 8].fill(0);
                }
            }
            let len = if code == 1 { LONG_BYTES } else { SHORT_BYTES };
            let check = check_of(&bytes[..len]);
            bytes[4..8].copy_from_slice(&check.to_le_bytes());
            if let Ok(parsed) = parse(&bytes) {
                let (head, used) = parsed.expect("there are enough bytes");
                prop_assert_eq!(used, len);
                prop_assert_eq!(&head.to_bytes().0[..len], &bytes[..len]);
            }
        }
    }
}
