//! Confirming, pinning and relabelling commits of a store that is open in this process, and the terms
//! of commits to come. Only the store's owner can open it, and may do all of this.

use super::session::Engine;
use super::{Embedded, convert};
use crate::api::{BeginError, CommitError, UndoError};
use atomdir_disk::LinuxDisk;
use atomdir_engine as engine;
use atomdir_types::{Sequence, Terms};

impl Embedded {
    pub(crate) fn confirm(&self, commit: Sequence) -> Result<(), UndoError> {
        let confirmed = self.store_of_commits()?.confirm_commit(commit);
        confirmed.map_err(convert::confirm_error)
    }

    pub(crate) fn pin(&self, commit: Sequence, pinned: bool) -> Result<(), UndoError> {
        let done = self.store_of_commits()?.pin(commit, pinned);
        done.map_err(convert::annotate_error)
    }

    pub(crate) fn relabel(&self, commit: Sequence, label: Vec<u8>) -> Result<(), UndoError> {
        let done = self.store_of_commits()?.relabel(commit, label);
        done.map_err(convert::annotate_error)
    }

    fn store_of_commits(&self) -> Result<&engine::Store<LinuxDisk>, UndoError> {
        Ok(self.here().map_err(BeginError::from)?)
    }
}

pub(super) fn set_terms(
    store: &engine::Store<LinuxDisk>,
    transaction: &Engine,
    terms: Terms,
) -> Result<(), CommitError> {
    if !transaction.is_open() {
        return Err(CommitError::Ended);
    }
    let checked = store.check_terms(transaction, &terms);
    checked.map_err(|error| CommitError::Refused(error.to_string()))?;
    transaction.set_terms(terms);
    Ok(())
}
