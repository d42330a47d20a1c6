//! Obstacles that other users create for a durable commit. The head of `apply::others` says how
//! apply handles them.

use std::sync::Arc;

use atomdir_disk::{Disk, Identity, Kind, Name, Stat};

use crate::base::core::Core;
use crate::base::{Base, Place};

const ENTER: u32 = 1;

impl<D: Disk> Core<D> {
    /// Whether it is a directory to which another user has taken the rights away, as for
    /// [`Disk::may_access`].
    pub fn is_closed(&self, object: &D::Handle, rights: u32) -> bool {
        let privileges = &self.options.privileges;
        let is_anothers = |stat: Stat| {
            stat.kind == Kind::Directory && stat.attributes.owner.user != privileges.user
        };
        !privileges.all
            && self.disk.stat(object).is_ok_and(is_anothers)
            && self.disk.may_access(object, rights) == Ok(false)
    }

    /// The directory above that another user has closed.
    pub fn closed_above(&self, base: &Base) -> Option<Identity> {
        let mut above = directory_of(base);
        while let Some(directory) = above {
            let (identity, place) = directory.identity_and_place();
            let is_closed =
                self.with_object(&place, identity, |handle| Ok(self.is_closed(handle, ENTER)));
            if is_closed == Ok(true) {
                return Some(identity);
            }
            above = directory_of(&directory);
        }
        None
    }

    /// Whether a file system that is mounted on the object's name hides the object.
    pub fn is_covered(&self, base: &Base) -> bool {
        let place = base.state().place.clone();
        let Place::Entry { parent, name } = place else {
            return false;
        };
        let found = self.directory(&parent);
        let found = found.and_then(|parent| self.disk.stat_at(&parent, &name));
        found.is_ok_and(|stat| stat.mount_point)
    }

    /// Unmounts what users have mounted on the object or on a directory above it. Whether there
    /// was anything.
    pub fn uncover(&self, base: &Arc<Base>) -> bool {
        let mut covered = Some(base.clone());
        let mut any = false;
        while let Some(base) = covered {
            covered = directory_of(&base);
            let place = base.state().place.clone();
            if let Place::Entry { parent, name } = place
                && let Ok(parent) = self.directory(&parent)
            {
                any |= self.uncover_name(&parent, &name);
            }
        }
        any
    }

    pub fn uncover_name(&self, directory: &D::Handle, name: &Name) -> bool {
        let uncovered = self.disk.uncover(directory, name);
        if uncovered == Ok(true) {
            tracing::warn!(
                ?name,
                "unmounted what a user had mounted on what a commit changes"
            );
        }
        uncovered.unwrap_or(false)
    }
}

fn directory_of(base: &Base) -> Option<Arc<Base>> {
    match &base.state().place {
        Place::Entry { parent, .. } => Some(parent.clone()),
        _ => None,
    }
}
