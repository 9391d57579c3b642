//! The one loop in which everything waits.
//!
//! ```text
//!   poll ──► ready? ── yes ──► result
//!    ▲         │ no
//!    │         ▼
//!    ├── (poll again at first) / spin / yield   (gate released, so that other threads go on; no yield while yields are dear)
//!    └── announce, poll once more, sleep
//! ```
//!
//! Another thread of this process may poll the message this thread waits for. Whoever moves
//! something while a thread pauses wakes the sleepers of this process.

use engine::Pause;

use super::{OperationKey, World, engine_error};
use crate::error::Result;
use crate::tool::ticks;
use crate::{Comm, Error};

/// Polls in a row that may find nothing before what is waited for is looked at all the same.
const UNASKED_MAX: u32 = 8;
/// Looks, at most, at what is quickly asked before the first poll, which takes longer than several of them.
const CLOSE_LOOKS_MAX: u32 = 32;
/// Polls that found something, but not what is waited for, between two looks after peers: who is kept busy by some never
/// sleeps, and the one it waits for may be stopped.
const BUSY_MAX: u32 = 1024;

impl World {
    /// Polls once: the engine, then the operations in flight. True if anything moved.
    #[inline(always)]
    pub fn progress(&self) -> bool {
        let mut moved = self.engine.borrow_mut().progress();
        if !self.operations.is_empty() {
            moved |= self.operations.advance_all(self);
        }
        if moved {
            self.reap_orphans();
            self.wake_sleepers();
        }
        if let Some(watcher) = self.watcher.get() {
            watcher(self);
        }
        moved
    }

    /// As [`World::progress`], for calls that return at once whatever they find: a program that asks again and again
    /// lets others run, as one that waits would. False if nothing can have changed for the caller.
    pub(crate) fn progress_in_passing(&self) -> bool {
        if self.progress() {
            self.keep_looking();
            self.passing.found();
            return true;
        }
        let is_rest_due = self.passing.is_rest_due();
        if is_rest_due {
            self.rest_in_passing();
        }
        is_rest_due
    }

    /// Lets others run. Not a sleep, even where yields are dear: many programs ask in passing and have other work to do.
    #[inline(never)]
    fn rest_in_passing(&self) {
        let mut was_of_use = false;
        self.pause(|| was_of_use = self.waiter.rest());
        self.passing.rested(was_of_use);
        self.look_after_peers();
    }

    /// Tries `look`, and once more after a poll by which something may have changed.
    #[inline]
    pub(crate) fn poll_twice<T>(&self, mut look: impl FnMut(&World) -> Option<T>) -> Option<T> {
        look(self).or_else(|| if self.progress_in_passing() { look(self) } else { None })
    }

    /// A poll has found something: now and then it is time to look after peers all the same.
    fn keep_looking(&self) {
        let count = self.busy_count.get() + 1;
        self.busy_count.set(count % BUSY_MAX);
        if count == BUSY_MAX {
            self.look_after_peers();
        }
    }

    fn look_after_peers(&self) {
        self.waiter.look();
        self.hear_of_losses();
    }

    fn hear_of_losses(&self) {
        if self.engine.borrow_mut().hear_of_losses() {
            self.wake_sleepers();
        }
    }

    /// Waits until `ready` gives something, progressing all the while.
    ///
    /// No borrow is held while `ready` runs, and the gate is wholly released in the pauses.
    #[inline]
    pub fn wait_until<T>(&self, mut ready: impl FnMut(&World) -> Option<T>) -> T {
        match ready(self) {
            Some(value) => value,
            None => self.wait_loop(&mut ready, UNASKED_MAX),
        }
    }

    /// Waits until `is_reached`, which becomes true without anything moving in the engine and is quickly asked, or until
    /// there is an error. Where ranks have cores of their own it is asked several times before the first poll.
    #[inline]
    pub(crate) fn wait_closely(
        &self,
        mut is_reached: impl FnMut() -> bool,
        error: impl Fn(&World) -> Option<Error>,
    ) -> Result<()> {
        if (0..self.close_looks()).any(|_| is_reached()) {
            return Ok(());
        }
        self.wait_loop(&mut |world| if is_reached() { Some(Ok(())) } else { error(world).map(Err) }, 1)
    }

