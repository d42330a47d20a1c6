//! Mount points inside the store.
//!
//! A mounted file system is not part of the store, and the object it covers cannot be
//! reached. In their place a view shows an empty directory, or an empty file, that
//! nobody can change. Programs can walk over it and bind something on it.
//!
//! Invariants
//! 1. The engine opens neither the mounted file system nor the covered object:
//!    [`Core::open_at`] refuses both, and so does `Disk::open`. It never waits for the
//!    mounted file system, whose server may not answer (`Disk::stat_at`).
//! 2. The engine knows the covered object only from the listing of its directory: the
//!    inode number and perhaps the kind. Mode, owner and times are the same for all
//!    mount points.
//! 3. No record names a mount point: views refuse changes to it, and
//!    [`crate::commit::feasible`] refuses a commit that contains one.

use atomdir_disk::{Attributes, Disk, Errno, Identity, Kind, Name, Owner, Result, Stat, Times};

use crate::base::Base;
use crate::base::core::Core;

/// A birth time that no object has. Unknown birth times are 0.
const BIRTH: u64 = u64::MAX;

const ROOT: Owner = Owner { user: 0, group: 0 };

pub(crate) fn is_mount_point(identity: Identity) -> bool {
    identity.birth == BIRTH
}

impl Base {
    pub fn is_mount_point(&self) -> bool {
        is_mount_point(self.identity())
    }
}

impl<D: Disk> Core<D> {
    /// Looks up a name in a directory of the base.
    pub fn stat_entry(&self, directory: &D::Handle, name: &Name) -> Result<Stat> {
        let stat = self.disk.stat_at(directory, name)?;
        // A subvolume of Btrfs is another file system without being mounted.
        if !stat.mount_point && stat.device == self.device {
            return Ok(stat);
        }
        let listed = self.disk.list(directory)?;
        let covered = listed.into_iter().find(|entry| entry.name == *name);
        let covered = covered.ok_or(Errno::NOENT)?;
        Ok(self.stand_in(covered.kind.unwrap_or(stat.kind), covered.inode))
    }

    fn stand_in(&self, kind: Kind, inode: u64) -> Stat {
        let (kind, mode, links) = match kind {
            Kind::Directory => (Kind::Directory, 0o555, 2),
            _ => (Kind::File, 0o444, 1),
        };
        let times = Times {
            accessed: Default::default(),
            modified: Default::default(),
        };
        Stat {
            identity: Identity {
                inode,
                birth: BIRTH,
            },
            device: self.device,
            kind,
            attributes: Attributes {
                mode,
                owner: ROOT,
                times,
            },
            changed: Default::default(),
            links,
            length: 0,
            blocks: 0,
            device_number: 0,
            immutable: false,
            mount_point: true,
        }
    }
}
