//! Where waiting threads look for peers that are stopped, between two sleeps.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::life::ProcessMark;
use super::segment::Segment;
use super::watch::{Found, StopPolicy, Watch};

/// Time between two looks of somebody for whom nobody rang, and of one who is woken now and then.
const LOOK_EVERY: Duration = Duration::from_millis(900);
pub(super) const LOOK_EVERY_BUSY: Duration = Duration::from_secs(5);
/// Processes looked at each time: of more, all have had their turn a few looks later.
const LOOKED_AT_MAX: u32 = 16;

/// The watch of a process whose threads sleep by turns.
pub(super) struct Lookout(Mutex<State>);

struct State {
    segment: Segment,
    me: u32,
    watch: Watch,
    start: Instant,
    /// Who is looked at next.
    next: u32,
    /// By place: it is given up.
    is_lost: Vec<bool>,
    /// And has not been asked for yet.
    untold: Vec<(u32, String)>,
}

impl Lookout {
    pub(super) fn new(segment: Segment, me: u32, policy: StopPolicy) -> Self {
        let state = State {
            watch: Watch::new(segment.clone(), me, policy),
            is_lost: vec![false; segment.shape().process_count as usize],
            segment,
            me,
            start: Instant::now(),
            next: 0,
            untold: Vec::new(),
        };
        Self(Mutex::new(state))
    }

    /// A sleep is over; `in_vain`: nobody rang. One of several threads looks, now and then.
    pub(super) fn look(&self, in_vain: bool) {
        let Ok(mut state) = self.0.try_lock() else { return };
        let every = if in_vain { LOOK_EVERY } else { LOOK_EVERY_BUSY };
        let now = state.start.elapsed();
        if now.saturating_sub(state.watch.looked().unwrap_or_default()) < every {
            return;
        }
        state.look(now);
    }

    /// A process that was given up since this was asked last, and why; whoever asks while somebody looks asks again.
    pub(super) fn given_up(&self) -> Option<(u32, String)> {
        self.0.try_lock().ok()?.untold.pop()
    }
}

impl State {
    fn look(&mut self, now: Duration) {
        self.watch.begin(now);
        let count = self.segment.shape().process_count;
        for _ in 0..count.min(LOOKED_AT_MAX) {
            let place = self.next % count;
            self.next = place + 1;
            let mark = self.segment.identity(place).and_then(|identity| ProcessMark::of(&identity));
            let Some(mark) = mark.filter(|_| place != self.me && !self.is_lost[place as usize]) else { continue };
            // Of a process that has ended the launcher tells.
            if let Found::GivenUp(why) = self.watch.look(place, mark) {
                self.is_lost[place as usize] = true;
                self.untold.push((place, why));
            }
        }
    }
}
