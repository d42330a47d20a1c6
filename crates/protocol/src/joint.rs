use crate::Others;
use atomdir_types::{Partner, TransactionId};
use serde::{Deserialize, Serialize};

/// The steps of a commit of transactions in several stores: the commit of one of them, the coordinator,
/// is the decision. The client first asks one for `Coordinate`, then all others for `Vote`, then the
/// coordinator for `Commit`, and at last tells the others with `Decide`, or with `Abort` if they have
/// changed nothing. Services learn the decision from one another if the client has gone.
///
/// `Coordinate` and `Vote` give the transaction to the connection: until `GiveUp`, or until the
/// connection closes, no other connection may commit it together with others. So what one client has
/// collected, no other takes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JointRequest {
    /// What the transaction is to those of other stores.
    Introduce { transaction: TransactionId },
    /// Links the transaction with those of other stores: from now on it is only committed together with
    /// them. All of them are named, also the transaction itself, and in all of them in the same order.
    Link {
        transaction: TransactionId,
        all: Vec<Partner>,
    },
    /// From now on the transaction is read-only, and committed as a whole, and durably. Returns false if it
    /// has nothing to commit: then it cannot be the coordinator.
    Coordinate {
        transaction: TransactionId,
        others: Others,
    },
    /// The transaction becomes durable and read-only, and only a decision ends it. Returns false if it
    /// has nothing to commit: then it is read-only, but has not voted.
    Vote {
        transaction: TransactionId,
        coordinator: Partner,
        others: Others,
    },
    /// Commits the coordinator.
    Commit { transaction: TransactionId },
    /// Opens a transaction again that coordinates or has voted, for the connection that has asked for that.
    /// The coordinator comes last, once nobody is in doubt because of it.
    GiveUp { transaction: TransactionId },
    /// Commits a transaction that has voted, or opens it again, whatever the coordinator does.
    Decide {
        transaction: TransactionId,
        committed: bool,
        /// Its changes replace what programs outside have changed since.
        take_mine: bool,
    },
    /// What has become of a transaction of the store with this id.
    Outcome {
        store: [u8; 16],
        transaction: TransactionId,
    },
}
