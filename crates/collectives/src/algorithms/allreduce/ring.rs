//! Allreduce round a ring: `p` pieces travel once round being reduced, and once more as results.
//!
//! ```text
//! rank        0      1      2        sends piece (rank - step), in all 2 (p - 1) steps
//! step 0      a >    b >    c >
//! step 1      c+ >   a+ >   b+ >     reduced on arrival
//! step 2      b++ >  c++ >  a++ >    complete: from here on stored
//! step 3      a++ >  b++ >  c++ >
//! ```
//!
//! Pieces go in halves, so that one is reduced while the other travels. Not in place, a piece is
//! received into the result and reduced there with the input: no copies and no temporary memory.
//! Sums begin at different ranks for different pieces: commutative operations only; each piece is
//! reduced once, so results are equal to the bit.
//!
//! Cost: `2 (p - 1) α + 2 (p - 1)/p n β + (p - 1)/p n γ`.
//!
//! Source: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//! workstations", JPDC 69(2), 2009.

use crate::algorithms::common::accumulator::element_range;
use crate::algorithms::common::even_cut;
use crate::builder::{Builder, Posted, ring};
use crate::call::Allreduce;
use crate::schedule::{BufferId, Region};
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Allreduce> = Algorithm {
    name: "ring",
    summary: "pieces travel round a ring, reduced and then stored",
    cost: "2 (p - 1) a + 2 (p - 1)/p n b + (p - 1)/p n g",
    fits: |_, call| call.commutative,
    build,
};

/// Parts of a piece that travel by themselves.
const PARTS: u32 = 2;

fn build(b: &mut Builder, call: &Allreduce) {
    let input = if call.in_place { BufferId::Recv } else { BufferId::Send };
    let size = b.size();
    if size == 1 {
        b.copy(part(b, call, input, 0, 0), part(b, call, BufferId::Recv, 0, 0));
        b.copy(part(b, call, input, 0, 1), part(b, call, BufferId::Recv, 0, 1));
        return;
    }
    let room = if call.in_place {
        let largest = even_cut(call.data.count(), size, 1);
        Some([b.temp_elements(largest.div_ceil(2)), b.temp_elements(largest.div_ceil(2))])
    } else {
        None
    };
    let reducing_steps = size - 1;
    let steps = 2 * (size - 1);
    // Where the part that a step sends lies: the first is input, later ones what arrived before.
    let outgoing = |b: &Builder, step: u32, half: u32| {
        let buffer = if step == 0 { input } else { BufferId::Recv };
        part(b, call, buffer, step, half)
    };
    let incoming = |b: &Builder, step: u32, half: u32| {
        let stored = part(b, call, BufferId::Recv, step + 1, half);
        match room {
            Some(room) if step < reducing_steps => Region { buffer: room[half as usize], offset_bytes: 0, ..stored },
            _ => stored,
        }
    };
    let mut sent: Vec<[Posted; PARTS as usize]> = Vec::new();
    let mut post = |b: &mut Builder, step: u32, half: u32| -> Posted {
        let (before, after) = (b.before(1), b.after(1));
        if step >= reducing_steps {
            // The result comes where the piece lay that was sent one round of the ring ago.
            b.wait(sent[(step - reducing_steps) as usize][half as usize]);
        }
        let arriving = b.recv(before, incoming(b, step, half));
        let sending = b.send(after, outgoing(b, step, half));
        if half == 0 {
            sent.push([sending; PARTS as usize]);
        } else {
            sent[step as usize][half as usize] = sending;
        }
        arriving
    };
    let mut arriving = [0, 1].map(|half| post(b, 0, half));
    for step in 0..steps {
        for half in 0..PARTS {
            b.wait(arriving[half as usize]);
            if step < reducing_steps {
                let own = part(b, call, input, step + 1, half);
                let arrived = incoming(b, step, half);
                // In place the arrived part is added to ours; otherwise ours to the arrived.
                if call.in_place { b.reduce(arrived, own) } else { b.reduce(own, arrived) }
            }
            if step + 1 < steps {
                arriving[half as usize] = post(b, step + 1, half);
            }
        }
    }
}

/// Half `half` of the piece that this rank sends in `step`.
fn part(b: &Builder, call: &Allreduce, buffer: BufferId, step: u32, half: u32) -> Region {
    let piece = ring(b.rank(), -i64::from(step), b.size());
    let (first, end) = (even_cut(call.data.count(), b.size(), piece), even_cut(call.data.count(), b.size(), piece + 1));
    let middle = first + (end - first).div_ceil(2);
    let (first, end) = if half == 0 { (first, middle) } else { (middle, end) };
    element_range(&call.data, buffer, first, end - first)
}
