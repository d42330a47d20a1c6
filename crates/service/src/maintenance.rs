//! The engine has no thread or clock of its own: this one makes lazy commits
//! durable and checkpoints while there is something to do, else it sleeps.

use crate::ticks::Ticks;
use atomdir_disk::LinuxDisk;
use atomdir_engine::{Store, StoreError};
use std::time::Duration;

const PERIOD: Duration = Duration::from_millis(50);
const PAUSE_WHILE_STALLED: Duration = Duration::from_millis(500);
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(5);

/// The thread's work, until the ticks end. It is to be woken after each commit.
pub(crate) fn run(store: &Store<LinuxDisk>, ticks: &Ticks) {
    let mut pause = PERIOD;
    while ticks.next(pause) {
        pause = match store.maintain() {
            Ok(()) => PERIOD,
            // The engine has logged what is in the way.
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
