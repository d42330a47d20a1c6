//! Requests that drop only a part of a transaction's changes, that list conflicts, or that bring a
//! snapshot up to date.

use crate::client::CommitError;
use crate::connection::{Connection, Parts};
use crate::error::RequestError;
use atomdir_protocol::{
    Answer, ChangeLine, Conflict, RefreshRequest, Request, Sequence, TransactionId,
};

impl Connection {
    /// Lists what keeps the transaction from being committed now. The order numbers the conflicts
    /// from 1, for [`Portion::Sides`](atomdir_protocol::Portion::Sides). Drops all savepoints.
    pub fn list_conflicts(
        &mut self,
        transaction: TransactionId,
    ) -> Result<Vec<Conflict>, RequestError> {
        self.conflicts(transaction, true)
    }

    /// Returns the list that was made last; empty if there is none.
    pub fn listed_conflicts(
        &mut self,
        transaction: TransactionId,
    ) -> Result<Vec<Conflict>, RequestError> {
        self.conflicts(transaction, false)
    }

    fn conflicts(
        &mut self,
        transaction: TransactionId,
        again: bool,
    ) -> Result<Vec<Conflict>, RequestError> {
        match self.ask(&Request::ListConflicts { transaction, again })? {
            (Answer::Nothing, parts) => Ok(parts.conflicts),
            _ => Err(self.unexpected()),
        }
    }

    /// Gives the transaction a snapshot of the newest commit, under its own changes. Programs in
    /// its view get errors, and the view must be opened anew. `wait`: waits until others have
    /// left the transaction. Returns the newest commits in the snapshot before and now.
    pub fn refresh(
        &mut self,
        transaction: TransactionId,
        wait: bool,
    ) -> Result<(Sequence, Sequence), CommitError> {
        let mut parts = Parts::default();
        let request = Request::Refresh(RefreshRequest {
            transaction,
            wait,
            only_to_survive: false,
        });
        match self.ask_with(&request, &mut parts, &mut |_| {}) {
            Ok((Answer::Refreshed { from, to }, _)) => Ok((from, to)),
            Ok(_) => Err(self.unexpected().into()),
            Err(error) => Err(CommitError::new(error, parts)),
        }
    }

    /// After a part of a detached transaction has landed: lets the rest survive the service again, by
    /// the same means as [`Connection::refresh`], if others have committed nothing since its snapshot.
    /// Otherwise it does nothing.
    pub fn survive_again(&mut self, transaction: TransactionId) -> Result<(), RequestError> {
        let request = Request::Refresh(RefreshRequest {
            transaction,
            wait: false,
            only_to_survive: true,
        });
        self.ask(&request).map(drop)
    }

    /// Drops the changes at and below these paths, relative to the store's root, and the changes
    /// that need them. The transaction stays open with the rest. Returns the dropped changes.
    pub fn abort_part(
        &mut self,
        transaction: TransactionId,
        paths: &[Vec<u8>],
    ) -> Result<Vec<ChangeLine>, RequestError> {
        let paths = paths.to_vec();
        match self.ask(&Request::AbortPart { transaction, paths })? {
            (Answer::Nothing, parts) => Ok(parts.changes),
            _ => Err(self.unexpected()),
        }
    }
}
