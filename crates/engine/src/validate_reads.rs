//! Serializable: is everything that the transaction read as it read it?
//!
//! A transaction that writes takes its place in the commit order, so what it
//! read must not have been changed since its snapshot by anyone. One that only
//! read takes its place at its snapshot: later commits cannot have disturbed
//! it, and only outside writers, from whom a snapshot is not kept apart, can.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Name, Result};

use crate::base::{Base, Changed, Stamp};
use crate::error::ConflictKind;
use crate::ids::Sequence;
use crate::read_set::{EntriesRead, ListingDigest, ObjectReads, Permissions, ReadSet};
use crate::snapshot::Snapshot;
use crate::validate::Validation;

/// How a path is told of a base object.
pub(crate) type PathOf<'a> = &'a dyn Fn(&Base) -> Vec<u8>;

impl<D: Disk> Validation<'_, D> {
    /// After the write set: each path is told once.
    pub fn run_reads(&mut self, reads: &ReadSet, only_reads: bool, path_of: PathOf) -> Result<()> {
        let mut check = ReadCheck {
            told: self
                .conflicts
                .iter()
                .map(|known| known.path.clone())
                .collect(),
            validation: self,
            only_reads,
            path_of,
        };
        for object in reads.iter() {
            check.check_object(object)?;
        }
        self.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        self.conflicts.dedup();
        Ok(())
    }
}

struct ReadCheck<'a, 'v, D: Disk> {
    validation: &'a mut Validation<'v, D>,
    told: HashSet<Vec<u8>>,
    only_reads: bool,
    path_of: PathOf<'a>,
}

impl<D: Disk> ReadCheck<'_, '_, D> {
    fn conflict(&mut self, path: &[u8], what: ConflictKind, by: Option<Sequence>) {
        let is_allowed = self.only_reads && by.is_some();
        if !is_allowed && self.told.insert(path.to_vec()) {
            self.validation.conflict(path, what, by);
        }
    }

    fn check_object(&mut self, reads: &ObjectReads) -> Result<()> {
        let base = &reads.base;
        if let Some(by) = self.validation.since(base, |changed| changed.removed) {
            self.conflict(&(self.path_of)(base), ConflictKind::ReadRemoved, Some(by));
            return Ok(());
        }
        if base.kind != Kind::Directory {
            return self.check_file(reads);
        }
        if reads.attributes {
            self.check_directory_attributes(base, reads.permissions)?;
        }
        match &reads.entries {
            EntriesRead::None => Ok(()),
            EntriesRead::Names(names) => self.check_names(base, names),
            EntriesRead::Listed(digest) => self.check_listing(base, *digest),
            EntriesRead::Torn => {
                self.conflict(&(self.path_of)(base), ConflictKind::ReadListing, None);
                Ok(())
            }
        }
    }

    fn check_file(&mut self, reads: &ObjectReads) -> Result<()> {
        let base = &reads.base;
        if !reads.attributes && !reads.length && reads.pages.iter().next().is_none() {
            return Ok(());
        }
        let attributes = self.validation.since(base, |changed| {
            let newest = changed.attributes.max(changed.links);
            newest.filter(|_| reads.attributes)
        });
        let contents = self
            .validation
            .since(base, |changed| contents_changed(changed, reads));
        if let Some(by) = attributes {
            self.conflict(
                &(self.path_of)(base),
                ConflictKind::ReadAttributes,
                Some(by),
            );
        }
        if let Some(by) = contents {
            self.conflict(&(self.path_of)(base), ConflictKind::ReadContents, Some(by));
        }
        if attributes.or(contents).is_some() {
            return Ok(());
        }
        match self.validation.core.stat_now(base) {
            Ok(stat)
                if !self
                    .validation
                    .is_changed_outside(base, Stamp::of(&stat), None) =>
            {
                Ok(())
            }
            Ok(_) => {
                self.conflict(&(self.path_of)(base), ConflictKind::ReadContents, None);
                Ok(())
            }
            Err(Errno::STALE) => {
                self.conflict(&(self.path_of)(base), ConflictKind::ReadRemoved, None);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// A directory's times and link count follow from its entries.
    fn check_directory_attributes(
        &mut self,
        base: &Arc<Base>,
        permissions: Option<Permissions>,
    ) -> Result<()> {
        let by = self.validation.since(base, |changed| changed.attributes);
        let is_changed = by.is_some()
            || match self.validation.core.stat_now(base) {
                Ok(stat) => permissions.is_some_and(|read| read != Permissions::of(&stat)),
                Err(Errno::STALE) => true,
                Err(error) => return Err(error),
            };
        if is_changed {
            self.conflict(&(self.path_of)(base), ConflictKind::ReadAttributes, by);
        }
        Ok(())
    }

    fn check_names(
        &mut self,
        directory: &Arc<Base>,
        names: &BTreeMap<Name, Option<Arc<Base>>>,
    ) -> Result<()> {
        let core = self.validation.core;
        if directory.is_mount_point() {
            // It shows as empty for as long as it is one, which its own name tells.
            return Ok(());
        }
        let handle = match core.directory(directory) {
            Ok(handle) => handle,
            Err(Errno::STALE) => {
                self.conflict(&(self.path_of)(directory), ConflictKind::ReadRemoved, None);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for (name, found) in names {
            let what = match found {
                Some(_) => ConflictKind::ReadName,
                None => ConflictKind::ReadMissingName,
            };
            let in_directory = |changed: &Changed| changed.names.get(name).copied();
            let by = self.validation.since(directory, in_directory);
            let is_changed = by.is_some() || {
                let present = match core.stat_entry(&handle, name) {
                    Ok(stat) => Some(stat.identity),
                    Err(Errno::NOENT) => None,
                    Err(error) => return Err(error),
                };
                present != found.as_ref().map(|base| base.identity())
            };
            if is_changed {
                let mut path = (self.path_of)(directory);
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name.as_bytes());
                self.conflict(&path, what, by);
            }
        }
        Ok(())
    }

    fn check_listing(&mut self, directory: &Arc<Base>, digest: ListingDigest) -> Result<()> {
        let by = self
            .validation
            .since(directory, |changed| changed.names.values().max().copied());
        if by.is_some() {
            self.conflict(&(self.path_of)(directory), ConflictKind::ReadListing, by);
            if !self.only_reads {
                return Ok(());
            }
        }
        // Whatever changes a directory's entries changes its change time.
        let is_changed = match self.validation.core.stat_now(directory) {
            Ok(stat) if stat.changed < self.validation.began => false,
            Ok(_) => {
                let snapshot = Snapshot {
                    core: self.validation.core,
                    at: self.validation.at,
                };
                ListingDigest::of(&snapshot.list(directory)?) != digest
            }
            Err(Errno::STALE) => true,
            Err(error) => return Err(error),
        };
        if is_changed {
            self.conflict(&(self.path_of)(directory), ConflictKind::ReadListing, None);
        }
        Ok(())
    }
}

/// A file's attributes tell when, and how long, its contents were made.
fn contents_changed(changed: &Changed, reads: &ObjectReads) -> Option<Sequence> {
    if reads.attributes {
        let pages = changed.pages.last().map(|(changed, _)| *changed);
        return pages.max(changed.length);
    }
    let pages = reads
        .pages
        .iter()
        .map(|(start, end)| changed.pages_changed(start, end));
    let length = changed.length.filter(|_| reads.length);
    pages.max().flatten().max(length)
}
