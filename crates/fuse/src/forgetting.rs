//! Makes the kernel forget names in the mount's root whose views have ended or were refreshed.
//!
//! The kernel forgets a name when the child process looks it up ([`crate::barrier`]).
//! Programs in the mount can hold that process up, so a thread of its own sends it the
//! orders. A thread that ends a transaction (root may abort another user's) waits for a
//! name to be forgotten only while the child is not held up.

use atomdir_disk::sync;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// The kernel forgets a name within a millisecond unless something is in the way.
const PATIENCE: Duration = Duration::from_secs(1);
/// Further names are not queued; the kernel drops them in its own time.
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
    /// A wait has timed out. Nobody else waits until the queue of names is empty again.
    is_held_up: bool,
    is_over: bool,
}

impl Forgetting {
    /// Returns when the kernel has forgotten the name, or when that takes too long.
    pub fn forget(&self, name: &[u8]) {
        let mut state = sync::lock(&self.state);
        if state.is_over || state.names.len() >= NAMES_MAX {
            return;
        }
        state.names.push_back(name.to_owned());
        state.queued += 1;
        let number = state.queued;
        self.changed.notify_all();
        let waits =
            |state: &mut State| state.forgotten < number && !state.is_held_up && !state.is_over;
        let (mut state, is_over) = sync::wait_for_while(&self.changed, state, PATIENCE, waits);
        if is_over {
            state.is_held_up = true;
            self.changed.notify_all();
        }
    }

    /// Makes the kernel forget the queued names, until [`end`](Self::end).
    pub fn run(&self, forget: impl Fn(&[u8])) {
        let mut state = sync::lock(&self.state);
        while !state.is_over {
            let Some(name) = state.names.pop_front() else {
                state.is_held_up = false;
                state = sync::wait(&self.changed, state);
                continue;
            };
            drop(state);
            forget(&name);
            state = sync::lock(&self.state);
            state.forgotten += 1;
            self.changed.notify_all();
        }
    }

    pub fn end(&self) {
        sync::lock(&self.state).is_over = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn forget_returns_while_the_thread_is_blocked() {
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
