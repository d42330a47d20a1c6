//! The engine has no thread or clock of its own: this one makes lazy commits
//! durable and checkpoints while there is something to do, else it sleeps.

use atomdir_disk::LinuxDisk;
use atomdir_engine::Store;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const PERIOD: Duration = Duration::from_millis(50);
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct Maintenance {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    awake: bool,
    ending: bool,
}

impl Maintenance {
    /// To be called after each commit.
    pub(crate) fn wake(&self) {
        let mut state = self.lock();
        if !state.awake {
            state.awake = true;
            self.changed.notify_one();
        }
    }

    pub(crate) fn end(&self) {
        self.lock().ending = true;
        self.changed.notify_one();
    }

    /// The thread's work, until [`Maintenance::end`].
    pub(crate) fn run(&self, store: &Store<LinuxDisk>) {
        let mut state = self.lock();
        let mut pause = PERIOD;
        while !state.ending {
            if !state.awake {
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            // Before asking: a commit that comes meanwhile wakes it again.
            state.awake = false;
            drop(state);
            pause = match store.maintain() {
                Ok(()) => PERIOD,
                Err(error) => {
                    tracing::error!("maintenance of the store failed: {error}");
                    PAUSE_AFTER_ERROR
                }
            };
            let goes_on = store.needs_maintenance() && store.status().poisoned.is_none();
            state = self.lock();
            state.awake |= goes_on;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
