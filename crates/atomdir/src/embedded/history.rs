//! Past commits of a store that is open in this process. Its owner may see every commit.

use super::permission::Rights;
use super::session::Engine;
use super::{Embedded, convert};
use crate::api::{BeginError, StoreError, UndoError, no_such_commit};
use crate::compare::PathFilter;
use crate::hosting::{heed_terms, history_limits, prune_limits};
use crate::requests::SnapshotContents;
use atomdir_disk::{Errno, Kind, LinuxDisk, reason};
use atomdir_engine as engine;
use atomdir_protocol::PastView;
use atomdir_types::{
    CommitDetails, CommitSummary, HistoryStatus, Sequence, Side, Timestamp, TreePath,
};
use std::collections::VecDeque;
use std::time::Duration;

impl Embedded {
    fn for_each_commit(&self, each: impl FnMut(CommitDetails<TreePath>)) -> Result<(), StoreError> {
        let listed = self.here()?.for_each_commit(each);
        listed.map_err(convert::store_error)
    }

    /// The newest commits that changed what the filter selects, newest first.
    pub(crate) fn log_of(
        &self,
        filter: &PathFilter,
        before: Option<Sequence>,
        limit: usize,
    ) -> Result<Vec<CommitSummary>, StoreError> {
        let mut last = VecDeque::new();
        let mut marks = self.here()?.marks();
        self.for_each_commit(|commit| {
            marks.note(&commit.summary);
            let is_older = before.is_none_or(|before| commit.summary.sequence < before);
            if is_older && filter.wants_commit(&commit.changes) {
                last.push_front(commit.summary);
                last.truncate(limit);
            }
        })?;
        for commit in &mut last {
            commit.marks = marks.of(commit);
        }
        Ok(last.into())
    }

    pub(crate) fn show(&self, sequence: Sequence) -> Result<CommitDetails, UndoError> {
        let mut found = None;
        let mut marks = self.here().map_err(BeginError::from)?.marks();
        let listed = self.for_each_commit(|commit| {
            marks.note(&commit.summary);
            if commit.summary.sequence == sequence {
                found = Some(commit);
            }
        });
        listed.map_err(BeginError::from)?;
        let found = found.map(CommitDetails::written_out);
        let mut found = found.ok_or_else(|| no_such_commit(sequence))?;
        found.summary.marks = marks.of(&found.summary);
        Ok(found)
    }

    /// See [`Connection::commit_at`](crate::client::Connection::commit_at).
    pub(crate) fn commit_at(&self, moment: Timestamp) -> Result<Sequence, StoreError> {
        let (mut found, mut oldest) = (None, None);
        self.for_each_commit(|commit| {
            let CommitSummary { sequence, time, .. } = commit.summary;
            oldest.get_or_insert(sequence);
            if time <= moment {
                found = Some(sequence);
            }
        })?;
        let before_all = || Sequence(oldest.map_or(0, |oldest| oldest.0.saturating_sub(1)));
        Ok(found.unwrap_or_else(before_all))
    }
}

impl Embedded {
    /// See [`Connection::prune`](crate::client::Connection::prune).
    pub(crate) fn prune(
        &self,
        older_than: Option<Duration>,
    ) -> Result<Option<HistoryStatus>, StoreError> {
        let store = self.here()?;
        let limits = prune_limits(&self.control, older_than).map_err(no_limits)?;
        let kept = store.prune(&limits.now);
        let kept = kept.map_err(convert::store_error)?;
        Ok(limits.configured.map(|_| kept))
    }

    /// Keeps as much history from now on as the store's settings say.
    pub(crate) fn heed_settings(&self) -> Result<(), StoreError> {
        heed_terms(&self.control, self.here()?);
        let limits = history_limits(&self.control).map_err(no_limits)?;
        let set = self.here()?.set_history(limits);
        set.map_err(convert::store_error)
    }
}

fn no_limits(errno: Errno) -> StoreError {
    let why = reason(errno);
    StoreError::Other(format!("cannot find out the store's file system: {why}"))
}

/// Begins a view of the past, perhaps with the snapshot of another one.
pub(super) fn look(
    store: &engine::Store<LinuxDisk>,
    view: &PastView,
    options: engine::BeginOptions,
) -> Result<engine::Past<LinuxDisk>, engine::UndoError> {
    let Some(beside) = view.beside else {
        return store.past(view.commit, options);
    };
    match store.transaction(beside) {
        Some(other) => store.past_beside(&other, view.commit, options),
        None => Err(engine::UndoError::Begin(engine::BeginError::Ended)),
    }
}

/// What this side of a transaction has at a path.
pub(super) fn object_of(
    transaction: &Engine,
    rights: &Rights,
    (side, path): (Side, &[u8]),
    contents_length_max: u64,
) -> Result<Option<SnapshotContents>, Errno> {
    let Some(found) = transaction.object_of(side, path)? else {
        return Ok(None);
    };
    let mut object = found.for_client(contents_length_max);
    object.xattrs.retain(|(name, _)| rights.may_see_xattr(name));
    let mut contents = Vec::new();
    if object.kind == Kind::File && !object.too_long {
        contents.resize(usize::try_from(object.length).map_err(|_| Errno::FBIG)?, 0);
        transaction.read_of(side, path, 0, &mut contents)?;
    }
    Ok(Some(SnapshotContents { object, contents }))
}
