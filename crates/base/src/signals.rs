//! Threads of ours leave the program's signals to the program.
//!
//! A signal for the process goes to any thread that does not block it: a handler of the program would run on a thread
//! that the program does not know, with that thread's small stack, and interrupt what that thread does.

/// Runs `work` with all signals blocked; a thread that it starts never takes any.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: a set of signals is plain data, filled by the next call.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is a set of this frame.
    unsafe { libc::sigfillset(&mut all) };
    // SAFETY: both sets are of this frame.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before) };
    let result = work();
    // SAFETY: `before` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    result
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// True if this thread takes `signal`.
    fn takes(signal: i32) -> bool {
        // SAFETY: a set of signals is plain data, filled by the next call.
        let mut blocked: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: nothing is changed, and the set is of this frame.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut blocked) };
        // SAFETY: the set was filled above.
        unsafe { libc::sigismember(&blocked, signal) == 0 }
    }

    #[test]
    fn a_thread_started_without_signals_takes_none_and_its_starter_does() {
        for signal in [libc::SIGTERM, libc::SIGUSR1, libc::SIGCHLD, libc::SIGALRM] {
            let thread = without_signals(|| std::thread::spawn(move || takes(signal)));
            assert!(takes(signal), "the starter has its own back");
            assert!(!thread.join().expect("it ends"));
        }
    }
}
