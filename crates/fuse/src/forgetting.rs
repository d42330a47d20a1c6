//! Names in the mount's root that the kernel is to forget, since their views have
//! ended.
//!
//! The kernel forgets a name when the child process asks for it ([`crate::settle`]),
//! and that process can be held up by programs in the mount. So a thread of its own
//! gives the orders. Those who end a transaction wait for it only as long as it is
//! not held up: root, for one, who aborts another user's transaction.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A name is forgotten within a millisecond unless something is in the way.
const PATIENCE: Duration = Duration::from_secs(1);
/// More are left for the kernel to forget by itself.
const NAMES_MAX: usize = 4096;

#[derive(Default)]
pub struct Forgetting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    names: VecDeque<Vec<u8>>,
    queued: u64,
    forgotten: u64,
    /// Somebody has waited in vain: nobody waits until all names are forgotten.
    is_held_up: bool,
    is_over: bool,
}

impl Forgetting {
    /// Returns when the kernel has forgotten the name, or when that takes long.
    pub fn forget(&self, name: &[u8]) {
        let mut state = self.lock();
        if state.is_over || state.names.len() >= NAMES_MAX {
            return;
        }
        state.names.push_back(name.to_owned());
        state.queued += 1;
        let number = state.queued;
        self.changed.notify_all();
        let waits =
            |state: &mut State| state.forgotten < number && !state.is_held_up && !state.is_over;
        let waited = self.changed.wait_timeout_while(state, PATIENCE, waits);
        let (mut state, result) = waited.unwrap_or_else(PoisonError::into_inner);
        if result.timed_out() {
            state.is_held_up = true;
            self.changed.notify_all();
        }
    }

    /// Has names forgotten until [`end`](Self::end).
    pub fn run(&self, forget: impl Fn(&[u8])) {
        let mut state = self.lock();
        while !state.is_over {
            let Some(name) = state.names.pop_front() else {
                state.is_held_up = false;
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            forget(&name);
            state = self.lock();
            state.forgotten += 1;
            self.changed.notify_all();
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn nobody_waits_for_a_thread_that_is_held_up() {
        let forgetting = Forgetting::default();
        std::thread::scope(|scope| {
            let (go_on, held_up) = mpsc::channel::<()>();
            let (forgotten, names) = mpsc::channel();
            let forgetting = &forgetting;
            scope.spawn(move || {
                forgetting.run(|name| {
                    held_up.recv().unwrap();
                    forgotten.send(name.to_owned()).unwrap();
                })
            });
            for name in [b"1", b"2", b"3"] {
                forgetting.forget(name);
            }
            assert!(names.try_recv().is_err());
            for name in [b"1", b"2", b"3"] {
                go_on.send(()).unwrap();
                assert_eq!(names.recv().unwrap(), name);
            }
            forgetting.end();
        });
    }
}
