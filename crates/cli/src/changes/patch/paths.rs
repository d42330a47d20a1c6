//! Finds the paths that a patch must list.
//!
//! git's format lists each file by its path. So we collect all paths that may differ, compare each
//! with the snapshot, and leave out those that do not differ.

use super::FilePatch;
use crate::changes::Filter;
use crate::changes::version::{InView, Version, kind_of};
use crate::context::Connected;
use crate::error::Error;
use crate::files;
use atomdir::Kind;
use atomdir::client::compare::{self, Listed, Seen, ViewAndSnapshot, has_below};
use atomdir::client::{ChangeLine, Connection, Transaction};
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
        let found = compare::Affected::find(&mut sides(connected, transaction), lines)?;
        let mut affected = Affected {
            paths: found.paths,
            renames: BTreeMap::new(),
        };
        for (from, to) in found.moves {
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
        let mut sides = sides(connected, transaction);
        let kind = |seen: Option<Seen>| seen.map(|seen| seen.kind);
        let (old, new) = (kind(sides.before(&from)?), kind(sides.after(&to)?));
        let class = |kind: Option<Kind>| kind.map(Class::of);
        if !matches!(old, None | Some(Kind::Symlink))
            && old == new
            && class(kind(sides.after(&from)?)) != class(new)
            && class(kind(sides.before(&to)?)) != class(new)
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
                let new = InView::at(transaction, path)?;
                use_it(&FilePatch {
                    old_path: from,
                    new_path: path,
                    old: before(from)?,
                    new: new.version,
                    has_below: self.has_below(path),
                    is_gone: new.is_gone,
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
                Some(_) => InView::nothing(),
                None => InView::at(transaction, path)?,
            };
            use_it(&FilePatch {
                old_path: path,
                new_path: path,
                old,
                new: new.version,
                has_below: self.has_below(path),
                is_gone: new.is_gone,
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

impl Class {
    fn of(kind: Kind) -> Class {
        match kind {
            Kind::File | Kind::Symlink => Class::ForGit,
            Kind::Directory => Class::Directory,
            _ => Class::Special,
        }
    }
}

/// A view of the service, and its snapshot.
struct InService<'a> {
    connection: &'a mut Connection,
    transaction: &'a Transaction,
}

fn sides<'a>(connected: &'a mut Connected, transaction: &'a Transaction) -> InService<'a> {
    InService {
        connection: &mut connected.connection,
        transaction,
    }
}

impl ViewAndSnapshot for InService<'_> {
    type Error = Error;

    fn before(&mut self, path: &[u8]) -> Result<Option<Seen>, Error> {
        let found = self
            .connection
            .snapshot_object(self.transaction.id, path, 0)?;
        Ok(found.map(|found| Seen {
            kind: found.object.kind,
            inode: found.object.inode,
            is_linked: found.object.links > 1,
        }))
    }

    fn after(&mut self, path: &[u8]) -> Result<Option<Seen>, Error> {
        let stat = Version::stat_in_view(self.transaction, path)?;
        Ok(stat.map(|stat| Seen {
            kind: kind_of(&stat),
            inode: stat.st_ino,
            is_linked: stat.st_nlink > 1,
        }))
    }

    fn list(&mut self, path: &[u8]) -> Result<Vec<Listed>, Error> {
        let failed = |errno| Error::View {
            path: path.to_owned(),
            errno,
        };
        let root = self.transaction.root().map_err(failed)?;
        match files::list(root, path) {
            Ok(entries) => Ok(entries),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE) => Ok(Vec::new()),
            Err(errno) => Err(failed(errno)),
        }
    }
}
