//! What validation has seen of the objects that a commit changes or removes.
//!
//! Validation compares the base with the transaction's snapshot. Until the commit is applied, the log
//! is flushed, and commits that wait in front are applied. So the objects are looked at once more
//! right before the commit is applied (`commit::feasible`, `commit::cancel`). If an outside writer has changed one
//! meanwhile, that is a conflict like any other, and nobody's change is overwritten.
//!
//! Commits in front touch nothing of what this one touches (`Queue::admits`), so a difference is
//! always an outside writer's.

use std::collections::{HashMap, HashSet};

use atomdir_disk::{Disk, Errno, Name, Result, Stat};

use crate::base::core::Core;
use crate::base::{Base, Stamp};
use crate::error::{ChangedBy, CommitError, Conflict, ConflictKind};

#[derive(Default)]
pub(crate) struct Seen {
    /// By serial. Those that the commit changes or removes must stay as they were, and others that
    /// it gives or takes names (`None`) must only stay where they were.
    objects: HashMap<u64, Option<Stamp>>,
    /// Names, by their path in the view, that stand for something else than in the snapshot: the
    /// commit takes the transaction's side.
    contested: HashSet<Vec<u8>>,
}

impl Seen {
    pub fn note_unchanged(&mut self, base: &Base, stat: &Stat) {
        self.objects.insert(base.serial, Some(Stamp::of(stat)));
    }

    pub fn note_there(&mut self, base: &Base) {
        self.objects.entry(base.serial).or_default();
    }

    pub fn note_contested(&mut self, path: &[u8]) {
        self.contested.insert(path.to_vec());
    }

    /// `present`: what the object looks like now.
    pub fn compare(
        &self,
        base: &Base,
        path: &[u8],
        present: &Result<Stat>,
    ) -> std::result::Result<(), CommitError> {
        let what = match (self.objects.get(&base.serial), present) {
            (Some(Some(stamp)), Ok(stat)) if Stamp::of(stat) != *stamp => ConflictKind::Contents,
            (Some(_), Err(Errno::STALE)) => ConflictKind::Entry,
            // It is as it was, or validation has not asked for it.
            _ => return Ok(()),
        };
        Err(changed_outside(path, what))
    }

    /// Looks at a name that was free. `path`: the name's, in the view.
    pub fn check_free<D: Disk>(
        &self,
        core: &Core<D>,
        (directory, name): (&D::Handle, &Name),
        path: &[u8],
    ) -> std::result::Result<(), CommitError> {
        let is_taken = core.disk.stat_at(directory, name).is_ok();
        match is_taken && !self.contested.contains(path) {
            true => Err(changed_outside(path, ConflictKind::Entry)),
            false => Ok(()),
        }
    }
}

fn changed_outside(path: &[u8], what: ConflictKind) -> CommitError {
    CommitError::Conflict(vec![Conflict {
        path: path.to_vec(),
        what,
        by: ChangedBy::Outside,
    }])
}
