//! Writes that a file system puts off.

use std::collections::BTreeSet;
use std::sync::Mutex;

use atomdir_fuse::Notifier;

#[derive(Default)]
pub struct PutOff {
    state: Mutex<Option<State>>,
    notifier: Mutex<Option<Notifier>>,
}

struct State {
    /// Writes that contain this byte are put off.
    byte: u8,
    /// The nodes to which such writes were made.
    nodes: BTreeSet<u64>,
    /// How often such a write was tried.
    tries: u64,
}

impl PutOff {
    pub fn mounted(&self, notifier: Notifier) {
        *self.notifier.lock().unwrap() = Some(notifier);
    }

    /// Puts off writes that contain the byte until [`resume`](Self::resume).
    pub fn begin(&self, byte: u8) {
        *self.state.lock().unwrap() = Some(State {
            byte,
            nodes: BTreeSet::new(),
            tries: 0,
        });
    }

    /// Accepts writes again, and wakes the session.
    pub fn resume(&self) {
        *self.state.lock().unwrap() = None;
        self.retry();
    }

    /// Makes the session try again the writes that were put off.
    pub fn retry(&self) {
        let notifier = self.notifier.lock().unwrap();
        notifier.iter().for_each(Notifier::retry);
    }

    /// Whether the write has to wait.
    pub fn applies_to(&self, node: u64, data: &[u8]) -> bool {
        let mut state = self.state.lock().unwrap();
        let Some(state) = state.as_mut().filter(|state| data.contains(&state.byte)) else {
            return false;
        };
        state.nodes.insert(node);
        state.tries += 1;
        true
    }

    /// How many files have had writes put off.
    pub fn files(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.as_ref().map_or(0, |state| state.nodes.len())
    }

    /// How often a write was put off.
    pub fn tries(&self) -> u64 {
        let state = self.state.lock().unwrap();
        state.as_ref().map_or(0, |state| state.tries)
    }
}
