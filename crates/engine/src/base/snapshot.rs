//! The base as it was at one point of the commit order.
//!
//! Every read first looks at the base and then at the history of the object that it found there:
//! see the invariants of [`crate::base`].

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Extent, Identity, Kind, Name, Result, Stat, Timestamp};

use crate::base::ahead::LeansOn;
use crate::base::core::Core;
use crate::base::landed::{Landed, NOTHING_LANDED};
use crate::base::{Base, OldBody, Place, Xattrs, version_at};
use crate::ids::Sequence;

/// What a snapshot holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SnapshotPoint {
    /// The newest commit in it.
    pub at: Sequence,
    /// The moment on the file system's own clock; used to find outside writers.
    pub began: Timestamp,
}

#[derive(Clone, Copy)]
pub(crate) struct Snapshot<'a, D: Disk> {
    core: &'a Core<D>,
    at: Sequence,
    landed: &'a Landed,
    /// Where it is noted what is read of commits that are not in the base.
    leans_on: Option<&'a LeansOn>,
}

pub(crate) struct Found {
    pub base: Arc<Base>,
    pub stat: Stat,
}

pub(crate) const PAGE: u64 = 4096;

impl<'a, D: Disk> Snapshot<'a, D> {
    pub fn new(core: &'a Core<D>, at: Sequence) -> Snapshot<'a, D> {
        Snapshot::with_landed(core, at, &NOTHING_LANDED)
    }

    /// The snapshot of a transaction that has landed parts of its changes.
    pub fn with_landed(core: &'a Core<D>, at: Sequence, landed: &'a Landed) -> Snapshot<'a, D> {
        Snapshot {
            core,
            at,
            landed,
            leans_on: None,
        }
    }

