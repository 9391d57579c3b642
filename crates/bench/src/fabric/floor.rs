//! The physical limits between threads of this process: a cache line there and back, and copying.

use super::places::Place;
use super::sampling::{Sampling, Taken};
use crate::pace;
use crate::record::{Measured, Row};
use crate::statistics;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Samples of a line, and round trips of each.
const LINE: (u64, u64) = (100, 500);
/// The same for a look at the pace between two points: a millisecond or two.
const GLANCE: (u64, u64) = (25, 100);
/// Empty looks before the processor is offered to others.
const LOOKS: u32 = 10_000;

#[repr(align(128))]
struct Line(AtomicU64);

/// All floors, with copying at these sizes; a line `by_pace`, or as it was met.
pub fn floors(sizes: &[u64], sampling: &Sampling, by_pace: bool) -> Vec<Measured> {
    let row = |test: &str, bytes: u64, unit: &str| Row {
        test: test.to_owned(),
        ranks: 0,
        parameters: BTreeMap::new(),
        bytes,
        unit: unit.to_owned(),
    };
    let line = line(LINE);
    let mut all = Vec::new();
    let paces: &[f64] = if by_pace { &line.samples } else { &[] };
    for (met, samples) in pace::told_apart(line.samples.clone(), paces) {
        all.push(measured(pace::of_row(&row("line", 64, "us"), met), 0.0, Taken { samples, ..line }));
    }
    for bytes in sizes {
        let Ok(length) = usize::try_from(*bytes) else { continue };
        let (from, mut to) = (vec![1_u8; length], vec![0_u8; length]);
        let copy = || -> Result<(), std::convert::Infallible> {
            black_box(&mut to).copy_from_slice(black_box(&from));
            Ok(())
        };
        let Ok(taken) = sampling.take(copy);
        all.push(measured(row("memcpy", *bytes, "MB/s"), *bytes as f64, taken));
    }
    all
}

fn measured(row: Row, amount: f64, taken: Taken) -> Measured {
    Measured { row, operations_per_sample: taken.per_sample, amount, samples: taken.samples, unpaced: 0, again: false }
}

fn wait_for(line: &Line, value: u64) {
    let mut looks = 0;
    while line.0.load(Ordering::Acquire) != value {
        looks += 1;
        // As ends do between two looks: a processor that shares its units with the other's holds it up by looking harder.
        std::hint::spin_loop();
        if looks % LOOKS == 0 {
            std::thread::yield_now();
        }
    }
}

/// Nanoseconds that a line takes one way now, between the processors on which two ends are put.
pub fn line_now_ns() -> f64 {
    statistics::median(&line(GLANCE).samples)
}

/// So many samples of so many round trips, each between two threads on processors of their own.
fn line((samples, trips): (u64, u64)) -> Taken {
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let mut taken = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _place = Place::take(1, 2);
            for i in 1..=samples * trips {
                wait_for(&ping, i);
                pong.0.store(i, Ordering::Release);
            }
        });
        let _place = Place::take(0, 2);
        for sample in 0..samples {
            let start = Instant::now();
            for i in sample * trips + 1..=(sample + 1) * trips {
                ping.0.store(i, Ordering::Release);
                wait_for(&pong, i);
            }
            taken.push(start.elapsed().as_nanos() as f64 / trips as f64 / 2.0);
        }
    });
    Taken { per_sample: trips, samples: taken }
}
