//! The physical limits between threads of this process: a cache line there and back, and copying.

use super::sampling::{Sampling, Taken};
use crate::record::{Measured, Row};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Round trips of a sample.
const TRIPS: u64 = 500;
/// Empty looks before the processor is offered to others.
const LOOKS: u32 = 10_000;

#[repr(align(128))]
struct Line(AtomicU64);

/// All floors, with copying at these sizes.
pub fn floors(sizes: &[u64], sampling: &Sampling) -> Vec<Measured> {
    let row = |test: &str, bytes: u64, unit: &str| Row {
        test: test.to_owned(),
        ranks: 0,
        parameters: BTreeMap::new(),
        bytes,
        unit: unit.to_owned(),
    };
    let mut all = vec![measured(row("line", 64, "us"), 0.0, line())];
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
        if looks % LOOKS == 0 {
            std::thread::yield_now();
        }
    }
}

fn line() -> Taken {
    const SAMPLES: u64 = 100;
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let mut samples = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 1..=SAMPLES * TRIPS {
                wait_for(&ping, i);
                pong.0.store(i, Ordering::Release);
            }
        });
        for sample in 0..SAMPLES {
            let start = Instant::now();
            for i in sample * TRIPS + 1..=(sample + 1) * TRIPS {
                ping.0.store(i, Ordering::Release);
                wait_for(&pong, i);
            }
            samples.push(start.elapsed().as_nanos() as f64 / TRIPS as f64 / 2.0);
        }
    });
    Taken { per_sample: TRIPS, samples }
}
