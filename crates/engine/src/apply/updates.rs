//! Changes attributes and contents of objects in place.
//!
//! Invariants
//! 1. Rights are taken away before anything else changes ([`Apply::narrow`]), and given last. In
//!    between an object has the rights that it had before and shall have. So nobody can use a name
//!    or contents for a moment that neither the old nor the new rights allow. In a recovery an update
//!    that follows other users' commits takes rights away last, since those commits have used them.
//! 2. A new object is complete before it gets a name.
//! 3. An update that a listed user may not make any more is left out (`actor`).

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Extent, Identity, Kind, Stat};
use atomdir_format::record::{ContentChange, Run, Source};

use super::attributes::is_list;
use super::desired::{WantedContent, WantedUpdate};
use super::{Apply, ApplyError, CANNOT_BE_SET, EntryPlace, Outcome, Parent};
use crate::base::privileges::{CAPABILITY, SET_ID, without_set_id};
use crate::names;

const COPY_CHUNK: u64 = 1 << 30;
const STICKY: u32 = 0o1000;
const RIGHTS_OF_GROUP: u32 = 0o070;
const RIGHTS_OF_OWNER: u32 = 0o700;

/// An object that is to be changed.
enum Target<'a, D: Disk> {
    Opened(Arc<D::Handle>),
    /// It was opened just now, and had these attributes.
    Seen(D::Handle, Stat),
    /// It was opened before the record was logged.
    Writer(&'a D::Handle),
}

impl<D: Disk> Deref for Target<'_, D> {
    type Target = D::Handle;

    fn deref(&self) -> &D::Handle {
        match self {
            Target::Opened(handle) => handle,
            Target::Seen(handle, _) => handle,
            Target::Writer(handle) => handle,
        }
    }
}

impl<D: Disk> Target<'_, D> {
    fn stat(&self, disk: &D) -> Result<Stat, Errno> {
        match self {
            Target::Seen(_, stat) => Ok(*stat),
            _ => disk.stat(self),
        }
    }
}

/// A step of an update.
type Step<'a, D> = fn(&mut Apply<'a, D>, &WantedUpdate) -> Outcome<()>;

impl<'a, D: Disk> Apply<'a, D> {
    /// Completes new objects that a recovery has made again or that were not flushed.
    pub(super) fn complete_staged(&mut self) -> Outcome<()> {
        let desired = self.desired;
        for (number, wanted) in desired.updates.iter().enumerate() {
            if !self.progress.updates.contains(&number) {
                let completed = self.complete(number, wanted);
                self.pass_over(completed)?;
            }
        }
        Ok(())
    }

    fn complete(&mut self, number: usize, wanted: &WantedUpdate) -> Outcome<()> {
        let Some(place) = self.find(wanted.object)? else {
            return Ok(());
        };
        if !matches!(place.parent, Parent::Stage(_)) {
            return Ok(());
        }
        let Some(object) = self.open(&place, access_for(wanted))? else {
            return Ok(());
        };
        let path = self.path_of(&place);
        let stat = self.core.disk.stat(&object);
        let stat = stat.map_err(|errno| self.failure(&path, CANNOT_BE_SET, Some(errno)))?;
        if stat.kind != Kind::Directory && stat.links > 1 {
            // It has one of its names already.
            return Ok(());
        }
        if let Some(content) = &wanted.content {
            self.write_for(&object, &place, content)?;
        }
        self.set(&object, &path, wanted)?;
        // A directory's times change once more when it gets entries.
        if stat.kind != Kind::Directory {
            self.progress.narrowed.insert(number);
            self.progress.written.insert(number);
            self.progress.updates.insert(number);
        }
        Ok(())
    }

    /// Takes rights away that objects shall not have any more, before names and contents change.
    pub(super) fn narrow(&mut self) -> Outcome<()> {
        self.run_updates(None, |apply, number, wanted| {
            if !apply.progress.narrowed.contains(&number) && narrows(wanted) {
                apply.attempt(wanted, Apply::narrow_one)?;
            }
            apply.progress.narrowed.insert(number);
            Ok(())
        })
    }

    /// Changes the files that might not be found once they have lost a name.
    pub(super) fn update_leaving(&mut self) -> Outcome<()> {
        self.write_and_set(true)
    }

    pub(super) fn update_staying(&mut self) -> Outcome<()> {
        self.write_and_set(false)
    }

