//! Commits that take themselves back unless somebody confirms them in time.
//!
//! Before such a commit is logged, the annotations say durably until when it waits. Whoever has the
//! store open calls [`Store::take_back_due`] at intervals, from its opening on. So after a crash
//! the store's next opening takes back what has become due meanwhile.
//!
//! Invariants
//! 1. A commit that waits is confirmed, or taken back, or refused, and only one of these.
//! 2. To take it back is an undo of the whole commit. If what it changed was changed since, nothing
//!    is taken back, and the refusal stays in the annotations until somebody confirms the commit,
//!    or another unconfirmed commit is taken back, which may have been in the way.
//! 3. If the clock is set back, no commit waits longer than it was given, counted from the moment at
//!    which this is noticed. If it is set forward, a commit may be taken back too early.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use atomdir_disk::{Disk, Errno};
use atomdir_format::annotations::UnconfirmedCommit;
use atomdir_format::record::LogRecord;
use atomdir_types::{ChangedBy, Conflict, ConflictKind, Unconfirmed, conflicts_message};

use crate::error::{CommitError, ConfirmError, StoreError, UndoError};
use crate::ids::Sequence;
use crate::lock;
use crate::log::annotations::{AnnotationFile, later};
use crate::names;
use crate::options::{BeginOptions, Conflicts, Durability, Isolation};
use crate::store::Store;
use crate::transaction::{TakenBack, Transaction};

/// What a store holds besides its files and its history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Left {
    /// How many transactions are open, or have survived and cannot be opened.
    pub transactions: u64,
    pub unconfirmed: Vec<(Sequence, Unconfirmed)>,
    /// The names in limbo of outside writers' objects that were in the way of commits.
    pub displaced: Vec<String>,
}

/// What became of a commit that nobody confirmed in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotConfirmed {
    pub commit: Sequence,
    pub outcome: TakenBackOr,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenBackOr {
    /// By this commit; `None`: there was nothing to take back any more.
    TakenBack(Option<Sequence>),
    /// It stays, because what it changed was changed since, in so many places.
    Refused(u64),
    /// The next call tries again.
    NotYet(String),
}

/// Begins a transaction that takes back a commit in the way of which these conflicts are.
pub type Otherwise<'a, D> =
    dyn Fn(Sequence, &[Conflict], &BeginOptions) -> Option<Arc<Transaction<D>>> + 'a;

/// How one attempt ended.
enum Attempt {
    Done(Option<Sequence>),
    Refused(u64),
    Failed(String),
}

impl<D: Disk> Store<D> {
    /// Whether a commit waits to be confirmed. Then [`Store::take_back_due`] is to be called every
    /// second or so.
    pub fn awaits_confirmation(&self) -> bool {
        self.0.core.awaits_confirmation.load(Ordering::Relaxed)
    }

    /// The commits that wait to be confirmed, and those that could not be taken back.
    pub fn unconfirmed(&self) -> Vec<(Sequence, Unconfirmed)> {
        let state = lock(&self.0.commit);
        let unconfirmed = state.journal.annotations.now().unconfirmed.iter();
        let unconfirmed = unconfirmed.map(|one| {
            let (due, refused) = (one.due, one.refused);
            (Sequence(one.sequence), Unconfirmed { due, refused })
        });
        unconfirmed.collect()
    }

    /// What would be lost with the control directory, besides the history.
    pub fn left(&self) -> Result<Left, Errno> {
        let core = &*self.0.core;
        let limbo = core.disk.list(&core.control.limbo)?;
        let displaced = limbo
            .iter()
            .filter(|entry| names::is_displaced(&entry.name));
        let displaced = displaced.map(|entry| String::from_utf8_lossy(entry.name.as_bytes()));
        let stranded = lock(&self.0.stranded).len() as u64;
        Ok(Left {
            transactions: lock(&self.0.open).by_id.len() as u64 + stranded,
            unconfirmed: self.unconfirmed(),
            displaced: displaced.map(|name| name.into_owned()).collect(),
        })
    }

    /// Says that a commit is to stay. The caller decides whether the user may do that.
    pub fn confirm_commit(&self, commit: Sequence) -> Result<(), ConfirmError> {
        let mut state = self.lock_without_pending()?;
        let annotations = &mut state.journal.annotations;
        if annotations.taking_back == Some(commit.0) {
            return Err(ConfirmError::TooLate(commit));
        }
        if !annotations.says_unconfirmed(commit.0) {
            drop(state);
            return Err(self.why_not_waiting(commit));
        }
        self.settle(&mut state.journal.annotations, commit.0, None)?;
        Ok(())
    }

