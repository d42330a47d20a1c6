//! Finds out what the file system would refuse when a commit is applied, while
//! there is still a way back.
//!
//! Most errors cannot happen, because the view has done the same in the staging directory. The
//! checks here cover the remaining ones: objects that the kernel lets nobody change (chattr +i and
//! +a, mount points, swap files), attributes and directories of other owners, names that may not be
//! removed or renamed, directories that take nothing from elsewhere (`placements`), too many names, links of
//! what belongs to others, and extended attributes that do not fit, which is tried on a stand-in.
//!
//! Invariant: no check changes the base, whatever an outside writer puts there at
//! that moment. The kernel is asked about a name by a rename that cannot succeed.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{
    Access, Attributes, Disk, Errno, Identity, Kind, Name, NewNode, Owner, RenameMode, Stat,
};
use atomdir_types::TreePath;
use atomdir_types::path::AnyPath;

use crate::base::ahead::Found;
use crate::base::core::Core;
use crate::base::privileges::{CAPABILITY, without_set_id};
use crate::base::{Base, Place, Xattrs};
use crate::commit::in_place;
use crate::commit::placements::Placements;
use crate::control;
use crate::error::{CommitError, shown};
use crate::names;
use crate::seen::Seen;
use crate::view::LINKS_MAX;
use crate::write_set::{Object, ObjectWrite, WriteSet};

type Outcome<T> = Result<T, CommitError>;

/// For [`Disk::may_access`].
const WRITE: u32 = 2;
const ENTER: u32 = 1;
const READ_AND_WRITE: u32 = 6;
const STICKY: u32 = 0o1000;
/// A swap file has its signature at the end of its first page. Nobody can shorten it.
const SWAP_LENGTH_MIN: u64 = 4096;
const CHANGE_NAMES: &str = "create, rename or remove names in";
const REMOVE: &str = "remove, rename or replace";

pub(crate) fn check<D: Disk>(core: &Core<D>, set: &WriteSet, seen: &Seen) -> Outcome<()> {
    check_obstacles(core, (set, &Found::default()), (seen, When::Validated))?;
    check_link_counts(core, set)?;
    for object in &set.objects {
        if !object.xattrs.is_empty() && !has_new_inode(object) {
            rehearse_xattrs(core, object).map_err(|errno| {
                CommitError::io("set the extended attributes of", &object.path, errno)
            })?;
        }
    }
    Ok(())
}

/// Right before the commit is applied, looks for what may have got in the way since [`check`].
pub(super) fn check_last<D: Disk>(
    core: &Core<D>,
    (set, found): (&WriteSet, &Found),
    seen: &Seen,
) -> Outcome<()> {
    for entry in &set.entries {
        if let Object::Base(directory) = &entry.directory
            && !found.is_changed(&core.ahead, (directory, &entry.name))
            && let Ok(handle) = core.directory(directory)
        {
            let before = entry.before.as_deref();
            let name = (&*handle, &entry.name);
            seen.check_name(core, name, (before, &entry.path), found)?;
        }
    }
    seen.check_equal(core)?;
    in_place::refuse_used_since(core, set, found)?;
    check_again(core, (set, found), seen)
}

/// Like [`check`], but only looks for obstacles that come and go, in the base: nobody changes what is
/// only staged. `seen`: the attributes that validation has read, if any. `found`: what the base has of
/// objects that are known as later commits leave them.
pub(super) fn check_again<D: Disk>(
    core: &Core<D>,
    (set, found): (&WriteSet, &Found),
    seen: &Seen,
) -> Outcome<()> {
    check_obstacles(core, (set, found), (seen, When::Later))
}

/// When objects are looked at for obstacles.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Right after validation, whose looks serve here as well. What changes after them is found later.
    Validated,
    /// Right before the commit is applied. Each object is looked at anew.
    Later,
}

