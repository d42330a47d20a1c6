//! Requests that cannot be served yet wait here: those to a view that is being
//! committed, and those that need a file on which another process holds a lease.
//! There are few workers and they serve all views of the mount, so no worker waits.
//!
//! One thread tries the waiting requests again. It sleeps until something may have
//! changed: a request was deferred, or the file system may now be able to answer
//! ([`Notifier::retry`](crate::Notifier::retry)), or the session ends. Two rules keep
//! any wake-up from being lost:
//! 1. A request that was just deferred is tried once more at once. The event that
//!    it waits for may have come between its refusal and its arrival here.
//! 2. `is_due` is cleared before the requests are tried, so an event during the attempt makes them
//!    due again.
//!
//! A request that waits for something else (`Obstacle::Other`) can be interrupted. The kernel says so
//! once, perhaps while a worker still has the request: so interrupts of requests that do not wait here
//! are remembered.
//!
//! The kernel announces the end of a lease only to an open that blocks. So while a
//! request waits for a lease, and only then, all requests are also tried at intervals.

use atomdir_disk::sync;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::filesystem::Filesystem;
use crate::transport::Addressee;
use crate::wire;
use crate::worker::Worker;

/// The time between two tries while a request waits for a lease.
const LEASE_PAUSE: Duration = Duration::from_millis(5);
/// How long a request waits for leases at most, even if a process takes its lease again
/// at once. The kernel ends a lease after 45 seconds unless an administrator has changed
/// that.
const LEASE_TIME_MAX: Duration = Duration::from_secs(60);
/// How many interrupts are remembered: those that come while one worker serves one request.
const INTERRUPTS_MAX: usize = 4096;
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
    /// Something has changed since the requests were last tried.
    is_due: bool,
    /// The requests are being tried. Meanwhile `requests` has only those that came since.
    is_trying: bool,
    /// How often all requests were tried.
    tries: u64,
    is_over: bool,
    /// Requests that were interrupted and do not wait here, the newest last.
    interrupted: VecDeque<u64>,
}

/// Why a request cannot be served yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// The view is being committed.
    Commit,
    /// Another process holds a lease on a file of the base.
    Lease,
    /// The file system says when. A signal ends the wait.
    Other,
}

pub struct Deferred {
    pub addressee: Addressee,
    pub message: Vec<u8>,
    /// When the request stops waiting for a lease.
    lease_ends: Option<Instant>,
    is_interruptible: bool,
}

/// A request that has waited too long for a lease.
pub struct Expired {
    pub addressee: Addressee,
    pub unique: u64,
}

impl Deferred {
    pub fn new(addressee: Addressee, message: Vec<u8>, obstacle: Obstacle) -> Deferred {
        let lease_ends = match obstacle {
            Obstacle::Commit | Obstacle::Other => None,
            Obstacle::Lease => Some(Instant::now() + LEASE_TIME_MAX),
        };
        Deferred {
            addressee,
            message,
            lease_ends,
            is_interruptible: obstacle == Obstacle::Other,
        }
    }

    pub fn unique(&self) -> u64 {
        wire::decode_header(&self.message).map_or(0, |(header, _)| header.unique)
    }

    /// The request could not be served this time either.
    pub fn again(self, obstacle: Obstacle) -> Result<Deferred, Expired> {
        match (obstacle, self.lease_ends) {
            (Obstacle::Lease, Some(end)) if end <= Instant::now() => Err(Expired {
                unique: self.unique(),
                addressee: self.addressee,
            }),
            (Obstacle::Lease, Some(_)) => Ok(self),
            (obstacle, _) => Ok(Deferred::new(self.addressee, self.message, obstacle)),
        }
    }

    fn is_write(&self) -> bool {
        wire::decode_header(&self.message).is_ok_and(|(header, _)| header.opcode == WRITE)
    }
}

impl State {
    fn take(&mut self, request: Deferred) -> Option<Deferred> {
        if request.is_interruptible && !self.interrupted.is_empty() {
            let unique = request.unique();
            let found = self.interrupted.iter().position(|one| *one == unique);
            if let Some(found) = found {
                self.interrupted.remove(found);
                return Some(request);
            }
        }
        if !self.is_over {
            self.requests.push(request);
        }
        None
    }
}

impl Waiting {
    /// Takes a request that a worker could not serve. Returns it if it was interrupted meanwhile.
    #[must_use]
    pub fn defer(&self, request: Deferred) -> Option<Deferred> {
        let mut state = sync::lock(&self.state);
        let interrupted = state.take(request);
        if interrupted.is_none() && !state.is_over {
            self.make_due(&mut state);
        }
        interrupted
    }

    /// Takes back a request that could not be served when it was tried again. Returns it if it was
    /// interrupted meanwhile.
    #[must_use]
    pub fn put_back(&self, request: Deferred) -> Option<Deferred> {
        sync::lock(&self.state).take(request)
    }

    /// Returns the request, which nobody tries again, if it waits here and can be interrupted.
    pub fn interrupt(&self, unique: u64) -> Option<Deferred> {
        let mut state = sync::lock(&self.state);
        let found = state.requests.iter().position(|one| one.unique() == unique);
        match found {
            Some(found) if state.requests[found].is_interruptible => {
                Some(state.requests.remove(found))
            }
            Some(_) => None,
            None => {
                if state.interrupted.len() == INTERRUPTS_MAX {
                    state.interrupted.pop_front();
                }
                state.interrupted.push_back(unique);
                None
            }
        }
    }

    /// Wakes the thread, since the waiting requests may be served now.
    pub fn retry(&self) {
        let mut state = sync::lock(&self.state);
        if state.is_trying || !state.requests.is_empty() {
            self.make_due(&mut state);
        }
    }

    fn make_due(&self, state: &mut State) {
        state.is_due = true;
        self.changed.notify_all();
    }

    /// Tries the waiting requests whenever they are due, until [`end`](Self::end).
    pub fn run<F: Filesystem>(&self, mut worker: Worker<F>) {
        let mut state = sync::lock(&self.state);
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
            state = sync::lock(&self.state);
            state.is_trying = false;
            state.tries += 1;
            self.changed.notify_all();
        }
        state.requests.clear();
    }

    /// Sleeps until something changes, or only briefly if a request waits for a lease.
    fn sleep<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if !state.requests.iter().any(|one| one.lease_ends.is_some()) {
            return sync::wait(&self.changed, state);
        }
        let (mut state, is_over) = sync::wait_for(&self.changed, state, LEASE_PAUSE);
        state.is_due |= is_over;
        state
    }

    /// Waits until all requests that wait now have been tried since the call. Returns
    /// whether no write waits for a lease any more.
    pub fn try_all(&self) -> bool {
        let mut state = sync::lock(&self.state);
        let enough = state.tries + 1 + u64::from(state.is_trying);
        if state.is_trying || !state.requests.is_empty() {
            self.make_due(&mut state);
        }
        while (state.is_trying || !state.requests.is_empty())
            && state.tries < enough
            && !state.is_over
        {
            state = sync::wait(&self.changed, state);
        }
        let waits = |one: &Deferred| one.lease_ends.is_some() && one.is_write();
        !state.requests.iter().any(waits)
    }

    pub fn end(&self) {
        sync::lock(&self.state).is_over = true;
        self.changed.notify_all();
    }
}
