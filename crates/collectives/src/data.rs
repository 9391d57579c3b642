//! The measures of buffers: types, counts, displacements and neighbours as plain numbers.

use std::sync::Arc;

use crate::collective::Collective;
use crate::error::BuildError;
use crate::schedule::{BufferId, Region, TAG_OFFSETS_MAX, TypeSlot};

/// Where a schedule runs: a rank of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// This rank.
    pub rank: u32,
    /// Ranks in the communicator, at least 1.
    pub size: u32,
}

/// The measures of a datatype that an algorithm needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeShape {
    /// Bytes of data per element.
    pub size_bytes: u64,
    /// Distance between elements.
    pub extent_bytes: i64,
    /// `k` elements are `k * size_bytes` consecutive bytes from the buffer's address.
    pub contiguous: bool,
}

impl TypeShape {
    /// The shape of plain bytes, or of any basic type of that size.
    pub fn basic(size_bytes: u64) -> TypeShape {
        TypeShape { size_bytes, extent_bytes: size_bytes as i64, contiguous: true }
    }

    /// True if so many elements in a row can be addressed.
    #[inline]
    pub fn can_span(&self, elements: u128) -> bool {
        let reach = self.size_bytes.max(self.extent_bytes.unsigned_abs()).max(1);
        // Each call asks this: of two words it would take several times as long.
        let bytes = u64::try_from(elements).ok().and_then(|elements| elements.checked_mul(reach));
        bytes.is_some_and(|bytes| u128::from(bytes) < REACH_MAX)
    }

    /// True if blocks of so many elements at these displacements, in elements, can be addressed.
    pub fn can_span_blocks(&self, counts: &[u64], displacements: &[i64]) -> bool {
        let total: u128 = counts.iter().map(|count| u128::from(*count)).sum();
        let furthest = displacements.iter().map(|d| d.unsigned_abs()).max().unwrap_or(0);
        self.can_span(total.saturating_add(u128::from(furthest)))
    }
}

/// `count` elements of one type: a whole buffer, or one block of a buffer of equal blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Data {
    count: u64,
    shape: TypeShape,
}

impl Data {
    /// Elements without data count as none.
    pub fn new(count: u64, shape: TypeShape) -> Data {
        Data { count: if shape.size_bytes == 0 { 0 } else { count }, shape }
    }

    /// For an argument that is not significant on this rank.
    pub fn none() -> Data {
        Data::new(0, TypeShape::basic(1))
    }

    /// Number of elements that carry data.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Measures of the type.
    pub fn shape(&self) -> TypeShape {
        self.shape
    }

    /// Packed size.
    pub fn len_bytes(&self) -> u64 {
        self.count * self.shape.size_bytes
    }

    /// `count` elements from element `first` of `buffer`.
    pub(crate) fn elements(&self, buffer: BufferId, datatype: TypeSlot, first: u64, count: u64) -> Region {
        Region { buffer, datatype, offset_bytes: first as i64 * self.shape.extent_bytes, count }
    }

    /// `blocks` blocks from block `first` of `buffer`.
    pub(crate) fn blocks(&self, buffer: BufferId, datatype: TypeSlot, first: u32, blocks: u32) -> Region {
        self.elements(buffer, datatype, u64::from(first) * self.count, u64::from(blocks) * self.count)
    }

    /// That `blocks` such blocks can be addressed.
    pub(crate) fn check(&self, collective: Collective, list: &'static str, blocks: u32) -> Result<(), BuildError> {
        let fits = self.shape.can_span(u128::from(self.count) * u128::from(blocks.max(1)));
        if fits { Ok(()) } else { Err(BuildError::TooLarge { collective, list }) }
    }
}

/// Blocks of one type, each with its own count and displacement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vector {
    counts: Vec<u64>,
    displacements: Vec<i64>,
    shape: TypeShape,
}

impl Vector {
    /// `counts` and `displacements` in elements of the type, one per peer.
    pub fn new(mut counts: Vec<u64>, displacements: Vec<i64>, shape: TypeShape) -> Vector {
        if shape.size_bytes == 0 {
            counts.fill(0);
        }
        Vector { counts, displacements, shape }
    }

    /// For an argument that is not significant on this rank.
    pub fn none() -> Vector {
        Vector::new(Vec::new(), Vec::new(), TypeShape::basic(1))
    }

    /// Elements per block.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Measures of the type.
    pub fn shape(&self) -> TypeShape {
        self.shape
    }

    pub(crate) fn block(&self, buffer: BufferId, datatype: TypeSlot, index: u32) -> Region {
        let index = index as usize;
        let offset_bytes = self.displacements[index] * self.shape.extent_bytes;
        Region { buffer, datatype, offset_bytes, count: self.counts[index] }
    }

    /// Blocks `from..to` as one region, if each begins where the one before ends.
    pub(crate) fn run(&self, buffer: BufferId, datatype: TypeSlot, from: u32, to: u32) -> Option<Region> {
        let blocks = from as usize..to as usize;
        let counts = &self.counts[blocks.clone()];
        let starts = &self.displacements[blocks];
        let adjacent = starts.windows(2).zip(counts).all(|(pair, &count)| pair[1] - pair[0] == count as i64);
        let first = *starts.first()?;
        let count = counts.iter().sum();
        adjacent.then(|| Region { buffer, datatype, offset_bytes: first * self.shape.extent_bytes, count })
    }