    /// Writes all contents before it gives any rights.
    fn write_and_set(&mut self, leaving: bool) -> Outcome<()> {
        self.run_updates(Some(leaving), |apply, number, wanted| {
            let is_written = wanted.content.is_none() || apply.progress.written.contains(&number);
            if !is_written && apply.attempt(wanted, Apply::write)? {
                apply.progress.written.insert(number);
            }
            Ok(())
        })?;
        let desired = self.desired;
        let mut last_modes: HashMap<Identity, usize> = HashMap::new();
        for (number, wanted) in desired.updates.iter().enumerate() {
            if wanted.attributes.mode.is_some() {
                last_modes.insert(wanted.object, number);
            }
        }
        self.run_updates(Some(leaving), |apply, number, wanted| {
            // A later record of the tail may have taken away what an earlier one gave.
            let is_last = last_modes
                .get(&wanted.object)
                .is_none_or(|last| *last == number);
            match is_last {
                true => apply.attempt(wanted, Apply::find_and_set)?,
                false => apply.attempt(wanted, Apply::find_and_set_but_mode)?,
            };
            let is_new = apply.progress.updates.insert(number);
            assert!(is_new, "apply has changed an object twice");
            Ok(())
        })
    }

    fn run_updates(
        &mut self,
        leaving: Option<bool>,
        mut run: impl FnMut(&mut Self, usize, &'a WantedUpdate) -> Outcome<()>,
    ) -> Outcome<()> {
        let desired = self.desired;
        for (number, wanted) in desired.updates.iter().enumerate() {
            let is_chosen = leaving.is_none_or(|of| desired.is_leaving(wanted.object) == of);
            if is_chosen && !self.progress.updates.contains(&number) {
                self.act_for(&wanted.by);
                run(self, number, wanted)?;
            }
        }
        self.act_for(&None);
        Ok(())
    }

    /// Runs a step of an update, or leaves the object as it is. Returns false if the step is tried
    /// again.
    fn attempt(&mut self, wanted: &WantedUpdate, step: Step<'a, D>) -> Outcome<bool> {
        match step(self, wanted) {
            Err(error) if self.defer(&error) => Ok(false),
            done => self.pass_over(done).map(|()| true),
        }
    }

    /// Finds the object. The root has no place.
    fn target(
        &mut self,
        wanted: &WantedUpdate,
        access: Access,
    ) -> Outcome<Option<(Option<EntryPlace>, Target<'a, D>)>> {
        let identity = wanted.object;
        if identity == self.core.root_base.identity() {
            let root = Target::Opened(self.core.root.clone());
            return Ok(Some((None, root)));
        }
        let writer = self.writers.get(&identity);
        let seen = match access {
            Access::Path if writer.is_none() => self.open_where_expected(identity),
            _ => None,
        };
        let (place, target) = match seen {
            Some((place, handle, stat)) => (place, Some(Target::Seen(handle, stat))),
            None => {
                let Some(place) = self.find(identity)? else {
                    let name = names::limbo(identity);
                    self.missing(identity, &name, "the object to be changed")?;
                    return Ok(None);
                };
                let target = match writer {
                    Some(writer) => Some(Target::Writer(writer)),
                    None => self
                        .open(&place, access)?
                        .map(|opened| Target::Opened(Arc::new(opened))),
                };
                (place, target)
            }
        };
        let reached = self.require_reach(place.parent);
        let reached = reached.and_then(|()| match (&target, access) {
            (Some(file), Access::ReadWrite) => self.require_writable(file),
            _ => Ok(()),
        });
        let place = Some(place);
        reached.map_err(|errno| self.failed_at(&place, errno))?;
        Ok(target.map(|target| (place, target)))
    }

    fn failed_at(&self, place: &Option<EntryPlace>, errno: Errno) -> ApplyError {
        let path = place.as_ref().map(|place| self.path_of(place));
        let path = path.unwrap_or_else(|| b".".to_vec());
        self.failure(&path, CANNOT_BE_SET, Some(errno))
    }

    /// Leaves the rights that the object has and shall have.
    fn narrow_one(&mut self, wanted: &WantedUpdate) -> Outcome<()> {
        // Most changes take no right away.
        let seen = self.stat_where_expected(wanted.object);
        if seen.is_some_and(|stat| narrowed_mode(wanted, &stat).is_none()) {
            return Ok(());
        }
        let Some((place, object)) = self.target(wanted, Access::Path)? else {
            return Ok(());
        };
        let disk = &self.core.disk;
        let narrow = || -> Result<(), Errno> {
            match narrowed_mode(wanted, &object.stat(disk)?) {
                None => Ok(()),
                Some(left) => match self.as_user(|| disk.set_mode(&object, left)) {
                    // Another owner's file: the kernel takes the set-id bits when it is written.
                    Err(Errno::PERM) if wanted.content.is_some() => Ok(()),
                    set => set,
                },
            }
        };
        narrow().map_err(|errno| self.failed_at(&place, errno))
    }

    fn write(&mut self, wanted: &WantedUpdate) -> Outcome<()> {
        let Some(content) = &wanted.content else {
            return Ok(());
        };
        let Some((Some(place), file)) = self.target(wanted, Access::ReadWrite)? else {
            return Ok(());
        };
        self.write_for(&file, &place, content)
    }

    fn write_for(
        &mut self,
        file: &D::Handle,
        place: &EntryPlace,
        content: &WantedContent,
    ) -> Outcome<()> {
        // Take them before the new contents are there, and again in case the file got
        // some meanwhile.
        self.take_privileges(file, place, content.user)?;
        // The file may have been opened long ago.
        self.require_writable(file)
            .map_err(|errno| self.failure(&self.path_of(place), CANNOT_BE_SET, Some(errno)))?;
        self.write_content(file, place, content)?;
        self.take_privileges(file, place, content.user)
    }

    fn find_and_set(&mut self, wanted: &WantedUpdate) -> Outcome<()> {
        self.set_all(wanted, true)
    }

    fn find_and_set_but_mode(&mut self, wanted: &WantedUpdate) -> Outcome<()> {
        self.set_all(wanted, false)
    }

    fn set_all(&mut self, wanted: &WantedUpdate, sets_mode: bool) -> Outcome<()> {
        if !wanted.is_whole && wanted.xattrs.is_empty() && wanted.attributes == Default::default() {
            return Ok(());
        }
        let Some((place, object)) = self.target(wanted, Access::Path)? else {
            return Ok(());
        };
        let mut attributes = wanted.attributes;
        attributes.mode = attributes.mode.filter(|_| sets_mode);
        if let Some(mode) = attributes.mode {
            self.note_mode(wanted.object, mode);
        }
        let stat = object.stat(&self.core.disk);
        stat.and_then(|stat| self.try_set((&object, &stat), attributes, wanted))
            .map_err(|errno| self.failed_at(&place, errno))
    }

    fn set(&mut self, object: &D::Handle, path: &[u8], wanted: &WantedUpdate) -> Outcome<()> {
        if let Some(mode) = wanted.attributes.mode {
            self.note_mode(wanted.object, mode);
        }
        let stat = self.core.disk.stat(object);
        stat.and_then(|stat| self.try_set((object, &stat), wanted.attributes, wanted))
            .map_err(|errno| self.failure(path, CANNOT_BE_SET, Some(errno)))
    }

    /// Removes set-id bits and capabilities. The kernel does this when a user writes to a
    /// file, but not when root's service writes for that user with its own rights
    /// (`commit::privileges`). Those that the transaction has set are set afterwards.
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

    pub(super) fn write_content(
        &mut self,
        file: &D::Handle,
        place: &EntryPlace,
        wanted: &WantedContent,
    ) -> Outcome<()> {
        let disk = &self.core.disk;
        let content = &wanted.change;
        let written = match &content.source {
            Source::Carried { runs } => self.as_user(|| {
                set_length(disk, file, content)?;
                write_runs(disk, file, content, runs)
            }),
            Source::Staged { slot } => {
                let staged = EntryPlace {
                    parent: Parent::Stage(wanted.stage),
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
                self.as_user(|| {
                    set_length(disk, file, content)?;
                    copy_extents(disk, &source, file, &content.extents)
                })
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

fn access_for(wanted: &WantedUpdate) -> Access {
    match wanted.content {
        Some(_) => Access::ReadWrite,
        None => Access::Path,
    }
}

/// Whether the update may take rights away before everything else.
fn narrows(wanted: &WantedUpdate) -> bool {
    wanted.attributes.mode.is_some() && !wanted.follows_others
}

/// The mode with only those rights that the object has and shall have; `None`: that is its mode.
fn narrowed_mode(wanted: &WantedUpdate, stat: &Stat) -> Option<u32> {
    let mode = wanted.attributes.mode;
    let mode = mode.filter(|_| stat.kind != Kind::Symlink)?;
    let present = stat.attributes;
    let mut left = present.mode & mode;
    if stat.kind == Kind::Directory {
        left |= (present.mode | mode) & STICKY;
    }
    let is_other = |user| user != present.owner.user;
    if wanted.attributes.user.is_some_and(is_other) {
        left &= !(RIGHTS_OF_OWNER | SET_ID);
    }
    let is_of_group = |group| group != present.owner.group;
    if sets_list(wanted) || wanted.attributes.group.is_some_and(is_of_group) {
        left &= !RIGHTS_OF_GROUP;
    }
    (left != present.mode).then_some(left)
}

fn sets_list(wanted: &WantedUpdate) -> bool {
    wanted.xattrs.iter().any(|(name, _)| is_list(name))
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
