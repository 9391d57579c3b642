//! Who is stopped. A process that a signal or a debugger holds answers nobody, and from outside its memory looks like one
//! that computes for an hour; but the system tells them apart, so that one that computes is never given up.
//!
//! A look at a process is a read of `/proc`, made seldom and by those who wait. Time counts as it is observed: who was
//! stopped along with the other, as a whole job is by a terminal, takes nothing amiss.

use std::fmt;
use std::time::Duration;

use base::log::{Level, Log};
use base::sync::Ordering;

use super::life::{self, Condition, ProcessMark};
use super::link::GIVEN_UP;
use super::segment::Segment;

/// How long a process must have been stopped before anybody is told: short stops are a tool's looking.
const TOLD_AFTER: Duration = Duration::from_secs(1);
/// What counts of the time between two looks, at most: more than lies between those of somebody who is woken now and then,
/// so that all of it counts.
const GAP_MAX: Duration = Duration::from_secs(6);
/// Where an identity says who has told that its process is stopped: a place and 1, or 0.
const TELLER: usize = 32;

/// What is done about processes that are stopped.
#[derive(Clone, Debug)]
pub struct StopPolicy {
    /// How long one may be stopped until it is given up; `None`: for ever.
    pub silence: Option<Duration>,
    /// Where it is said that one is stopped, once for all processes of the host.
    pub log: Log,
    /// By place: how people call the processes. Places that are not in it are called by themselves.
    pub ranks: Vec<u32>,
}

impl StopPolicy {
    /// Nobody is given up, and nothing is said.
    pub fn patient() -> Self {
        Self { silence: None, log: Log::new(Level::Error, None), ranks: Vec::new() }
    }
}

/// What a look at a process came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// It is there.
    There,
    /// It has ended.
    Ended,
    /// It is given up, and why; or it has given this one up.
    GivenUp(String),
}

/// One process's watch over those of its segment.
pub(super) struct Watch {
    segment: Segment,
    me: u32,
    policy: StopPolicy,
    stops: Vec<Stop>,
    /// Time that was observed.
    observed: Duration,
    /// When there was a look.
    looked: Option<Duration>,
}

impl Watch {
    /// The watch of process `me` in `segment`.
    pub(super) fn new(segment: Segment, me: u32, policy: StopPolicy) -> Self {
        let stops = (0..segment.shape().process_count).map(|_| Stop::default()).collect();
        Self { segment, me, policy, stops, observed: Duration::ZERO, looked: None }
    }

    /// Begins a round of looks; `now`: the time since some fixed moment.
    pub(super) fn begin(&mut self, now: Duration) {
        let gap = self.looked.replace(now).map_or(Duration::ZERO, |before| now.saturating_sub(before));
        self.observed += gap.min(GAP_MAX);
    }

    /// When the last round was.
    pub(super) fn looked(&self) -> Option<Duration> {
        self.looked
    }

    /// Looks at a process, and says what is to be said of it.
    pub(super) fn look(&mut self, place: u32, mark: ProcessMark) -> Found {
        self.look_at(place, mark, mark.condition())
    }

    fn look_at(&mut self, place: u32, mark: ProcessMark, condition: Condition) -> Found {
        if condition == Condition::Ended {
            return Found::Ended;
        }
        if self.segment.identity(place).is_some_and(|identity| life::has_left(&identity)) {
            // It has finalized and does what it likes: nothing needs it.
            return Found::There;
        }
        let Some(stop) = self.stops.get_mut(place as usize) else { return Found::There };
        let news = stop.see(condition, self.observed, self.policy.silence);
        let who = Named { rank: self.policy.ranks.get(place as usize).copied().unwrap_or(place), mark };
        match news {
            Some(News::Stopped(time)) if self.takes_word(place) => self.say(format_args!(
                "{who} has been stopped, by a signal or a debugger, for {:.1} s; what needs it waits",
                time.as_secs_f64()
            )),
            Some(News::GoesOn(time)) if self.ends_word(place) => {
                self.say(format_args!("{who} goes on after {:.1} s", time.as_secs_f64()));
            }
            Some(News::TooLong(time)) => {
                self.tell_given_up(place);
                let why = format!("{who} has been stopped for {:.1} s (FERROVIA_SILENCE)", time.as_secs_f64());
                self.say(format_args!("{why}: it is given up"));
                return Found::GivenUp(why);
            }
            _ => {}
        }
        if self.is_given_up_by(place) {
            return Found::GivenUp(format!("{who} has given this process up: it was stopped for too long"));
        }
        Found::There
    }

