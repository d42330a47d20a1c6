//! Changes attributes and contents of objects in place.

use atomdir_disk::{Access, Disk, Errno, Extent, Kind, Owner, Times};
use atomdir_format::record::{AttributesChange, ContentChange, Run, Source};

use super::desired::{WantedContent, WantedUpdate};
use super::{Apply, CANNOT_BE_SET, EntryPlace, Outcome, Parent};
use crate::base::privileges::{CAPABILITY, without_set_id};
use crate::base::rights::with_rights;
use crate::names;

const COPY_CHUNK: u64 = 1 << 30;

impl<D: Disk> Apply<'_, D> {
    /// Changes the files that might not be found once they have lost a name.
    pub(super) fn update_leaving(&mut self) -> Outcome<()> {
        self.run_updates(true)
    }

    pub(super) fn update_staying(&mut self) -> Outcome<()> {
        self.run_updates(false)
    }

    fn run_updates(&mut self, leaving: bool) -> Outcome<()> {
        let desired = self.desired;
        for (number, wanted) in desired.updates.iter().enumerate() {
            if desired.is_leaving(wanted.object) == leaving
                && !self.progress.updates.contains(&number)
            {
                self.update(wanted)?;
                let is_new = self.progress.updates.insert(number);
                assert!(is_new, "apply has changed an object twice");
            }
        }
        Ok(())
    }

    fn update(&mut self, wanted: &WantedUpdate) -> Outcome<()> {
        let identity = wanted.object;
        if identity == self.core.root_base.identity() {
            let root = self.core.root.clone();
            let set = self.try_set(&root, Kind::Directory, wanted);
            return set.map_err(|errno| self.failure(b".", CANNOT_BE_SET, Some(errno)));
        }
        let Some(place) = self.find(identity)? else {
            let name = names::limbo(identity);
            return self.missing(identity, &name, "the object to be changed");
        };
        let access = if wanted.content.is_some() {
            Access::ReadWrite
        } else {
            Access::Path
        };
        let writers = self.writers;
        let opened;
        let handle = match writers.get(&identity) {
            Some(handle) => handle,
            None => {
                opened = self.open(&place, access)?;
                match &opened {
                    Some(handle) => handle,
                    None => return Ok(()),
                }
            }
        };
        if let Some(content) = &wanted.content {
            // Take them before the new contents are there, and again in case the file got
            // some meanwhile.
            self.take_privileges(handle, &place, content.user)?;
            self.write_content(handle, &place, content)?;
            self.take_privileges(handle, &place, content.user)?;
        }
        if let Some(mode) = wanted.attributes.mode {
            self.note_mode(identity, mode);
        }
        if wanted.is_whole {
            let cleared = remove_other_xattrs(&self.core.disk, handle, &wanted.xattrs);
            cleared
                .map_err(|errno| self.failure(&self.path_of(&place), CANNOT_BE_SET, Some(errno)))?;
        }
        let kind = self.desired.kind(identity).unwrap_or(Kind::File);
        self.try_set(handle, kind, wanted)
            .map_err(|errno| self.failure(&self.path_of(&place), CANNOT_BE_SET, Some(errno)))
    }

    /// Removes set-id bits and capabilities. The kernel does this when a user writes to a
    /// file, but not when root's service writes for that user (`commit::privileges`). Those
    /// that the transaction has set are set afterwards.
    fn take_privileges(&self, file: &D::Handle, place: &EntryPlace, user: u32) -> Outcome<()> {
        if user == 0 || !self.core.options.privileges.all {
            return Ok(());
        }
        let disk = &self.core.disk;
        let take = || {
            let mode = disk.stat(file)?.attributes.mode;
            let left = without_set_id(mode);
            if mode != left {
                disk.set_mode(file, left)?;
            }
            match disk.remove_xattr(file, CAPABILITY) {
                Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
                removed => removed,
            }
        };
        take().map_err(|errno| self.failure(&self.path_of(place), CANNOT_BE_SET, Some(errno)))
    }

    fn try_set(&self, handle: &D::Handle, kind: Kind, wanted: &WantedUpdate) -> Result<(), Errno> {
        let disk = &self.core.disk;
        let AttributesChange {
            mode,
            user,
            group,
            accessed,
            modified,
        } = wanted.attributes;
        let present = disk.stat(handle)?.attributes;
        let owner = Owner {
            user: user.unwrap_or(present.owner.user),
            group: group.unwrap_or(present.owner.group),
        };
        if owner != present.owner {
            disk.set_owner(handle, owner)?;
        }
        for (name, value) in &wanted.xattrs {
            match value {
                Some(value) => {
                    with_rights(disk, &[handle], || disk.set_xattr(handle, name, value))?
                }
                None => match with_rights(disk, &[handle], || disk.remove_xattr(handle, name)) {
                    Ok(()) | Err(Errno::NODATA) => {}
                    // The kernel has removed a capability at the write, and nobody but root
                    // may ask for that.
                    Err(Errno::PERM) if disk.xattr(handle, name) == Err(Errno::NODATA) => {}
                    Err(errno) => return Err(errno),
                },
            }
        }
        // Changing the owner clears set-id bits that the transaction has kept.
        let kept = (owner != present.owner).then_some(present.mode);
        if let (Some(mode), true) = (mode.or(kept), kind != Kind::Symlink)
            // Writing to another owner's file has cleared its set-id bits.
            && disk.stat(handle)?.attributes.mode != mode
        {
            disk.set_mode(handle, mode)?;
        }
        if accessed.is_some() || modified.is_some() {
            let times = Times {
                accessed: accessed.unwrap_or(present.times.accessed),
                modified: modified.unwrap_or(present.times.modified),
            };
            set_times(disk, handle, times)?;
        }
        Ok(())
    }

    pub(super) fn write_content(
        &mut self,
        file: &D::Handle,
        place: &EntryPlace,
        wanted: &WantedContent,
    ) -> Outcome<()> {
        let disk = &self.core.disk;
        let content = &wanted.change;
        let written = match &content.source {
            Source::Carried { runs } => {
                set_length(disk, file, content).and_then(|()| write_runs(disk, file, content, runs))
            }
            Source::Staged { slot } => {
                let staged = EntryPlace {
                    parent: Parent::Stage(wanted.transaction),
                    name: names::slot(*slot),
                };
                let Some(source) = self.open(&staged, Access::Read)? else {
                    return Err(self.failure(
                        &self.path_of(&staged),
                        "the staged contents are missing",
                        None,
                    ));
                };
                let disk = &self.core.disk;
                set_length(disk, file, content)
                    .and_then(|()| copy_extents(disk, &source, file, &content.extents))
            }
        };
        written.map_err(|errno| {
            self.failure(
                &self.path_of(place),
                "its contents cannot be written",
                Some(errno),
            )
        })
    }
}

