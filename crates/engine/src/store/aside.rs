//! The store's notes about a transaction whose commit was set aside: see `commit::aside`.

use atomdir_disk::Timestamp;

use crate::ids::{Sequence, TransactionId};
use crate::options::milliseconds_between;

pub(crate) struct Aside {
    /// The place that the commit had in the commit order.
    pub sequence: Sequence,
    pub reason: String,
    /// When it was last tried.
    tried: Timestamp,
    /// How long after that it is due again.
    pause_ms: i128,
    /// Others have changed parts that it had written, so only its user can go on with it.
    pub is_left: bool,
}

/// A commit that was set aside is tried again after this time, and then each time after twice as
/// long, since each attempt validates everything that was written.
const RETRY_MS: i128 = 1_000;
const RETRY_MS_MAX: i128 = 60_000;

impl Aside {
    pub fn new(sequence: Sequence, reason: String, now: Timestamp) -> Aside {
        Aside {
            sequence,
            reason,
            tried: now,
            pause_ms: RETRY_MS,
            is_left: false,
        }
    }

    /// Whether it is to be tried again now. If so, it is next due after a longer pause.
    pub fn take_turn(&mut self, now: Timestamp) -> bool {
        let age_ms = milliseconds_between(self.tried, now);
        // A clock that was set back must not keep it waiting.
        if self.is_left || (0..self.pause_ms).contains(&age_ms) {
            return false;
        }
        self.tried = now;
        self.pause_ms = (2 * self.pause_ms).clamp(RETRY_MS, RETRY_MS_MAX);
        true
    }

    /// It is due now.
    pub fn hasten(&mut self) {
        self.pause_ms = 0;
    }

    /// Its user has tried to commit it.
    pub fn was_tried(&mut self, now: Timestamp) {
        (self.tried, self.pause_ms) = (now, RETRY_MS);
    }
}

/// A lazy commit that was cancelled, since an obstacle in the base appeared after it had returned.
/// Its transaction is open with all its changes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "commit {sequence} is set aside, and its transaction {transaction} is open again: {reason}{next}",
    next = self.next()
)]
pub struct SetAside {
    pub transaction: TransactionId,
    /// The numeric id of the user it belongs to.
    pub owner: u32,
    /// The place that the commit had in the commit order.
    pub sequence: Sequence,
    pub reason: String,
    /// Whether the store tries it again by itself. If not, only the user commits or aborts it.
    pub is_retried: bool,
}

impl SetAside {
    fn next(&self) -> &'static str {
        match self.is_retried {
            true => "; it is tried again until it succeeds",
            false => "; it is tried again no more: commit or abort it",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp {
            seconds: milliseconds / 1000,
            nanoseconds: (milliseconds % 1000 * 1_000_000) as u32,
        }
    }

    #[test]
    fn retries_become_rare_until_the_user_asks() {
        let mut aside = Aside::new(Sequence(1), "busy".to_owned(), at(0));
        let turns = |from: i64, until: i64, aside: &mut Aside| -> Vec<i64> {
            let ticks = (from..until).step_by(50);
            ticks.filter(|now| aside.take_turn(at(*now))).collect()
        };
        let first = [
            1_000, 3_000, 7_000, 15_000, 31_000, 63_000, 123_000, 183_000,
        ];
        assert_eq!(turns(0, 200_000, &mut aside), first);
        aside.hasten();
        assert_eq!(
            turns(200_000, 204_000, &mut aside),
            [200_000, 201_000, 203_000]
        );
        aside.was_tried(at(204_000));
        assert_eq!(turns(204_000, 206_000, &mut aside), [205_000]);
        assert!(aside.take_turn(at(0)), "the clock was set back");
        aside.is_left = true;
        assert!(turns(0, 200_000, &mut aside).is_empty());
    }
}
