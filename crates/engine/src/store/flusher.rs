//! Flushes the log for all waiting commits, and holds no lock meanwhile that a commit needs.
//!
//! A thread whose commit is appended waits until a flush covers it. If none runs, it runs one
//! itself, for everything that is in the log by then. So the next flush begins as soon as the last
//! one has ended, while the commits that the last one made durable are applied under the commit
//! lock.
//!
//! Invariants
//! 1. Only one flush runs at a time: the kernel reports an error of the disk to one flush only, and
//!    no other may miss it. After an error none begins.
//! 2. A flush covers what was in the log when it began, and nothing that came later.
//! 3. A thread that flushes takes no lock before it has finished. So others may wait for it under
//!    the commit lock.
//! 4. While nothing is queued, no flush runs: a thread that flushes, or is about to, has a queued
//!    commit behind the durable ones, or holds the commit lock.

use crate::sync;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};

use atomdir_disk::Disk;

use crate::error::StoreError;
use crate::ids::Sequence;
use crate::lock;
use crate::store::Store;
use crate::store::commit_state::CommitState;

pub(crate) struct Flusher {
    /// The newest record in the log.
    appended: AtomicU64,
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    is_flushing: bool,
    /// The newest record that a flush covers.
    durable: u64,
}

impl Flusher {
    /// For a log whose records are all durable.
    pub fn new(newest: Sequence) -> Flusher {
        Flusher {
            appended: AtomicU64::new(newest.0),
            state: Mutex::new(State {
                is_flushing: false,
                durable: newest.0,
            }),
            ended: Condvar::new(),
        }
    }

    /// To be called under the commit lock, when the record is in the file.
    pub fn note_appended(&self, sequence: Sequence) {
        self.appended.store(sequence.0, Ordering::Release);
    }

    pub fn durable(&self) -> u64 {
        lock(&self.state).durable
    }
}

impl State {
    fn begin(&mut self) {
        let is_second = std::mem::replace(&mut self.is_flushing, true);
        assert!(!is_second, "one flush at a time");
    }

    /// `covered`: the newest record that the flush has made durable, if it succeeded.
    fn end(&mut self, covered: Option<u64>) {
        assert!(self.is_flushing, "the flush that ends is the one that runs");
        self.is_flushing = false;
        self.durable = self.durable.max(covered.unwrap_or(0));
    }
}

impl<D: Disk> Store<D> {
    /// Waits until a record of the log is durable.
    #[track_caller]
    pub(crate) fn flush_log(&self, log: &D::Handle, sequence: Sequence) -> Result<(), StoreError> {
        let flusher = &self.0.flusher;
        let mut state = lock(&flusher.state);
        while state.durable < sequence.0 {
            self.refuse_if_poisoned()?;
            if state.is_flushing {
                state = sync::wait(&flusher.ended, state);
                continue;
            }
            state.begin();
            drop(state);
            let appended = flusher.appended.load(Ordering::Acquire);
            assert!(sequence.0 <= appended, "a record is appended, then flushed");
            let flushed = self.0.core.disk.sync_data(log);
            let flushed = flushed.map_err(|errno| self.poison_unflushed("the log", errno));
            state = lock(&flusher.state);
            state.end(flushed.is_ok().then_some(appended));
            flusher.ended.notify_all();
            flushed?;
        }
        Ok(())
    }

    /// Makes everything durable that is in the log, without the commit lock.
    pub(crate) fn flush_newest(&self) -> Result<(), StoreError> {
        let (log, newest) = {
            let state = lock(&self.0.commit);
            (state.journal.log.file(), state.journal.newest)
        };
        self.flush_log(&log, newest)
    }

    /// Makes everything durable that is in the log.
    #[track_caller]
    pub(crate) fn flush_appended(&self, state: &mut CommitState<D>) -> Result<(), StoreError> {
        let log = &mut state.journal.log;
        self.flush_log(&log.file(), state.journal.newest)?;
        log.note_durable(self.0.flusher.durable());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "one flush at a time")]
    fn a_second_flush_at_a_time_panics() {
        let mut state = State {
            is_flushing: false,
            durable: 1,
        };
        state.begin();
        state.end(Some(2));
        assert_eq!(state.durable, 2);
        state.begin();
        state.begin();
    }
}
