//! Kinds of files for which it can be known that a change by others is none, or how it goes
//! together with one's own.
//!
//! A resolver answers one question: do the files of others mean the same, to the programs that use
//! them, as those that commits have left, or that a transaction has found? Or else, what are they with
//! both changes? It never drops a change, so if it cannot tell, the conflict stays. The engine knows
//! nothing of kinds of files: it learns which file, with which inode number and change time, counts as
//! the one that was left, and in which conflicts the commit or the undo takes which side.
//!
//! Modules
//! - `git_index`: git's index, which git writes again by itself with other times of files in it
//! - `git_packed`: what `git gc` and the like do with objects, references and their logs
//! - `git_log`: the logs of references
//! - `appended`: files to which both sides have only appended
//! - `undone`: undos in the way of which such changes are, through a service
//! - `in_process`: the same where this process has the store open
//! - `reconciled`: commits likewise, however the transaction is reached
//! - `committed`: that through a service; `embedded::committing` has it for this process

mod appended;
mod committed;
mod git_index;
mod git_log;
mod git_packed;
mod in_process;
mod reconciled;
mod undone;

pub(crate) use appended::Patterns;
pub(crate) use in_process::{has_equal_index, take_back, take_back_unconfirmed};
pub(crate) use reconciled::{Refused, commit_reconciled};

use atomdir_protocol::{
    Change, ChangeLine, ChangedBy, Conflict, ConflictKind, EqualFile, SidePaths, Timestamp, Undo,
};
use std::collections::{BTreeMap, BTreeSet};

/// Longer files are not compared, since they are held in memory.
const LENGTH_MAX: u64 = 256 << 20;

/// The object at a path.
pub(crate) enum Object {
    Nothing,
    Directory,
    File(File),
    Symlink(Vec<u8>),
    /// Something else, or it cannot be read, or it is not known what was there.
    Unknown,
}

pub(crate) struct File {
    pub is_executable: bool,
    pub contents: Vec<u8>,
    /// Like the change time, known only of a file in the store.
    pub inode: u64,
    pub changed: Timestamp,
}

/// The two states that a resolver compares.
pub(crate) trait Sight {
    /// The store's object at a path.
    fn now(&self, path: &[u8]) -> Object;
    /// The one that takes its place: that of before the commits that are undone, or that in the view
    /// of the transaction that is committed.
    fn instead(&self, path: &[u8]) -> Object;
}

/// New contents of a file, in the view of an undo or of a commit.
pub(crate) struct Rewrite {
    pub path: Vec<u8>,
    /// The contents that were compared. If the view shows others, the undo or the commit is refused.
    pub found: Vec<u8>,
    /// `None`: the file goes.
    pub contents: Option<Vec<u8>>,
}

/// How an undo goes together with what others have changed.
#[derive(Default)]
pub(crate) struct Resolution {
    equal: Vec<EqualFile>,
    /// Where the later change stays.
    leave: Vec<Vec<u8>>,
    pub rewrites: Vec<Rewrite>,
    /// Directories that go if nothing is in them.
    pub emptied: Vec<Vec<u8>>,
}

impl Resolution {
    /// The undo with this. `None`: its user has chosen the side of the others everywhere, so no
    /// conflict was found.
    pub fn of(&self, undo: &Undo) -> Option<Undo> {
        let mut undo = undo.clone();
        let SidePaths::These(theirs) = &mut undo.theirs else {
            return None;
        };
        theirs.extend(self.leave.iter().cloned());
        undo.equal.extend(self.equal.iter().cloned());
        Some(undo)
    }

    /// Whether this is why the later change at a path stays.
    pub fn leaves(&self, path: &[u8]) -> bool {
        self.leave.iter().any(|left| left == path)
    }
}

/// The changes of commits, by path.
pub(crate) type Changes = BTreeMap<Vec<u8>, Change>;

/// Adds what a commit has changed after these.
pub(crate) fn add_changes(changes: &mut Changes, lines: Vec<ChangeLine>) {
    for line in lines {
        if let Some(from) = line.from {
            note_change(changes, from, Change::Deleted);
        }
        note_change(changes, line.path, line.change);
    }
}

/// What was added at first is added by all of them together, and the like.
fn note_change(changes: &mut Changes, path: Vec<u8>, change: Change) {
    match changes.get(&path) {
        Some(Change::Added) if change == Change::Deleted => {
            changes.remove(&path);
        }
        Some(Change::Added) => {}
        _ => {
            changes.insert(path, change);
        }
    }
}

fn by_path(lines: &[ChangeLine]) -> Changes {
    let mut changes = Changes::new();
    add_changes(&mut changes, lines.to_vec());
    changes
}

/// Finds how an undo of commits goes together with the changes that are in its way.
pub(crate) fn resolve(
    sight: &impl Sight,
    conflicts: &[Conflict],
    changes: &Changes,
) -> Option<Resolution> {
    let mut resolution = Resolution::default();
    let mut repositories: BTreeMap<&[u8], BTreeSet<&[u8]>> = BTreeMap::new();
    for conflict in conflicts {
        let path = &conflict.path[..];
        if conflict.by != ChangedBy::Outside {
            return None;
        }
        if is_of_index(conflict) {
            let equal = equal_index(sight, path, changes)?;
            resolution.equal.push(equal);
        } else {
            let repository = git_packed::repository_of(path)?;
            repositories.entry(repository).or_default().insert(path);
        }
    }
    for (repository, paths) in repositories {
        git_packed::resolve(sight, (repository, changes), &paths, &mut resolution)?;
    }
    Some(resolution)
}

/// Whether the resolver for git's index may know something about this conflict.
fn is_of_index(conflict: &Conflict) -> bool {
    let is_of_file = matches!(
        conflict.what,
        ConflictKind::Entry | ConflictKind::Replaced | ConflictKind::Contents
    );
    is_of_file && git_index::work_tree_of(&conflict.path).is_some()
}

/// Compares an index of the store with the one that takes its place. `changes`: what changes with
/// it. `None`: they are not equal, or it is not known.
fn equal_index(sight: &impl Sight, path: &[u8], changes: &Changes) -> Option<EqualFile> {
    let work_tree = git_index::work_tree_of(path)?;
    let (Object::File(now), Object::File(instead)) = (sight.now(path), sight.instead(path)) else {
        return None;
    };
    let in_tree = |name: &[u8]| {
        let path = [work_tree, name].concat();
        match changes.contains_key(&path) {
            true => sight.now(&path),
            false => Object::Unknown,
        }
    };
    let is_equal = git_index::is_taken_back(&instead.contents, &now.contents, in_tree);
    is_equal.then(|| EqualFile {
        path: path.to_vec(),
        inode: now.inode,
        changed: now.changed,
    })
}