    fn why_not_waiting(&self, commit: Sequence) -> ConfirmError {
        let (mut marks, mut found) = (self.marks(), None);
        let listed = self.for_each_commit(|one| {
            marks.note(&one.summary);
            if one.summary.sequence == commit {
                found = Some(one.summary);
            }
        });
        match (listed, found.map(|found| marks.of(&found).undone_by)) {
            (Err(error), _) => error.into(),
            (Ok(()), None) => ConfirmError::NoSuchCommit(commit),
            (Ok(()), Some(Some(by))) => ConfirmError::TakenBack { commit, by },
            (Ok(()), Some(None)) => ConfirmError::NotWaiting(commit),
        }
    }

    /// Takes back the commits that nobody has confirmed in time, the newest first.
    pub fn take_back_due(&self) -> Vec<NotConfirmed> {
        self.take_back_due_or(&|_, _, _| None)
    }

    /// Likewise. If something is in the way of an undo, the caller may begin a transaction that
    /// takes the commit back nevertheless, because it knows that what is in the way means nothing.
    pub fn take_back_due_or(&self, otherwise: &Otherwise<'_, D>) -> Vec<NotConfirmed> {
        let mut results: Vec<NotConfirmed> = Vec::new();
        let mut again = false;
        loop {
            let due = match self.due(again) {
                Ok(due) => due,
                Err(error) => {
                    tracing::warn!(%error, "unconfirmed commits are not looked at");
                    return results;
                }
            };
            let mut has_taken_back = false;
            for one in due {
                let commit = Sequence(one.sequence);
                let outcome = self.take_back_one(&one, otherwise);
                has_taken_back |= matches!(outcome, TakenBackOr::TakenBack(Some(_)));
                results.retain(|earlier| earlier.commit != commit);
                results.push(NotConfirmed { commit, outcome });
            }
            if !has_taken_back {
                return results;
            }
            again = true;
        }
    }

    /// The commits to take back now. `again`: also those that were refused.
    fn due(&self, again: bool) -> Result<Vec<UnconfirmedCommit>, StoreError> {
        let core = &*self.0.core;
        let mut state = lock(&self.0.commit);
        let annotations = &mut state.journal.annotations;
        if annotations.now().unconfirmed.is_empty() {
            return Ok(Vec::new());
        }
        let now = core.options.clock.now();
        annotations.change(core, |said| {
            for one in &mut said.unconfirmed {
                one.due = one.due.min(later(now, one.wait_ms));
            }
        })?;
        let mut due = annotations.now().unconfirmed.clone();
        due.retain(|one| match one.refused {
            Some(_) => again,
            None => one.due <= now,
        });
        due.reverse();
        Ok(due)
    }

    fn take_back_one(&self, one: &UnconfirmedCommit, otherwise: &Otherwise<'_, D>) -> TakenBackOr {
        let commit = Sequence(one.sequence);
        {
            let mut state = lock(&self.0.commit);
            let annotations = &mut state.journal.annotations;
            if !annotations.says_unconfirmed(commit.0) {
                // It was confirmed a moment ago.
                return TakenBackOr::TakenBack(None);
            }
            annotations.taking_back = Some(commit.0);
        }
        let attempt = match self.has_happened(one) {
            Ok(Some(true)) => self.try_to_take_back(commit, otherwise),
            Ok(Some(false)) => Attempt::Done(None),
            Ok(None) => Attempt::Refused(0),
            Err(error) => Attempt::Failed(error.to_string()),
        };
        let mut state = lock(&self.0.commit);
        let annotations = &mut state.journal.annotations;
        annotations.taking_back = None;
        let (refused, outcome) = match attempt {
            Attempt::Done(by) => (None, TakenBackOr::TakenBack(by)),
            Attempt::Refused(places) => (Some(places), TakenBackOr::Refused(places)),
            Attempt::Failed(reason) => return TakenBackOr::NotYet(reason),
        };
        match self.settle(annotations, commit.0, refused) {
            Ok(()) => outcome,
            // If it was taken back, the next attempt finds that out.
            Err(error) => TakenBackOr::NotYet(error.to_string()),
        }
    }

