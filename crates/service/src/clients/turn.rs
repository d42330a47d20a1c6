//! The right to send on a connection. A mutex alone has no wait with a time limit.

use atomdir_disk::sync;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Only one thread has it at a time.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    is_taken: Mutex<bool>,
    is_free: Condvar,
}

/// Gives the turn back when it is dropped.
pub(crate) struct Taken<'a>(&'a Turn);

impl Turn {
    pub(crate) fn take(&self) -> Taken<'_> {
        let is_taken = self.lock();
        *sync::wait_while(&self.is_free, is_taken, |is_taken| *is_taken) = true;
        Taken(self)
    }

    /// Returns `None` if it is not free within the time.
    pub(crate) fn take_within(&self, time: Duration) -> Option<Taken<'_>> {
        let is_taken = self.lock();
        let (mut is_taken, _) =
            sync::wait_for_while(&self.is_free, is_taken, time, |is_taken| *is_taken);
        let is_free = !std::mem::replace(&mut *is_taken, true);
        is_free.then(|| Taken(self))
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        sync::lock(&self.is_taken)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.0.is_free.notify_one();
    }
}
