//! Whether a process still lives: its number together with the moment it started, for numbers are used again.

use base::sync::Ordering;
use fabric::SharedMemory;

/// A process, as it is known to its peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProcessMark {
    pub(super) process_id: u32,
    /// Clock ticks from the start of the system to that of the process.
    start_ticks: u64,
}

const PROCESS_ID: usize = 0;
const LEFT: usize = 4;
const START: usize = 8;

impl ProcessMark {
    /// This process.
    pub(super) fn own() -> Self {
        let process_id = std::process::id();
        Self { process_id, start_ticks: start_ticks(process_id).unwrap_or(0) }
    }

    /// Writes it where peers look.
    pub(super) fn publish(self, identity: &SharedMemory) {
        identity.word(START).store(self.start_ticks, Ordering::Relaxed);
        identity.half(LEFT).store(0, Ordering::Relaxed);
        // Release: who sees the number sees the rest. Pairs with the load in `of`.
        identity.half(PROCESS_ID).store(self.process_id, Ordering::Release);
    }

    /// Who is behind an identity, if anybody came yet.
    pub(super) fn of(identity: &SharedMemory) -> Option<Self> {
        let process_id = identity.half(PROCESS_ID).load(Ordering::Acquire);
        let start_ticks = identity.word(START).load(Ordering::Relaxed);
        i32::try_from(process_id).ok().filter(|id| *id > 0)?;
        Some(Self { process_id, start_ticks })
    }

    /// False once the process has ended, also while its parent has not noticed.
    pub(super) fn is_alive(self) -> bool {
        self.condition() != Condition::Ended
    }

    /// How the process is.
    pub(super) fn condition(self) -> Condition {
        match State::of(self.process_id) {
            Some(state) if state.start_ticks == self.start_ticks || self.start_ticks == 0 => state.condition(),
            _ => Condition::Ended,
        }
    }
}

/// How a process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    /// It runs, or would if it were woken.
    Well,
    /// A signal or a debugger holds it; so many ticks it had run by then.
    Stopped { ran_ticks: u64 },
    /// It is no more.
    Ended,
}

/// Says that the adapter behind `identity` is closed.
pub(super) fn leave(identity: &SharedMemory) {
    // Release: what was written before leaving is seen. Pairs with the load in `has_left`.
    identity.half(LEFT).store(1, Ordering::Release);
}

/// True if it said so.
pub(super) fn has_left(identity: &SharedMemory) -> bool {
    identity.half(LEFT).load(Ordering::Acquire) != 0
}

/// What the system tells of a process that has not ended.
struct State {
    letter: u8,
    start_ticks: u64,
    ran_ticks: u64,
}

impl State {
    fn of(process_id: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name in parentheses may contain anything; the fields behind it are numbered from 3, the state.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let letter = *fields.first()?.as_bytes().first()?;
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let state = Self { letter, start_ticks: number(22)?, ran_ticks: number(14)? + number(15)? };
        (!b"ZXx".contains(&letter)).then_some(state)
    }

    fn condition(&self) -> Condition {
        match self.letter {
            b'T' | b't' => Condition::Stopped { ran_ticks: self.ran_ticks },
            _ => Condition::Well,
        }
    }
}

/// When a process started, unless it has ended.
fn start_ticks(process_id: u32) -> Option<u64> {
    State::of(process_id).map(|state| state.start_ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_until_it_ends_noticed_or_not() {
        assert!(ProcessMark::own().is_alive());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("a process");
        let mark = ProcessMark { process_id: child.id(), start_ticks: start_ticks(child.id()).expect("it runs") };
        assert!(mark.is_alive());
        assert!(!ProcessMark { start_ticks: mark.start_ticks + 1, ..mark }.is_alive(), "another under its number");
        child.kill().expect("ours to kill");
        while mark.is_alive() {
            std::thread::yield_now();
        }
        child.wait().expect("ours to reap");
        assert!(!mark.is_alive());
    }

    #[test]
    fn a_state_is_read_whatever_the_process_is_called() {
        let stat = |name: &str, letter: &str| {
            let fields: Vec<String> = (4..=24).map(|field: u32| field.to_string()).collect();
            State::parse(&format!("17 ({name}) {letter} {}", fields.join(" ")))
        };
        for name in ["sleep", "a) T (b", ") Z 1 2"] {
            let state = stat(name, "S").expect("it has not ended");
            assert_eq!((state.start_ticks, state.condition()), (22, Condition::Well), "{name}");
        }
        for letter in ["T", "t"] {
            let condition = stat("x", letter).map(|state| state.condition());
            assert_eq!(condition, Some(Condition::Stopped { ran_ticks: 14 + 15 }));
        }
        assert!(stat("x", "Z").is_none() && State::parse("17 (x) S 4 5").is_none() && State::parse("").is_none());
    }

    #[test]
    fn an_identity_tells_who_came_and_who_left() {
        let identity = SharedMemory::private(64);
        assert_eq!(ProcessMark::of(&identity), None);
        ProcessMark::own().publish(&identity);
        assert_eq!(ProcessMark::of(&identity), Some(ProcessMark::own()));
        assert!(!has_left(&identity));
        leave(&identity);
        assert!(has_left(&identity));
    }
}