    fn say(&self, what: fmt::Arguments<'_>) {
        self.policy.log.say(Level::Warn, what);
    }

    /// True for the first of all processes that want to tell of this one.
    fn takes_word(&self, place: u32) -> bool {
        self.segment.identity(place).is_some_and(|identity| {
            // Relaxed, here and below: nothing is guarded by who tells.
            let took = identity.half(TELLER).compare_exchange(0, self.me + 1, Ordering::Relaxed, Ordering::Relaxed);
            took.is_ok()
        })
    }

    /// True for the first who sees that it goes on after somebody told of it: whoever told may not look any more.
    fn ends_word(&self, place: u32) -> bool {
        self.segment.identity(place).is_some_and(|identity| identity.half(TELLER).swap(0, Ordering::Relaxed) != 0)
    }

    /// Whoever goes on after all finds out that nobody waits for it.
    fn tell_given_up(&self, place: u32) {
        if let Some(reach) = self.segment.reach(self.me) {
            // Release is for tidiness, here and at its loads: the word stands for itself.
            reach.word(place as usize * 8).store(GIVEN_UP, Ordering::Release);
        }
    }

    fn is_given_up_by(&self, place: u32) -> bool {
        let reach = self.segment.reach(place);
        reach.is_some_and(|reach| reach.word(self.me as usize * 8).load(Ordering::Acquire) == GIVEN_UP)
    }
}

struct Named {
    rank: u32,
    mark: ProcessMark,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} (process {})", self.rank, self.mark.process_id)
    }
}

/// Whether a process is stopped.
#[derive(Default)]
struct Stop {
    /// Since when, and what it had run by then.
    since: Option<(Duration, u64)>,
    is_told: bool,
}

/// What is new about a process.
#[derive(PartialEq, Eq, Debug)]
enum News {
    Stopped(Duration),
    GoesOn(Duration),
    TooLong(Duration),
}

impl Stop {
    fn see(&mut self, condition: Condition, now: Duration, silence: Option<Duration>) -> Option<News> {
        let is_stopped = match condition {
            Condition::Stopped { ran_ticks } => Some((now, ran_ticks)),
            Condition::Well | Condition::Ended => None,
        };
        // Who has run in between was stopped twice.
        if let (Some((since, before)), Some((_, ran))) = (self.since, is_stopped)
            && before == ran
        {
            let time = now.saturating_sub(since);
            if silence.is_some_and(|silence| time > silence) {
                return Some(News::TooLong(time));
            }
            let is_new = time >= TOLD_AFTER && !self.is_told;
            self.is_told |= is_new;
            return is_new.then_some(News::Stopped(time));
        }
        let (since, _) = std::mem::replace(&mut self.since, is_stopped)?;
        std::mem::take(&mut self.is_told).then(|| News::GoesOn(now.saturating_sub(since)))
    }
}

/// Waits for a process in the middle of something short, longer each time: it may have been stopped there.
pub(super) struct Pauses(Duration);

impl Pauses {
    pub(super) const fn new() -> Self {
        Self(Duration::from_micros(20))
    }

