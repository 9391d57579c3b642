//! Whether a process still lives: its number together with the moment it started, for numbers are used again.

use base::sync::Ordering;
use fabric::SharedMemory;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

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
        Self::of_process(std::process::id())
    }

    /// The process that runs under this number now. Where the system does not tell when it started, any under it will do.
    pub(super) fn of_process(process_id: u32) -> Self {
        let state = read(process_id).ok().and_then(|text| State::parse(&text));
        Self { process_id, start_ticks: state.map_or(0, |state| state.start_ticks) }
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

    /// How the process is. Who cannot look, for want of a descriptor, say, takes it to be well: peers act on an end.
    pub(super) fn condition(self) -> Condition {
        self.condition_by(read(self.process_id), || is_nobody(self.process_id))
    }

    /// How it is, by what the system tells of its number, or why it tells nothing.
    fn condition_by(self, told: Result<String, Option<Errno>>, is_nobody: impl Fn() -> bool) -> Condition {
        match told.map(|text| State::parse(&text)) {
            Ok(Some(state)) if state.start_ticks == self.start_ticks || self.start_ticks == 0 => state.condition(),
            Ok(Some(_)) => Condition::Ended,
            // Where `/proc` is not there, or hides processes, no file says that there is no process.
            Err(Some(Errno::NOENT | Errno::SRCH)) if is_nobody() => Condition::Ended,
            Ok(None) | Err(_) => Condition::Well,
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

/// What the system tells of a number that a process has.
fn read(process_id: u32) -> Result<String, Option<Errno>> {
    // Names of processes are any bytes.
    let told = std::fs::read(format!("/proc/{process_id}/stat"));
    told.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).map_err(|why| Errno::from_io_error(&why))
}

/// True if no process has this number.
fn is_nobody(process_id: u32) -> bool {
    let id = i32::try_from(process_id).ok().and_then(Pid::from_raw);
    id.is_none_or(|id| test_kill_process(id) == Err(Errno::SRCH))
}

/// What the system tells of a process.
struct State {
    letter: u8,
    start_ticks: u64,
    ran_ticks: u64,
}

impl State {
    fn parse(text: &str) -> Option<Self> {
        // The name in parentheses may contain anything; the fields behind it are numbered from 3, the state.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let letter = *fields.first()?.as_bytes().first()?;
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self { letter, start_ticks: number(22)?, ran_ticks: number(14)? + number(15)? })
    }

    fn condition(&self) -> Condition {
        match self.letter {
            b'T' | b't' => Condition::Stopped { ran_ticks: self.ran_ticks },
            b'Z' | b'X' | b'x' => Condition::Ended,
            _ => Condition::Well,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::segment::{Segment, Shape};
    use super::*;
    use fabric::PeerIndex;
    use rustix::process::{Signal, kill_process};

    #[test]
    fn a_process_lives_until_it_ends_noticed_or_not() {
        assert!(ProcessMark::own().is_alive());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("a process");
        let mark = ProcessMark::of_process(child.id());
        assert!(mark.is_alive() && mark.start_ticks > 0);
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
        for letter in ["Z", "X", "x"] {
            assert_eq!(stat("x", letter).map(|state| state.condition()), Some(Condition::Ended));
        }
        assert!(State::parse("17 (x) S 4 5").is_none() && State::parse("").is_none());
    }

    #[test]
    fn who_cannot_be_looked_at_has_not_ended() {
        let mark = ProcessMark { process_id: 17, start_ticks: 22 };
        for why in [Some(Errno::MFILE), Some(Errno::NFILE), Some(Errno::ACCESS), None] {
            assert_eq!(mark.condition_by(Err(why), || true), Condition::Well, "{why:?}");
        }
        assert_eq!(mark.condition_by(Ok(String::new()), || true), Condition::Well);
        for why in [Some(Errno::NOENT), Some(Errno::SRCH)] {
            assert_eq!(mark.condition_by(Err(why), || true), Condition::Ended);
            assert_eq!(mark.condition_by(Err(why), || false), Condition::Well, "/proc is not there");
        }
        assert!(!is_nobody(std::process::id()) && is_nobody(0) && is_nobody(i32::MAX as u32));
    }

    #[test]
    fn another_under_the_number_of_a_peer_is_not_a_peer_that_is_stopped() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("a process");
        let segment = Segment::create(Shape { process_count: 2, channel_bytes: 16 << 10, ..Shape::default() }).unwrap();
        segment.claim_to_be(PeerIndex(1), child.id());
        let identity = segment.identity(1).expect("a place");
        let mark = ProcessMark::of(&identity).expect("somebody came");
        kill_process(Pid::from_child(&child), Signal::STOP).expect("ours to stop");
        while !matches!(mark.condition(), Condition::Stopped { .. }) {
            std::thread::yield_now();
        }
        // The peer started earlier, and the child has got its number since.
        identity.word(START).store(mark.start_ticks - 1, Ordering::Relaxed);
        assert_eq!(ProcessMark::of(&identity).map(ProcessMark::condition), Some(Condition::Ended));
        child.kill().expect("ours to kill");
        child.wait().expect("ours to reap");
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
