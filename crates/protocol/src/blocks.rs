//! Where the blocks of a message belong in the memory of its receiver, as the receiver says it. Paper: datatypes §5.4.2
//!
//! ```text
//!   origin:8 count:8 index:4 version:4 regions:4 layout:4
//!   regions × (address:8 length:8 rkey:4)              in order of address, apart
//!   layout bytes of the wire form                      none if the sender has had this version before
//! ```
//! The layout of the receiver's datatype is sent once; from then on its place in the receiver's table and the version of
//! that place stand for it. The numbers are in native byte order.

use fabric::Rkey;

/// Regions around the blocks of one message, at most.
pub const REGIONS_MAX: usize = 256;

const HEAD_BYTES: usize = 32;
const REGION_BYTES: usize = 20;

/// Memory of the receiver with blocks in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteRegion {
    /// First byte, as an address of the receiver.
    pub address: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// The receiver's key for it.
    pub rkey: Rkey,
}

/// Elements of a datatype in the receiver's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteBlocks<'a> {
    /// The receiver's address of displacement 0 of the first element.
    pub origin: u64,
    /// How many elements there are.
    pub count: u64,
    /// Place of their layout in the receiver's table.
    pub index: u32,
    /// How often the place was filled.
    pub version: u32,
    /// Regions around the blocks, in order of address.
    pub regions: Vec<RemoteRegion>,
    /// The layout's wire form; empty if it was sent before.
    pub layout: &'a [u8],
}

impl<'a> RemoteBlocks<'a> {
    /// Bytes of the payload.
    pub fn len_bytes(&self) -> usize {
        HEAD_BYTES + REGION_BYTES * self.regions.len() + self.layout.len()
    }

    /// Writes the payload.
    ///
    /// # Panics
    /// If `space` is not of [`RemoteBlocks::len_bytes`].
    pub fn write(&self, space: &mut [u8]) {
        let (head, rest) = space.split_at_mut(HEAD_BYTES);
        head[..8].copy_from_slice(&self.origin.to_ne_bytes());
        head[8..16].copy_from_slice(&self.count.to_ne_bytes());
        let halves = [self.index, self.version, self.regions.len() as u32, self.layout.len() as u32];
        for (at, value) in head[16..].chunks_exact_mut(4).zip(halves) {
            at.copy_from_slice(&value.to_ne_bytes());
        }
        let (regions, layout) = rest.split_at_mut(REGION_BYTES * self.regions.len());
        for (at, region) in regions.chunks_exact_mut(REGION_BYTES).zip(&self.regions) {
            at[..8].copy_from_slice(&region.address.to_ne_bytes());
            at[8..16].copy_from_slice(&region.len_bytes.to_ne_bytes());
            at[16..].copy_from_slice(&region.rkey.0.to_ne_bytes());
        }
        layout.copy_from_slice(self.layout);
    }

    /// Understands a payload, or refuses it.
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let (head, rest) = payload.split_first_chunk::<HEAD_BYTES>()?;
        let half = |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().expect("four of them"));
        let word = |at: usize| u64::from_ne_bytes(head[at..at + 8].try_into().expect("eight of them"));
        let (region_count, layout_bytes) = (half(24) as usize, half(28) as usize);
        if region_count == 0 || region_count > REGIONS_MAX {
            return None;
        }
        let (regions, layout) = rest.split_at_checked(REGION_BYTES * region_count)?;
        if layout.len() != layout_bytes {
            return None;
        }
        let regions: Vec<RemoteRegion> = regions.chunks_exact(REGION_BYTES).filter_map(region).collect();
        let apart = |pair: &[RemoteRegion]| pair[0].address + pair[0].len_bytes <= pair[1].address;
        // One that ends beyond the last address is not among them.
        let in_order = regions.len() == region_count && regions.windows(2).all(apart);
        let (origin, count, index, version) = (word(0), word(8), half(16), half(20));
        in_order.then_some(Self { origin, count, index, version, regions, layout })
    }

    /// The key for `len_bytes` bytes at `address`, if they lie in one region.
    pub fn key_of(regions: &[RemoteRegion], address: u64, len_bytes: u64) -> Option<Rkey> {
        let after = regions.partition_point(|region| region.address <= address);
        let region = regions.get(after.checked_sub(1)?)?;
        let inside = (address - region.address).checked_add(len_bytes)? <= region.len_bytes;
        inside.then_some(region.rkey)
    }
}

