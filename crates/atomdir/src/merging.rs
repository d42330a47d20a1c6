//! The commit of a transaction that is nested in our native view.

use crate::connection::{Connection, Parts};
use crate::{RequestError, view_root};
use atomdir_protocol::{Answer, MergeStep, Request, TransactionId};
use std::os::fd::OwnedFd;

impl Connection {
    /// Returns what the commit announced by [`Notice::Merge`](crate::Notice::Merge) changes, and the
    /// root of the nested transaction's view, which is read-only by then.
    pub fn merge_steps(
        &self,
        transaction: TransactionId,
    ) -> Result<(Vec<MergeStep>, OwnedFd), RequestError> {
        let mut parts = Parts::default();
        let request = Request::MergeSteps { transaction };
        match self.ask_with(&request, &mut parts, &mut |_| {})? {
            (Answer::Nothing, Some(root)) if view_root::check_file_system(&root).is_ok() => {
                Ok((parts.merge_steps, root))
            }
            _ => Err(self.unexpected()),
        }
    }

    /// Reports that the steps were carried out; or, with the reason, that none was and the nested
    /// transaction stays open.
    pub fn merged(
        &self,
        transaction: TransactionId,
        refused: Option<String>,
    ) -> Result<(), RequestError> {
        let request = Request::Merged {
            transaction,
            refused,
        };
        self.ask_with(&request, &mut Parts::default(), &mut |_| {})
            .map(|_| ())
    }

    /// Aborts a transaction into whose native view only a part of the changes came.
    pub fn abort_half_merged(&self, transaction: TransactionId) -> Result<(), RequestError> {
        let request = Request::Abort { transaction };
        self.ask_with(&request, &mut Parts::default(), &mut |_| {})
            .map(|_| ())
    }
}
