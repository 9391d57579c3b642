//! Scan by recursive doubling: in round `k` every rank hands what it has to the rank `2^k` after it.
//!
//! ```text
//! rank     0     1     2     3     4
//!          0     1     2     3     4
//! k = 0    0     01    12    23    34
//! k = 1    0     01    012   0123  1234
//! k = 2    0     01    012   0123  01234
//! ```
//!
//! What comes covers lower ranks than what is there: operands stay in order. The exclusive scan
//! first moves all input up one rank and then scans without rank 0.
//!
//! Cost: `⌈log2 p⌉ (α + n β + n γ)`, and `α + n β` more for the exclusive scan.
//!
//! Source: W. D. Hillis, G. L. Steele, "Data parallel algorithms", CACM 29(12), 1986.

use crate::algorithms::common::accumulator::element_range;
use crate::builder::Builder;
use crate::call::{Exscan, Scan};
use crate::data::Data;
use crate::schedule::BufferId;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Scan> = Algorithm {
    name: "recursive_doubling",
    summary: "what there is, to the rank 2^k after, in rounds",
    cost: "ceil(log2 p) (a + n b + n g)",
    fits: |_, _| true,
    build: |b, call| {
        let whole = |buffer| element_range(&call.data, buffer, 0, call.data.count());
        if !call.in_place {
            b.copy(whole(BufferId::Send), whole(BufferId::Recv));
        }
        scan_from(b, 0, &call.data);
    },
};

pub(crate) const ALGORITHM_EXCLUSIVE: Algorithm<Exscan> = Algorithm {
    name: "recursive_doubling",
    summary: "up one rank, then to the rank 2^k after, in rounds",
    cost: "(1 + ceil(log2 p)) (a + n b) + ceil(log2 p) n g",
    fits: |_, _| true,
    build: |b, call| {
        let whole = |buffer| element_range(&call.data, buffer, 0, call.data.count());
        let (rank, size) = (b.rank(), b.size());
        let (input, below) = match call.in_place {
            // The input must stay until it is gone, and nobody should have to wait for that.
            true if rank > 0 => (whole(BufferId::Recv), whole(b.temp_elements(call.data.count()))),
            true => (whole(BufferId::Recv), whole(BufferId::Recv)),
            false => (whole(BufferId::Send), whole(BufferId::Recv)),
        };
        if rank > 0 {
            b.recv(rank - 1, below);
        }
        if rank + 1 < size {
            b.send(rank + 1, input);
        }
        b.wait_all();
        if rank > 0 {
            b.copy(below, whole(BufferId::Recv));
            b.phase();
            scan_from(b, 1, &call.data);
        }
    },
};

/// Scans what stands in the receive buffers of ranks `first` and up.
fn scan_from(b: &mut Builder, first: u32, data: &Data) {
    let whole = |buffer| element_range(data, buffer, 0, data.count());
    let value = whole(BufferId::Recv);
    let mut room = None;
    let mut distance = 1;
    while first + distance < b.size() {
        let arrives = b.rank() >= first + distance;
        if arrives {
            let room = *room.get_or_insert_with(|| whole(b.temp_elements(data.count())));
            b.recv(b.rank() - distance, room);
        }
        if b.rank() + distance < b.size() {
            b.send(b.rank() + distance, value);
        }
        b.wait_all();
        if let Some(room) = room.filter(|_| arrives) {
            b.reduce(room, value);
        }
        distance *= 2;
    }
}