    /// Looks at an operation that is waited for as [`World::wait_closely`] does; gives its result if it is over by that, which
    /// is forgotten here.
    #[inline]
    pub(crate) fn finish_closely(&self, key: OperationKey) -> Option<Result<()>> {
        let result = self.operations.finish_closely(self, key, self.close_looks())?;
        self.wake_sleepers();
        // Others may have waited for its end, whose own ends are waited for elsewhere.
        if !self.operations.is_empty() {
            self.progress();
        }
        Some(result)
    }

    /// How often what is quickly asked is looked at before the first poll.
    #[inline]
    fn close_looks(&self) -> u32 {
        1 + self.waiter.policy().close_count.min(CLOSE_LOOKS_MAX)
    }

    /// `unasked_max`: polls in a row that may find nothing before what is waited for is looked at all the same.
    fn wait_loop<T>(&self, ready: &mut dyn FnMut(&World) -> Option<T>, unasked_max: u32) -> T {
        let mut backoff = self.waiter.backoff();
        let mut unasked_count = 0;
        loop {
            let moved = self.progress();
            // Where nothing moved there is little hope; asking costs more than a poll, so it is not done each time.
            if moved || unasked_count == 0 {
                if let Some(value) = ready(self) {
                    return value;
                }
                unasked_count = unasked_max;
            }
            if moved {
                backoff.reset();
                self.keep_looking();
            }
            let pause = match backoff.pause() {
                Pause::Yield if self.waiter.is_crowded() => Pause::Sleep,
                pause => pause,
            };
            unasked_count = if matches!(pause, Pause::Poll | Pause::Spin) { unasked_count - 1 } else { 0 };
            match pause {
                // Other threads need a moment to come in.
                Pause::Poll | Pause::Spin if self.gate.is_enabled() => self.pause(std::hint::spin_loop),
                Pause::Poll => {}
                Pause::Spin => std::hint::spin_loop(),
                Pause::Yield => self.pause(|| _ = self.waiter.rest()),
                Pause::Sleep => {
                    let ticket = self.waiter.announce();
                    self.engine.borrow_mut().hurry();
                    // Whatever came before the announcement woke nobody, so look once more.
                    let moved = self.progress();
                    if let Some(value) = ready(self) {
                        self.waiter.withdraw(ticket);
                        return value;
                    }
                    if moved {
                        self.waiter.withdraw(ticket);
                        self.keep_looking();
                    } else {
                        let mut slept = 0;
                        self.pause(|| {
                            let since = ticks();
                            self.waiter.sleep(ticket);
                            slept = ticks() - since;
                        });
                        self.asleep_ns.set(self.asleep_ns.get() + slept);
                        self.hear_of_losses();
                    }
                }
            }
        }
    }

    /// That a member of a communicator is lost, if one is, for those who may wait for it without exchanging anything with
    /// it themselves.
    #[inline]
    pub(crate) fn lost_among(&self, comm: &Comm) -> Option<Error> {
        let engine = self.engine.borrow();
        let lost = engine.losses().find(|lost| comm.participants().any(|peer| peer == *lost))?;
        engine.lost(lost).map(engine_error)
    }

    /// How long threads of this process have slept in waits so far.
    pub(crate) fn asleep_ns(&self) -> u64 {
        self.asleep_ns.get()
    }

    /// Runs `rest` with the gate released.
    fn pause(&self, rest: impl FnOnce()) {
        self.pausing.set(self.pausing.get() + 1);
        let released = self.gate.release_all();
        rest();
        self.gate.reacquire(released);
        self.pausing.set(self.pausing.get() - 1);
    }

    /// Something may have completed here that a pausing thread waits for.
    #[inline]
    pub(crate) fn wake_sleepers(&self) {
        if self.pausing.get() > 0 {
            self.waiter.wake_local();
        }
    }
}
