//! Kinds of files for which it can be known that a change by an outside writer is none.
//!
//! A resolver answers one question: is this file, for the programs that use it, equal to the one
//! that commits have left, or that a transaction has found? It never chooses a side and never drops a change, so if it cannot tell,
//! the conflict stays. The engine knows nothing of kinds of files: it learns which file, with which
//! inode number and change time, counts as the one that was left, or in which conflict the commit
//! takes the transaction's side.
//!
//! Modules
//! - `git_index`: git's index, which git writes again by itself with other times of files in it

mod git_index;

use crate::choosing::Sides;
use crate::connection::Connection;
use crate::error::CommitError;
use crate::transaction::Transaction;
use atomdir_protocol::{
    BeginOptions, ChangeLine, ChangedBy, Committed, Conflict, ConflictKind, EqualFile, Numbers,
    Others, PastView, Progress, Sequence, Timestamp, TransactionId, Undo,
};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2};
use rustix::io::{Errno, read};
use std::collections::BTreeSet;
use std::os::fd::AsFd;

/// Longer files are not compared, since they are held in memory.
const LENGTH_MAX: u64 = 256 << 20;

/// The conflicts that a resolver may know something about. `None`: there is another one.
fn known(conflicts: &[Conflict]) -> Option<BTreeSet<&[u8]>> {
    let mut paths = BTreeSet::new();
    for Conflict { path, what, by } in conflicts {
        let is_of_file = matches!(
            what,
            ConflictKind::Entry | ConflictKind::Replaced | ConflictKind::Contents
        );
        let is_known = is_of_file
            && matches!(by, ChangedBy::Outside)
            && git_index::work_tree_of(path).is_some();
        if !is_known {
            return None;
        }
        paths.insert(&path[..]);
    }
    (!paths.is_empty()).then_some(paths)
}

/// Compares the files of the store with those that take their place. `changed`: the paths that change
/// with them. `None`: one is not equal, or it is not known.
fn equal_files(
    connection: &Connection,
    instead: &Transaction,
    paths: &BTreeSet<&[u8]>,
    changed: &[ChangeLine],
) -> Option<Vec<EqualFile>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let store = open(connection.store(), flags, Mode::empty()).ok()?;
    let both = |line: &'_ ChangeLine| [Some(line.path.clone()), line.from.clone()];
    let changed: BTreeSet<Vec<u8>> = changed.iter().flat_map(both).flatten().collect();
    let mut equal = Vec::new();
    for path in paths {
        let (now, stat) = read_file(&store, path)?;
        let (instead, _) = read_file(instead.root().ok()?, path)?;
        let work_tree = git_index::work_tree_of(path)?;
        let in_tree = |name: &[u8]| {
            let path = [work_tree, name].concat();
            match changed.contains(&path) {
                true => look(&store, &path),
                false => git_index::InTree::Unknown,
            }
        };
        if !git_index::is_taken_back(&instead, &now, in_tree) {
            return None;
        }
        equal.push(EqualFile {
            path: path.to_vec(),
            inode: stat.st_ino,
            changed: Timestamp::of_fields(stat.st_ctime, stat.st_ctime_nsec),
        });
    }
    Some(equal)
}

/// Looks at a path in the work tree.
fn look(root: impl AsFd, path: &[u8]) -> git_index::InTree {
    use git_index::InTree;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let object = match openat2(&root, path, flags, Mode::empty(), resolve()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return InTree::Nothing,
        Err(_) => return InTree::Unknown,
        Ok(object) => object,
    };
    let Ok(stat) = fstat(&object) else {
        return InTree::Unknown;
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => match read_file(root, path) {
            Some((contents, _)) => InTree::File {
                is_executable: stat.st_mode & 0o100 != 0,
                contents,
            },
            None => InTree::Unknown,
        },
        FileType::Symlink => match rustix::fs::readlinkat(&object, c"", Vec::new()) {
            Ok(target) => InTree::Symlink(target.into_bytes()),
            Err(_) => InTree::Unknown,
        },
        _ => InTree::Unknown,
    }
}

