//! Writes contents again that a process applied before it died.
//!
//! The kernel may have failed to write such contents to the disk. It then marks the pages
//! clean and reports the error once, perhaps to another program's sync. A later flush
//! succeeds without them. So recovery makes the pages dirty again before its own flush, and
//! the log stays until that has succeeded.
//!
//! Changes that outside writers have made since must stay. A file that still has the
//! modification time that the commit set is as the commit left it. Recovery writes all of
//! what the commit wrote again from the log, not from the file: the kernel may have dropped
//! the pages from memory and read old ones from the disk. The same holds for earlier commits
//! in the log, if each later one has found the modification time that the one before had
//! set. In all other contents, recovery writes only the pages that equal the log's.
//!
//! While recovery does this, there must be no applied mark: a file may be shorter for a moment or
//! have older contents, and its modification time is the time at which recovery writes it.

use std::collections::{HashMap, HashSet};

use atomdir_disk::{Access, Attributes, Disk, Errno, Extent, Identity, Owner, Stat, Timestamp};
use atomdir_format::privileges::FilePrivileges;
use atomdir_format::record::{AttributesChange, Source};

use super::attributes::set_times;
use super::desired::{WantedContent, WantedUpdate};
use super::{Apply, EntryPlace, Outcome, Parent};
use crate::base::carried::copy_runs;
use crate::base::core::Core;
use crate::base::privileges::{CAPABILITY, SET_ID};
use crate::base::snapshot::PAGE;
use crate::names;

