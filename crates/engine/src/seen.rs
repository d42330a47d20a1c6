//! Attributes that validation has read of the objects that a commit changes or removes.
//!
//! Validation compares the base with the transaction's snapshot. Before the commit is applied, the
//! log is flushed and earlier commits in the queue are applied. So the engine checks the objects
//! once more right before it applies the commit (`commit::feasible`, `commit::cancel`). If an
//! outside writer has changed one meanwhile, the commit fails with a conflict and overwrites
//! nobody's change.
//!
//! Earlier commits in the queue touch no object that this one touches (`Queue::admits`), or have
//! noted what they left of it (`commit::early`), so only an outside writer can have made a
//! difference.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Identity, Kind, Name, Owner, Result, Stat};
use atomdir_types::TreePath;
use atomdir_types::path::AnyPath;

use crate::base::ahead::Found;
use crate::base::core::Core;
use crate::base::{Base, Stamp};
use crate::error::{ChangedBy, CommitError, Conflict, ConflictKind};
use crate::ids::Sequence;

/// An object that others have created, and that equals one of the transaction's.
#[derive(Clone)]
pub(crate) struct EqualCreation {
    pub directory: Arc<Base>,
    pub name: Name,
    pub path: Vec<u8>,
    pub object: Arc<Base>,
    pub looks: Looks,
}

/// What shows whether an object has changed since it was compared. What is in a directory changes its
/// times, and does not matter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looks {
    Directory(Identity, u32, Owner),
    Other(Stamp),
}

impl Looks {
    pub fn of(stat: &Stat) -> Looks {
        match stat.kind {
            Kind::Directory => {
                let attributes = &stat.attributes;
                Looks::Directory(stat.identity, attributes.mode, attributes.owner)
            }
            _ => Looks::Other(Stamp::of(stat)),
        }
    }
}

