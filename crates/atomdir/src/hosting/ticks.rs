//! Wakes a thread that works at intervals, and lets it sleep while there is no
//! work.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Default)]
pub struct Ticks {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    awake: bool,
    ending: bool,
}

impl Ticks {
    /// Announces work: at least one more tick follows.
    pub fn wake(&self) {
        let mut state = self.lock();
        if !state.awake {
            state.awake = true;
            self.changed.notify_one();
        }
    }

    /// Announces that no more ticks follow.
    pub fn end(&self) {
        self.lock().ending = true;
        self.changed.notify_one();
    }

    /// Sleeps until woken, or for `sleep_max`, and then for `pause`. A wake-up after that counts
    /// for the next tick. Returns `false` if there are no more ticks and the
    /// thread shall end.
    pub fn next(&self, pause: Duration, sleep_max: Option<Duration>) -> bool {
        let is_asleep = |state: &mut State| !state.awake && !state.ending;
        let state = self.lock();
        let state = match sleep_max {
            None => self
                .changed
                .wait_while(state, is_asleep)
                .unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let asleep = self.changed.wait_timeout_while(state, limit, is_asleep);
                asleep.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        let pausing = self
            .changed
            .wait_timeout_while(state, pause, |state| !state.ending);
        let mut state = pausing.unwrap_or_else(PoisonError::into_inner).0;
        state.awake = false;
        !state.ending
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