fn check_obstacles<D: Disk>(
    core: &Core<D>,
    (set, found): (&WriteSet, &Found),
    (seen, when): (&Seen, When),
) -> Outcome<()> {
    let mut looks = Looks {
        core,
        found,
        seen,
        when,
        looked_at: HashSet::new(),
        asked_in: HashMap::new(),
    };
    let mut directories = HashSet::new();
    let mut placements = Placements::new(core);
    for entry in &set.entries {
        let allowed = placements.allow(entry);
        let allowed = allowed.map_err(|errno| CommitError::io("look at", &entry.path, errno))?;
        if !allowed {
            return Err(CommitError::Unmovable {
                path: shown(&entry.path),
            });
        }
        if let Object::Base(directory) = &entry.directory {
            if directories.insert(directory.serial) {
                let path = InBase(directory);
                looks.check_changeable((directory, &path), CHANGE_NAMES)?;
                check_open(core, directory, &path)?;
            }
            if let Some(before) = &entry.before
                && !found.is_made(&core.ahead, before)
            {
                looks.check_changeable((before, &entry.path), REMOVE)?;
                looks.check_removable((directory, &entry.name), (before, &entry.path))?;
            }
        }
        if let Some(Object::Base(after)) = &entry.after {
            looks.check_changeable((after, &InBase(after)), "rename or link")?;
        }
    }
    for removed in &set.removed_directories {
        check_goes_to_limbo(core, &removed.base, &removed.path)?;
    }
    let in_base = |base: &Base| !found.is_made(&core.ahead, base);
    for base in set.dying.values().filter(|base| in_base(base)) {
        looks.check_changeable((base, &InBase(base)), "remove")?;
    }
    for object in set.objects.iter().filter(|object| in_base(&object.base)) {
        let present = looks.check_changeable((&object.base, &object.path), "change")?;
        check_own((core, found), object, present)?;
        let (_, place) = found.of(&object.base);
        if has_new_inode(object)
            && let Place::Entry { parent, name } = place
        {
            looks.check_removable((&parent, &name), (&object.base, &object.path))?;
        }
    }
    Ok(())
}

/// Refuses to give a file more names than file systems allow. All of the new names are there before
/// an old one is taken away, unless the file is only moved.
fn check_link_counts<D: Disk>(core: &Core<D>, set: &WriteSet) -> Outcome<()> {
    let mut names: HashMap<u64, (u32, bool, &Base, &TreePath)> = HashMap::new();
    for entry in &set.entries {
        if let Some(Object::Base(after)) = &entry.after
            && after.kind != Kind::Directory
        {
            let known = names.entry(after.serial);
            known.or_insert((0, false, after, &entry.path)).0 += 1;
        }
    }
    for entry in &set.entries {
        if let Some(before) = &entry.before
            && let Some((_, is_moved, ..)) = names.get_mut(&before.serial)
        {
            *is_moved = true;
        }
    }
    for (more, is_moved, base, path) in names.into_values() {
        let links = core.stat_now(base).map_or(1, |stat| stat.links);
        // What comes back from limbo is moved as well.
        let is_moved = is_moved || set.restored.contains(&base.serial);
        let is_only_moved = is_moved && more == 1;
        if !is_only_moved && links.saturating_add(more) > LINKS_MAX {
            return Err(CommitError::io("link", path, Errno::MLINK));
        }
        if !is_only_moved {
            check_linkable(core, base, path)?;
        }
    }
    Ok(())
}

/// Refuses another name for an object of another owner unless it is a file that this process may read
/// and write: the kernel refuses it as well (`fs.protected_hardlinks`).
fn check_linkable<D: Disk>(core: &Core<D>, base: &Base, path: &TreePath) -> Outcome<()> {
    let (identity, place) = base.identity_and_place();
    let Some(attributes) = owned_by_another(core, (identity, place.clone())) else {
        return Ok(());
    };
    let is_plain = base.kind == Kind::File && attributes.mode == without_set_id(attributes.mode);
    let may_link = core.with_object(&place, identity, |object| {
        core.disk.may_access(object, READ_AND_WRITE)
    });
    match may_link {
        Ok(true) if is_plain => Ok(()),
        // An outside writer has just removed it.
        Err(Errno::STALE) => Ok(()),
        _ => Err(CommitError::io("link", path, Errno::PERM)),
    }
}

/// The present path of a base object, for messages.
struct InBase<'a>(&'a Base);

impl AnyPath for InBase<'_> {
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.0.path().unwrap_or_default())
    }
}

fn has_new_inode(object: &ObjectWrite) -> bool {
    let contents = object.contents.as_ref();
    contents.is_some_and(|contents| contents.replacement.is_some())
}

/// One pass over what the commit changes.
struct Looks<'a, D: Disk> {
    core: &'a Core<D>,
    found: &'a Found,
    seen: &'a Seen,
    when: When,
    /// By serial. A pass looks at each object once.
    looked_at: HashSet<u64>,
    /// By serial: directories in which the kernel was asked about a name, and whether the answer may
    /// be another one for other names.
    asked_in: HashMap<u64, bool>,
}

