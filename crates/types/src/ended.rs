use serde::{Deserialize, Serialize};

/// How a transaction ended that did not end as its user wanted; users are numeric ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndedHow {
    /// A user aborted it.
    Aborted {
        /// The user who did.
        by: u32,
    },
    /// It reached its maximum age.
    Age {
        /// The maximum age.
        age_ms: u64,
    },
    /// Its service was stopped.
    Stopped {
        /// The user who stopped it; `None`: a signal did.
        by: Option<u32>,
    },
    /// Its service ended without aborting it: it was killed, or the machine went down.
    Died,
}
