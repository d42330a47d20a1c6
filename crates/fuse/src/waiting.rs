//! Requests to a view that is being committed wait here. There are few workers
//! and they serve all views: none of them may wait for one.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::filesystem::Filesystem;
use crate::transport::Addressee;
use crate::worker::Worker;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Default)]
pub struct Waiting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    requests: Vec<Deferred>,
    /// They are being tried: `requests` has only those that came since.
    is_trying: bool,
    /// How often all were tried.
    tries: u64,
    is_over: bool,
}

pub struct Deferred {
    pub addressee: Addressee,
    pub message: Vec<u8>,
}

impl Waiting {
    pub fn defer(&self, request: Deferred) {
        let mut state = self.lock();
        if !state.is_over {
            state.requests.push(request);
            self.changed.notify_all();
        }
    }

    /// Tries what waits, again and again, until [`end`](Self::end).
    pub fn run<F: Filesystem>(&self, mut worker: Worker<F>) {
        let mut state = self.lock();
        while !state.is_over {
            if state.requests.is_empty() {
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let requests = std::mem::take(&mut state.requests);
            state.is_trying = true;
            drop(state);
            for request in requests {
                worker.retry(request);
            }
            state = self.lock();
            state.is_trying = false;
            state.tries += 1;
            self.changed.notify_all();
            let paused = self.changed.wait_timeout(state, PAUSE);
            state = paused.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.requests.clear();
    }

    /// Returns when all that waits now has been tried since the call.
    pub fn try_all(&self) {
        let mut state = self.lock();
        let enough = state.tries + 1 + u64::from(state.is_trying);
        while (state.is_trying || !state.requests.is_empty())
            && state.tries < enough
            && !state.is_over
        {
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
