//! Ends in threads that take turns, so that a simulated network sees the same sequence of calls in every run.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

struct State {
    /// Whose turn it is.
    now: usize,
    /// Who takes no turns any more.
    left: Vec<bool>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// One thread's right to go on. Dropping it leaves the round.
pub struct Turn {
    shared: Arc<Shared>,
    mine: usize,
}

/// So many turns, of which the first has the floor.
pub fn turns(count: usize) -> Vec<Turn> {
    let state = Mutex::new(State { now: 0, left: vec![false; count] });
    let shared = Arc::new(Shared { state, changed: Condvar::new() });
    (0..count).map(|mine| Turn { shared: Arc::clone(&shared), mine }).collect()
}

impl State {
    /// The next one who still takes turns; whoever asks, if there is nobody else.
    fn after(&self, mine: usize) -> usize {
        let count = self.left.len();
        (1..count).map(|step| (mine + step) % count).find(|next| !self.left[*next]).unwrap_or(mine)
    }
}

impl Turn {
    /// Lets the next one go on, and waits until it is this one's turn again.
    pub fn pass(&mut self) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.now == self.mine {
            state.now = state.after(self.mine);
            self.shared.changed.notify_all();
        }
        while state.now != self.mine {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until it is this one's turn.
    pub fn wait(&mut self) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.now != self.mine {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.left[self.mine] = true;
        if state.now == self.mine {
            state.now = state.after(self.mine);
        }
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn_in_order_until_all_have_left() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = turns(3)
            .into_iter()
            .enumerate()
            .map(|(mine, mut turn)| {
                let order = Arc::clone(&order);
                std::thread::spawn(move || {
                    turn.wait();
                    // The second leaves early.
                    for _ in 0..if mine == 1 { 1 } else { 3 } {
                        order.lock().unwrap().push(mine);
                        turn.pass();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 0, 2, 0, 2]);
    }
}
