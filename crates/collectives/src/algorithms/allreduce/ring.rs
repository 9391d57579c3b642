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
//! Pieces go in parts, so that one is reduced while others travel. Not in place, a piece is
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
use crate::builder::{self, Builder, Posted};
use crate::call::Allreduce;
use crate::data::Data;
use crate::schedule::{BufferId, Region};
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Allreduce> = Algorithm {
    name: "ring",
    summary: "pieces travel round a ring, reduced and then stored",
    cost: "2 (p - 1) a + 2 (p - 1)/p n b + (p - 1)/p n g",
    fits: |_, call| call.commutative,
    build,
};

/// Longest part: short enough to travel with its envelope, where the cost of a message is least.
const PART_BYTES_MAX: u64 = 16 << 10;
/// Fewest parts of a piece: one is reduced while another travels.
const PARTS_MIN: u64 = 2;
/// Most parts of a piece.
const PARTS_MAX: u64 = 32;

fn build(b: &mut Builder, call: &Allreduce) {
    let ring = Ring::of(b, call);
    let steps = 2 * (b.size() - 1);
    if steps == 0 {
        let whole = |buffer| element_range(&call.data, buffer, 0, call.data.count());
        b.copy(whole(ring.input), whole(BufferId::Recv));
        return;
    }
    let mut under_way = UnderWay::default();
    for part in 0..ring.parts {
        under_way.post(b, &ring, 0, part);
    }
    for step in 0..steps {
        for part in 0..ring.parts {
            b.wait(under_way.arriving[part as usize]);
            if step < ring.reducing_steps {
                let own = ring.part(ring.input, step + 1, part);
                let arrived = ring.incoming(step, part);
                // In place the arrived part is added to ours; otherwise ours to the arrived.
                if call.in_place { b.reduce(arrived, own) } else { b.reduce(own, arrived) }
            }
            if step + 1 < steps {
                under_way.post(b, &ring, step + 1, part);
            }
        }
    }
}

/// What lies where.
struct Ring {
    data: Data,
    rank: u32,
    size: u32,
    parts: u32,
    /// Steps in which what arrives is reduced; in later ones it is stored.
    reducing_steps: u32,
    input: BufferId,
    /// In place: where parts arrive that are to be reduced, and elements of room for each.
    room: Option<(BufferId, u64)>,
}

impl Ring {
    fn of(b: &mut Builder, call: &Allreduce) -> Ring {
        let largest = even_cut(call.data.count(), b.size(), 1);
        let piece_bytes = largest * call.data.shape().size_bytes;
        let parts = piece_bytes.div_ceil(PART_BYTES_MAX).clamp(PARTS_MIN, PARTS_MAX);
        let room = (call.in_place && b.size() > 1).then(|| {
            let each = largest.div_ceil(parts);
            (b.temp_elements(each * parts), each)
        });
        Ring {
            data: call.data,
            rank: b.rank(),
            size: b.size(),
            parts: parts as u32,
            reducing_steps: b.size() - 1,
            input: if call.in_place { BufferId::Recv } else { BufferId::Send },
            room,
        }
    }

    /// A part of the piece that this rank sends in `step`.
    fn part(&self, buffer: BufferId, step: u32, part: u32) -> Region {
        let piece = builder::ring(self.rank, -i64::from(step), self.size);
        let cut = |piece| even_cut(self.data.count(), self.size, piece);
        let (first, end) = (cut(piece), cut(piece + 1));
        let within = |part| first + even_cut(end - first, self.parts, part);
        element_range(&self.data, buffer, within(part), within(part + 1) - within(part))
    }

    /// What is sent in `step`: first our input, later what arrived before.
    fn outgoing(&self, step: u32, part: u32) -> Region {
        self.part(if step == 0 { self.input } else { BufferId::Recv }, step, part)
    }

    /// Where what comes in `step` goes: the piece that is sent in the next.
    fn incoming(&self, step: u32, part: u32) -> Region {
        let stored = self.part(BufferId::Recv, step + 1, part);
        match self.room {
            Some((room, each)) if step < self.reducing_steps => {
                element_range(&self.data, room, u64::from(part) * each, stored.count)
            }
            _ => stored,
        }
    }
}

/// The messages of one rank.
#[derive(Default)]
struct UnderWay {
    /// By part: the last receive.
    arriving: Vec<Posted>,
    /// By step and part.
    sent: Vec<Vec<Posted>>,
}

impl UnderWay {
    /// Posts a part of a step; parts of a step in order, steps in order.
    fn post(&mut self, b: &mut Builder, ring: &Ring, step: u32, part: u32) {
        let (before, after) = (b.before(1), b.after(1));
        if step >= ring.reducing_steps {
            // The result comes where the piece lay that was sent one round of the ring ago.
            b.wait(self.sent[(step - ring.reducing_steps) as usize][part as usize]);
        }
        let arriving = b.recv(before, ring.incoming(step, part));
        let sending = b.send(after, ring.outgoing(step, part));
        if step == 0 {
            self.arriving.push(arriving);
        } else {
            self.arriving[part as usize] = arriving;
        }
        if part == 0 {
            self.sent.push(Vec::with_capacity(ring.parts as usize));
        }
        self.sent[step as usize].push(sending);
    }
}
