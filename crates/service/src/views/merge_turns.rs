//! Decides when the begin or the commit of a nested transaction may use its outer native view.
//!
//! A commit into a native view is carried out step by step. A transaction that began to be nested
//! there meanwhile would see some of the steps, and another commit could not be compared with all
//! of them.
//!
//! Invariants
//! 1. For each outer transaction, either one such commit runs, or any number of begins.
//! 2. A waiting commit goes before later begins.

use atomdir_disk::sync;
use atomdir_protocol::TransactionId;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};

#[derive(Default)]
pub(crate) struct MergeTurns {
    /// By outer transaction.
    turns: Mutex<BTreeMap<TransactionId, Turn>>,
    ended: Condvar,
}

#[derive(Default, PartialEq, Eq)]
struct Turn {
    begins: usize,
    is_merging: bool,
    merges_waiting: usize,
}

impl MergeTurns {
    /// Waits until no commit is on its way or waiting.
    pub(crate) fn begin(&self, outer: TransactionId) -> BeginTurn<'_> {
        let mut turns = self.wait(outer, |turn| turn.is_merging || turn.merges_waiting > 0);
        let turn = turns.entry(outer).or_default();
        assert!(!turn.is_merging, "a begin runs beside a commit");
        turn.begins += 1;
        BeginTurn { turns: self, outer }
    }

    /// Waits until no begin and no other commit is on its way.
    pub(crate) fn merge(&self, outer: TransactionId) -> MergeTurn<'_> {
        self.lock().entry(outer).or_default().merges_waiting += 1;
        let mut turns = self.wait(outer, |turn| turn.is_merging || turn.begins > 0);
        let turn = turns.entry(outer).or_default();
        assert!(
            !turn.is_merging && turn.begins == 0,
            "a commit runs beside another one or a begin"
        );
        assert!(
            turn.merges_waiting > 0,
            "a commit that waits is not counted"
        );
        turn.merges_waiting -= 1;
        turn.is_merging = true;
        MergeTurn { turns: self, outer }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TransactionId, Turn>> {
        sync::lock(&self.turns)
    }

    fn wait(
        &self,
        outer: TransactionId,
        is_taken: impl Fn(&Turn) -> bool,
    ) -> MutexGuard<'_, BTreeMap<TransactionId, Turn>> {
        sync::wait_while(&self.ended, self.lock(), |turns| {
            turns.get(&outer).is_some_and(&is_taken)
        })
    }

    fn end(&self, outer: TransactionId, end: impl FnOnce(&mut Turn)) {
        let mut turns = self.lock();
        if let Some(turn) = turns.get_mut(&outer) {
            end(turn);
            if *turn == Turn::default() {
                turns.remove(&outer);
            }
        }
        self.ended.notify_all();
    }
}

/// The native view may be read until this is dropped.
pub(crate) struct BeginTurn<'a> {
    turns: &'a MergeTurns,
    outer: TransactionId,
}

impl Drop for BeginTurn<'_> {
    fn drop(&mut self) {
        self.turns.end(self.outer, |turn| turn.begins -= 1);
    }
}

/// The native view may be changed until this is dropped.
pub(crate) struct MergeTurn<'a> {
    turns: &'a MergeTurns,
    outer: TransactionId,
}

impl Drop for MergeTurn<'_> {
    fn drop(&mut self) {
        self.turns.end(self.outer, |turn| turn.is_merging = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const OUTER: TransactionId = TransactionId(1);
    const ROUNDS: usize = 2000;

    /// Counts who is inside: 1 for a begin, 1 << 32 for a commit.
    #[test]
    fn a_commit_is_alone_and_begins_share() {
        let (turns, inside) = (MergeTurns::default(), AtomicUsize::new(0));
        let merge = 1usize << 32;
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (turns, inside) = (&turns, &inside);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        if number < 2 {
                            let _turn = turns.merge(OUTER);
                            assert_eq!(inside.fetch_add(merge, Ordering::SeqCst), 0);
                            inside.fetch_sub(merge, Ordering::SeqCst);
                        } else {
                            let _turn = turns.begin(OUTER);
                            assert!(inside.fetch_add(1, Ordering::SeqCst) < merge);
                            inside.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        assert!(turns.lock().is_empty());
    }
}
