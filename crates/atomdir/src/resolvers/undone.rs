//! Undos through a service.

use super::{Changes, File, LENGTH_MAX, Object, Resolution, Rewrite, Sight, add_changes, resolve};
use crate::connection::Connection;
use crate::error::CommitError;
use crate::transaction::Transaction;
use atomdir_protocol::{BeginOptions, Conflict, PastView, Progress, Sequence, Timestamp, Undo};
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, ftruncate, open, openat2, unlinkat,
};
use rustix::io::{Errno, pwrite, read};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};

/// The store and a view, as this process may read them.
pub(super) struct Views<'a> {
    store: OwnedFd,
    instead: BorrowedFd<'a>,
    /// The view does not show how these were.
    unknown: BTreeSet<Vec<u8>>,
}

impl<'a> Views<'a> {
    pub fn new(
        connection: &Connection,
        instead: &'a Transaction,
        unknown: BTreeSet<Vec<u8>>,
    ) -> Result<Views<'a>, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Views {
            store: open(connection.store(), flags, Mode::empty())?,
            instead: instead.root()?,
            unknown,
        })
    }
}

impl Sight for Views<'_> {
    fn now(&self, path: &[u8]) -> Object {
        look(&self.store, path)
    }

    fn instead(&self, path: &[u8]) -> Object {
        match self.unknown.contains(path) {
            true => Object::Unknown,
            false => look(self.instead, path),
        }
    }
}

/// The object of a tree at a path.
fn look(root: impl AsFd, path: &[u8]) -> Object {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let object = match openat2(&root, path, flags, Mode::empty(), resolve_flags()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Object::Nothing,
        Err(_) => return Object::Unknown,
        Ok(object) => object,
    };
    let Ok(stat) = fstat(&object) else {
        return Object::Unknown;
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => match read_file(root, path, LENGTH_MAX) {
            Some((contents, stat)) => Object::File(File {
                is_executable: stat.st_mode & 0o100 != 0,
                contents,
                inode: stat.st_ino,
                changed: Timestamp::of_fields(stat.st_ctime, stat.st_ctime_nsec),
            }),
            None => Object::Unknown,
        },
        FileType::Directory => Object::Directory,
        FileType::Symlink => match rustix::fs::readlinkat(&object, c"", Vec::new()) {
            Ok(target) => Object::Symlink(target.into_bytes()),
            Err(_) => Object::Unknown,
        },
        _ => Object::Unknown,
    }
}

fn resolve_flags() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS
}

/// Reads a file of at most this length.
pub(super) fn read_file(root: impl AsFd, path: &[u8], length_max: u64) -> Option<(Vec<u8>, Stat)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file: OwnedFd = openat2(root, path, flags, Mode::empty(), resolve_flags()).ok()?;
    read_open(&file, length_max)
}

fn read_open(file: &OwnedFd, length_max: u64) -> Option<(Vec<u8>, Stat)> {
    let stat = fstat(file).ok()?;
    let length = u64::try_from(stat.st_size).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || length > length_max {
        return None;
    }
    // One more than it had, so that a file that grows meanwhile is seen to.
    let mut contents = vec![0; usize::try_from(length).ok()? + 1];
    let mut filled = 0;
    while filled < contents.len() {
        match read(file, &mut contents[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    contents.truncate(filled);
    (filled as u64 == length).then_some((contents, stat))
}

/// Writes to a view. `None`: it shows something else than was compared, or cannot be written.
pub(super) fn write(root: BorrowedFd<'_>, rewrite: &Rewrite) -> Option<()> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat2(
        root,
        &rewrite.path[..],
        flags,
        Mode::empty(),
        resolve_flags(),
    )
    .ok()?;
    let (found, _) = read_open(&file, LENGTH_MAX)?;
    if found != rewrite.found {
        return None;
    }
    let Some(contents) = &rewrite.contents else {
        return unlink(root, &rewrite.path, AtFlags::empty());
    };
    overwrite(&file, contents)
}

/// Replaces the contents of a file.
fn overwrite(file: &OwnedFd, contents: &[u8]) -> Option<()> {
    let mut written = 0;
    while written < contents.len() {
        match pwrite(file, &contents[written..], written as u64) {
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    ftruncate(file, contents.len() as u64).ok()
}

fn unlink(root: BorrowedFd<'_>, path: &[u8], flags: AtFlags) -> Option<()> {
    let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&b"."[..], path),
    };
    let open = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = openat2(root, above, open, Mode::empty(), resolve_flags()).ok()?;
    unlinkat(above, name, flags).ok()
}

impl Connection {
    /// Begins a transaction that takes back what these commits changed, and nothing else. Fails
    /// with a conflict if that was changed again since, by a later commit or from outside. Files that
    /// programs write again by themselves, and that mean the same as before, are no conflict, nor is
    /// what git packs. Also returns the later changes for which the undo takes a side, as it was chosen.
    pub fn undo(
        &mut self,
        undo: Undo,
        options: &BeginOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Transaction, Vec<Conflict>), CommitError> {
        let refused = match self.take_back(undo.clone(), options, progress) {
            Err(refused @ CommitError::Conflict { .. }) => refused,
            begun => return begun,
        };
        let CommitError::Conflict { conflicts, .. } = &refused else {
            return Err(refused);
        };
        let resolution = self.compare(&undo, conflicts);
        let resolved = resolution.and_then(|found| Some((found.of(&undo)?, found)));
        let Some((undo, resolution)) = resolved else {
            return Err(refused);
        };
        let (transaction, mut sided) = self.take_back(undo, options, progress)?;
        if rewrite(&transaction, &resolution).is_none() {
            self.abort(transaction.id)?;
            return Err(refused);
        }
        sided.retain(|conflict| !resolution.leaves(&conflict.path));
        Ok((transaction, sided))
    }

    /// Compares what is in the way of an undo with what the commits left and found.
    fn compare(&mut self, undo: &Undo, conflicts: &[Conflict]) -> Option<Resolution> {
        let mut commits = undo.commits.clone();
        commits.sort();
        let mut changes = Changes::new();
        for commit in &commits {
            add_changes(&mut changes, self.show(*commit).ok()?.changes);
        }
        let past = PastView {
            commit: Sequence(commits.first()?.0.saturating_sub(1)),
            outside_as_now: true,
            outside_since: None,
            beside: None,
        };
        let options = BeginOptions {
            opened: true,
            ..BeginOptions::default()
        };
        let (before, unknown) = self.past(past, &options).ok()?;
        let unknown = unknown.into_iter().map(|conflict| conflict.path);
        let views = Views::new(self, &before, unknown.collect()).ok();
        let resolution = views.and_then(|views| resolve(&views, conflicts, &changes));
        self.abort(before.id).ok()?;
        resolution
    }
}

fn rewrite(transaction: &Transaction, resolution: &Resolution) -> Option<()> {
    if resolution.rewrites.is_empty() && resolution.emptied.is_empty() {
        return Some(());
    }
    let root = transaction.root().ok()?;
    for one in &resolution.rewrites {
        write(root, one)?;
    }
    for directory in &resolution.emptied {
        // It stays if others have put something into it.
        unlink(root, directory, AtFlags::REMOVEDIR);
    }
    Some(())
}
