//! Requests about a store's history: undoing commits, looking at the past, forgetting.

use crate::compare::PathFilter;
use crate::connection::{Connection, Parts};
use crate::error::CommitError;
use crate::error::RequestError;
use crate::requests::begin_request;
use crate::transaction::Transaction;
use atomdir_protocol::{
    Annotate, Answer, BeginOptions, CommitFilter, CommitSummary, Conflict, HistoryStatus,
    LABEL_LENGTH_MAX, LogRequest, Past, PastView, Progress, Request, Restore, Sequence, Terms,
    Timestamp, TransactionId, Undo,
};
use std::time::Duration;

/// So many commits are looked at first for the newest one at a moment.
const FIRST_COMMITS: u64 = 1024;

impl Connection {
    /// Begins an undo; every file that was changed again since is a conflict, unless the undo names
    /// it as equal.
    pub(crate) fn take_back(
        &mut self,
        undo: Undo,
        options: &BeginOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Transaction, Vec<Conflict>), CommitError> {
        self.begin_with_reports(Past::Undo(undo), options, progress)
    }

    /// Begins a transaction whose view shows the store as it was just after a commit, and which can
    /// only be aborted. Also returns the objects that it shows in their present state: see
    /// [`PastView`].
    pub fn past(
        &mut self,
        past: PastView,
        options: &BeginOptions,
    ) -> Result<(Transaction, Vec<Conflict>), CommitError> {
        self.begin_with_reports(Past::View(past), options, &mut |_| {})
    }

    /// Begins a transaction in which everything at and below some paths is as it was just after a
    /// commit. Fails with a conflict if outside writers have made that unknown. Also returns what they
    /// have changed after the commits, and which therefore stays as it is.
    pub fn restore(
        &mut self,
        restore: Restore,
        options: &BeginOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Transaction, Vec<Conflict>), CommitError> {
        self.begin_with_reports(Past::Restore(restore), options, progress)
    }

    fn begin_with_reports(
        &mut self,
        past: Past,
        options: &BeginOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Transaction, Vec<Conflict>), CommitError> {
        let mut parts = Parts::default();
        let request = begin_request(options, Some(past));
        match self.view_with(&request, options.opened, &mut parts, progress) {
            Ok(transaction) => Ok((transaction, parts.conflicts)),
            Err(error) => Err(CommitError::new(error, parts)),
        }
    }

    /// Lists at most `limit` commits older than `before`, newest first.
    pub fn log(
        &mut self,
        before: Option<Sequence>,
        limit: u64,
    ) -> Result<Vec<CommitSummary>, RequestError> {
        self.log_of(&PathFilter::default(), before, limit)
    }

    /// Lists at most `limit` commits that changed what the filter selects, older than `before`, newest
    /// first.
    pub fn log_of(
        &mut self,
        filter: &PathFilter,
        before: Option<Sequence>,
        limit: u64,
    ) -> Result<Vec<CommitSummary>, RequestError> {
        self.log_only((filter, CommitFilter::default()), before, limit)
    }

    /// Like [`log_of`](Self::log_of), of commits that both filters select.
    pub fn log_only(
        &mut self,
        (filter, only): (&PathFilter, CommitFilter),
        before: Option<Sequence>,
        limit: u64,
    ) -> Result<Vec<CommitSummary>, RequestError> {
        let request = Request::Log(LogRequest {
            before,
            limit,
            paths: filter.as_bytes(),
            only,
        });
        match self.ask(&request)? {
            (Answer::Nothing, Parts { mut commits, .. }) => {
                commits.reverse();
                Ok(commits)
            }
            _ => Err(self.unexpected()),
        }
    }

    /// The newest commit at or before a moment. If all that the log has are later, the one before
    /// its first; 0 if the log has none.
    pub fn commit_at(&mut self, moment: Timestamp) -> Result<Sequence, RequestError> {
        let mut before: Option<Sequence> = None;
        // For each request the service reads the history from its beginning.
        let mut limit = FIRST_COMMITS;
        loop {
            let part = self.log(before, limit)?;
            if let Some(found) = part.iter().find(|commit| commit.time <= moment) {
                return Ok(found.sequence);
            }
            match part.last() {
                Some(oldest) => before = Some(oldest.sequence),
                None => {
                    return Ok(Sequence(
                        before.map_or(0, |oldest| oldest.0.saturating_sub(1)),
                    ));
                }
            }
            limit = u64::MAX;
        }
    }

    /// Says on what terms the transaction is to be committed.
    pub fn set_terms(
        &mut self,
        transaction: TransactionId,
        mut terms: Terms,
    ) -> Result<(), RequestError> {
        if let Some(label) = &mut terms.label {
            label.truncate(LABEL_LENGTH_MAX);
        }
        self.annotate(Annotate::Terms { transaction, terms })
    }

    /// Confirms a commit that would take itself back otherwise.
    pub fn confirm(&mut self, commit: Sequence) -> Result<(), RequestError> {
        self.annotate(Annotate::Confirm { sequence: commit })
    }

    /// Keeps what a commit replaced, whatever the history's limits are, or no longer.
    pub fn pin(&mut self, commit: Sequence, pinned: bool) -> Result<(), RequestError> {
        let sequence = commit;
        self.annotate(Annotate::Pin { sequence, pinned })
    }

    /// Gives a commit another label in the log.
    pub fn relabel(&mut self, commit: Sequence, mut label: Vec<u8>) -> Result<(), RequestError> {
        label.truncate(LABEL_LENGTH_MAX);
        let sequence = commit;
        self.annotate(Annotate::Relabel { sequence, label })
    }

    fn annotate(&mut self, said: Annotate) -> Result<(), RequestError> {
        self.nothing(&Request::Annotate(said))
    }

    /// Forgets the history of commits older than this, or older than the store's settings say; with
    /// an age of zero, of all commits. Returns the extent of the remaining history.
    pub fn prune(
        &mut self,
        older_than: Option<Duration>,
    ) -> Result<Option<HistoryStatus>, RequestError> {
        let older_than_ms = older_than.map(|age| age.as_millis().try_into().unwrap_or(u64::MAX));
        match self.ask(&Request::Prune { older_than_ms })? {
            (Answer::History(history), _) => Ok(history),
            _ => Err(self.unexpected()),
        }
    }
}
