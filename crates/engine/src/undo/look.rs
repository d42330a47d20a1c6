//! Shows the past: an ordinary snapshot in whose view all commits after some one are reversed, and
//! which nobody can change or commit.
//!
//! The commits say how everything was that they changed, and only that. So the view shows the rest
//! as it is in the base, with what outside writers have changed since. Where they have changed
//! what commits changed as well, there are three cases:
//!
//! - They have changed, replaced or removed an entry that was another object's then, or nobody's:
//!   the entry is shown as it was then, and nothing is lost by that.
//! - They have changed or removed an object itself, so that its old state is gone. It is shown
//!   whole as it is now, or not at all, and is reported. It is never shown as a mixture of both.
//! - They have moved about what commits moved, or changed one file of a database whose other files
//!   commits changed. Then no past is shown.

use std::sync::Arc;

use atomdir_disk::{Disk, Errno};
use atomdir_types::path::AnyPath;

use crate::base::Base;
use crate::error::{ChangedBy, Conflict, ConflictKind, UndoError};
use crate::ids::Sequence;
use crate::options::{BeginOptions, Conflicts, Isolation};
use crate::progress::{Steps, Unreported};
use crate::store::Store;
use crate::transaction::Transaction;
use crate::undo::Purpose;
use crate::undo::changes::{Changes, Key, NameUndone};
use crate::undo::find::Fate;
use crate::undo::reverse::Reverse;
use crate::undo::selection::Selection;
use crate::view::NameChange;

/// A view of the past.
pub struct Past<D: Disk> {
    pub transaction: Arc<Transaction<D>>,
    /// Objects that commits have changed since, but that the view shows as they are now, because
    /// outside writers have changed them as well. See also [`Store::changed_outside`].
    pub not_as_then: Vec<Conflict>,
}

impl<D: Disk> Store<D> {
    /// Begins a transaction whose view shows the store as it was just after this commit, and which
    /// can only be aborted. 0: as it was before the first commit. It takes time and memory in
    /// proportion to what commits have changed since, and space for the pages that they have
    /// overwritten in place.
    pub fn past(&self, commit: Sequence, options: BeginOptions) -> Result<Past<D>, UndoError> {
        self.past_metered(commit, options, &mut Unreported)
    }

    pub(super) fn past_metered(
        &self,
        commit: Sequence,
        options: BeginOptions,
        meter: &mut dyn Steps,
    ) -> Result<Past<D>, UndoError> {
        let transaction = self.begin_in_base(plain(options))?;
        self.look_in(transaction, commit, meter)
    }

    /// The same with the snapshot of another transaction, so that the two can be compared.
    pub fn past_beside(
        &self,
        other: &Transaction<D>,
        commit: Sequence,
        options: BeginOptions,
    ) -> Result<Past<D>, UndoError> {
        let transaction = self.begin_beside(other, plain(options))?;
        self.look_in(transaction, commit, &mut Unreported)
    }

    fn look_in(
        &self,
        transaction: Arc<Transaction<D>>,
        commit: Sequence,
        meter: &mut dyn Steps,
    ) -> Result<Past<D>, UndoError> {
        match self.look_back(&transaction, commit, meter) {
            Ok(not_as_then) => Ok(Past {
                transaction,
                not_as_then,
            }),
            Err(error) => {
                self.abort(&transaction);
                Err(error)
            }
        }
    }

    fn look_back(
        &self,
        transaction: &Transaction<D>,
        commit: Sequence,
        meter: &mut dyn Steps,
    ) -> Result<Vec<Conflict>, UndoError> {
        if commit > transaction.at() {
            return Err(UndoError::NotYet(commit));
        }
        let later = commit.0 + 1..=transaction.at().0;
        let later: Vec<Sequence> = later.map(Sequence).collect();
        let since = self.since(transaction, &later)?;
        let selection = Selection::everything();
        let changes = Changes::new(&since, &selection);
        let mut not_as_then = self.change_view(transaction, |view| {
            let reverse = Reverse::new(view, (&since, &changes), Purpose::Look, meter);
            let not_as_then = reverse.run()?.not_as_then;
            view.frozen = true;
            Ok(not_as_then)
        })?;
        // The view shows what these commits changed as they left it, wherever that is.
        let given_up = since.steps.iter().filter(|step| step.is_given_up);
        not_as_then.extend(given_up.map(|step| Conflict {
            path: b".".to_vec(),
            what: ConflictKind::Forgotten,
            by: ChangedBy::commit(step.sequence),
        }));
        transaction.show_past(commit);
        Ok(self.described(not_as_then))
    }
}