    /// Notes that a commit does not wait any more, or that it was refused.
    fn settle(
        &self,
        annotations: &mut AnnotationFile,
        commit: u64,
        refused: Option<u64>,
    ) -> Result<(), StoreError> {
        annotations.change(&self.0.core, |said| match refused {
            None => said.unconfirmed.retain(|one| one.sequence != commit),
            Some(_) => {
                let mut unconfirmed = said.unconfirmed.iter_mut();
                if let Some(one) = unconfirmed.find(|one| one.sequence == commit) {
                    one.refused = refused;
                }
            }
        })
    }

    /// Whether the sequence has become that transaction's commit. `None`: nothing tells, because
    /// what the commit replaced is not kept.
    fn has_happened(&self, one: &UnconfirmedCommit) -> Result<Option<bool>, StoreError> {
        let core = &*self.0.core;
        let state = self.lock_without_pending()?;
        let journal = &state.journal;
        if one.sequence > journal.newest.0 {
            return Ok(Some(false));
        }
        let mut found = None;
        let mut look = |record: &LogRecord| {
            if record.sequence() == one.sequence {
                let commit = record.commit();
                found = Some(commit.is_some_and(|commit| commit.transaction == one.transaction));
            }
        };
        if let Some(past) = &journal.past {
            past.for_each(core, |kept| {
                if !kept.is_given_up {
                    look(&kept.record);
                }
            })?;
        }
        journal.for_each_logged(core, |record| {
            look(&record);
            Ok(())
        })?;
        Ok(found)
    }

    fn try_to_take_back(&self, commit: Sequence, otherwise: &Otherwise<'_, D>) -> Attempt {
        let options = BeginOptions {
            owner: self.0.core.options.privileges.user,
            isolation: Isolation::Snapshot,
            durability: Durability::Durable,
            conflicts: Conflicts::AtCommit,
            first_try: None,
            label: format!("take back commit {commit}: nobody has confirmed it").into_bytes(),
        };
        let undo = match self.undo(&[commit], &[], options.clone()) {
            Ok(undo) => undo,
            Err(UndoError::Conflict(conflicts)) => {
                let Some(undo) = otherwise(commit, &conflicts, &options) else {
                    return in_the_way(&conflicts);
                };
                // If the process dies before this is noted, the next one finds it in the log.
                undo.set_takes_back(TakenBack {
                    commits: vec![commit.0],
                    leaves_traces: true,
                });
                undo
            }
            Err(UndoError::AlreadyUndone { by, .. }) if self.waits(by) => {
                return Attempt::Failed(format!("commit {by} has undone it, and waits itself"));
            }
            Err(UndoError::AlreadyUndone { by, .. }) => return Attempt::Done(Some(by)),
            Err(UndoError::NotKept(_)) => return Attempt::Refused(0),
            Err(error) => return Attempt::Failed(error.to_string()),
        };
        let error = match self.commit(&undo) {
            Ok(committed) => return Attempt::Done(committed.sequence),
            Err(error) => error,
        };
        self.abort(&undo);
        match error {
            CommitError::Conflict(conflicts) => in_the_way(&conflicts),
            error => Attempt::Failed(error.to_string()),
        }
    }

    fn waits(&self, commit: Sequence) -> bool {
        let state = lock(&self.0.commit);
        let mut waiting = state.journal.annotations.waiting();
        waiting.any(|one| one.sequence == commit.0)
    }
}

/// What is in the way for good refuses the undo. Locks, open transactions and programs that use a
/// file pass, so the undo is tried again: nobody shall keep a commit by holding on to a file.
fn in_the_way(conflicts: &[Conflict]) -> Attempt {
    let passes = |one: &Conflict| {
        let is_open = matches!(one.by, ChangedBy::Open { .. });
        let is_used = matches!(
            one.what,
            ConflictKind::Locked
                | ConflictKind::LockedInDeadlock { .. }
                | ConflictKind::Written
                | ConflictKind::UsedSince
                | ConflictKind::PresentInUse
                | ConflictKind::PartLocked
                | ConflictKind::LockedAndRunning
        );
        is_open || is_used
    };
    let lasting = conflicts.iter().filter(|one| !passes(one)).count();
    match lasting {
        0 => Attempt::Failed(conflicts_message(conflicts)),
        _ => Attempt::Refused(conflicts.len() as u64),
    }
}