impl<D: Disk> Looks<'_, D> {
    /// Refuses to change an object that the kernel lets nobody change, or that an outside writer has
    /// changed since validation. Returns what it looks like, unless this pass had looked at it before.
    fn check_changeable(
        &mut self,
        (base, path): (&Base, &(impl AnyPath + ?Sized)),
        step: &'static str,
    ) -> Outcome<Option<Stat>> {
        if !self.looked_at.insert(base.serial) {
            return Ok(None);
        }
        let core = self.core;
        let validated = match self.when {
            When::Validated => self.seen.stat_of_any(base),
            When::Later => None,
        };
        let look = || {
            let (identity, place) = self.found.of(base);
            core.stat_place(&place, identity)
        };
        match validated.map_or_else(look, Ok) {
            Err(Errno::STALE) if core.is_covered(base) => Err(CommitError::MountPoint {
                step,
                path: shown(path),
            }),
            Ok(stat) if stat.immutable => Err(CommitError::Immutable {
                step,
                path: shown(path),
            }),
            // The root may be a mount point; nothing moves it.
            Ok(stat) if stat.mount_point && base.serial != 0 => Err(CommitError::MountPoint {
                step,
                path: shown(path),
            }),
            present => {
                self.seen.compare(base, path, &present)?;
                Ok(present.ok())
            }
        }
    }

    /// Refuses to take a name away that the kernel does not let go. One name stands for all of its
    /// directory: mounts and flags of the objects are looked for anyway. Only in a sticky directory
    /// the answer depends on the object's owner, and the first pass asks about each file that may be a
    /// swap file. In the second pass it was one in the first already, unless root has just made it one.
    fn check_removable(
        &mut self,
        (directory, name): (&Arc<Base>, &Name),
        (base, path): (&Base, &TreePath),
    ) -> Outcome<()> {
        let is_long = |stat: Stat| stat.length >= SWAP_LENGTH_MIN;
        let may_be_swap_file = self.when == When::Validated
            && base.kind == Kind::File
            && self.seen.stat_of_any(base).is_none_or(is_long);
        match self.asked_in.get(&directory.serial) {
            Some(false) if !may_be_swap_file => return Ok(()),
            Some(_) => {}
            None => {
                let is_sticky = |stat: Stat| stat.attributes.mode & STICKY != 0;
                let depends = self.core.stat_now(directory).is_ok_and(is_sticky);
                self.asked_in.insert(directory.serial, depends);
            }
        }
        check_removable(self.core, (directory, name), path)
    }
}

/// Refuses to set attributes that only the owner may set, if somebody else is the owner. The check
/// ignores the side effects of a write. The kernel repeats these when apply writes: it removes
/// set-id bits and capabilities, and sets the times.
fn check_own<D: Disk>(
    (core, found): (&Core<D>, &Found),
    object: &ObjectWrite,
    present: Option<Stat>,
) -> Outcome<()> {
    let refused = || CommitError::io("set the attributes of", &object.path, Errno::PERM);
    let mut xattrs = object.xattrs.iter().map(|(name, _)| name);
    let is_capability = |name: &Vec<u8>| name == CAPABILITY;
    // In such a process's views a capability can be removed, but not set.
    if !core.options.privileges.all && object.contents.is_none() && xattrs.any(is_capability) {
        return Err(refused());
    }
    let anothers = match present {
        Some(stat) => anothers(core, stat.attributes),
        None => owned_by_another(core, found.of(&object.base)),
    };
    let Some(present) = anothers else {
        return Ok(());
    };
    let wanted = &object.attributes;
    let mode = match object.contents {
        Some(_) => without_set_id(present.mode),
        None => present.mode,
    };
    let keeps_mode = wanted.mode.is_none_or(|wanted| wanted == mode);
    let user = wanted.user.unwrap_or(present.owner.user);
    let group = wanted.group.unwrap_or(present.owner.group);
    let keeps_owner = present.owner == Owner { user, group };
    let mut xattrs = object.xattrs.iter().map(|(name, _)| name);
    let may_set = |name: &Vec<u8>| name.starts_with(b"user.") || is_capability(name);
    if keeps_mode && keeps_owner && xattrs.all(may_set) {
        return Ok(());
    }
    Err(refused())
}

/// The attributes of an object at a place, if this process can act neither as its owner nor as
/// root.
pub(super) fn owned_by_another<D: Disk>(
    core: &Core<D>,
    (identity, place): (Identity, Place),
) -> Option<Attributes> {
    let privileges = &core.options.privileges;
    if privileges.all {
        return None;
    }
    anothers(core, core.stat_place(&place, identity).ok()?.attributes)
}