pub(super) fn plain(options: BeginOptions) -> BeginOptions {
    BeginOptions {
        isolation: Isolation::Snapshot,
        conflicts: Conflicts::AtCommit,
        ..options
    }
}

impl<D: Disk> Reverse<'_, D> {
    /// The change of a name that makes it what it was.
    pub(super) fn old_name(
        &mut self,
        key: &Key,
        name: &NameUndone,
    ) -> Result<Option<NameChange>, Errno> {
        let (directory, entry) = key;
        let fate = self.finder.fate(self.view, *directory)?;
        if let Fate::Lost(by) = fate {
            if name.is_taken_out {
                return Ok(None);
            }
            self.conflict(&name.path, ConflictKind::Removed, by);
            return Ok(None);
        }
        let base = self.finder.find(self.view, *directory)?;
        if fate == Fate::Goes && base.is_none_or(|base| self.is_in_limbo(&base)) {
            return Ok(None);
        }
        let Some(node) = self.node_of(*directory)? else {
            self.conflict(&name.path, ConflictKind::Removed, None);
            return Ok(None);
        };
        let before = self.view.child(node, entry)?;
        let present = self.identity(before)?;
        let wanted = name.before.filter(|_| fate == Fate::Lives);
        if present == wanted {
            return Ok(None);
        }
        if present != name.after {
            let base = before.and_then(|node| self.view.node(node).ok()?.base.clone());
            if self.has_moved(base.as_ref(), name)? {
                self.refuse(&name.path, ConflictKind::Entry);
                return Ok(None);
            }
        }
        let after = match wanted {
            None => None,
            Some(identity) => self.finder.returning_node(self.view, identity)?,
        };
        if wanted.is_some() && after.is_none() {
            self.conflict(&name.path, ConflictKind::Removed, None);
        }
        Ok(Some(NameChange {
            directory: node,
            name: entry.clone(),
            before,
            after,
        }))
    }

    /// Whether outside writers have put an object there that the commits know, or have moved away
    /// an object that the commits left there and that was in the tree before them.
    fn has_moved(&mut self, present: Option<&Arc<Base>>, name: &NameUndone) -> Result<bool, Errno> {
        if let Some(present) = present {
            let identity = self.stat(present)?.identity;
            if present.is_mount_point() || self.changes.places.contains_key(&identity) {
                return Ok(true);
            }
        }
        let Some(left) = name.after.filter(|left| self.finder.is_returning(left)) else {
            return Ok(false);
        };
        let found = self.finder.find(self.view, left)?;
        Ok(found.is_some_and(|found| !self.is_in_limbo(&found)))
    }

    /// The records name paths as they were at each commit. Gives the conflicts those that the view
    /// shows, as far as their directories are in it.
    pub(super) fn name_as_then(&mut self) {
        for (number, key) in std::mem::take(&mut self.conflict_keys)
            .into_iter()
            .enumerate()
        {
            let Some((directory, name)) = key else {
                continue;
            };
            if let Ok(Some(node)) = self.node_of(directory)
                && self.view.is_live_directory(node)
                && let Some(conflict) = self.conflicts.get_mut(number)
            {
                conflict.path = self.view.path_of_entry(node, &name);
            }
        }
    }

    /// Reports a change of outside writers because of which the past cannot be shown.
    pub(super) fn refuse(&mut self, path: &(impl AnyPath + ?Sized), what: ConflictKind) {
        self.is_refused = true;
        self.conflict(path, what, None);
    }
}
