//! The clock of `MPI_Wtime`: monotonic, the same for all processes of a machine.
//!
//! MPI: §9.6

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

/// Seconds since a moment in the past that does not change while the machine runs.
///
/// MPI: §9.6 `MPI_Wtime`
#[inline]
pub fn wtime() -> f64 {
    seconds(clock_gettime(ClockId::Monotonic))
}

/// Seconds between two ticks of [`wtime`].
///
/// MPI: §9.6 `MPI_Wtick`
pub fn wtick() -> f64 {
    seconds(clock_getres(ClockId::Monotonic))
}

#[inline]
fn seconds(time: Timespec) -> f64 {
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_run_backwards() {
        let mut last = wtime();
        for _ in 0..1000 {
            let now = wtime();
            assert!(now >= last);
            last = now;
        }
        assert!(wtick() > 0.0 && wtick() < 1.0);
    }
}