/// Sets the times. On an object of another owner, this process can set only the present
/// times.
pub(super) fn set_times<D: Disk>(disk: &D, object: &D::Handle, times: Times) -> Result<(), Errno> {
    match disk.set_times(object, times) {
        Err(Errno::PERM) => disk.touch(object),
        set => set,
    }
}

fn remove_other_xattrs<D: Disk>(
    disk: &D,
    handle: &D::Handle,
    wanted: &[(Vec<u8>, Option<Vec<u8>>)],
) -> Result<(), Errno> {
    for name in disk.xattr_names(handle)? {
        if !wanted.iter().any(|(known, _)| *known == name) {
            disk.remove_xattr(handle, &name)?;
        }
    }
    Ok(())
}

fn set_length<D: Disk>(disk: &D, file: &D::Handle, content: &ContentChange) -> Result<(), Errno> {
    let stat = disk.stat(file)?;
    let mut present = stat.length;
    if let Some(keep) = content.keep.filter(|keep| *keep < present) {
        disk.set_length(file, keep)?;
        present = keep;
    }
    if present < content.length || (content.keep.is_some() && present > content.length) {
        return disk.set_length(file, content.length);
    }
    // Even a change that leaves the length is one for which the kernel takes set-id bits
    // and capabilities. Without these, the call could only cut off what others append now.
    let mode = stat.attributes.mode;
    let has_privileges = mode != without_set_id(mode) || disk.xattr(file, CAPABILITY).is_ok();
    if content.extents.is_empty() && has_privileges {
        disk.set_length(file, present)?;
    }
    Ok(())
}

fn write_runs<D: Disk>(
    disk: &D,
    file: &D::Handle,
    content: &ContentChange,
    runs: &[Run],
) -> Result<(), Errno> {
    let punch = |from: u64, to: u64| match to.checked_sub(from) {
        None | Some(0) => Ok(()),
        Some(length) => disk.punch_hole(file, from, length),
    };
    let mut runs = runs.iter().peekable();
    for Extent { offset, length } in &content.extents {
        let (mut at, end) = (*offset, offset + length);
        while let Some(run) = runs.next_if(|run| run.offset < end) {
            punch(at, run.offset)?;
            let inside = run.bytes.len().min((end - run.offset) as usize);
            disk.write_at(file, &run.bytes[..inside], run.offset)?;
            at = run.offset + inside as u64;
        }
        punch(at, end)?;
    }
    Ok(())
}

fn copy_extents<D: Disk>(
    disk: &D,
    source: &D::Handle,
    file: &D::Handle,
    extents: &[Extent],
) -> Result<(), Errno> {
    for extent in extents {
        let end = extent.offset + extent.length;
        let mut at = extent.offset;
        while at < end {
            let data = disk.next_data(source, at)?;
            let none = Extent {
                offset: end,
                length: 0,
            };
            let run = data.filter(|run| run.offset < end).unwrap_or(none);
            if run.offset > at {
                disk.punch_hole(file, at, run.offset - at)?;
                at = run.offset;
            }
            let stop = run.offset.saturating_add(run.length).min(end);
            while at < stop {
                let length = (stop - at).min(COPY_CHUNK);
                let copied = disk.copy_range((source, at), (file, at), length)?;
                if copied == 0 {
                    return Err(Errno::IO);
                }
                at += copied;
            }
        }
    }
    Ok(())
}
