//! How a rank ended, in words.

use rustix::process::{Signal, WaitStatus};

/// What a rank's end means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It exited with a code.
    Exit(u8),
    /// A signal ended it.
    Killed {
        /// The signal's number.
        signal: i32,
        /// A core file was written.
        dumped: bool,
    },
}

impl End {
    /// Reads what the kernel says.
    pub fn of(status: WaitStatus) -> Self {
        match status.terminating_signal() {
            Some(signal) => Self::Killed { signal, dumped: status.as_raw() & 0x80 != 0 },
            None => Self::Exit(status.exit_status().and_then(|code| u8::try_from(code & 0xff).ok()).unwrap_or(1)),
        }
    }

    /// The exit code we end with because of it.
    pub fn code(self) -> u8 {
        match self {
            Self::Exit(code) => code,
            Self::Killed { signal, .. } => u8::try_from(128 + signal).unwrap_or(255),
        }
    }

    /// Completes the sentence "rank 3 …".
    pub fn describe(self, out_of_memory: bool) -> String {
        match self {
            Self::Exit(code) => format!("exited with code {code}"),
            Self::Killed { signal, .. } if out_of_memory && signal == Signal::KILL.as_raw() => {
                "was killed by the OOM killer: the machine or its memory limit (cgroup) ran out of memory".to_owned()
            }
            Self::Killed { signal, dumped } => {
                let core = if dumped { ", core dumped" } else { "" };
                format!("was killed by signal {signal} ({}{core})", signal_name(signal))
            }
        }
    }
}

fn signal_name(signal: i32) -> &'static str {
    const NAMES: [(Signal, &str); 19] = [
        (Signal::HUP, "Hangup"),
        (Signal::INT, "Interrupt"),
        (Signal::QUIT, "Quit"),
        (Signal::ILL, "Illegal instruction"),
        (Signal::TRAP, "Trace trap"),
        (Signal::ABORT, "Aborted"),
        (Signal::BUS, "Bus error"),
        (Signal::FPE, "Floating point exception"),
        (Signal::KILL, "Killed"),
        (Signal::USR1, "User signal 1"),
        (Signal::SEGV, "Segmentation fault"),
        (Signal::USR2, "User signal 2"),
        (Signal::PIPE, "Broken pipe"),
        (Signal::ALARM, "Alarm clock"),
        (Signal::TERM, "Terminated"),
        (Signal::XCPU, "CPU time limit exceeded"),
        (Signal::XFSZ, "File size limit exceeded"),
        (Signal::VTALARM, "Virtual timer expired"),
        (Signal::SYS, "Bad system call"),
    ];
    NAMES.iter().find(|(known, _)| known.as_raw() == signal).map_or("unnamed signal", |(_, name)| name)
}

/// Counts what the OOM killer has done in our control group, or on the machine where that is not told.
#[derive(Debug)]
pub(crate) struct OomCounter {
    before: Option<u64>,
}

impl OomCounter {
    /// Begins to count.
    pub fn start() -> Self {
        Self { before: oom_kills() }
    }

    /// True if the OOM killer struck since the start.
    pub fn struck(&self) -> bool {
        matches!((self.before, oom_kills()), (Some(before), Some(now)) if now > before)
    }
}

fn oom_kills() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let group = read("/proc/self/cgroup").unwrap_or_default();
    let candidates = group.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        match controllers {
            "" => Some(format!("/sys/fs/cgroup{path}/memory.events")),
            "memory" => Some(format!("/sys/fs/cgroup/memory{path}/memory.oom_control")),
            _ => None,
        }
    });
    let of_group = candidates.filter_map(|path| count_in(&read(&path)?)).next();
    of_group.or_else(|| count_in(&read("/proc/vmstat")?))
}

/// The number after `oom_kill` in a list of names and numbers.
fn count_in(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_in_words() {
        let check = |end: End, out_of_memory, expected: &str, code| {
            assert_eq!(end.describe(out_of_memory), expected);
            assert_eq!(end.code(), code);
        };
        let killed = |signal, dumped| End::Killed { signal, dumped };
        check(End::Exit(3), false, "exited with code 3", 3);
        check(killed(11, false), false, "was killed by signal 11 (Segmentation fault)", 139);
        check(killed(6, true), true, "was killed by signal 6 (Aborted, core dumped)", 134);
        check(killed(9, false), false, "was killed by signal 9 (Killed)", 137);
        check(killed(64, false), false, "was killed by signal 64 (unnamed signal)", 192);
        assert!(killed(9, false).describe(true).contains("OOM killer"));
    }

    #[test]
    fn counters_of_the_kernel() {
        assert_eq!(count_in("low 0\nhigh 1\noom 4\noom_kill 3\noom_group_kill 0\n"), Some(3));
        assert_eq!(count_in("oom_kill_disable 0\nunder_oom 0\noom_kill 12\n"), Some(12));
        assert_eq!(count_in("nothing"), None);
        assert!(!OomCounter { before: None }.struck());
    }
}
