//! Transactions that are committed together, in several stores: two-phase commit, in the form that is
//! called presumed abort (Mohan, Lindsay, Obermarck, *Transaction management in the R\* distributed
//! database management system*, 1986).
//!
//! The commit of one of them, the coordinator, is the decision. The others first vote for it: from
//! then on they are in doubt until they learn whether the coordinator has committed.

use crate::TransactionId;
use serde::{Deserialize, Serialize};

/// A transaction of another store that is committed together with one. In a commit, one of them decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partner {
    /// The id of its store.
    pub store: [u8; 16],
    /// Where its store is.
    pub root: Vec<u8>,
    /// Its id there.
    pub transaction: TransactionId,
}

/// What has become of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It is open, and may be about to be committed as the coordinator of others.
    Open,
    /// It is open, and whoever wanted to commit it together with others has gone. So the votes for that
    /// commit count no more.
    Idle,
    /// It has committed, durably.
    Committed,
    /// It has ended without a commit, or there never was one of this id.
    Aborted,
}
