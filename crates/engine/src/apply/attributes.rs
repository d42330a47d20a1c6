//! Sets attributes of an object as an update asks for, with the rights of the commit's user
//! (`actor`).

use atomdir_disk::{Access, Disk, Errno, Kind, NewNode, Owner, Stat, Times};
use atomdir_format::record::AttributesChange;

use super::desired::WantedUpdate;
use super::{Apply, Verdict, verdict};
use crate::base::acl::AccessControlList;
use crate::base::privileges::{CAPABILITY, SET_ID};
use crate::base::rights::with_rights;
use crate::control;
use crate::names;

const RIGHTS_OF_GROUP: u32 = 0o070;

impl<D: Disk> Apply<'_, D> {
    /// Sets attributes with the user's rights. A part that this user may not set any more, or that
    /// finds no space, is left out. `stat`: what the object looks like now.
    pub(super) fn try_set(
        &self,
        (object, stat): (&D::Handle, &Stat),
        attributes: AttributesChange,
        wanted: &WantedUpdate,
    ) -> Result<(), Errno> {
        let disk = &self.core.disk;
        let (present, kind) = (stat.attributes, stat.kind);
        let owner = owner_to_be(attributes, present.owner);
        let mut now = present;
        if owner != present.owner {
            self.unless_left(|| disk.set_owner(object, owner))?;
            now = disk.stat(object)?.attributes;
        }
        let given = now.owner;
        let meant = wanted.owner.map_or(owner, |of| owner_to_be(attributes, of));
        let is_meant = given == meant;
        if wanted.is_whole {
            self.unless_left(|| remove_other_xattrs(disk, object, &wanted.xattrs))?;
        }
        let mut has_list = true;
        for (name, value) in &wanted.xattrs {
            let may_set = is_meant || !gives_rights(name) || value.is_none();
            let set = || self.unless_left(|| set_xattr(disk, object, name, value.as_deref()));
            let is_set = may_set
                && match (set(), value) {
                    // The owner decides how much of an inode's space other attributes take.
                    (Err(Errno::NOSPC | Errno::DQUOT), Some(value))
                        if self.fits_elsewhere(kind, name, value) =>
                    {
                        false
                    }
                    (set, _) => set?,
                };
            has_list &= is_set || !is_list(name);
        }
        let wanted_mode = attributes.mode.filter(|_| kind != Kind::Symlink);
        let wanted_mode = wanted_mode.map(|mode| match (is_meant, has_list) {
            (true, true) => mode,
            (false, true) => mode & !SET_ID,
            // Without the list, the bits of its mask would be the group's rights.
            (_, false) => mode & !SET_ID & (present.mode | !RIGHTS_OF_GROUP),
        });
        // An access control list changes the mode, too. A new owner has cleared the set-id bits.
        if wanted_mode.is_some() && (wanted.is_whole || !wanted.xattrs.is_empty()) {
            now = disk.stat(object)?.attributes;
        }
        if let Some(mode) = wanted_mode
            && now.mode != mode
        {
            self.unless_left(|| disk.set_mode(object, mode))?;
        }
        self.take_back(object, wanted, wanted_mode, given)?;
        if attributes.accessed.is_some() || attributes.modified.is_some() {
            let times = Times {
                accessed: attributes.accessed.unwrap_or(present.times.accessed),
                modified: attributes.modified.unwrap_or(present.times.modified),
            };
            self.unless_left(|| set_times(disk, object, times))?;
        }
        Ok(())
    }

    /// Returns whether it was set.
    fn unless_left(&self, set: impl FnOnce() -> Result<(), Errno>) -> Result<bool, Errno> {
        match self.as_user(set) {
            Err(errno) if verdict(Some(errno), self.actor.is_some()) == Verdict::Leaves => {
                let reason = atomdir_disk::reason(errno);
                tracing::warn!("an attribute is left as it is: {reason}");
                Ok(false)
            }
            set => set.map(|()| true),
        }
    }

    /// Takes rights back that depend on the owner, if the object was given to another owner while
    /// they were set.
    fn take_back(
        &self,
        object: &D::Handle,
        wanted: &WantedUpdate,
        mode: Option<u32>,
        given: Owner,
    ) -> Result<(), Errno> {
        let sets_id = mode.is_some_and(|mode| mode & SET_ID != 0);
        let is_set =
            |(name, value): &&(Vec<u8>, Option<Vec<u8>>)| value.is_some() && gives_rights(name);
        let given_rights: Vec<_> = wanted.xattrs.iter().filter(is_set).collect();
        if !sets_id && given_rights.is_empty() {
            return Ok(());
        }
        let disk = &self.core.disk;
        let now = disk.stat(object)?.attributes;
        if now.owner == given {
            return Ok(());
        }
        for (name, _) in given_rights {
            match disk.remove_xattr(object, name) {
                Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM) => {}
                removed => removed?,
            }
        }
        if now.mode & SET_ID != 0 && sets_id {
            match disk.set_mode(object, now.mode & !SET_ID) {
                Err(Errno::PERM) => {}
                set => set?,
            }
        }
        Ok(())
    }

    /// Whether a new object takes the attribute. Then it is not the disk that is full.
    fn fits_elsewhere(&self, kind: Kind, name: &[u8], value: &[u8]) -> bool {
        let (disk, stage) = (&self.core.disk, &self.core.control.stage);
        let stand_in = names::fixed(names::REHEARSAL);
        let fits = || -> Result<(), Errno> {
            control::remove_tree(disk, stage, &stand_in)?;
            match kind {
                Kind::Directory => disk.make(stage, &stand_in, &NewNode::Directory, 0o700)?,
                _ => disk.create(stage, &stand_in, 0o600).map(drop)?,
            }
            let object = disk.open(stage, &stand_in, Access::Path)?;
            disk.set_xattr(&object, name, value)
        };
        let fits = fits().is_ok();
        // What is left of it is removed the next time.
        let _ = control::remove_tree(disk, stage, &stand_in);
        fits
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

fn owner_to_be(change: AttributesChange, present: Owner) -> Owner {
    Owner {
        user: change.user.unwrap_or(present.user),
        group: change.group.unwrap_or(present.group),
    }
}

pub(super) fn is_list(name: &[u8]) -> bool {
    name == AccessControlList::ATTRIBUTE
}

/// Whether the attribute gives rights that depend on the object's owner.
fn gives_rights(name: &[u8]) -> bool {
    name == CAPABILITY || name.starts_with(b"system.posix_acl_")
}

fn set_xattr<D: Disk>(
    disk: &D,
    object: &D::Handle,
    name: &[u8],
    value: Option<&[u8]>,
) -> Result<(), Errno> {
    let Some(value) = value else {
        return match with_rights(disk, &[object], || disk.remove_xattr(object, name)) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            // The kernel has removed a capability at the write, and nobody but root
            // may ask for that.
            Err(Errno::PERM) if disk.xattr(object, name) == Err(Errno::NODATA) => Ok(()),
            Err(errno) => Err(errno),
        };
    };
    with_rights(disk, &[object], || disk.set_xattr(object, name, value))
}