impl EqualCreation {
    pub fn is_unchanged<D: Disk>(&self, core: &Core<D>) -> Result<bool> {
        let present = core
            .directory(&self.directory)
            .and_then(|handle| core.stat_entry(&handle, &self.name));
        match present {
            Ok(stat) => Ok(Looks::of(&stat) == self.looks),
            Err(Errno::NOENT | Errno::STALE) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

struct Renamed {
    stat: Stat,
    /// It gets a name.
    is_linked: bool,
}

#[derive(Default)]
pub(crate) struct Seen {
    /// By serial: the files that the commit changes, and what it removes.
    objects: HashMap<u64, Stat>,
    /// By serial: files that get or lose names and live on. They may be written meanwhile.
    renamed: HashMap<u64, Renamed>,
    /// By serial: the directories of which the commit changes or removes attributes, and the
    /// transaction's snapshot.
    directories: HashMap<u64, (Looks, Sequence)>,
    /// Names, by their path in the view, that stand for something else than in the snapshot: the
    /// commit takes the transaction's side.
    contested: HashSet<Vec<u8>>,
    /// What others have created, and the commit takes for its own.
    equal: Vec<EqualCreation>,
}

impl Seen {
    pub fn note_unchanged(&mut self, base: &Base, stat: &Stat) {
        self.objects.insert(base.serial, *stat);
    }

    pub fn note_renamed(&mut self, base: &Base, stat: Stat, is_linked: bool) {
        let known = self.renamed.entry(base.serial);
        let known = known.or_insert(Renamed { stat, is_linked });
        known.is_linked |= is_linked;
    }

    pub fn note_directory(&mut self, base: &Base, stat: &Stat, at: Sequence) {
        self.directories.insert(base.serial, (Looks::of(stat), at));
    }

    /// Notes what an earlier commit in the queue has left of an object that this one touches. If it is
    /// not what validation saw, an outside writer has changed it meanwhile.
    pub fn note_moved(&mut self, base: &Base, stat: &Stat) {
        let renamed = self.renamed.get_mut(&base.serial);
        let renamed = renamed.map(|renamed| &mut renamed.stat);
        for seen in self
            .objects
            .get_mut(&base.serial)
            .into_iter()
            .chain(renamed)
        {
            // To move it has changed the change time.
            let before = Stat {
                changed: stat.changed,
                ..*seen
            };
            if Stamp::of(&before) == Stamp::of(stat) {
                *seen = *stat;
            }
        }
    }

    /// What validation saw of it, if the commit changes or removes it.
    pub fn stat(&self, base: &Base) -> Option<Stat> {
        self.objects.get(&base.serial).copied()
    }

    /// What validation saw of it, also if it only gets or loses names.
    pub fn stat_of_any(&self, base: &Base) -> Option<Stat> {
        let renamed = self.renamed.get(&base.serial);
        self.stat(base).or(renamed.map(|renamed| renamed.stat))
    }

    pub fn note_contested(&mut self, path: &TreePath) {
        self.contested.insert(path.to_bytes());
    }

    pub fn note_equal(&mut self, creation: EqualCreation) {
        self.equal.push(creation);
    }

    /// Looks at what the commit does not create, because others have.
    pub fn check_equal<D: Disk>(&self, core: &Core<D>) -> std::result::Result<(), CommitError> {
        for creation in &self.equal {
            let is_unchanged = creation.is_unchanged(core);
            let looking = |errno| CommitError::io("look at", &creation.path, errno);
            if !is_unchanged.map_err(looking)? {
                return Err(changed_outside(&creation.path[..], ConflictKind::Entry));
            }
        }
        Ok(())
    }

    /// `present`: what the object looks like now.
    pub fn compare(
        &self,
        base: &Base,
        path: &(impl AnyPath + ?Sized),
        present: &Result<Stat>,
    ) -> std::result::Result<(), CommitError> {
        let renamed = self.renamed.get(&base.serial);
        if let (Some(renamed), Ok(stat)) = (renamed, present)
            && Stamp::of(&renamed.stat) != Stamp::of(stat)
        {
            // The commit changes the change time, and would hide that.
            let mut state = base.state();
            state.history_mut().changed.note_outside(stat.changed);
        }
        let is_linked = renamed.is_some_and(|renamed| renamed.is_linked);
        let is_changed = |(looks, at): &(Looks, Sequence)| {
            present.is_ok_and(|stat| Looks::of(&stat) != *looks) || base.is_guarded_after(*at)
        };
        let what = match (self.objects.get(&base.serial), present) {
            _ if self.directories.get(&base.serial).is_some_and(is_changed) => {
                ConflictKind::Attributes
            }
            (Some(seen), Ok(stat)) if Stamp::of(stat) != Stamp::of(seen) => ConflictKind::Contents,
            (Some(_), Err(Errno::STALE)) => ConflictKind::Entry,
            (None, Err(Errno::STALE)) if is_linked => ConflictKind::Entry,
            // It is as it was, or validation has not asked for it.
            _ => return Ok(()),
        };
        Err(changed_outside(path, what))
    }

    /// Looks at a name that was free, or that named something which the commit only moves. `path`:
    /// the name's, in the view.
    pub fn check_name<D: Disk>(
        &self,
        core: &Core<D>,
        (directory, name): (&D::Handle, &Name),
        (before, path): (Option<&Base>, &TreePath),
        found: &Found,
    ) -> std::result::Result<(), CommitError> {
        let is_compared = before.is_some_and(|base| self.objects.contains_key(&base.serial));
        let is_contested = !self.contested.is_empty() && self.contested.contains(&path.to_bytes());
        if is_compared || is_contested {
            return Ok(());
        }
        let expected = before.map(|base| found.of(base).0);
        match core.disk.stat_at(directory, name) {
            Ok(stat) if Some(stat.identity) != expected && !stat.mount_point => {}
            Err(Errno::NOENT) if expected.is_some() => {}
            // It is as it was, or apply will find out.
            _ => return Ok(()),
        }
        Err(changed_outside(path, ConflictKind::Entry))
    }
}

pub(crate) fn changed_outside(path: &(impl AnyPath + ?Sized), what: ConflictKind) -> CommitError {
    CommitError::Conflict(vec![Conflict {
        path: path.bytes().into_owned(),
        what,
        by: ChangedBy::Outside,
    }])
}
