//! First committer wins: checks whether the parts that the transaction overwrites are unchanged in
//! the base.
//!
//! The history of each object says which of its parts commits have changed since the
//! snapshot. Changes of outside writers are found by the traces they leave: see
//! `outside`.
//!
//! The commit lock is held, so no other commit comes in between; only outside
//! writers may. Each check is a [`Rule`], and a conflict names its rule.

mod names;
mod objects;
mod outside;
mod reads;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Timestamp};
use atomdir_types::TreePath;
use atomdir_types::path::AnyPath;

use crate::base::core::Core;
use crate::base::landed::Landed;
use crate::base::{Base, Changed, Place};
use crate::commit::resolve::Accepted;
use crate::error::{ChangedBy, Conflict, ConflictKind};
use crate::ids::Sequence;
use crate::rules::Rule;
use crate::seen::Seen;
use crate::write_set::{CreatedPlace, Object, WriteSet};
use names::Losing;

/// Once the paths of the conflicts take so many bytes, further ones are not listed. One refuses the
/// commit as well as all of them, and no side can be taken in those that are not listed.
const CONFLICT_BYTES_MAX: usize = 8 << 20;

pub(crate) struct Validation<'a, D: Disk> {
    pub core: &'a Core<D>,
    pub at: Sequence,
    /// The parts that the transaction has committed since its snapshot.
    pub landed: &'a Landed,
    pub began: Timestamp,
    /// When the oldest open transaction began. It looks at all that are open.
    oldest_began: &'a dyn Fn() -> Timestamp,
    /// Whether the owner has fewer rights than this process.
    checks_rights: bool,
    reachable: HashSet<u64>,
    /// The objects that lose names, by serial.
    losing: HashMap<u64, Losing>,
    /// Objects that come back from limbo, by serial.
    restored: HashSet<u64>,
    pub conflicts: Vec<Conflict>,
    /// Of the conflicts.
    path_bytes: usize,
    pub seen: Seen,
    /// The conflicts in which the commit takes the transaction's side.
    pub accepted: Accepted,
    /// An undo or a restore: no file may lose its last name by it that had another one in its
    /// snapshot.
    pub is_undo: bool,
}

