//! Validates serializable transactions: is everything still as the transaction read
//! it?
//!
//! A transaction that writes takes its place in the commit order, so nobody may have changed what
//! it read since its snapshot. A transaction that only reads takes its place at its snapshot. Later
//! commits cannot have disturbed it, but outside writers can, since a snapshot shows their changes.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Name, Result};

use super::Validation;
use crate::base::snapshot::Snapshot;
use crate::base::{Base, Changed, Stamp};
use crate::error::ConflictKind;
use crate::ids::Sequence;
use crate::rules::Rule;
use crate::view::read_set::{EntriesRead, ListingDigest, ObjectReads, Permissions, ReadSet};

/// Returns the path under which a base object is reported.
pub(crate) type PathOf<'a> = &'a dyn Fn(&Base) -> Vec<u8>;

impl<D: Disk> Validation<'_, D> {
    /// To be called after the write set was validated: each path is reported once.
    pub fn run_reads(&mut self, reads: &ReadSet, only_reads: bool, path_of: PathOf) -> Result<()> {
        let mut check = ReadCheck {
            reported: self
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
    reported: HashSet<Vec<u8>>,
    only_reads: bool,
    path_of: PathOf<'a>,
}

impl<D: Disk> ReadCheck<'_, '_, D> {
    fn conflict(&mut self, rule: Rule, path: &[u8], what: ConflictKind, by: Option<Sequence>) {
        let is_allowed = self.only_reads && by.is_some() && Rule::OnlyReads.holds();
        if rule.holds() && !is_allowed && self.reported.insert(path.to_vec()) {
            self.validation.conflict(rule, path, what, by);
        }
    }

    fn conflict_at(&mut self, rule: Rule, base: &Base, what: ConflictKind, by: Option<Sequence>) {
        self.conflict(rule, &(self.path_of)(base), what, by);
    }

    fn check_object(&mut self, reads: &ObjectReads) -> Result<()> {
        let base = &reads.base;
        let (rule, what) = (Rule::ReadRemoved, ConflictKind::ReadRemoved);
        if let Some(by) = self.validation.since(rule, base, |changed| changed.removed) {
            self.conflict_at(rule, base, what, Some(by));
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
                self.conflict_at(Rule::ReadTorn, base, ConflictKind::ReadListing, None);
                Ok(())
            }
        }
    }

    fn check_file(&mut self, reads: &ObjectReads) -> Result<()> {
        let base = &reads.base;
        let is_nothing_but_pages = !reads.attributes && !reads.access && !reads.length;
        if is_nothing_but_pages && reads.pages.iter().next().is_none() {
            return Ok(());
        }
        if self.check_commits_to_file(reads) && !self.only_reads {
            return Ok(());
        }
        match self.validation.core.stat_now(base) {
            Ok(stat) => {
                let stamp = Stamp::of(&stat);
                if self.validation.is_changed_outside(base, stamp, None) {
                    let rule = Rule::ReadFileChangedOutside;
                    self.conflict_at(rule, base, ConflictKind::ReadContents, None);
                }
                Ok(())
            }
            Err(Errno::STALE) => {
                let rule = Rule::ReadFileGone;
                self.conflict_at(rule, base, ConflictKind::ReadRemoved, None);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a commit has changed a part of the file that the transaction has read.
    fn check_commits_to_file(&mut self, reads: &ObjectReads) -> bool {
        let base = &reads.base;
        let attributes = self
            .validation
            .since(Rule::ReadAttributesChanged, base, |changed| {
                let permissions = changed.attributes;
                let permissions = permissions.filter(|_| reads.attributes || reads.access);
                permissions.max(changed.links.filter(|_| reads.attributes))
            });
        // A file's attributes include its length and the time when its contents
        // changed.
        let of_attributes = self
            .validation
            .since(Rule::ReadAttributesOfWritten, base, |changed| {
                let pages = changed.pages.last().map(|(changed, _)| *changed);
                pages.max(changed.length).filter(|_| reads.attributes)
            });
        let pages = self
            .validation
            .since(Rule::ReadPagesChanged, base, |changed| {
                let read = reads.pages.iter();
                let pages = read.map(|(start, end)| changed.pages_changed(start, end));
                pages.max().flatten()
            });
        let length = self
            .validation
            .since(Rule::ReadLengthChanged, base, |changed| {
                let is_read = reads.length && !reads.attributes;
                changed.length.filter(|_| is_read)
            });
        let (of_file, of_contents) = (ConflictKind::ReadAttributes, ConflictKind::ReadContents);
        let found = [
            (Rule::ReadAttributesChanged, of_file, attributes),
            (Rule::ReadAttributesOfWritten, of_contents, of_attributes),
            (Rule::ReadPagesChanged, of_contents, pages),
            (Rule::ReadLengthChanged, of_contents, length),
        ];
        let mut is_changed = false;
        for (rule, what, by) in found.into_iter().filter(|(.., by)| by.is_some()) {
            self.conflict_at(rule, base, what, by);
            is_changed = true;
        }
        is_changed
    }

    /// Leaves out a directory's times and link count, which follow from its
    /// entries.
    fn check_directory_attributes(
        &mut self,
        base: &Arc<Base>,
        permissions: Option<Permissions>,
    ) -> Result<()> {
        let what = ConflictKind::ReadAttributes;
        let rule = Rule::ReadDirectoryChanged;
        if let Some(by) = self
            .validation
            .since(rule, base, |changed| changed.attributes)
        {
            self.conflict_at(rule, base, what, Some(by));
            return Ok(());
        }
        match self.validation.core.stat_now(base) {
            Ok(stat) => {
                if permissions.is_some_and(|read| read != Permissions::of(&stat)) {
                    self.conflict_at(Rule::ReadDirectoryChangedOutside, base, what, None);
                }
                Ok(())
            }
            Err(Errno::STALE) => {
                self.conflict_at(Rule::ReadDirectoryGone, base, what, None);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn check_names(
        &mut self,
        directory: &Arc<Base>,
        names: &BTreeMap<Name, Option<Arc<Base>>>,
    ) -> Result<()> {
        let core = self.validation.core;
        if directory.is_mount_point() {
            // A mount point shows as empty for as long as it is one. The check of
            // its own name finds out whether it still is.
            return Ok(());
        }
        let handle = match core.directory(directory) {
            Ok(handle) => handle,
            Err(Errno::STALE) => {
                let (rule, what) = (Rule::ReadNamesGone, ConflictKind::ReadRemoved);
                self.conflict_at(rule, directory, what, None);
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
            let mut rule = Rule::ReadNameChanged;
            let by = self.validation.since(rule, directory, in_directory);
            let is_changed = by.is_some() || {
                rule = Rule::ReadNameChangedOutside;
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
                self.conflict(rule, &path, what, by);
            }
        }
        Ok(())
    }

    fn check_listing(&mut self, directory: &Arc<Base>, digest: ListingDigest) -> Result<()> {
        let what = ConflictKind::ReadListing;
        let rule = Rule::ReadListingChanged;
        let newest = |changed: &Changed| changed.names.values().max().copied();
        if let Some(by) = self.validation.since(rule, directory, newest) {
            self.conflict_at(rule, directory, what, Some(by));
            if !self.only_reads {
                return Ok(());
            }
        }
        // Whatever changes a directory's entries changes its change time.
        match self.validation.core.stat_now(directory) {
            Ok(stat) if stat.changed < self.validation.began => Ok(()),
            Ok(_) => {
                let snapshot = Snapshot::new(self.validation.core, self.validation.at);
                if ListingDigest::of(&snapshot.list(directory)?) != digest {
                    self.conflict_at(Rule::ReadListingChangedOutside, directory, what, None);
                }
                Ok(())
            }
            Err(Errno::STALE) => {
                self.conflict_at(Rule::ReadListingGone, directory, what, None);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
