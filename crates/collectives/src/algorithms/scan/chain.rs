//! Scan along the chain of ranks, in segments: each takes what comes, adds its own, passes it on.
//!
//! ```text
//! rank  0 ---> 1 ---> 2 ---> 3
//! t = 0   s0
//! t = 1   s1     s0
//! t = 2   s2     s1     s0
//! ```
//!
//! `p - 1` messages per segment, the fewest there can be. Operands stay in order.
//!
//! Cost: `(p - 2 + S) (α + n/S (β + γ))` with `S` segments.
//!
//! Source: textbook (pipelined prefix).

use crate::algorithms::common::accumulator::element_range;
use crate::builder::{Builder, Posted};
use crate::call::{Exscan, Scan};
use crate::data::Data;
use crate::schedule::{BufferId, Region};
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Scan> = Algorithm {
    name: "chain",
    summary: "along the chain of ranks, in segments: fewest messages",
    cost: "(p - 2 + S) (a + n/S (b + g))",
    fits: |_, _| true,
    build: |b, call| {
        let segments = Segments::of(&call.data);
        let room = (b.rank() > 0).then(|| [segments.room(b), segments.room(b)]);
        let mut coming = Coming::new(b, &segments, room);
        for index in 0..segments.number {
            let own = segments.at(index, BufferId::Recv);
            if !call.in_place {
                b.copy(segments.at(index, BufferId::Send), own);
            }
            if let Some(arrived) = coming.take(b, index) {
                b.reduce(arrived, own);
            }
            pass_on(b, own);
        }
    },
};

pub(crate) const ALGORITHM_EXCLUSIVE: Algorithm<Exscan> = Algorithm {
    name: "chain",
    summary: "along the chain of ranks, in segments: fewest messages",
    cost: "(p - 2 + S) (a + n/S (b + g))",
    fits: |_, _| true,
    build: |b, call| {
        let segments = Segments::of(&call.data);
        let input = if call.in_place { BufferId::Recv } else { BufferId::Send };
        // What comes is our result; what goes on is that with our input.
        let room = (call.in_place && b.rank() > 0).then(|| [segments.room(b), segments.room(b)]);
        let passes_on = b.rank() > 0 && b.rank() + 1 < b.size();
        let onward = passes_on.then(|| [segments.room(b), segments.room(b)]);
        let mut coming = Coming::new(b, &segments, room);
        for index in 0..segments.number {
            let own = segments.at(index, input);
            let Some(arrived) = coming.take(b, index) else {
                pass_on(b, own);
                continue;
            };
            if let Some(onward) = onward {
                let onward = segments.start(index, onward[index as usize % 2]);
                b.copy(own, onward);
                b.reduce(arrived, onward);
                pass_on(b, onward);
            }
            b.copy(arrived, segments.at(index, BufferId::Recv));
        }
    },
};

/// Segments under way at once to the rank above.
const SEGMENTS_AHEAD: u64 = 2;

/// Sends a segment to the rank above, if there is one.
fn pass_on(b: &mut Builder, segment: Region) {
    if b.rank() + 1 < b.size() {
        b.send(b.rank() + 1, segment);
    }
    if b.rank() == 0 {
        b.wait_window(SEGMENTS_AHEAD);
    }
}

/// Segments from the rank below, received one ahead of the one worked on. A segment is waited for
/// after the next has been posted, so sends from two segments ago have completed by then.
struct Coming<'a> {
    segments: &'a Segments<'a>,
    /// Two buffers taken in turn; none to receive straight into the result.
    room: Option<[BufferId; 2]>,
    from: Option<u32>,
    next: Option<Posted>,
}

impl<'a> Coming<'a> {
    fn new(b: &mut Builder, segments: &'a Segments<'a>, room: Option<[BufferId; 2]>) -> Coming<'a> {
        let mut coming = Coming { segments, room, from: b.rank().checked_sub(1), next: None };
        coming.post(b, 0);
        coming
    }

    /// Waits for a segment; none where there is no rank below.
    fn take(&mut self, b: &mut Builder, index: u64) -> Option<Region> {
        let arriving = self.next.take()?;
        self.post(b, index + 1);
        b.wait(arriving);
        Some(self.region(index))
    }

    fn post(&mut self, b: &mut Builder, index: u64) {
        if let Some(from) = self.from.filter(|_| index < self.segments.number) {
            self.next = Some(b.recv(from, self.region(index)));
        }
    }

    fn region(&self, index: u64) -> Region {
        match self.room {
            Some(room) => self.segments.start(index, room[index as usize % 2]),
            None => self.segments.at(index, BufferId::Recv),
        }
    }
}

/// Smallest segment.
const SEGMENT_BYTES_MIN: u64 = 32 << 10;
/// Most segments of one schedule.
const SEGMENTS_MAX: u64 = 512;

/// A buffer cut at elements.
struct Segments<'a> {
    data: &'a Data,
    elements: u64,
    number: u64,
}

impl<'a> Segments<'a> {
    fn of(data: &'a Data) -> Segments<'a> {
        let least = SEGMENT_BYTES_MIN.div_ceil(data.shape().size_bytes.max(1));
        let elements = data.count().div_ceil(SEGMENTS_MAX).max(least);
        Segments { data, elements, number: data.count().div_ceil(elements) }
    }

    fn room(&self, b: &mut Builder) -> BufferId {
        b.temp_elements(self.elements.min(self.data.count()))
    }

    /// A segment in its place.
    fn at(&self, index: u64, buffer: BufferId) -> Region {
        let first = index * self.elements;
        element_range(self.data, buffer, first, self.elements.min(self.data.count() - first))
    }

    /// A segment at the start of a buffer.
    fn start(&self, index: u64, buffer: BufferId) -> Region {
        Region { offset_bytes: 0, buffer, ..self.at(index, buffer) }
    }
}