fn region(bytes: &[u8]) -> Option<RemoteRegion> {
    let (address, rest) = bytes.split_first_chunk::<8>()?;
    let (len_bytes, rkey) = rest.split_first_chunk::<8>()?;
    let (address, len_bytes) = (u64::from_ne_bytes(*address), u64::from_ne_bytes(*len_bytes));
    address.checked_add(len_bytes)?;
    Some(RemoteRegion { address, len_bytes, rkey: Rkey(u32::from_ne_bytes(rkey.try_into().ok()?)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions(count: u64) -> Vec<RemoteRegion> {
        let region = |at| RemoteRegion { address: 1000 + at * 100, len_bytes: 50 + at % 51, rkey: Rkey(at as u32 * 7) };
        (0..count).map(region).collect()
    }

    fn bytes_of(blocks: &RemoteBlocks<'_>) -> Vec<u8> {
        let mut bytes = vec![0; blocks.len_bytes()];
        blocks.write(&mut bytes);
        bytes
    }

    #[test]
    fn blocks_come_back_as_they_went_and_damaged_ones_are_refused() {
        let cases = [(1, &b""[..]), (3, &b"layout"[..]), (REGIONS_MAX as u64, &b""[..])];
        for (count, layout) in cases {
            let blocks = RemoteBlocks {
                origin: 0x1234_5678_9abc_def0,
                count: u64::MAX - 3,
                index: 5,
                version: u32::MAX,
                regions: regions(count),
                layout,
            };
            let bytes = bytes_of(&blocks);
            assert_eq!(RemoteBlocks::parse(&bytes), Some(blocks));
            for len in 0..bytes.len() {
                assert_eq!(RemoteBlocks::parse(&bytes[..len]), None, "{len} bytes");
            }
            assert_eq!(RemoteBlocks::parse(&[&bytes[..], b"x"].concat()), None);
        }
        let blocks = |regions| RemoteBlocks { origin: 0, count: 1, index: 0, version: 1, regions, layout: b"" };
        let wrong = [
            vec![],
            regions(REGIONS_MAX as u64 + 1),
            regions(2).into_iter().rev().collect(),
            vec![RemoteRegion { address: u64::MAX - 3, len_bytes: 5, rkey: Rkey(1) }],
            vec![RemoteRegion { address: 10, len_bytes: 5, rkey: Rkey(1) }; 2],
        ];
        for regions in wrong {
            assert_eq!(RemoteBlocks::parse(&bytes_of(&blocks(regions))), None);
        }
    }

    #[test]
    fn whatever_the_bytes_are_they_are_refused_or_hold_regions_in_order() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % limit
        };
        let blocks =
            RemoteBlocks { origin: 1, count: 2, index: 3, version: 4, regions: regions(5), layout: b"words of it" };
        let mut understood = 0;
        for _ in 0..20_000 {
            let mut bytes = bytes_of(&blocks);
            for _ in 0..1 + below(4) {
                let at = below(bytes.len() as u64) as usize;
                match below(4) {
                    0 => bytes[at] = below(256) as u8,
                    1 => bytes[at] ^= 1 << below(8),
                    2 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, below(256) as u8),
                }
            }
            let Some(parsed) = RemoteBlocks::parse(&bytes) else { continue };
            understood += 1;
            assert_eq!(bytes_of(&parsed), bytes, "nothing of it is made up");
            for pair in parsed.regions.windows(2) {
                assert!(pair[0].address + pair[0].len_bytes <= pair[1].address);
            }
            let address = below(u64::from(u32::MAX));
            if let Some(rkey) = RemoteBlocks::key_of(&parsed.regions, address, 1) {
                assert!(parsed.regions.iter().any(|region| {
                    region.rkey == rkey && region.address <= address && address < region.address + region.len_bytes
                }));
            }
        }
        assert!(understood > 1000, "{understood} were understood");
    }

    #[test]
    fn a_key_covers_what_lies_in_its_region_and_nothing_else() {
        let regions = regions(3);
        let key = |address, len| RemoteBlocks::key_of(&regions, address, len);
        assert_eq!(key(1000, 50), Some(Rkey(0)));
        assert_eq!(key(1149, 1), Some(Rkey(7)));
        assert_eq!((key(999, 1), key(1000, 51), key(1060, 1), key(1100, u64::MAX)), (None, None, None, None));
    }
}
