//! When a thread that works at intervals has to, and when it may sleep.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Default)]
pub(crate) struct Ticks {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    awake: bool,
    ending: bool,
}

impl Ticks {
    /// There is something to do: one more tick will come.
    pub(crate) fn wake(&self) {
        let mut state = self.lock();
        if !state.awake {
            state.awake = true;
            self.changed.notify_one();
        }
    }

    /// There are no more.
    pub(crate) fn end(&self) {
        self.lock().ending = true;
        self.changed.notify_one();
    }

    /// Sleeps until woken, and for `pause` after that. What wakes it from then
    /// on is for the next tick. `false`: there is none, the thread shall end.
    pub(crate) fn next(&self, pause: Duration) -> bool {
        let asleep = self
            .changed
            .wait_while(self.lock(), |state| !state.awake && !state.ending);
        let state = asleep.unwrap_or_else(PoisonError::into_inner);
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
