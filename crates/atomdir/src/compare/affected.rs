//! The paths that may differ between a view and its snapshot.
//!
//! A line of `changes` may stand for many files: renaming a directory moves everything in it, and a
//! changed file may have several names. This finds all paths that may differ, so that each can be
//! compared.

use atomdir_types::{Change, ChangeLine, Kind};
use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::ops::Bound;

/// An object on one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Its kind.
    pub kind: Kind,
    /// Its inode number.
    pub inode: u64,
    /// Whether it has other names.
    pub is_linked: bool,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: Vec<u8>,
    /// The inode number.
    pub inode: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// A transaction's view, and the snapshot that it began with. Paths are relative to the store's
/// root, whose own path is empty.
pub trait ViewAndSnapshot {
    /// Why a side cannot be read.
    type Error;

    /// What the snapshot has at a path.
    fn before(&mut self, path: &[u8]) -> Result<Option<Seen>, Self::Error>;
    /// What the view has at a path.
    fn after(&mut self, path: &[u8]) -> Result<Option<Seen>, Self::Error>;
    /// The entries of a directory of the view; none if there is no directory at the path.
    fn list(&mut self, path: &[u8]) -> Result<Vec<Listed>, Self::Error>;
}

/// What may differ between a view and its snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Affected {
    /// All such paths, without those that are only in `moves`.
    pub paths: BTreeSet<Vec<u8>>,
    /// The old and the new path of what was renamed, and of what is in renamed directories.
    pub moves: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Affected {
    /// `lines` are all of the transaction's changes.
    pub fn find<S: ViewAndSnapshot>(
        sides: &mut S,
        lines: &[ChangeLine],
    ) -> Result<Affected, S::Error> {
        let mut affected = Affected::default();
        let mut inodes = BTreeSet::new();
        for line in lines {
            affected.paths.insert(line.path.clone());
            if matches!(line.change, Change::Added | Change::TypeChanged) {
                // A directory that comes back whole is a single change.
                affected.add_below(sides, &line.path)?;
            }
            if line.change == Change::TypeChanged {
                affected.paths.insert(old_path(lines, line));
            }
            if let Some(from) = &line.from {
                affected.add_moves(sides, from, &line.path)?;
            }
            if line.change == Change::Modified {
                let old = sides.before(&old_path(lines, line))?;
                let new = sides.after(&line.path)?;
                let inode = |seen: Option<Seen>| seen.map(|seen| seen.inode);
                if inode(old) != inode(new) {
                    affected.add_below(sides, &line.path)?;
                }
                let linked = [old, new].into_iter().flatten();
                let linked = linked.filter(|seen| seen.is_linked);
                inodes.extend(linked.map(|seen| seen.inode));
            }
        }
        if !inodes.is_empty() {
            walk(sides, b"", |path, entry| {
                if !entry.is_directory && inodes.contains(&entry.inode) {
                    affected.paths.insert(path.to_vec());
                }
            })?;
        }
        Ok(affected)
    }

    /// All paths, also both of each move.
    pub fn into_paths(self) -> BTreeSet<Vec<u8>> {
        let mut paths = self.paths;
        let moved = self.moves.into_iter();
        paths.extend(moved.flat_map(|(from, to)| [from, to]));
        paths
    }

    fn add_below<S: ViewAndSnapshot>(
        &mut self,
        sides: &mut S,
        path: &[u8],
    ) -> Result<(), S::Error> {
        walk(sides, path, |path, _| {
            self.paths.insert(path.to_vec());
        })
    }

    fn add_moves<S: ViewAndSnapshot>(
        &mut self,
        sides: &mut S,
        from: &[u8],
        to: &[u8],
    ) -> Result<(), S::Error> {
        self.moves.push((from.to_vec(), to.to_vec()));
        walk(sides, to, |path, entry| {
            let old = [from, &path[to.len()..]].concat();
            match entry.is_directory {
                true => self.paths.extend([old, path.to_vec()]),
                false => self.moves.push((old, path.to_vec())),
            }
        })
    }
}

/// Lists everything below a path of the view.
fn walk<S: ViewAndSnapshot>(
    sides: &mut S,
    path: &[u8],
    mut each: impl FnMut(&[u8], &Listed),
) -> Result<(), S::Error> {
    let mut left = vec![path.to_vec()];
    while let Some(directory) = left.pop() {
        for entry in sides.list(&directory)? {
            let path = match directory.is_empty() {
                true => entry.name.clone(),
                false => [&directory, &b"/"[..], &entry.name].concat(),
            };
            each(&path, &entry);
            if entry.is_directory {
                left.push(path);
            }
        }
    }
    Ok(())
}

/// The path of a line's object in the snapshot: a directory above it may have been renamed.
pub fn old_path(lines: &[ChangeLine], line: &ChangeLine) -> Vec<u8> {
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

/// Whether one of the paths lies below this one.
pub fn has_below<P: Ord + Borrow<[u8]>>(paths: &BTreeSet<P>, path: &[u8]) -> bool {
    let start = [path, b"/"].concat();
    let below = (Bound::Included(&start[..]), Bound::Unbounded);
    let next = paths.range::<[u8], _>(below).next();
    next.is_some_and(|next| next.borrow().starts_with(&start))
}
