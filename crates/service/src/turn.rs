//! The right to send on a connection. A mutex alone has no wait with a time limit.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
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
        let waited = self.is_free.wait_while(is_taken, |is_taken| *is_taken);
        *waited.unwrap_or_else(PoisonError::into_inner) = true;
        Taken(self)
    }

    /// Returns `None` if it is not free within the time.
    pub(crate) fn take_within(&self, time: Duration) -> Option<Taken<'_>> {
        let is_taken = self.lock();
        let waited = self
            .is_free
            .wait_timeout_while(is_taken, time, |is_taken| *is_taken);
        let (mut is_taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_free = !std::mem::replace(&mut *is_taken, true);
        is_free.then(|| Taken(self))
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.0.is_free.notify_one();
    }
}
