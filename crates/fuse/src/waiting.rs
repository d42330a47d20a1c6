//! Requests that cannot be served yet wait here: those to a view that is being
//! committed, and those that need a file on which another process holds a lease.
//! There are few workers and they serve all views of the mount, so none of them
//! waits.
//!
//! One thread tries them. It sleeps until something may have changed: a request was
//! deferred, or the file system says that what it could not answer it may answer now
//! ([`Notifier::retry`](crate::Notifier::retry)), or the session ends. No wake-up is
//! lost, by two rules:
//! 1. A request that was just deferred is tried once more at once. What it waits for
//!    may have come between its refusal and its arrival here.
//! 2. `is_due` is cleared before the requests are tried, so what happens meanwhile
//!    makes them due again.
//!
//! The kernel announces the end of a lease only to an open that blocks. So while a
//! request waits for a lease, and only then, all are also tried at intervals.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::filesystem::Filesystem;
use crate::transport::Addressee;
use crate::wire;
use crate::worker::Worker;

/// Between two tries, while a request waits for a lease.
const LEASE_PAUSE: Duration = Duration::from_millis(5);
/// The kernel ends a lease after 45 seconds, if nobody has changed that. Somebody
/// who takes it again at once cannot make a request wait longer than this.
const LEASE_TIME_MAX: Duration = Duration::from_secs(60);
/// FUSE_WRITE of `linux/fuse.h`.
const WRITE: u32 = 16;

#[derive(Default)]
pub struct Waiting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    requests: Vec<Deferred>,
    /// Something has changed since they were last tried.
    is_due: bool,
    /// They are being tried: `requests` has only those that came since.
    is_trying: bool,
    /// How often all were tried.
    tries: u64,
    is_over: bool,
}

/// Why a request cannot be served yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// Its view is being committed.
    Commit,
    /// Another process holds a lease on a file of the base.
    Lease,
}

pub struct Deferred {
    pub addressee: Addressee,
    pub message: Vec<u8>,
    /// When it stops waiting for a lease.
    lease_ends: Option<Instant>,
}

/// A request that has waited for a lease too long.
pub struct Expired {
    pub addressee: Addressee,
    pub unique: u64,
}

impl Deferred {
    pub fn new(addressee: Addressee, message: Vec<u8>, obstacle: Obstacle) -> Deferred {
        let lease_ends = match obstacle {
            Obstacle::Commit => None,
            Obstacle::Lease => Some(Instant::now() + LEASE_TIME_MAX),
        };
        Deferred {
            addressee,
            message,
            lease_ends,
        }
    }

    /// It could not be served once more.
    pub fn again(self, obstacle: Obstacle) -> Result<Deferred, Expired> {
        match (obstacle, self.lease_ends) {
            (Obstacle::Lease, Some(end)) if end <= Instant::now() => {
                let header = wire::decode_header(&self.message);
                Err(Expired {
                    addressee: self.addressee,
                    unique: header.map_or(0, |(header, _)| header.unique),
                })
            }
            (Obstacle::Lease, Some(_)) => Ok(self),
            (obstacle, _) => Ok(Deferred::new(self.addressee, self.message, obstacle)),
        }
    }

    fn is_write(&self) -> bool {
        wire::decode_header(&self.message).is_ok_and(|(header, _)| header.opcode == WRITE)
    }
}

impl Waiting {
    /// A request that no worker could serve.
    pub fn defer(&self, request: Deferred) {
        let mut state = self.lock();
        if !state.is_over {
            state.requests.push(request);
            self.make_due(&mut state);
        }
    }

    /// A request that could not be served when it was tried again.
    pub fn put_back(&self, request: Deferred) {
        let mut state = self.lock();
        if !state.is_over {
            state.requests.push(request);
        }
    }

    /// What waits may be served now.
    pub fn retry(&self) {
        let mut state = self.lock();
        if state.is_trying || !state.requests.is_empty() {
            self.make_due(&mut state);
        }
    }

    fn make_due(&self, state: &mut State) {
        state.is_due = true;
        self.changed.notify_all();
    }

    /// Tries what waits whenever it is due, until [`end`](Self::end).
    pub fn run<F: Filesystem>(&self, mut worker: Worker<F>) {
        let mut state = self.lock();
        while !state.is_over {
            if !state.is_due {
                state = self.sleep(state);
                continue;
            }
            let requests = std::mem::take(&mut state.requests);
            state.is_due = false;
            state.is_trying = true;
            drop(state);
            for request in requests {
                worker.retry(request);
            }
            state = self.lock();
            state.is_trying = false;
            state.tries += 1;
            self.changed.notify_all();
        }
        state.requests.clear();
    }

    /// Until something changes; a pause is over soon if a request waits for a lease.
    fn sleep<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if !state.requests.iter().any(|one| one.lease_ends.is_some()) {
            let woken = self.changed.wait(state);
            return woken.unwrap_or_else(PoisonError::into_inner);
        }
        let woken = self.changed.wait_timeout(state, LEASE_PAUSE);
        let (mut state, waited) = woken.unwrap_or_else(PoisonError::into_inner);
        state.is_due |= waited.timed_out();
        state
    }

    /// Returns when all that waits now has been tried since the call: whether every
    /// write has been served that was waiting for a lease.
    pub fn try_all(&self) -> bool {
        let mut state = self.lock();
        let enough = state.tries + 1 + u64::from(state.is_trying);
        if state.is_trying || !state.requests.is_empty() {
            self.make_due(&mut state);
        }
        while (state.is_trying || !state.requests.is_empty())
            && state.tries < enough
            && !state.is_over
        {
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        let waits = |one: &Deferred| one.lease_ends.is_some() && one.is_write();
        !state.requests.iter().any(waits)
    }

    pub fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
