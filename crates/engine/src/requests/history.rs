//! Lists past commits from the history and the log.

use std::collections::HashMap;

use atomdir_disk::{Disk, Timestamp};
use atomdir_format::annotations::Annotations;
use atomdir_types::{CommitDetails, CommitMarks, CommitSummary, EarlyReason, TreePath};

use crate::error::{AnnotateError, StoreError};
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::log::annotations::{annotate, mark};
use crate::log::recent::RecentCommit;
use crate::store::Store;

/// The labels that users have given to commits later take no more bytes than this.
const LABELS_BYTES_MAX: usize = 1 << 20;

/// What has become of commits, as of one moment. To be told of every commit, oldest first.
pub struct Marks {
    is_kept: Box<dyn Fn(Sequence) -> bool>,
    annotations: Annotations,
    /// Commits that are undone, each with the undo that is in effect.
    undone_by: HashMap<Sequence, Sequence>,
}

impl Marks {
    pub fn note(&mut self, commit: &CommitSummary) {
        let taken_back = &commit.takes_back;
        // What an undo had taken back that is undone itself is in effect again.
        self.undone_by.retain(|_, by| !taken_back.contains(by));
        let undone = taken_back.iter().map(|one| (*one, commit.sequence));
        self.undone_by.extend(undone);
    }

    pub fn of(&self, commit: &CommitSummary) -> CommitMarks {
        let sequence = commit.sequence;
        let mut marks = CommitMarks {
            forgotten: !(self.is_kept)(sequence),
            undone_by: self.undone_by.get(&sequence).copied(),
            ..CommitMarks::default()
        };
        let names = (sequence.0, commit.transaction.0);
        mark(&self.annotations, names, &mut marks);
        marks
    }
}

impl<D: Disk> Store<D> {
    /// Every commit, oldest first.
    pub fn commits(&self) -> Result<Vec<CommitDetails>, StoreError> {
        let mut commits = Vec::new();
        self.for_each_commit(|commit| commits.push(commit.written_out()))?;
        Ok(commits)
    }

    /// Like [`Store::commits`], one commit at a time. Other commits go on meanwhile, and are not
    /// listed. Lazy commits are applied or set aside first, so none is listed that is set aside
    /// later.
    pub fn for_each_commit(
        &self,
        mut each: impl FnMut(CommitDetails<TreePath>),
    ) -> Result<(), StoreError> {
        let core = &*self.0.core;
        self.remember_now()?;
        // Under the lock, so that no lazy commit is appended before they are listed.
        let state = self.lock_without_pending().unwrap_or_else(|error| {
            // A stalled commit is listed: it has happened, and nothing is appended behind it.
            tracing::debug!(%error, "commits are listed that wait to be applied");
            lock(&self.0.commit)
        });
        let summaries = state.journal.summaries(core, Sequence(0))?;
        let labels = state.journal.annotations.now().commits.iter();
        let labels = labels.filter_map(|one| Some((one.sequence, one.label.clone()?)));
        let labels: HashMap<u64, Vec<u8>> = labels.collect();
        drop(state);
        summaries.for_each(&core.disk, |summary| {
            if let Some(mut commit) = summary.details() {
                if let Some(label) = labels.get(&commit.summary.sequence.0) {
                    commit.summary.label.clone_from(label);
                }
                each(commit);
            }
        })
    }

    /// What has become of the commits that are [listed](Store::for_each_commit) from now on.
    pub fn marks(&self) -> Marks {
        if let Err(error) = self.remember_now() {
            tracing::debug!(%error, "commits of programs outside may be marked as forgotten");
        }
        let state = lock(&self.0.commit);
        Marks {
            is_kept: Box::new(state.journal.kept()),
            annotations: state.journal.annotations.now().clone(),
            undone_by: HashMap::new(),
        }
    }

    /// Keeps what a commit replaced, whatever the history's limits are, or keeps it no longer than
    /// them. The caller decides whether the user may do that.
    pub fn pin(&self, commit: Sequence, pinned: bool) -> Result<(), AnnotateError> {
        let core = &*self.0.core;
        let mut state = self.lock_without_pending()?;
        if commit > state.journal.newest || commit == Sequence(0) {
            return Err(AnnotateError::NoSuchCommit(commit));
        }
        if pinned && !state.journal.kept()(commit) {
            return Err(AnnotateError::NotKept(commit));
        }
        state.journal.annotations.change(core, |said| {
            annotate(said, commit, |one| one.is_pinned = pinned);
        })?;
        Ok(())
    }

    /// Gives a commit another label in the log. The caller decides whether the user may do that.
    pub fn relabel(&self, commit: Sequence, label: Vec<u8>) -> Result<(), AnnotateError> {
        let core = &*self.0.core;
        let mut listed = Vec::new();
        self.for_each_commit(|one| listed.push(one.summary.sequence))?;
        if listed.binary_search(&commit).is_err() {
            return Err(AnnotateError::NoSuchCommit(commit));
        }
        let mut state = self.lock_without_pending()?;
        let annotations = &mut state.journal.annotations;
        let others = annotations.now().commits.iter();
        let others = others.filter(|one| one.sequence != commit.0);
        let labels = others.filter_map(|one| one.label.as_ref());
        let bytes: usize = labels.map(Vec::len).sum();
        if bytes + label.len() > LABELS_BYTES_MAX {
            return Err(AnnotateError::TooMany);
        }
        annotations.change(core, |said| {
            annotate(said, commit, |one| one.label = Some(label));
            let is_listed = |sequence| listed.binary_search(&Sequence(sequence)).is_ok();
            said.commits
                .retain(|one| one.is_pinned || is_listed(one.sequence));
        })?;
        Ok(())
    }

    /// Why commits were forgotten early since then, or will be soon, because the history takes more
    /// space than it may.
    pub fn forgets_early(&self, since: Timestamp) -> Option<EarlyReason> {
        lock(&self.0.core.past_sizes).forgets_early(since)
    }

    /// The newest commit of a transaction, if it is among the newest few thousand of the store.
    /// Reads no history.
    pub fn recent_commit(&self, transaction: TransactionId) -> Option<RecentCommit> {
        let state = self.lock_without_pending();
        let state = state.unwrap_or_else(|_| lock(&self.0.commit));
        // A stalled commit has happened.
        let mut waiting = state.queue.commits.iter().rev();
        let waiting = waiting.find(|pending| pending.record.transaction == transaction.0);
        let waiting = waiting.map(|pending| RecentCommit::from(&pending.record));
        waiting.or_else(|| state.journal.recent.of(transaction))
    }

    /// If the history is longer than this, makes it half as long: the oldest commits of the users
    /// who have the most keep only the number of their changes, or go. It always keeps the newest.
    /// This drops only the list: the commits themselves stay in the base.
    pub fn shorten_history(&self, bytes_max: u64) -> Result<(), StoreError> {
        let mut state = self.lock_without_pending()?;
        state.journal.shorten_history(&self.0.core, bytes_max)
    }
}
