//! The requests that wait for locks, and how each is woken.
//!
//! No wake-up is lost: a request is added before it looks at the table, and code
//! that changes the table then wakes all requests that have been added. Each has
//! its own means of waking, as it may wait for something else at the same time.

use crate::lock;
use std::sync::{Arc, Mutex};

pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub(crate) struct Waiters(Mutex<Vec<Wake>>);

impl Waiters {
    /// Adds a request that waits, until the returned value is dropped.
    pub fn add(&self, wake: &Wake) -> Waiting<'_> {
        lock(&self.0).push(Arc::clone(wake));
        Waiting {
            waiters: self,
            wake: Arc::clone(wake),
        }
    }

    /// Adds one that is woken until it is removed.
    pub fn keep(&self, wake: Wake) {
        lock(&self.0).push(wake);
    }

    pub fn remove(&self, wake: &Wake) {
        let mut waiters = lock(&self.0);
        let own = waiters.iter().position(|one| Arc::ptr_eq(one, wake));
        own.map(|own| waiters.swap_remove(own));
    }

    pub fn wake_all(&self) {
        lock(&self.0).iter().for_each(|wake| wake());
    }
}

pub(crate) struct Waiting<'a> {
    waiters: &'a Waiters,
    wake: Wake,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waiters.remove(&self.wake);
    }
}
