//! Transactions that are committed together, in several stores: two-phase commit, in the form that is
//! called presumed abort (Mohan, Lindsay, Obermarck, *Transaction management in the R\* distributed
//! database management system*, 1986).
//!
//! The commit of one of them, the coordinator, is the decision. The others first vote for it: from
//! then on they are in doubt until they learn whether the coordinator has committed.

use crate::TransactionId;
use serde::{Deserialize, Serialize};

/// The transaction of another store whose commit decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coordinator {
    /// The id of its store.
    pub store: [u8; 16],
    /// Where its store is.
    pub root: Vec<u8>,
    /// Its id there.
    pub transaction: TransactionId,
}

/// What a transaction is to those that are committed together with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Joint {
    /// Others may be in doubt until it has ended. So it is committed as a whole or not at all.
    Coordinates,
    /// It has voted for the commit. Only what becomes of the coordinator ends it.
    InDoubt(Coordinator),
}

/// What has become of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It is open, or its commit is not durable yet.
    Open,
    /// It has committed, durably.
    Committed,
    /// It has ended without a commit, or there never was one of this id.
    Aborted,
}