    /// From now on, notes there what is read of commits that are not in the base.
    pub fn noting_in(self, leans_on: &'a LeansOn) -> Snapshot<'a, D> {
        let leans_on = Some(leans_on);
        Snapshot { leans_on, ..self }
    }

    fn note_ahead(&self, sequence: Sequence) {
        if let Some(leans_on) = self.leans_on {
            leans_on.note(sequence);
        }
    }

    fn at_of(&self, base: &Base) -> Sequence {
        self.landed.object_at(base, self.at)
    }

    pub fn lookup(&self, directory: &Arc<Base>, name: &Name) -> Result<Option<Found>> {
        if self.core.is_hidden(directory, name) || directory.is_mount_point() {
            return Ok(None);
        }
        // Before the base: see the invariants of `base::ahead`.
        let at = self.landed.entry_at(directory, name, self.at);
        if let Some((sequence, object)) = self.core.ahead.entry(directory, name, at) {
            self.note_ahead(sequence);
            return self.found(object);
        }
        self.core.look(|| self.try_lookup(directory, name))
    }

    fn try_lookup(&self, directory: &Arc<Base>, name: &Name) -> Result<Option<Found>> {
        loop {
            let turns = self.core.turns();
            let present = self
                .core
                .directory(directory)
                .and_then(|handle| self.core.stat_entry(&handle, name));
            if let Some(old) = self.old_entry(directory, name) {
                return self.found(old);
            }
            let stat = match present {
                Ok(stat) => stat,
                Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(error),
            };
            let (base, is_new) = self.core.intern_or_make(&stat, directory, name);
            // A commit may have replaced the inode after we found it. Then the object is known
            // by another inode, and `base` is a wrong one that nobody else needs.
            if is_new && self.core.turns() != turns {
                continue;
            }
            let stat = self.old_stat(&base).unwrap_or(stat);
            return Ok(Some(Found { base, stat }));
        }
    }

    /// The object that the entry led to in the snapshot, if a newer commit has changed the entry.
    fn old_entry(&self, directory: &Arc<Base>, name: &Name) -> Option<Option<Arc<Base>>> {
        let state = directory.state();
        let versions = state.history.as_ref()?.names.get(name)?;
        version_at(versions, self.landed.entry_at(directory, name, self.at)).cloned()
    }

    fn found(&self, base: Option<Arc<Base>>) -> Result<Option<Found>> {
        let Some(base) = base else {
            return Ok(None);
        };
        let stat = self.stat(&base)?;
        Ok(Some(Found { base, stat }))
    }

    fn old_stat(&self, base: &Base) -> Option<Stat> {
        let state = base.state();
        let versions = &state.history.as_ref()?.attributes;
        version_at(versions, self.at_of(base)).map(|old| old.stat)
    }

    /// The attributes of an object that had these when somebody has just looked at it in the base.
    pub fn stat_of_present(&self, base: &Base, present: &Stat) -> Stat {
        self.old_stat(base).unwrap_or(*present)
    }

    /// Finds the object at a path, without following symbolic links.
    pub fn resolve(&self, path: &[u8]) -> Result<Option<(Arc<Base>, Stat)>> {
        let mut base = self.core.root_base.clone();
        let mut stat = self.stat(&base)?;
        for part in path
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
        {
            let name = Name::new(part).map_err(|_| Errno::INVAL)?;
            if base.kind != Kind::Directory {
                return Ok(None);
            }
            let Some(found) = self.lookup(&base, &name)? else {
                return Ok(None);
            };
            (base, stat) = (found.base, found.stat);
        }
        Ok(Some((base, stat)))
    }

    pub fn stat(&self, base: &Arc<Base>) -> Result<Stat> {
        let present = self.core.look(|| self.core.stat_now(base));
        let mut stat = match self.old_stat(base) {
            Some(stat) => stat,
            None => present?,
        };
        // Do not count the `..` of the hidden directory, on file systems that
        // count those.
        if base.serial == 0 && self.core.hidden.is_some() && stat.links > 2 {
            stat.links -= 1;
        }
        Ok(stat)
    }

    /// Attributes of a file whose contents are about to be read. The first time, this opens the
    /// file, which the read would do anyway.
    pub fn stat_to_read(&self, base: &Arc<Base>) -> Result<Stat> {
        let (identity, place) = base.identity_and_place();
        match self.core.newly_opened(identity, &place) {
            Some(Ok(present)) => Ok(self.stat_of_present(base, &present)),
            _ => self.stat(base),
        }
    }

    /// Every entry, in no particular order.
    pub fn list(&self, directory: &Arc<Base>) -> Result<Vec<(Name, u64, Kind)>> {
        if directory.is_mount_point() {
            return Ok(Vec::new());
        }
        // Before the base: see the invariants of `base::ahead`.
        let ahead = self.core.ahead.entries(directory, self.at);
        ahead
            .values()
            .for_each(|(sequence, _)| self.note_ahead(*sequence));
        let handle = self.core.look(|| self.core.directory(directory))?;
        let present = self.core.disk.list(&handle)?;
        let mut entries = Vec::with_capacity(present.len());
        let mut old: Vec<(Name, Arc<Base>)> = Vec::new();
        {
            let state = directory.state();
            let names = state.history.as_ref().map(|history| &history.names);
            let at = |name: &Name| self.landed.entry_at(directory, name, self.at);
            let version = |name: &Name| version_at(names?.get(name)?, at(name));
            for entry in present {
                if ahead.contains_key(&entry.name)
                    || version(&entry.name).is_some()
                    || self.core.is_hidden(directory, &entry.name)
                {
                    continue;
                }
                entries.push((entry.name, entry.inode, entry.kind));
            }
            for name in names.into_iter().flat_map(|names| names.keys()) {
                if !ahead.contains_key(name)
                    && let Some(Some(base)) = version(name)
                {
                    old.push((name.clone(), base.clone()));
                }
            }
        }
        let mut listing = Vec::with_capacity(entries.len() + old.len());
        for (name, inode, kind) in entries {
            let kind = match kind {
                Some(kind) => kind,
                None => match self.core.stat_entry(&handle, &name) {
                    Ok(stat) => stat.kind,
                    Err(Errno::NOENT) => continue,
                    Err(error) => return Err(error),
                },
            };
            listing.push((name, inode, kind));
        }
        let ahead = ahead.into_iter();
        old.extend(ahead.filter_map(|(name, (_, object))| Some((name, object?))));
        for (name, base) in old {
            let inode = self.stat(&base)?.identity.inode;
            listing.push((name, inode, base.kind));
        }
        Ok(listing)
    }

    /// The object whose inode has the contents that the snapshot sees.
    fn holder(&self, base: &Arc<Base>) -> Arc<Base> {
        let mut at = base.clone();
        loop {
            let newest = self.at_of(&at);
            let restored = {
                let state = at.state();
                let mut newer = state.bodies_after(newest).iter();
                newer.find_map(|(_, body)| match &**body {
                    OldBody::Moved { .. } => Some(None),
                    OldBody::Restored(other) => Some(Some(other.clone())),
                    OldBody::Pages { .. } => None,
                })
            };
            match restored.flatten() {
                Some(other) => at = other,
                None => return at,
            }
        }
    }

    /// Runs `act` on the object whose attributes and link target the snapshot
    /// sees: the present one, or the one moved aside.
    fn with_body<T>(
        &self,
        base: &Arc<Base>,
        mut act: impl FnMut(&Place, Identity) -> Result<T>,
    ) -> Result<T> {
        let base = &self.holder(base);
        let at = self.at_of(base);
        let body = || {
            let state = base.state();
            let mut newer = state.bodies_after(at).iter();
            let moved = newer.find_map(|(_, body)| match &**body {
                OldBody::Moved { identity, limbo } => {
                    Some((Place::Limbo(limbo.clone()), *identity))
                }
                OldBody::Pages { .. } | OldBody::Restored(_) => None,
            });
            moved.unwrap_or_else(|| (state.place.clone(), state.identity))
        };
        self.core.look(|| {
            let (place, identity) = body();
            let mut result = act(&place, identity);
            if let Err(Errno::STALE) = result {
                // The commit that will move it aside has not done so yet, or just now. Or the file
                // has lost the name by which it was known, and is held open.
                let present = base.state().place.clone();
                for place in [present, place, Place::Held] {
                    result = act(&place, identity);
                    if !matches!(result, Err(Errno::STALE)) {
                        break;
                    }
                }
            }
            result
        })
    }

    pub fn read_link(&self, base: &Arc<Base>) -> Result<Vec<u8>> {
        self.with_body(base, |place, identity| match place {
            Place::Entry { .. } | Place::Limbo(_) => self.core.link_at(place, identity),
            Place::Held => self.core.handles.held_target(identity).ok_or(Errno::STALE),
            Place::Root => Err(Errno::INVAL),
        })
    }

    pub fn xattrs(&self, base: &Arc<Base>) -> Result<Xattrs> {
        if base.is_mount_point() {
            return Ok(Xattrs::new());
        }
        let present = self.with_body(base, |place, identity| self.core.xattrs_at(place, identity));
        match self.old_xattrs(base) {
            Some(old) => Ok(old),
            None => present,
        }
    }

    pub fn xattr(&self, base: &Arc<Base>, name: &[u8]) -> Result<Vec<u8>> {
        if base.is_mount_point() {
            return Err(Errno::NODATA);
        }
        let named = |xattrs: Xattrs| {
            let found = xattrs.into_iter().find(|(of, _)| of == name);
            found.map(|(_, value)| value).ok_or(Errno::NODATA)
        };
        let present = self.with_body(base, |place, identity| {
            if let Some(object) = self.core.ahead.object(identity) {
                return named(object.xattrs.clone());
            }
            self.core
                .with_object(place, identity, |handle| self.core.disk.xattr(handle, name))
        });
        match self.old_xattrs(base) {
            Some(old) => named(old),
            None => present,
        }
    }

    fn old_xattrs(&self, base: &Base) -> Option<Xattrs> {
        let state = base.state();
        let versions = &state.history.as_ref()?.attributes;
        version_at(versions, self.at_of(base)).map(|old| old.xattrs.clone())
    }

    /// Fills the buffer from the file's contents; zeros past their end.
    pub fn read(&self, base: &Arc<Base>, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let count = self.with_body(base, |place, identity| {
            if let Some(object) = self.core.ahead.object(identity) {
                return Ok(object.read_at(buffer, offset));
            }
            let handle = self.core.contents(identity, place)?;
            self.core.disk.read_at(&handle, buffer, offset)
        })?;
        buffer[count..].fill(0);
        let holder = self.holder(base);
        if !Arc::ptr_eq(&holder, base) {
            self.restore_pages(&holder, offset, buffer)?;
        }
        self.restore_pages(base, offset, buffer)
    }

    /// Puts the pages saved from commits newer than the snapshot over what was
    /// read; the oldest version of a page wins.
    fn restore_pages(&self, base: &Arc<Base>, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let versions: Vec<Arc<OldBody>> = {
            let state = base.state();
            let newer = state.bodies_after(self.at_of(base)).iter();
            let is_pages = |body: &&Arc<OldBody>| matches!(***body, OldBody::Pages { .. });
            newer
                .map(|(_, body)| body)
                .take_while(is_pages)
                .cloned()
                .collect()
        };
        let end = offset + buffer.len() as u64;
        for version in versions.iter().rev() {
            let OldBody::Pages {
                saved,
                pages,
                length,
            } = &**version
            else {
                continue;
            };
            let handle =
                self.core
                    .disk
                    .open(&self.core.control.limbo, saved, atomdir_disk::Access::Read)?;
            for (start_page, end_page) in pages.iter() {
                let start = (start_page * PAGE).max(offset);
                let stop = end_page.saturating_mul(PAGE).min(end);
                if start < stop {
                    let part = &mut buffer[(start - offset) as usize..(stop - offset) as usize];
                    let count = self.core.disk.read_at(&handle, part, start)?;
                    part[count..].fill(0);
                }
            }
            let valid = length.saturating_sub(offset).min(buffer.len() as u64) as usize;
            buffer[valid..].fill(0);
        }
        Ok(())
    }

    /// Whether older contents of the file are kept.
    pub fn has_versions(&self, base: &Base) -> bool {
        let state = base.state();
        let history = state.history.as_ref();
        history.is_some_and(|history| !history.bodies.is_empty())
    }

    /// The next run of data at or after `offset` in the present file. It is
    /// used to keep holes, so reporting too much data does no harm.
    pub fn next_data(&self, base: &Arc<Base>, offset: u64) -> Result<Option<Extent>> {
        if self.has_versions(base) {
            return Ok(Some(Extent {
                offset,
                length: u64::MAX - offset,
            }));
        }
        self.with_body(base, |place, identity| {
            if let Some(object) = self.core.ahead.object(identity) {
                return Ok(object.next_data(offset));
            }
            let handle = self.core.contents(identity, place)?;
            self.core.disk.next_data(&handle, offset)
        })
    }
}

pub(crate) fn read_xattrs<D: Disk>(disk: &D, handle: &D::Handle) -> Result<Xattrs> {
    match disk.xattrs(handle) {
        Err(Errno::OPNOTSUPP) => Ok(Xattrs::new()),
        xattrs => xattrs,
    }
}
