//! `MPI_Bcast`.

pub(crate) mod binary_tree;
pub(crate) mod binomial;
pub(crate) mod chain;
pub(crate) mod linear;
pub(crate) mod scatter_allgather;

use crate::algorithms::common::packed::Packed;
use crate::algorithms::common::tree::Tree;
use crate::builder::Builder;
use crate::call::Bcast;
use crate::collective::Collective;
use crate::data::{Data, Place};
use crate::error::BuildError;
use crate::schedule::{BufferId, TypeSlot};
use crate::selection::{Algorithm, CollectiveCall, Row};

impl CollectiveCall for Bcast {
    const COLLECTIVE: Collective = Collective::Bcast;
    const MEASURE: &'static str = "the buffer";
    const ALGORITHMS: &'static [&'static Algorithm<Bcast>] = &[
        &binomial::ALGORITHM,
        &scatter_allgather::ALGORITHM,
        &chain::ALGORITHM,
        &binary_tree::ALGORITHM,
        &linear::ALGORITHM,
    ];
    const TABLE: &'static [Row<Bcast>] = &[
        Row::of(&binomial::ALGORITHM).up_to_bytes(16 << 10),
        Row::of(&linear::ALGORITHM).up_to_ranks(8),
        Row::of(&linear::ALGORITHM).up_to_ranks(64).oversubscribed(true),
        Row::of(&binomial::ALGORITHM).oversubscribed(true),
        Row::of(&binary_tree::ALGORITHM).up_to_bytes(128 << 10),
        Row::of(&chain::ALGORITHM).up_to_ranks(16),
        Row::of(&scatter_allgather::ALGORITHM),
    ];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        Self::COLLECTIVE.check_root(self.root, place)?;
        self.data.check(Self::COLLECTIVE, "the buffer", 1)
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        self.data.len_bytes()
    }
}

/// Passes the whole buffer down a tree at once.
pub(crate) fn pass_down(b: &mut Builder, tree: &Tree, data: &Data) {
    let whole = data.elements(BufferId::Recv, TypeSlot::Recv, 0, data.count());
    if let Some(parent) = tree.parent {
        b.recv(parent, whole);
        b.wait_all();
    }
    for &child in &tree.children {
        b.send(child, whole);
    }
}

/// Passes the buffer down a tree in segments: while one goes down, the next comes in.
pub(crate) fn pipeline_down(b: &mut Builder, tree: &Tree, data: &Data) {
    let packed = Packed::open(b, data, tree.parent.is_none());
    let segment_bytes = segment_bytes(data.len_bytes());
    let segments = data.len_bytes().div_ceil(segment_bytes);
    let segment = |index: u64| packed.cut(index * segment_bytes, (index + 1) * segment_bytes);
    match tree.parent {
        None => {
            for index in 0..segments {
                for &child in &tree.children {
                    b.send(child, segment(index));
                }
                b.wait_window(SEGMENTS_AHEAD * tree.children.len() as u64);
            }
        }
        Some(parent) => {
            let mut coming = Vec::new();
            for index in 0..segments.min(SEGMENTS_AHEAD) {
                coming.push(b.recv(parent, segment(index)));
            }
            for index in 0..segments {
                b.wait(coming[index as usize]);
                for &child in &tree.children {
                    b.send(child, segment(index));
                }
                if index + SEGMENTS_AHEAD < segments {
                    coming.push(b.recv(parent, segment(index + SEGMENTS_AHEAD)));
                }
            }
        }
    }
    b.wait_all();
    if tree.parent.is_some() {
        packed.close(b, data);
    }
}

/// Segments under way at once on each edge.
const SEGMENTS_AHEAD: u64 = 2;
/// Smallest segment: large enough that a message's fixed cost is small against moving it.
const SEGMENT_BYTES_MIN: u64 = 128 << 10;
/// Most segments of one schedule: bounds its length whatever the data.
const SEGMENTS_MAX: u64 = 1024;

fn segment_bytes(len_bytes: u64) -> u64 {
    len_bytes.div_ceil(SEGMENTS_MAX).next_multiple_of(64).max(SEGMENT_BYTES_MIN)
}