    pub(super) fn pause(&mut self) {
        std::thread::sleep(self.0);
        self.0 = (self.0 * 2).min(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use fabric::{PeerIndex, SharedMemory};

    use super::super::lookout::LOOK_EVERY_BUSY;
    use super::super::segment::Shape;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const STOPPED: Condition = Condition::Stopped { ran_ticks: 5 };

    #[test]
    fn a_stop_is_told_of_once_and_so_is_its_end() {
        let mut stop = Stop::default();
        let mut see = |condition, seconds: f64| stop.see(condition, SECOND.mul_f64(seconds), None);
        assert_eq!((see(Condition::Well, 1.0), see(STOPPED, 2.0), see(STOPPED, 2.5)), (None, None, None));
        assert_eq!(see(STOPPED, 3.5), Some(News::Stopped(SECOND.mul_f64(1.5))));
        assert_eq!(
            (see(STOPPED, 1e6), see(Condition::Well, 1e6)),
            (None, Some(News::GoesOn(SECOND.mul_f64(1e6 - 2.0))))
        );
        assert_eq!(
            (see(STOPPED, 1e6), see(Condition::Well, 1e6 + 0.5)),
            (None, None),
            "a short one is nobody's affair"
        );
    }

    #[test]
    fn who_runs_between_the_looks_is_not_stopped() {
        let mut stop = Stop::default();
        for second in 0..100 {
            let condition = Condition::Stopped { ran_ticks: u64::from(second) };
            assert_eq!(stop.see(condition, SECOND * second, Some(SECOND)), None);
        }
    }

    #[test]
    fn a_deadline_is_kept_to() {
        let mut stop = Stop::default();
        let silence = Some(SECOND * 3);
        assert_eq!(stop.see(STOPPED, SECOND, silence), None);
        assert_eq!(stop.see(STOPPED, SECOND * 3, silence), Some(News::Stopped(SECOND * 2)));
        assert_eq!(stop.see(STOPPED, SECOND * 4, silence), None);
        assert_eq!(stop.see(STOPPED, SECOND * 5, silence), Some(News::TooLong(SECOND * 4)));
        assert_eq!(Stop::default().see(Condition::Well, SECOND * 1000, silence), None, "who computes is there");
    }

    #[test]
    fn time_that_nobody_observed_does_not_count() {
        let segment = Segment::create(Shape { process_count: 2, channel_bytes: 16 << 10, ..Shape::default() }).unwrap();
        let mut watch = Watch::new(segment, 0, StopPolicy::patient());
        // The whole job is stopped for an hour.
        for now in [10, 11, 3611, 3612] {
            watch.begin(SECOND * now);
        }
        assert_eq!(watch.observed, SECOND * 2 + GAP_MAX);
    }

    #[test]
    fn all_time_between_looks_counts_for_who_is_woken_now_and_then() {
        let segment = Segment::create(Shape { process_count: 2, channel_bytes: 16 << 10, ..Shape::default() }).unwrap();
        let mut watch = Watch::new(segment, 0, StopPolicy::patient());
        for round in 0..=4 {
            watch.begin(LOOK_EVERY_BUSY * round);
        }
        assert_eq!(watch.observed, LOOK_EVERY_BUSY * 4);
    }

    #[test]
    fn who_has_finalized_may_be_stopped() {
        let segment = Segment::create(Shape { process_count: 3, channel_bytes: 16 << 10, ..Shape::default() }).unwrap();
        let policy = StopPolicy { silence: Some(SECOND * 5), ..StopPolicy::patient() };
        let mut watch = Watch::new(segment.clone(), 0, policy);
        for place in [1, 2] {
            segment.claim_to_be(PeerIndex(place), std::process::id());
        }
        let [waited_for, finalized] = [1, 2].map(|place| segment.identity(place).expect("a place"));
        life::leave(&finalized);
        let is_told_of = |identity: &SharedMemory| identity.half(TELLER).load(Ordering::Relaxed) != 0;
        for second in 0..10 {
            watch.begin(SECOND * second);
            for (place, identity) in [(1, &waited_for), (2, &finalized)] {
                let mark = ProcessMark::of(identity).expect("somebody came");
                let is_given_up = matches!(watch.look_at(place, mark, STOPPED), Found::GivenUp(_));
                assert_eq!(is_given_up, place == 1 && second > 5, "place {place} after {second} s");
            }
        }
        assert!(is_told_of(&waited_for) && !is_told_of(&finalized));
    }

    #[test]
    fn one_of_all_processes_tells() {
        let segment = Segment::create(Shape { process_count: 3, channel_bytes: 16 << 10, ..Shape::default() }).unwrap();
        let [one, other] = [0, 1].map(|me| Watch::new(segment.clone(), me, StopPolicy::patient()));
        for _ in 0..2 {
            assert_eq!((one.takes_word(2), other.takes_word(2)), (true, false));
            assert_eq!((other.ends_word(2), one.ends_word(2)), (true, false));
        }
        other.tell_given_up(0);
        assert!(one.is_given_up_by(1) && !one.is_given_up_by(2) && !other.is_given_up_by(0));
    }
}
