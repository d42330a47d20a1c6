//! Undoing commits: an ordinary transaction that takes back what they changed.
//!
//! `since` reads what happened from the first of the commits to the snapshot, and `selection` says
//! which of their changes are asked for. `changes` composes these: which name shall be which object
//! again. `files` knows which inodes were one file. `between` finds files that others have renamed
//! or replaced between the commits. `reverse` compares that with the snapshot and changes the view.
//! `find` finds objects in the snapshot and in limbo, `returning` checks those that get names back,
//! `successions` finds files that would become two, `untouched` finds later changes, `neutral`
//! leaves out commits that other undos took back, `outside` finds what outside writers have changed of
//! what commits left, `passing` distinguishes objects that were in the
//! tree before from those that came with the commits, `choosing` takes sides in later changes, with
//! `left_out` for what stays, `own` checks an undo of a user with few rights, `look` shows the past, and `restore` brings
//! parts of it back. `confirm` takes back commits that nobody has confirmed in time.
//!
//! Invariants
//! 1. The view changes only if everything that the commits changed is as they left it: no later
//!    commit has changed it, unless `neutral` leaves that commit out, and no outside writer, unless
//!    the caller knows that the file which this one has put there is equal to the one before, or
//!    chooses to overwrite it. The
//!    transaction's own validation finds changes made after the snapshot.
//! 2. Commits are undone as one: a name or object gets back what it was before the first of them.
//! 3. An object that comes back is the one that was removed, moved from limbo. It is never copied,
//!    and a directory comes back with everything in it.
//! 4. A file does not come back beside the one that took its place and has since got another name,
//!    or keeps one: these would be two files where every commit had one.
//! 5. An object comes back only if nobody has brought it back before, or moved it since: a directory
//!    has one name. Nor does a removed directory come back without what somebody has brought back
//!    out of it.
//! 6. An object goes from the tree only if an undone commit brought it there. If outside
//!    writers put something into a directory, it does not go with the directory, even if commits
//!    have changed it since.

mod between;
mod changes;
mod choosing;
mod confirm;
mod files;
mod find;
mod left_out;
mod look;
mod neutral;
mod old_pages;
mod outside;
mod own;
mod passing;
mod restore;
mod returning;
mod reverse;
mod selection;
mod since;
mod successions;
mod untouched;

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Identity};
use atomdir_types::path::AnyPath;
use atomdir_types::{EqualFile, Undo};

pub use choosing::Undone;
pub use confirm::{Left, NotConfirmed, TakenBackOr};
pub use look::Past;

use crate::error::{Conflict, UndoError, shown};
use crate::ids::Sequence;
use crate::options::BeginOptions;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::view::View;

/// What the commits are reversed for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To land it: nothing that came later may be lost.
    Undo,
    /// To show the past. Changes by outside writers only matter where they make it impossible to
    /// show the old state.
    Look,
}

struct Reversed {
    /// The places in a view of the past that cannot be as they were.
    not_as_then: Vec<Conflict>,
    /// The later changes that an undo overwrites, because the user has chosen that.
    overwritten: Vec<Conflict>,
    /// See [`atomdir_format::record::Before::leaves_traces`].
    leaves_traces: bool,
}

impl<D: Disk> Store<D> {
    /// Begins a transaction that takes back what these commits changed and nothing else. With
    /// `paths`, it takes back only what they changed at or below these, and what belongs together
    /// with that. The caller decides whether the user may undo others' commits.
    pub fn undo(
        &self,
        commits: &[Sequence],
        paths: &[Vec<u8>],
        options: BeginOptions,
    ) -> Result<Arc<Transaction<D>>, UndoError> {
        self.undo_with(commits, (paths, &[]), options)
    }

    /// Like [`undo`](Store::undo). The files that the caller has found to be equal to those that the
    /// commits left count as these.
    pub fn undo_with(
        &self,
        commits: &[Sequence],
        (paths, equal): (&[Vec<u8>], &[EqualFile]),
        options: BeginOptions,
    ) -> Result<Arc<Transaction<D>>, UndoError> {
        let choice = Undo {
            commits: commits.to_vec(),
            paths: paths.to_vec(),
            equal: equal.to_vec(),
            ..Undo::default()
        };
        Ok(self.undo_choosing(&choice, None, options)?.transaction)
    }

    /// Changes a view at its user's expense.
    fn change_view<T>(
        &self,
        transaction: &Transaction<D>,
        change: impl FnOnce(&mut View<D>) -> Result<T, UndoError>,
    ) -> Result<T, UndoError> {
        let changed = {
            let mut slot = transaction.view.lock();
            let view = slot.as_mut().ok_or_else(|| io(b"", Errno::STALE))?;
            let charge = transaction.charge();
            let _charge = charge.map_err(|errno| io(b"", errno))?;
            change(view)
        };
        changed.map_err(|error| match error {
            UndoError::Conflict(conflicts) => UndoError::Conflict(self.described(conflicts)),
            error => error,
        })
    }

    /// Other transactions that want early conflicts learn what this one writes.
    fn note_writes(&self, transaction: &Transaction<D>, written: &[crate::locks::Target]) {
        let writers = &self.0.contention.writers;
        if writers.is_needed() {
            writers.note(&transaction.author(), written);
        }
    }

    fn described(&self, mut conflicts: Vec<Conflict>) -> Vec<Conflict> {
        conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        conflicts.dedup();
        self.describe(&mut conflicts);
        conflicts
    }
}

/// The object of the snapshot that has this name.
fn object_at<D: Disk>(view: &mut View<D>, path: &[u8]) -> Result<Option<Identity>, UndoError> {
    let base = match view.base_at(path) {
        Err(Errno::NOENT | Errno::INVAL | Errno::NAMETOOLONG) => None,
        found => found.map_err(|errno| io(path, errno))?,
    };
    let stat = base.map(|base| view.snapshot_stat(&base)).transpose();
    let stat = stat.map_err(|errno| io(path, errno))?;
    Ok(stat.map(|stat| stat.identity))
}

fn io(path: &(impl AnyPath + ?Sized), errno: Errno) -> UndoError {
    let path = shown(path);
    UndoError::Io { path, errno }
}
