//! One lock round an engine, taken at the face.
//!
//! Reentrant, because a callback of the user (a reduction, an attribute copy, an error handler) may call
//! MPI again; released wholly while its holder waits, so that the other threads of the process go on.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;

/// The lock round one world. With threads not in use (below `MPI_THREAD_MULTIPLE`) it costs one load.
pub struct Gate {
    enabled: bool,
    lock: RawMutex,
    /// Which thread holds the lock (0: none). Written by the holder only.
    owner: AtomicUsize,
    /// How many times the holder has entered. Written by the holder only.
    depth: AtomicU32,
}

/// Leaves the gate when dropped.
#[must_use = "the gate is left when the guard is dropped"]
pub struct GateGuard<'a> {
    gate: &'a Gate,
}

/// Proof that a thread gave the gate up for a pause; [`Gate::reacquire`] takes it back.
#[must_use = "reacquire the gate with this"]
pub struct Released {
    depth: u32,
}

impl Gate {
    /// A gate that excludes threads from one another if `enabled`, or nobody.
    pub const fn new(enabled: bool) -> Self {
        Self { enabled, lock: RawMutex::INIT, owner: AtomicUsize::new(0), depth: AtomicU32::new(0) }
    }

    /// True if threads are kept apart.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Enters, waiting (asleep) for another thread to leave. A thread inside may enter again.
    #[inline]
    pub fn enter(&self) -> GateGuard<'_> {
        if self.enabled {
            self.enter_locked();
        }
        GateGuard { gate: self }
    }

    fn enter_locked(&self) {
        let me = thread_mark();
        // Relaxed: only this thread ever stores its own mark, so it reads it back only if it holds the lock.
        if self.owner.load(Ordering::Relaxed) == me {
            self.depth.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.lock.lock();
        self.owner.store(me, Ordering::Relaxed);
        self.depth.store(1, Ordering::Relaxed);
    }

    /// As [`Gate::enter`], but without waiting much longer than `patience`: the handler of a signal may ask while its own
    /// thread is taking the lock.
    pub fn enter_within(&self, patience: Duration) -> Option<GateGuard<'_>> {
        let me = thread_mark();
        if !self.enabled || self.owner.load(Ordering::Relaxed) == me {
            return Some(self.enter());
        }
        let step = Duration::from_millis(1);
        let mut waited = Duration::ZERO;
        while !self.lock.try_lock() {
            if waited >= patience {
                return None;
            }
            std::thread::sleep(step);
            waited += step;
        }
        self.owner.store(me, Ordering::Relaxed);
        self.depth.store(1, Ordering::Relaxed);
        Some(GateGuard { gate: self })
    }

    /// Gives the gate up, however often it was entered, for the length of a pause.
    #[inline]
    pub fn release_all(&self) -> Released {
        if !self.enabled || self.owner.load(Ordering::Relaxed) != thread_mark() {
            return Released { depth: 0 };
        }
        let depth = self.depth.load(Ordering::Relaxed);
        self.unlock();
        Released { depth }
    }

    /// Takes the gate back as deep as it was.
    #[inline]
    pub fn reacquire(&self, released: Released) {
        if released.depth == 0 {
            return;
        }
        self.lock.lock();
        self.owner.store(thread_mark(), Ordering::Relaxed);
        self.depth.store(released.depth, Ordering::Relaxed);
    }

    fn unlock(&self) {
        self.depth.store(0, Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
        // SAFETY: the owner mark was this thread's, so this thread holds the lock.
        unsafe { self.lock.unlock() }
    }
}

impl Drop for GateGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.gate.enabled {
            return;
        }
        if self.gate.depth.load(Ordering::Relaxed) > 1 {
            self.gate.depth.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.gate.unlock();
        }
    }
}

/// A number unique to the calling thread while it lives, never 0: the address of a thread-local.
pub(crate) fn thread_mark() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| std::ptr::from_ref(mark) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::Arc;

    struct Guarded(Gate, Cell<u64>);
    // SAFETY: the cell is touched only between `enter` and the guard's drop.
    unsafe impl Sync for Guarded {}
    // SAFETY: as above.
    unsafe impl Send for Guarded {}

    // The lock itself is parking_lot's, whose word to sleep on the kernel takes and the interpreter does not.
    #[test]
    #[cfg_attr(miri, ignore = "parking_lot gives futex a reference where the interpreter wants a pointer to u32")]
    fn threads_exclude_one_another_also_across_pauses() {
        let repeats = 1000;
        let shared = Arc::new(Guarded(Gate::new(true), Cell::new(0)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    for _ in 0..repeats {
                        let _outer = shared.0.enter();
                        let _inner = shared.0.enter();
                        shared.1.set(shared.1.get() + 1);
                        let released = shared.0.release_all();
                        shared.0.reacquire(released);
                        shared.1.set(shared.1.get() + 1);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no thread panics");
        }
        assert_eq!(shared.1.get(), 8 * repeats);
    }

    #[test]
    fn who_asks_while_it_takes_the_lock_does_not_wait_for_itself() {
        let gate = Gate::new(true);
        // As far as a thread has come that a signal interrupts there: locked, and nobody says by whom.
        gate.lock.lock();
        assert!(gate.enter_within(Duration::from_millis(3)).is_none());
        // SAFETY: locked above, by this thread.
        unsafe { gate.lock.unlock() };
        let outer = gate.enter_within(Duration::ZERO).expect("nobody has it");
        drop(gate.enter_within(Duration::ZERO).expect("it is ours"));
        drop(outer);
        assert_eq!(gate.owner.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_disabled_gate_lets_everybody_through() {
        let gate = Gate::new(false);
        let _first = gate.enter();
        let released = gate.release_all();
        gate.reacquire(released);
        let _second = gate.enter();
    }
}