impl<'a, D: Disk> Validation<'a, D> {
    pub fn new(
        core: &'a Core<D>,
        (at, landed): (Sequence, &'a Landed),
        (began, oldest_began): (Timestamp, &'a dyn Fn() -> Timestamp),
        owner: u32,
    ) -> Self {
        Validation {
            checks_rights: core.options.privileges.all && owner != 0,
            core,
            at,
            landed,
            began,
            oldest_began,
            reachable: HashSet::new(),
            losing: HashMap::new(),
            restored: HashSet::new(),
            conflicts: Vec::new(),
            path_bytes: 0,
            seen: Seen::default(),
            accepted: Accepted::default(),
            is_undo: false,
        }
    }

    /// Also decides which objects die, since the snapshot's link counts may be
    /// outdated. An error comes with the path that could not be looked at.
    pub fn run(&mut self, set: &mut WriteSet) -> std::result::Result<(), (TreePath, Errno)> {
        self.restored.clone_from(&set.restored);
        for entry in &set.entries {
            let checked = self.check_entry(entry);
            checked.map_err(|errno| (entry.path.clone(), errno))?;
        }
        if self.checks_rights {
            set.objects
                .iter()
                .for_each(|object| self.check_rights(object));
        }
        for directory in &set.removed_directories {
            let checked = self.check_removed_directory(directory);
            checked.map_err(|errno| (directory.path.clone(), errno))?;
        }
        for entry in &set.entries {
            let checked = self.check_linked(entry);
            checked.map_err(|errno| (entry.path.clone(), errno))?;
        }
        self.decide_dying(set);
        for object in set.objects.iter().filter(|object| !object.is_implied) {
            let checked = self.check_object(object, set);
            checked.map_err(|errno| (object.path.clone(), errno))?;
        }
        for base in set.dying.values() {
            self.check_dying(base);
        }
        if self.is_undo {
            for base in self.files_losing_names() {
                self.check_dying(&base);
            }
        }
        self.check_equal()
            .map_err(|errno| (TreePath::default(), errno))?;
        self.check_loops(set);
        self.note_dying(set);
        self.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        self.conflicts.dedup();
        self.drop_doubts_about_contents();
        Ok(())
    }

    /// A commit is known to have changed the contents of these files, so a doubt about further
    /// parts adds nothing. A side taken in such a conflict is taken for the whole contents.
    fn drop_doubts_about_contents(&mut self) {
        let is_doubt = |one: &Conflict| one.what == ConflictKind::UnknownParts;
        let contents = self.conflicts.iter();
        let contents = contents.filter(|one| one.what == ConflictKind::Contents);
        let known: HashSet<Vec<u8>> = contents.map(|one| one.path.clone()).collect();
        self.conflicts
            .retain(|one| !is_doubt(one) || !known.contains(&one.path));
    }

    /// Notes which rule is broken, where, and by which commit (`None`: by an outside
    /// writer).
    fn conflict(
        &mut self,
        rule: Rule,
        path: &(impl AnyPath + ?Sized),
        what: ConflictKind,
        by: Option<Sequence>,
    ) {
        if self.path_bytes > CONFLICT_BYTES_MAX || !rule.holds() {
            return;
        }
        let path = &*path.bytes();
        if self.accepted.takes(rule, path, what, by) {
            return;
        }
        self.path_bytes += path.len();
        let by = by.map_or(ChangedBy::Outside, ChangedBy::commit);
        // The root's own path is empty.
        let path = if path.is_empty() { b"." } else { path };
        self.conflicts.push(Conflict {
            path: path.to_vec(),
            what,
            by,
        });
    }

    /// The newest commit since the snapshot that changed a part of the object.
    fn since(
        &self,
        rule: Rule,
        base: &Base,
        part: impl Fn(&Changed) -> Option<Sequence>,
    ) -> Option<Sequence> {
        let state = base.state();
        state
            .changed()
            .and_then(part)
            .filter(|changed| *changed > self.at && !self.landed.is_own(*changed))
            .filter(|_| rule.holds())
    }

    /// Finds loops: two transactions may each have moved a directory below the other's.
    fn check_loops(&mut self, set: &WriteSet) {
        let mut parents: HashMap<u64, &Object> = HashMap::new();
        let mut created: HashMap<usize, &Object> = HashMap::new();
        for entry in &set.entries {
            match &entry.after {
                Some(Object::Base(base)) if base.kind == Kind::Directory => {
                    parents.insert(base.serial, &entry.directory);
                }
                Some(Object::Created(index)) => {
                    created.insert(*index, &entry.directory);
                }
                _ => {}
            }
        }
        let above = |object: Object| match object {
            Object::Created(index) => match &set.created[index].place {
                CreatedPlace::Entry { directory, .. } => Some(Object::Created(*directory)),
                CreatedPlace::Slot(_) => created.get(&index).map(|above| (*above).clone()),
            },
            Object::Base(base) => match parents.get(&base.serial) {
                Some(above) => Some((*above).clone()),
                None => match &base.state().place {
                    Place::Entry { parent, .. } => Some(Object::Base(parent.clone())),
                    _ => None,
                },
            },
        };
        for entry in &set.entries {
            let Some(Object::Base(moved)) = &entry.after else {
                continue;
            };
            if moved.kind == Kind::Directory && is_below(moved, &entry.directory, above) {
                let what = ConflictKind::DirectoryLoop;
                self.conflict(Rule::Loop, &entry.path, what, None);
            }
        }
    }
}

/// Whether going up from `from` leads to the directory, or in a circle.
fn is_below(
    directory: &Arc<Base>,
    from: &Object,
    above: impl Fn(Object) -> Option<Object>,
) -> bool {
    let mut seen = HashSet::from([directory.serial]);
    let mut at = Some(from.clone());
    while let Some(object) = at {
        if let Object::Base(base) = &object
            && !seen.insert(base.serial)
        {
            return true;
        }
        at = above(object);
    }
    false
}
