//! The engine has no thread or clock of its own: this one makes lazy commits
//! durable and checkpoints while there is something to do, else it sleeps.

use atomdir_disk::LinuxDisk;
use atomdir_engine::Store;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_millis(50);
/// After the last commit everything is due by then.
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Maintenance {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    last_commit: Option<Instant>,
    ending: bool,
}

impl Maintenance {
    /// To be called after each commit.
    pub(crate) fn wake(&self) {
        let mut state = self.lock();
        let asleep = state.last_commit.is_none();
        state.last_commit = Some(Instant::now());
        if asleep {
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
        while !state.ending {
            let Some(last_commit) = state.last_commit else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let waited = self.changed.wait_timeout(state, PERIOD);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if last_commit.elapsed() > LONGEST && state.last_commit == Some(last_commit) {
                state.last_commit = None;
            }
            drop(state);
            if let Err(error) = store.maintain() {
                // Every later request that needs the store says so, too.
                tracing::error!("maintenance of the store failed: {error}");
            }
            state = self.lock();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