/// The attributes, if they are those of an object with another owner.
fn anothers<D: Disk>(core: &Core<D>, attributes: Attributes) -> Option<Attributes> {
    let privileges = &core.options.privileges;
    let is_own = privileges.all || attributes.owner.user == privileges.user;
    (!is_own).then_some(attributes)
}

/// Refuses to change names in a directory that its owner has closed to this process. If that is this
/// process, apply opens it up: see `apply::rights`.
fn check_open<D: Disk>(
    core: &Core<D>,
    directory: &Arc<Base>,
    path: &(impl AnyPath + ?Sized),
) -> Outcome<()> {
    if owned_by_another(core, directory.identity_and_place()).is_none() {
        return Ok(());
    }
    let handle = core.directory(directory);
    match handle.and_then(|handle| core.disk.may_access(&handle, WRITE | ENTER)) {
        Ok(false) => Err(CommitError::io(CHANGE_NAMES, path, Errno::ACCESS)),
        _ => Ok(()),
    }
}

/// Refuses to remove a directory that cannot be moved to limbo: the kernel moves no
/// directory to another one unless it may be written to.
fn check_goes_to_limbo<D: Disk>(core: &Core<D>, base: &Arc<Base>, path: &TreePath) -> Outcome<()> {
    if owned_by_another(core, base.identity_and_place()).is_none() {
        return Ok(());
    }
    let handle = core.directory(base);
    match handle.and_then(|handle| core.disk.may_access(&handle, WRITE)) {
        Ok(true) => Ok(()),
        Ok(false) => Err(CommitError::io(REMOVE, path, Errno::ACCESS)),
        Err(errno) => Err(CommitError::io(REMOVE, path, errno)),
    }
}

/// Asks the kernel to rename the object onto a directory that is not empty. The
/// kernel checks whether the object may leave its place before it looks at the
/// target, which neither a file nor a directory can replace.
fn check_removable<D: Disk>(
    core: &Core<D>,
    (directory, name): (&Arc<Base>, &Name),
    path: &TreePath,
) -> Outcome<()> {
    let occupied = core
        .occupied()
        .map_err(|errno| CommitError::io("make", b".atomdir/occupied", errno))?;
    let target = (&*core.control.directory, occupied);
    let moved = core.directory(directory).and_then(|handle| {
        core.disk
            .rename((&handle, name), target, RenameMode::Replace)
    });
    match moved {
        Err(errno @ (Errno::PERM | Errno::TXTBSY | Errno::BUSY)) => {
            Err(CommitError::io(REMOVE, path, errno))
        }
        Err(Errno::XDEV) => Err(CommitError::Unmovable { path: shown(path) }),
        // The rename failed as it should, or a right is missing, which is no
        // obstacle: see `apply::rights`.
        _ => Ok(()),
    }
}

/// Tries on a stand-in to set all extended attributes that the object will have.
fn rehearse_xattrs<D: Disk>(core: &Core<D>, object: &ObjectWrite) -> Result<(), Errno> {
    let xattrs = object.xattrs_to_be(core)?;
    let (stage, name) = (&core.control.stage, names::fixed(names::REHEARSAL));
    // A stand-in whose removal failed may still be there.
    control::remove_tree(&core.disk, stage, &name)?;
    match object.base.kind {
        Kind::File => core.disk.create(stage, &name, 0o600).map(drop)?,
        Kind::Directory => core.disk.make(stage, &name, &NewNode::Directory, 0o700)?,
        _ => return Ok(()),
    }
    let set = set_all(core, object, &xattrs);
    match object.base.kind {
        Kind::Directory => core.disk.remove_directory(stage, &name)?,
        _ => core.disk.unlink(stage, &name)?,
    }
    set
}

fn set_all<D: Disk>(core: &Core<D>, object: &ObjectWrite, xattrs: &Xattrs) -> Result<(), Errno> {
    let name = names::fixed(names::REHEARSAL);
    let handle = core.disk.open(&core.control.stage, &name, Access::Path)?;
    for (name, value) in xattrs {
        let is_kept = object.xattrs.iter().all(|(changed, _)| changed != name);
        match core.disk.set_xattr(&handle, name, value) {
            // Somebody with more rights gave it to the object, as root does with capabilities.
            Err(Errno::PERM) if is_kept => {}
            outcome => outcome?,
        }
    }
    Ok(())
}
