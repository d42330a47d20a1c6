//! Kinds of files for which it can be known that a change by an outside writer is none.
//!
//! A resolver answers one question: is this file, for the programs that use it, equal to the one
//! that commits have left? It never chooses a side and never drops a change, so if it cannot tell,
//! the conflict stays. The engine knows nothing of kinds of files: it is told which file, with which
//! inode number and change time, counts as the one that was left.
//!
//! Modules
//! - `git_index`: git's index, which git writes again by itself with other times of files in it

mod git_index;

use crate::connection::Connection;
use crate::error::CommitError;
use crate::history::past_options;
use crate::transaction::Transaction;
use atomdir_protocol::{
    BeginOptions, ChangedBy, Conflict, EqualFile, PastView, Sequence, Timestamp, Undo,
};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2};
use rustix::io::{Errno, read};
use std::os::fd::AsFd;

/// Longer files are not compared, since they are held in memory.
const LENGTH_MAX: u64 = 256 << 20;

/// The files that keep an undo from being done and are equal to what the commits left. `None`: there
/// is another conflict, which none of the resolvers knows.
pub(crate) fn equal_files(
    connection: &mut Connection,
    undo: &Undo,
    conflicts: &[Conflict],
) -> Option<Vec<EqualFile>> {
    let is_known = |one: &Conflict| {
        matches!(one.by, ChangedBy::Outside) && git_index::work_tree_of(&one.path).is_some()
    };
    if conflicts.is_empty() || !conflicts.iter().all(is_known) {
        return None;
    }
    let first = undo.commits.iter().min()?;
    let past = PastView {
        commit: Sequence(first.0.saturating_sub(1)),
        outside_as_now: true,
        outside_since: None,
        beside: None,
    };
    let (before, _) = connection.past(past, &past_options()).ok()?;
    let equal = find_equal(connection, &before, conflicts);
    connection.abort(before.id).ok()?;
    equal
}

fn find_equal(
    connection: &Connection,
    before: &Transaction,
    conflicts: &[Conflict],
) -> Option<Vec<EqualFile>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let now = open(connection.store(), flags, Mode::empty()).ok()?;
    let mut equal: Vec<EqualFile> = Vec::new();
    for Conflict { path, .. } in conflicts {
        if equal.iter().any(|known| known.path == *path) {
            continue;
        }
        let (contents, stat) = read_file(&now, path)?;
        let (old, _) = read_file(before.root().ok()?, path)?;
        let work_tree = git_index::work_tree_of(path)?;
        let in_tree = |name: &[u8]| {
            let path = [work_tree, name].concat();
            look(&now, &path)
        };
        if !git_index::is_taken_back(&old, &contents, in_tree) {
            return None;
        }
        equal.push(EqualFile {
            path: path.clone(),
            inode: stat.st_ino,
            changed: Timestamp::of_fields(stat.st_ctime, stat.st_ctime_nsec),
        });
    }
    Some(equal)
}

/// What is at a path in the work tree.
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
    /// programs write again by themselves, and that mean the same as before, are no conflict.
    pub fn undo(&mut self, undo: Undo, options: &BeginOptions) -> Result<Transaction, CommitError> {
        let refused = match self.take_back(undo.clone(), options) {
            Err(refused @ CommitError::Conflict { .. }) => refused,
            begun => return begun,
        };
        let CommitError::Conflict { conflicts, .. } = &refused else {
            return Err(refused);
        };
        match equal_files(self, &undo, conflicts) {
            Some(equal) => self.take_back(Undo { equal, ..undo }, options),
            None => Err(refused),
        }
    }
}