fn resolve() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS
}

fn read_file(root: impl AsFd, path: &[u8]) -> Option<(Vec<u8>, Stat)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file: OwnedFd = openat2(root, path, flags, Mode::empty(), resolve()).ok()?;
    let stat = fstat(&file).ok()?;
    let length = u64::try_from(stat.st_size).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || length > LENGTH_MAX {
        return None;
    }
    // One more than it had, so that a file that grows meanwhile is seen to.
    let mut contents = vec![0; usize::try_from(length).ok()? + 1];
    let mut filled = 0;
    while filled < contents.len() {
        match read(&file, &mut contents[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    contents.truncate(filled);
    (filled as u64 == length).then_some((contents, stat))
}

impl Connection {
    /// Begins a transaction that takes back what these commits changed, and nothing else. Fails
    /// with a conflict if that was changed again since, by a later commit or from outside. Files that
    /// programs write again by themselves, and that mean the same as before, are no conflict. Also
    /// returns the later changes for which the undo takes a side, as it was chosen.
    pub fn undo(
        &mut self,
        undo: Undo,
        options: &BeginOptions,
    ) -> Result<(Transaction, Vec<Conflict>), CommitError> {
        let refused = match self.take_back(undo.clone(), options) {
            Err(refused @ CommitError::Conflict { .. }) => refused,
            begun => return begun,
        };
        let CommitError::Conflict { conflicts, .. } = &refused else {
            return Err(refused);
        };
        match self.equal_to_left(&undo, conflicts) {
            Some(equal) => self.take_back(Undo { equal, ..undo }, options),
            None => Err(refused),
        }
    }

    /// The files in the way of an undo that are equal to those that the commits left.
    fn equal_to_left(&mut self, undo: &Undo, conflicts: &[Conflict]) -> Option<Vec<EqualFile>> {
        let paths = known(conflicts)?;
        let mut changed = Vec::new();
        for commit in &undo.commits {
            changed.extend(self.show(*commit).ok()?.changes);
        }
        let first = undo.commits.iter().min()?;
        let past = PastView {
            commit: Sequence(first.0.saturating_sub(1)),
            outside_as_now: true,
            outside_since: None,
            beside: None,
        };
        let options = BeginOptions {
            opened: true,
            ..BeginOptions::default()
        };
        let (before, _) = self.past(past, &options).ok()?;
        let equal = equal_files(self, &before, &paths, &changed);
        self.abort(before.id).ok()?;
        equal
    }

    /// Like [`commit`](Self::commit), for a transaction that others may hold.
    pub fn commit_with(
        &mut self,
        transaction: TransactionId,
        others: Others,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Committed, CommitError> {
        let refused = match self.commit_if_untouched(transaction, others, progress) {
            Err(refused @ CommitError::Conflict { .. }) => refused,
            committed => return committed,
        };
        let CommitError::Conflict { conflicts, .. } = &refused else {
            return Err(refused);
        };
        let Some(mine) = self.equal_to_snapshot(transaction, conflicts) else {
            return Err(refused);
        };
        let sides = Sides {
            mine: Numbers::These(mine),
            theirs: Numbers::These(Vec::new()),
        };
        let committed = self.commit_with_sides(transaction, &sides, others, progress);
        committed.map(|(committed, _)| committed)
    }

    /// The numbers of the conflicts in which the files of others are equal to what the transaction
    /// has found. Whatever others change after the list is made refuses the commit.
    fn equal_to_snapshot(
        &mut self,
        transaction: TransactionId,
        conflicts: &[Conflict],
    ) -> Option<Vec<u64>> {
        known(conflicts)?;
        let listed = self.list_conflicts(transaction).ok()?;
        let paths = known(&listed)?;
        let changed = self.changes(transaction).ok()?;
        let view = self.open_view(transaction).ok()?;
        equal_files(self, &view, &paths, &changed)?;
        Some((1..=listed.len() as u64).collect())
    }
}
