//! Wakes a thread that works at intervals, and lets it sleep while there is no
//! work.

use atomdir_types::sync;
use std::sync::{Condvar, Mutex};
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
        let mut state = sync::lock(&self.state);
        if !state.awake {
            state.awake = true;
            self.changed.notify_one();
        }
    }

    /// Announces that no more ticks follow.
    pub fn end(&self) {
        sync::lock(&self.state).ending = true;
        self.changed.notify_one();
    }

    /// Sleeps until woken, or for `sleep_max`, and then for `pause`. A wake-up after that counts
    /// for the next tick. Returns `false` if there are no more ticks and the
    /// thread shall end.
    pub fn next(&self, pause: Duration, sleep_max: Option<Duration>) -> bool {
        let is_asleep = |state: &mut State| !state.awake && !state.ending;
        let state = sync::lock(&self.state);
        let state = match sleep_max {
            None => sync::wait_while(&self.changed, state, is_asleep),
            Some(limit) => sync::wait_for_while(&self.changed, state, limit, is_asleep).0,
        };
        let mut state = sync::wait_for_while(&self.changed, state, pause, |state| !state.ending).0;
        state.awake = false;
        !state.ending
    }
}