    pub(crate) fn block_len_bytes(&self, index: u32) -> u64 {
        self.counts[index as usize] * self.shape.size_bytes
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.counts.iter().sum::<u64>() * self.shape.size_bytes
    }

    /// That there is a block for each of `expected_count` peers, and that all can be addressed.
    pub(crate) fn check(
        &self,
        collective: Collective,
        lists: [&'static str; 2],
        expected_count: usize,
    ) -> Result<(), BuildError> {
        for (list, actual_count) in [(lists[0], self.counts.len()), (lists[1], self.displacements.len())] {
            if actual_count != expected_count {
                return Err(BuildError::ListLength { collective, list, actual_count, expected_count });
            }
        }
        let fits = self.shape.can_span_blocks(&self.counts, &self.displacements);
        if fits { Ok(()) } else { Err(BuildError::TooLarge { collective, list: lists[0] }) }
    }
}

/// One block of `MPI_Alltoallw`: its own count, displacement in bytes, and type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    count: u64,
    displacement_bytes: i64,
    size_bytes: u64,
}

impl Part {
    /// `count` elements of `size_bytes` of data each, from `displacement_bytes`.
    pub fn new(count: u64, displacement_bytes: i64, size_bytes: u64) -> Part {
        Part { count: if size_bytes == 0 { 0 } else { count }, displacement_bytes, size_bytes }
    }

    pub(crate) fn region(&self, buffer: BufferId, datatype: TypeSlot) -> Region {
        Region { buffer, datatype, offset_bytes: self.displacement_bytes, count: self.count }
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.count * self.size_bytes
    }

    /// That there is a part for each of `expected_count` peers, and that all can be addressed.
    pub(crate) fn check(
        parts: &[Part],
        collective: Collective,
        list: &'static str,
        expected_count: usize,
    ) -> Result<(), BuildError> {
        let actual_count = parts.len();
        if actual_count != expected_count {
            return Err(BuildError::ListLength { collective, list, actual_count, expected_count });
        }
        let sizes = parts.iter().map(|part| u128::from(part.count) * u128::from(part.size_bytes));
        let total = sizes.fold(0u128, u128::saturating_add);
        if total < REACH_MAX { Ok(()) } else { Err(BuildError::TooLarge { collective, list }) }
    }
}

/// A neighbour of this rank in a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Neighbour {
    /// Its rank; none where a grid ends (`MPI_PROC_NULL`): nothing is sent or received.
    pub rank: Option<u32>,
    /// Tells apart several edges between the same two ranks; equal at both ends of an edge.
    pub tag_offset: u32,
}

/// The neighbours of this rank: who sends to it and whom it sends to, in the order of the buffers.
///
/// A topology keeps them and each call shares them, so a copy costs no more than counting.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Neighbours(Arc<Lists>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Lists {
    sources: Vec<Neighbour>,
    destinations: Vec<Neighbour>,
}

impl Neighbours {
    /// A graph: several edges between the same two ranks are matched in order.
    ///
    /// MPI: §8.6
    pub fn graph(sources: &[u32], destinations: &[u32]) -> Neighbours {
        let list = |ranks: &[u32]| ranks.iter().map(|&rank| Neighbour { rank: Some(rank), tag_offset: 0 }).collect();
        Neighbours(Arc::new(Lists { sources: list(sources), destinations: list(destinations) }))
    }

    /// A grid: `(before, after)` per dimension. What is sent to the neighbour after arrives there
    /// as from the neighbour before, even if both are the same rank.
    ///
    /// MPI: §8.6
    pub fn cartesian(dimensions: &[(Option<u32>, Option<u32>)]) -> Neighbours {
        let mut sources = Vec::with_capacity(2 * dimensions.len());
        let mut destinations = Vec::with_capacity(2 * dimensions.len());
        // Dimensions without neighbours, of which there may be any number, need no tag of their own.
        let mut downward = 0;
        for &(before, after) in dimensions {
            let upward = downward + 1;
            destinations.push(Neighbour { rank: before, tag_offset: downward });
            destinations.push(Neighbour { rank: after, tag_offset: upward });
            sources.push(Neighbour { rank: before, tag_offset: upward });
            sources.push(Neighbour { rank: after, tag_offset: downward });
            downward += if before.is_some() || after.is_some() { 2 } else { 0 };
        }
        Neighbours(Arc::new(Lists { sources, destinations }))
    }

    /// Who sends to this rank, in the order of receive blocks.
    pub fn sources(&self) -> &[Neighbour] {
        &self.0.sources
    }

    /// Whom this rank sends to, in the order of send blocks.
    pub fn destinations(&self) -> &[Neighbour] {
        &self.0.destinations
    }

    pub(crate) fn check(&self, collective: Collective, place: Place) -> Result<(), BuildError> {
        for (list, neighbours) in [("sources", &self.0.sources), ("destinations", &self.0.destinations)] {
            for (index, neighbour) in neighbours.iter().enumerate() {
                let rank = neighbour.rank.unwrap_or(0);
                if rank >= place.size || neighbour.tag_offset >= TAG_OFFSETS_MAX {
                    let tag_offset = neighbour.tag_offset;
                    return Err(BuildError::Neighbour { collective, list, index, rank, tag_offset });
                }
            }
        }
        Ok(())
    }
}

/// Byte offsets must stay below this.
const REACH_MAX: u128 = 1 << 62;
