//! Samples of operations in this process.

use std::time::Instant;

/// A sample lasts at least so long, so that reading the clock does not count.
const SAMPLE_MIN_NS: f64 = 20_000.0;
/// Fewest samples of a point.
const SAMPLES_MIN: u64 = 8;
/// Operations that are over before one is timed.
const COLD: u64 = 4;
/// Most operations of a sample.
const OPERATIONS_MAX: u64 = 1 << 20;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Time for the samples of a point.
    pub seconds: f64,
    /// Most samples of a point.
    pub samples_max: u64,
    /// Fewest operations of a sample.
    pub operations_min: u64,
}

/// Samples of one thing.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// Operations timed together.
    pub per_sample: u64,
    /// Nanoseconds per operation, in the order taken.
    pub samples: Vec<f64>,
}

impl Taken {
    /// Every sample times `factor`.
    pub fn scaled(mut self, factor: f64) -> Self {
        self.samples.iter_mut().for_each(|sample| *sample *= factor);
        self
    }
}

impl Sampling {
    /// How many samples of how many operations, if one operation takes `each_ns`.
    pub fn plan(&self, each_ns: f64) -> (u64, u64) {
        let each_ns = each_ns.max(0.1);
        let per_sample = ((SAMPLE_MIN_NS / each_ns).ceil() as u64).clamp(self.operations_min, OPERATIONS_MAX);
        let count = (self.seconds * 1e9 / (each_ns * per_sample as f64)) as u64;
        (count.min(self.samples_max).max(SAMPLES_MIN), per_sample)
    }

    /// Samples of an operation that this thread does by itself.
    ///
    /// # Errors
    /// What the operation fails with.
    pub fn take<E>(&self, mut operation: impl FnMut() -> Result<(), E>) -> Result<Taken, E> {
        // Everything is cold: the first ones tell nothing.
        for _ in 0..COLD {
            operation()?;
        }
        let (mut trial, mut spent_ns) = (COLD, 0.0);
        while spent_ns < SAMPLE_MIN_NS && trial < OPERATIONS_MAX {
            trial *= 2;
            let start = Instant::now();
            for _ in 0..trial {
                operation()?;
            }
            spent_ns = nanoseconds(start);
        }
        let (count, per_sample) = self.plan(spent_ns / trial as f64);
        let mut taken = Taken { per_sample, samples: Vec::new() };
        for _ in 0..count {
            let start = Instant::now();
            for _ in 0..per_sample {
                operation()?;
            }
            taken.samples.push(nanoseconds(start) / per_sample as f64);
        }
        Ok(taken)
    }
}

/// Nanoseconds since then.
pub fn nanoseconds(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_as_many_as_time_allows() {
        let sampling = Sampling { seconds: 0.001, samples_max: 100, operations_min: 1 };
        assert_eq!(sampling.plan(100.0), (50, 200));
        assert_eq!(sampling.plan(1e5), (10, 1));
        assert_eq!(sampling.plan(1e9), (SAMPLES_MIN, 1));
        assert_eq!(Sampling { operations_min: 5, ..sampling }.plan(1e4), (20, 5));
        let mut done = 0;
        let taken = sampling
            .take(|| -> Result<(), ()> {
                done += 1;
                Ok(())
            })
            .unwrap();
        // Besides the samples: the cold ones, and trials that double until one is as long as a sample.
        let trials = done - COLD - taken.per_sample * taken.samples.len() as u64;
        assert!((trials / (2 * COLD) + 1).is_power_of_two() && trials.is_multiple_of(2 * COLD), "{trials}");
        assert_eq!(sampling.take(|| Err::<(), _>(7)).unwrap_err(), 7);
    }
}
