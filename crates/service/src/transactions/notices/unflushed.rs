//! The open transactions whose notes a power cut could lose.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A transaction that ends sooner needs no flush.
const AGE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Unflushed {
    transactions: BTreeSet<u64>,
    /// When the oldest of them was noted, or one that has ended since.
    since: Option<Instant>,
}

impl Unflushed {
    pub(super) fn opened(&mut self, transaction: u64, now: Instant) {
        self.transactions.insert(transaction);
        self.since.get_or_insert(now);
    }

    pub(super) fn ended(&mut self, transaction: u64) {
        self.transactions.remove(&transaction);
        if self.transactions.is_empty() {
            self.since = None;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// Whether the notes are to be flushed now. The caller does it.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        let is_due = self
            .since
            .is_some_and(|since| now.saturating_duration_since(since) >= AGE);
        if is_due {
            *self = Unflushed::default();
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_transactions_that_stay_open_are_flushed_once() {
        let start = Instant::now();
        let mut notes = Unflushed::default();
        notes.opened(1, start);
        notes.ended(1);
        assert!(!notes.take_due(start + AGE), "none is open");
        notes.opened(2, start);
        notes.opened(3, start + AGE / 2);
        notes.ended(2);
        assert!(!notes.take_due(start + AGE / 2));
        assert!(!notes.is_empty());
        assert!(notes.take_due(start + AGE));
        assert!(notes.is_empty());
        assert!(!notes.take_due(start + 2 * AGE), "they were flushed");
        notes.ended(3);
        notes.opened(4, start + 2 * AGE);
        assert!(!notes.take_due(start + 2 * AGE));
        assert!(notes.take_due(start + 3 * AGE));
    }
}
