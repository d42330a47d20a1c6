//! What users say at a commit, and which commits they want to see.

use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// On what terms a transaction is committed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Terms {
    /// The label in the log, if it is not that of the begin.
    pub label: Option<Vec<u8>>,
    /// The commit takes itself back after so many milliseconds unless somebody confirms it; 0: it
    /// does not. `None`: as it was said before.
    pub confirm_ms: Option<u64>,
    /// Files that the transaction has written get the time of the commit. `None`: as the store's
    /// setting says.
    pub times_at_commit: Option<bool>,
}

impl Terms {
    /// For `confirm_ms`. Only zero becomes 0, which means that the commit does not wait.
    pub fn wait_ms(wait: Duration) -> u64 {
        let milliseconds = wait.as_nanos().div_ceil(1_000_000);
        milliseconds.try_into().unwrap_or(u64::MAX)
    }
}

/// A selection of commits. What is empty or `None` selects all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CommitFilter {
    /// Those made then or later.
    pub since: Option<Timestamp>,
    /// Those of this user.
    pub user: Option<u32>,
    /// Those whose label contains this, in upper or lower case.
    pub label: Vec<u8>,
}

impl CommitFilter {
    /// Whether it selects a commit made by this user at that time. The label is one that the reader
    /// may see.
    pub fn wants(&self, time: Timestamp, user: u32, label: &[u8]) -> bool {
        let wanted = self.label.to_ascii_lowercase();
        let label = label.to_ascii_lowercase();
        let is_found = wanted.is_empty()
            || label
                .windows(wanted.len())
                .any(|part| part == wanted.as_slice());
        self.since.is_none_or(|since| time >= since)
            && self.user.is_none_or(|wanted| wanted == user)
            && is_found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_time_of_zero_means_not_to_wait() {
        assert_eq!(Terms::wait_ms(Duration::ZERO), 0);
        assert_eq!(Terms::wait_ms(Duration::from_micros(500)), 1);
        assert_eq!(Terms::wait_ms(Duration::from_millis(5)), 5);
        assert_eq!(Terms::wait_ms(Duration::MAX), u64::MAX);
    }
}
