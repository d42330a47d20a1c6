//! The engine has no thread or clock of its own. This thread makes lazy commits
//! durable and runs checkpoints while there is work; otherwise it sleeps.

use crate::hosting::ticks::Ticks;
use atomdir_disk::LinuxDisk;
use atomdir_engine::{Store, StoreError};
use std::time::Duration;

const PERIOD: Duration = Duration::from_millis(50);
const PAUSE_WHILE_STALLED: Duration = Duration::from_millis(500);
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(5);

/// Calls a function that starts a thread, which then has all signals blocked.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are written before they are read, and the pointers are theirs.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let started = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        started
    }
}

/// Runs until the ticks end. The caller must wake `ticks` after each commit.
pub fn run(store: &Store<LinuxDisk>, ticks: &Ticks) {
    let mut pause = PERIOD;
    while ticks.next(pause) {
        pause = match store.maintain() {
            Ok(()) => PERIOD,
            // The engine has already reported the obstacle.
            Err(StoreError::Stalled(_)) => PAUSE_WHILE_STALLED,
            Err(error) => {
                tracing::error!("maintenance of the store failed: {error}");
                PAUSE_AFTER_ERROR
            }
        };
        if store.needs_maintenance() && store.status().poisoned.is_none() {
            ticks.wake();
        }
    }
}
