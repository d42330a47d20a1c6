//! Those who wait for locks, and how each is woken.
//!
//! A wake-up is not lost: a request is added before it looks at the table, and
//! whoever changes the table wakes all that are added by then. Each is woken by its
//! own means, as it may wait for something else at the same time.

use crate::lock;
use std::sync::{Arc, Mutex};

type Wake = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub(crate) struct Waiters(Mutex<Vec<Wake>>);

impl Waiters {
    /// Until what is returned is dropped.
    pub fn add(&self, wake: &Wake) -> Waiter<'_> {
        lock(&self.0).push(Arc::clone(wake));
        Waiter {
            waiters: self,
            wake: Arc::clone(wake),
        }
    }

    pub fn wake_all(&self) {
        lock(&self.0).iter().for_each(|wake| wake());
    }
}

pub(crate) struct Waiter<'a> {
    waiters: &'a Waiters,
    wake: Wake,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waiters = lock(&self.waiters.0);
        let own = waiters.iter().position(|one| Arc::ptr_eq(one, &self.wake));
        own.map(|own| waiters.swap_remove(own));
    }
}