impl<D: Disk> Apply<'_, D> {
    /// Outside writers may have given files set-id bits and capabilities that the log does
    /// not know. Writing the contents again clears them. Returns changes that give them
    /// back.
    pub fn privileges(&mut self, unfinished: &HashSet<Identity>) -> Outcome<Vec<FilePrivileges>> {
        let desired = self.desired;
        let (mut is_rewritten, mut says) = (HashSet::new(), HashMap::new());
        for wanted in &desired.updates {
            if wanted.content.is_some() && !unfinished.contains(&wanted.object) {
                is_rewritten.insert(wanted.object);
            }
            let (mode, capability) = says.entry(wanted.object).or_insert((false, false));
            let mut xattrs = wanted.xattrs.iter();
            *mode |= wanted.attributes.mode.is_some();
            *capability |= wanted.is_whole || xattrs.any(|(name, _)| name == CAPABILITY);
        }
        let mut privileges = Vec::new();
        for object in is_rewritten {
            let Some(place) = self.find(object)? else {
                continue;
            };
            let Some(file) = self.open(&place, Access::Path)? else {
                continue;
            };
            let looked = look(self.core, &file);
            let (owner, mode, capability) = looked.map_err(|errno| {
                let path = self.path_of(&place);
                self.failure(&path, "its attributes cannot be read", Some(errno))
            })?;
            let (says_mode, says_capability) = says[&object];
            let attributes = AttributesChange {
                mode: mode.filter(|_| !says_mode),
                ..AttributesChange::default()
            };
            let capability = capability.filter(|_| !says_capability);
            let xattrs = capability.map(|value| (CAPABILITY.to_vec(), Some(value)));
            if attributes.mode.is_some() || xattrs.is_some() {
                privileges.push(FilePrivileges {
                    file: object,
                    attributes,
                    owner,
                    xattrs: xattrs.into_iter().collect(),
                });
            }
        }
        Ok(privileges)
    }

    /// `unfinished`: files that a commit was just changing when the process died.
    pub fn write_again(&mut self, unfinished: &HashSet<Identity>) -> Outcome<()> {
        let desired = self.desired;
        let last_updates = last_updates(&desired.updates);
        for (number, wanted) in desired.updates.iter().enumerate() {
            let Some(content) = &wanted.content else {
                continue;
            };
            let Some((place, file)) = self.find_writable(wanted.object)? else {
                continue;
            };
            let failed = |this: &Self, errno| {
                let path = this.path_of(&place);
                this.failure(&path, "its contents cannot be written again", Some(errno))
            };
            let disk = &self.core.disk;
            let before = disk.stat(&file).map_err(|errno| failed(self, errno))?;
            let capability = disk.xattr(&file, CAPABILITY).ok();
            let last = &last_updates[&wanted.object];
            let is_as_left = last.modified == Some(before.attributes.times.modified);
            let is_ours = unfinished.contains(&wanted.object) || is_as_left;
            if is_ours && number >= last.first {
                self.write_content(&file, &place, content)?;
            } else {
                let written = self.write_equal(&file, content);
                written.map_err(|errno| failed(self, errno))?;
            }
            let restored = restore(&self.core.disk, &file, &before, capability.as_deref());
            restored.map_err(|errno| failed(self, errno))?;
        }
        self.close_up()
            .map_err(|errno| self.failure(b".", super::CANNOT_BE_SET, Some(errno)))
    }

    /// `None` if an outside writer has removed the file, made it immutable, or runs a
    /// program from it.
    fn find_writable(&mut self, object: Identity) -> Outcome<Option<(EntryPlace, D::Handle)>> {
        let Some(place) = self.find(object)? else {
            return Ok(None);
        };
        match self.open(&place, Access::ReadWrite) {
            Ok(file) => Ok(file.map(|file| (place, file))),
            Err(error) if matches!(error.errno, Some(Errno::TXTBSY | Errno::PERM)) => {
                tracing::warn!(path = error.path, "not written again: {}", error.reason);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes again the pages that are still as the commit left them.
    fn write_equal(&mut self, file: &D::Handle, wanted: &WantedContent) -> Result<(), Errno> {
        let content = &wanted.change;
        let staged = match &content.source {
            Source::Carried { .. } => None,
            Source::Staged { slot } => {
                let stage = self.parent(Parent::Stage(wanted.stage))?;
                let stage = stage.ok_or(Errno::NOENT)?;
                let slot = names::slot(*slot);
                Some(self.core.disk.open(&stage, &slot, Access::Read)?)
            }
        };
        let disk = &self.core.disk;
        let (mut present, mut logged) = (vec![0; PAGE as usize], vec![0; PAGE as usize]);
        for Extent { offset, length } in &content.extents {
            let (mut at, end) = (*offset, offset.saturating_add(*length));
            while at < end
                && let Some(data) = disk.next_data(file, at)?
                && data.offset < end
            {
                at = data.offset;
                let stop = ((at / PAGE + 1) * PAGE).min(end);
                let count = disk.read_at(file, &mut present[..(stop - at) as usize], at)?;
                let (present, logged) = (&present[..count], &mut logged[..count]);
                logged.fill(0);
                match (&staged, &content.source) {
                    (Some(staged), _) => _ = disk.read_at(staged, logged, at)?,
                    (None, Source::Carried { runs }) => copy_runs(runs, at, logged),
                    (None, Source::Staged { .. }) => {}
                }
                if present == logged {
                    disk.write_at(file, present, at)?;
                }
                at = stop;
            }
        }
        Ok(())
    }
}

/// Updates of an object between which no outside writer has changed it, the last ones.
struct LastUpdates {
    /// The first of them, by its place among all updates.
    first: usize,
    /// The modification time that they have left.
    modified: Option<Timestamp>,
}

fn last_updates(updates: &[WantedUpdate]) -> HashMap<Identity, LastUpdates> {
    let mut last: HashMap<Identity, LastUpdates> = HashMap::new();
    for (number, wanted) in updates.iter().enumerate() {
        let of_object = last.entry(wanted.object).or_insert(LastUpdates {
            first: number,
            modified: None,
        });
        if of_object.modified.is_some() && of_object.modified != wanted.found_modified {
            of_object.first = number;
        }
        of_object.modified = wanted.attributes.modified.or(of_object.modified);
    }
    last
}

/// An owner, a mode and a capability.
type Privileges = (Owner, Option<u32>, Option<Vec<u8>>);

/// The owner; the mode, if it has bits that a write clears, and the capability, as far as this
/// process can give them back.
fn look<D: Disk>(core: &Core<D>, file: &D::Handle) -> Result<Privileges, Errno> {
    let (disk, privileges) = (&core.disk, &core.options.privileges);
    let Attributes { mode, owner, .. } = disk.stat(file)?.attributes;
    let is_own = privileges.all || owner.user == privileges.user;
    let mode = (is_own && mode & SET_ID != 0).then_some(mode);
    let capability = match disk.xattr(file, CAPABILITY) {
        Ok(value) => privileges.all.then_some(value),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => None,
        Err(errno) => return Err(errno),
    };
    Ok((owner, mode, capability))
}

/// Gives back the attributes that writing the file has changed.
fn restore<D: Disk>(
    disk: &D,
    file: &D::Handle,
    before: &Stat,
    capability: Option<&[u8]>,
) -> Result<(), Errno> {
    // Only a file's owner may give it set-id bits, and only root may give it a capability. When
    // anybody else writes to the file, the kernel removes both.
    let unless_forbidden = |given| match given {
        Err(Errno::PERM) => Ok(()),
        given => given,
    };
    let had_privileges = before.attributes.mode & SET_ID != 0 || capability.is_some();
    let present = disk.stat(file)?.attributes;
    if present.mode != before.attributes.mode && present.owner == before.attributes.owner {
        unless_forbidden(disk.set_mode(file, before.attributes.mode))?;
    }
    if let Some(capability) = capability.filter(|_| present.owner == before.attributes.owner) {
        unless_forbidden(disk.set_xattr(file, CAPABILITY, capability))?;
    }
    let now = disk.stat(file)?.attributes;
    if had_privileges && now.owner != before.attributes.owner {
        // Somebody has just given the file to another owner, for whom these were not meant.
        unless_forbidden(disk.set_mode(file, now.mode & !SET_ID))?;
        match disk.remove_xattr(file, CAPABILITY) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            removed => unless_forbidden(removed)?,
        }
    }
    set_times(disk, file, before.attributes.times)
}
