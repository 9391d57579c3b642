//! Log lines: `ferrovia[rank]: message` on standard error, filtered by `FERROVIA_LOG`.

use std::fmt;
use std::io::Write;

/// How much is said.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Nothing but fatal errors.
    Error,
    /// Things that are probably not what the user wanted. The default.
    Warn,
    /// What was chosen: devices, protocols, algorithms.
    Info,
    /// Every step of start-up and connection.
    Debug,
}

/// Says things about one process on standard error.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    level: Level,
    rank: Option<u32>,
}

impl Log {
    /// A log that passes messages up to `level`, marked with the rank once that is known.
    pub const fn new(level: Level, rank: Option<u32>) -> Self {
        Self { level, rank }
    }

    /// Writes one line if `level` is to be heard. The line goes out in one write.
    pub fn say(&self, level: Level, message: fmt::Arguments<'_>) {
        if level > self.level {
            return;
        }
        let line = match self.rank {
            Some(rank) => format!("ferrovia[{rank}]: {message}\n"),
            None => format!("ferrovia: {message}\n"),
        };
        // A closed standard error is not our caller's problem.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}
