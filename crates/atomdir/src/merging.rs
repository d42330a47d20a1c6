//! The commit of a transaction that is nested in our native view.

use crate::connection::{Connection, Parts};
use crate::ended::Notice;
use crate::error::RequestError;
use crate::view_root;
use atomdir_protocol::{Answer, MergeStep, Request, TransactionId};
use atomdir_types::sync;
use std::os::fd::OwnedFd;

impl Connection {
    /// Returns what the commit announced by [`Notice::Merge`](crate::Notice::Merge) changes, and the
    /// root of the nested transaction's view, which is read-only by then.
    pub fn merge_steps(
        &self,
        transaction: TransactionId,
    ) -> Result<(Vec<MergeStep>, OwnedFd), RequestError> {
        let request = Request::MergeSteps { transaction };
        match self.ask_and_listen(&request)? {
            (Answer::Nothing, Some(root), parts) if view_root::check_file_system(&root).is_ok() => {
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
        self.ask_and_listen(&request).map(|_| ())
    }

    /// Aborts a transaction into whose native view only a part of the changes came.
    pub fn abort_half_merged(&self, transaction: TransactionId) -> Result<(), RequestError> {
        let request = Request::Abort {
            transaction,
            wait: false,
        };
        self.ask_and_listen(&request).map(|_| ())
    }

    /// Keeps the notices that come before the reply.
    pub(crate) fn ask_and_listen(
        &self,
        request: &Request,
    ) -> Result<(Answer, Option<OwnedFd>, Parts), RequestError> {
        let mut parts = Parts::default();
        let asked = self.ask_with(request, &mut parts, &mut |_| {});
        let mut missed = sync::lock(&self.missed);
        if !parts.ended.is_empty() {
            missed.push_back(Notice::Ended(std::mem::take(&mut parts.ended)));
        }
        missed.extend(parts.merges.drain(..).map(Notice::Merge));
        drop(missed);
        asked.map(|(answer, descriptor)| (answer, descriptor, parts))
    }
}
