//! Packets as records of a channel.
//!
//! ```text
//!   Whole   header:64 | payload                     small payloads
//!   Lent    header:64 | (address:8 length:8) …      the receiver copies from the sender's memory
//!   First   header:64                                long = bytes in all; pieces follow
//!   Piece   payload
//! ```

use base::memory::ReadRange;
use fabric::RemotePiece;
use lockfree::Record;

use crate::link::HEADER_BYTES;

const WHOLE: u8 = 1;
const LENT: u8 = 2;
const FIRST: u8 = 3;
const PIECE: u8 = 4;

/// Ranges of one lent payload, at most.
pub(super) const LENT_RANGES_MAX: usize = 64;

pub(super) fn whole() -> Record {
    Record { kind: WHOLE, ..Record::default() }
}

pub(super) fn lent() -> Record {
    Record { kind: LENT, ..Record::default() }
}

pub(super) fn first(len_bytes: u64) -> Record {
    Record { kind: FIRST, long: len_bytes as u128, ..Record::default() }
}

pub(super) fn piece() -> Record {
    Record { kind: PIECE, ..Record::default() }
}

/// What a record is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Parsed<'a> {
    Whole { header: [u8; HEADER_BYTES], payload: &'a [u8] },
    Lent { header: [u8; HEADER_BYTES], ranges: Vec<RemotePiece>, len_bytes: u64 },
    First { header: [u8; HEADER_BYTES], len_bytes: u64 },
    Piece { payload: &'a [u8] },
}

/// Understands a record, whose bytes the sender may still be changing: what is decided on is copied first.
pub(super) fn parse(record: Record, bytes: &[u8]) -> Option<Parsed<'_>> {
    if record.kind == PIECE {
        return Some(Parsed::Piece { payload: bytes });
    }
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let header = *header;
    match record.kind {
        WHOLE => Some(Parsed::Whole { header, payload: rest }),
        FIRST if rest.is_empty() => Some(Parsed::First { header, len_bytes: u64::try_from(record.long).ok()? }),
        LENT if rest.len().is_multiple_of(16) && rest.len() <= 16 * LENT_RANGES_MAX => {
            let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            let ranges: Vec<RemotePiece> = rest
                .chunks_exact(16)
                .map(|range| RemotePiece { address: word(&range[..8]), len_bytes: word(&range[8..]) })
                .collect();
            let len_bytes = ranges.iter().try_fold(0u64, |sum, range| sum.checked_add(range.len_bytes))?;
            Some(Parsed::Lent { header, ranges, len_bytes })
        }
        _ => None,
    }
}

/// Bytes of a lent record.
pub(super) const fn lent_bytes(ranges: usize) -> usize {
    HEADER_BYTES + 16 * ranges
}

/// Writes one.
pub(super) fn write_lent(space: &mut [u8], header: &[u8; HEADER_BYTES], ranges: &[ReadRange]) {
    let (head, list) = space.split_at_mut(HEADER_BYTES);
    head.copy_from_slice(header);
    for (slot, range) in list.chunks_exact_mut(16).zip(ranges) {
        slot[..8].copy_from_slice(&(range.address() as u64).to_le_bytes());
        slot[8..].copy_from_slice(&(range.len_bytes() as u64).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_record_is_refused_or_understood(
            kind: u8, long: u128, bytes in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            match parse(Record { kind, long, ..Record::default() }, &bytes) {
                None => {}
                Some(Parsed::Piece { payload }) => prop_assert_eq!(payload, &bytes[..]),
                Some(Parsed::Whole { header, payload }) => {
                    prop_assert_eq!(header.len() + payload.len(), bytes.len());
                }
                Some(Parsed::First { len_bytes, .. }) => prop_assert_eq!(u128::from(len_bytes), long),
                Some(Parsed::Lent { ranges, len_bytes, .. }) => {
                    prop_assert_eq!(lent_bytes(ranges.len()), bytes.len());
                    let sum: u128 = ranges.iter().map(|range| u128::from(range.len_bytes)).sum();
                    prop_assert_eq!(u128::from(len_bytes), sum);
                }
            }
        }

        #[test]
        fn a_lent_list_is_read_again(lengths in prop::collection::vec(0usize..1 << 40, 0..LENT_RANGES_MAX)) {
            // SAFETY: the ranges are only ever looked at as numbers.
            let ranges: Vec<_> = lengths.iter().map(|len| unsafe { ReadRange::new(*len as *const u8, *len) }).collect();
            let mut space = vec![0; lent_bytes(ranges.len())];
            write_lent(&mut space, &[7; HEADER_BYTES], &ranges);
            let Some(Parsed::Lent { header, ranges, .. }) = parse(lent(), &space) else { panic!("it is one") };
            prop_assert_eq!(header, [7; HEADER_BYTES]);
            prop_assert!(ranges.iter().zip(&lengths).all(|(range, len)| range.len_bytes == *len as u64));
            prop_assert_eq!(ranges.len(), lengths.len());
        }
    }
}
