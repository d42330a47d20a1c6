//! Finds the paths that a patch must list.
//!
//! A line of `changes` may stand for many files: renaming a directory moves everything
//! in it, and a changed file may have several names. git's format lists each file by
//! its path. So we collect all paths that may differ, compare each with the snapshot,
//! and leave out those that do not differ.

use super::FilePatch;
use crate::changes::Filter;
use crate::changes::version::{Version, kind_of};
use crate::context::Connected;
use crate::error::Error;
use crate::files;
use atomdir::client::{ChangeLine, Transaction};
use atomdir::{Change, Kind};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct Affected {
    paths: BTreeSet<Vec<u8>>,
    /// Old paths by new ones, where the file at the old path is now at the new one.
    renames: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Objects of the same class can replace each other in a patch.
#[derive(PartialEq, Eq)]
enum Class {
    ForGit,
    Directory,
    Special,
}

impl Affected {
    pub fn find(
        connected: &mut Connected,
        transaction: &Transaction,
        lines: &[ChangeLine],
    ) -> Result<Affected, Error> {
        let mut affected = Affected::default();
        let mut moves = Vec::new();
        let mut inodes = BTreeSet::new();
        for line in lines {
            affected.paths.insert(line.path.clone());
            if matches!(line.change, Change::Added | Change::TypeChanged) {
                // A directory that comes back whole is a single change.
                walk_all(transaction, &line.path, |path, _, _| {
                    affected.paths.insert(path.to_vec());
                })?;
            }
            if line.change == Change::TypeChanged {
                affected.paths.insert(old_path(lines, line));
            }
            if let Some(from) = &line.from {
                moves.push((from.clone(), line.path.clone()));
                walk_all(transaction, &line.path, |path, _, is_directory| {
                    let old = [from, &path[line.path.len()..]].concat();
                    match is_directory {
                        true => affected.paths.extend([old, path.to_vec()]),
                        false => moves.push((old, path.to_vec())),
                    }
                })?;
            }
            if line.change == Change::Modified {
                let old = old_path(lines, line);
                let connection = &mut connected.connection;
                let found = connection.snapshot_object(transaction.id, &old, 0)?;
                let old = found.map(|found| (found.object.inode, found.object.links > 1));
                let stat = Version::stat_in_view(transaction, &line.path)?;
                let new = stat.map(|stat| (stat.st_ino, stat.st_nlink > 1));
                if old.map(|old| old.0) != new.map(|new| new.0) {
                    walk_all(transaction, &line.path, |path, _, _| {
                        affected.paths.insert(path.to_vec());
                    })?;
                }
                let linked = [old, new]
                    .into_iter()
                    .flatten()
                    .filter(|(_, is_linked)| *is_linked);
                inodes.extend(linked.map(|(inode, _)| inode));
            }
        }
        if !inodes.is_empty() {
            walk(transaction, b"", |path, inode| {
                if inodes.contains(&inode) {
                    affected.paths.insert(path.to_vec());
                }
            })?;
        }
        for (from, to) in moves {
            affected.add_move(connected, transaction, from, to)?;
        }
        Ok(affected)
    }

    /// For git it is no rename if either name is also in use on the other side, or if
    /// the object is a symbolic link: `git apply` would not see that a directory can be
    /// there instead.
    fn add_move(
        &mut self,
        connected: &mut Connected,
        transaction: &Transaction,
        from: Vec<u8>,
        to: Vec<u8>,
    ) -> Result<(), Error> {
        let mut before = |path: &[u8]| -> Result<Option<Kind>, Error> {
            let found = connected
                .connection
                .snapshot_object(transaction.id, path, 0)?;
            Ok(found.map(|found| found.object.kind))
        };
        let after = |path: &[u8]| -> Result<Option<Kind>, Error> {
            let stat = Version::stat_in_view(transaction, path)?;
            Ok(stat.as_ref().map(kind_of))
        };
        let (old, new) = (before(&from)?, after(&to)?);
        let class = |kind: Option<Kind>| kind.map(Class::of);
        if !matches!(old, None | Some(Kind::Symlink))
            && old == new
            && class(after(&from)?) != class(new)
            && class(before(&to)?) != class(new)
        {
            self.renames.insert(to.clone(), from.clone());
        }
        self.paths.extend([from, to]);
        Ok(())
    }

    /// Looks up one path at a time, since all contents together may not fit in memory.
    pub fn each(
        &self,
        connected: &mut Connected,
        transaction: &Transaction,
        filter: &Filter,
        mut use_it: impl FnMut(&FilePatch<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let sources: BTreeSet<&[u8]> = self.renames.values().map(Vec::as_slice).collect();
        for path in &self.paths {
            let mut before = |path: &[u8]| {
                let connection = &mut connected.connection;
                Version::in_snapshot(connection, transaction.id, path)
            };
            let from = self.renames.get(path);
            if let Some(from) = from
                && (filter.wants_path(path) || filter.wants_path(from))
            {
                use_it(&FilePatch {
                    old_path: from,
                    new_path: path,
                    old: before(from)?,
                    new: Version::in_view(transaction, path)?,
                    has_below: self.has_below(path),
                })?;
            }
            if !filter.wants_path(path) {
                continue;
            }
            let old = match sources.contains(&**path) {
                true => None,
                false => before(path)?,
            };
            let new = match from {
                Some(_) => None,
                None => Version::in_view(transaction, path)?,
            };
            use_it(&FilePatch {
                old_path: path,
                new_path: path,
                old,
                new,
                has_below: self.has_below(path),
            })?;
        }
        Ok(())
    }
}

impl Affected {
    fn has_below(&self, path: &[u8]) -> bool {
        has_below(&self.paths, path)
    }

    /// Everything that may differ.
    pub fn into_paths(self) -> BTreeSet<Vec<u8>> {
        self.paths
    }
}

pub(in crate::changes) fn has_below(paths: &BTreeSet<Vec<u8>>, path: &[u8]) -> bool {
    let start = [path, b"/"].concat();
    let next = paths.range(start.clone()..).next();
    next.is_some_and(|next| next.starts_with(&start))
}

impl Class {
    fn of(kind: Kind) -> Class {
        match kind {
            Kind::File | Kind::Symlink => Class::ForGit,
            Kind::Directory => Class::Directory,
            _ => Class::Special,
        }
    }
}

/// The path of a line's object in the snapshot: a directory above it may have been renamed.
pub(in crate::changes) fn old_path(lines: &[ChangeLine], line: &ChangeLine) -> Vec<u8> {
    if let Some(from) = &line.from {
        return from.clone();
    }
    // The line of a deleted object has its path in the snapshot.
    if line.change == Change::Deleted {
        return line.path.clone();
    }
    let moved = lines.iter().filter_map(|above| {
        let below = line.path.strip_prefix(above.path.as_slice())?;
        let from = above.from.as_ref().filter(|_| below.starts_with(b"/"))?;
        Some((above.path.len(), [from, below].concat()))
    });
    let nearest = moved.max_by_key(|(length, _)| *length);
    nearest.map_or_else(|| line.path.clone(), |(_, path)| path)
}

/// Lists everything below a path of the view except directories, with inode numbers.
fn walk(
    transaction: &Transaction,
    path: &[u8],
    mut each: impl FnMut(&[u8], u64),
) -> Result<(), Error> {
    walk_all(transaction, path, |path, inode, is_directory| {
        if !is_directory {
            each(path, inode);
        }
    })
}

/// Lists everything below a path of the view, with inode numbers.
fn walk_all(
    transaction: &Transaction,
    path: &[u8],
    mut each: impl FnMut(&[u8], u64, bool),
) -> Result<(), Error> {
    let failed = |path: &[u8], errno| Error::View {
        path: path.to_owned(),
        errno,
    };
    let root = transaction.root().map_err(|errno| failed(path, errno))?;
    let mut left = vec![path.to_vec()];
    while let Some(directory) = left.pop() {
        let entries = match files::list(root, &directory) {
            Ok(entries) => entries,
            Err(Errno::NOENT | Errno::NOTDIR) => continue,
            Err(errno) => return Err(failed(&directory, errno)),
        };
        for entry in entries {
            let path = match directory.is_empty() {
                true => entry.name,
                false => [&directory, &b"/"[..], &entry.name].concat(),
            };
            each(&path, entry.inode, entry.is_directory);
            if entry.is_directory {
                left.push(path);
            }
        }
    }
    Ok(())
}
