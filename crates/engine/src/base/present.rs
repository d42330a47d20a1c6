//! What a user may do to objects of the base as it is now.
//!
//! A view shows permissions as its snapshot has them, and the kernel goes by what the
//! view has shown. So a directory that was closed since would stay open in it, also to
//! what is put there later. Where the service has rights that the transaction's user has
//! not, the engine therefore asks this as well
//!
//! 1. before a view looks at the base: for a name, a listing, or contents;
//! 2. before a commit changes it, under the commit lock: for every directory in which
//!    entries change, and all directories above whatever changes.
//!
//! An owner may: they could give themselves the right. What commits have moved aside for
//! older snapshots has no place, and so nothing above it; nobody can put anything there.

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Result};

use crate::base::core::Core;
use crate::base::{Base, above};
use crate::error::CommitError;
use crate::transaction::Transaction;
use crate::view::acl::AccessControlList;
use crate::view::{Credentials, Permission};
use crate::write_set::{Object, WriteSet};

impl<D: Disk> Transaction<D> {
    /// From now on the view shows of the base only what this user may look at as it is now,
    /// and a commit changes only what they may. For a service that may do more than the
    /// transaction's user. Nested transactions are restricted likewise.
    pub fn restrict_to(&self, user: Credentials) -> Result<()> {
        self.wait_with(|view| {
            view.restricted_to = Some(user);
            Ok(())
        })
    }
}

/// As permission bits.
pub(crate) fn permissions<D: Disk>(
    core: &Core<D>,
    base: &Arc<Base>,
    user: &Credentials,
) -> Result<u32> {
    let attributes = core.stat_now(base)?.attributes;
    if user.user == 0 || attributes.owner.user == user.user {
        return Ok(0o7);
    }
    let list = access_list(core, base)?;
    let list = list.unwrap_or_else(|| AccessControlList::of_mode(attributes.mode));
    Ok(list.permissions(attributes.owner, user))
}

fn access_list<D: Disk>(core: &Core<D>, base: &Base) -> Result<Option<AccessControlList>> {
    let (place, identity) = {
        let state = base.state();
        (state.place.clone(), state.identity)
    };
    let found = core.with_object(&place, identity, |handle| {
        core.disk.xattr(handle, AccessControlList::ATTRIBUTE)
    });
    match found {
        Ok(bytes) => AccessControlList::decode(&bytes).map(Some),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// That the user can reach an object and has one of these permissions on it.
pub(crate) fn require<D: Disk>(
    core: &Core<D>,
    base: &Arc<Base>,
    user: &Credentials,
    one_of: &[Permission],
) -> Result<()> {
    match try_require(core, base, user, one_of) {
        // A commit may be moving it.
        Err(Errno::STALE) => {
            core.wait_for_apply();
            try_require(core, base, user, one_of)
        }
        result => result,
    }
}

fn try_require<D: Disk>(
    core: &Core<D>,
    base: &Arc<Base>,
    user: &Credentials,
    one_of: &[Permission],
) -> Result<()> {
    let has = |base: &Arc<Base>, one_of: &[Permission]| {
        let bits = permissions(core, base, user)?;
        match one_of.iter().any(|one| bits & *one as u32 != 0) {
            true => Ok(()),
            false => Err(Errno::ACCESS),
        }
    };
    has(base, one_of)?;
    above(base).try_for_each(|directory| has(&directory, &[Permission::Search]))
}

/// What a look at contents takes. The kernel reads a program that may only be run.
pub(crate) const CONTENTS: [Permission; 2] = [Permission::Read, Permission::Search];

/// That the user could make these changes to the base themselves, as far as directories
/// decide it.
pub(crate) fn check_commit<D: Disk>(
    core: &Core<D>,
    set: &WriteSet,
    user: &Credentials,
) -> std::result::Result<(), CommitError> {
    let refused = |path: &[u8]| {
        let path = path.to_vec();
        move |errno| CommitError::io("change", &path, errno)
    };
    let may_change = |directory: &Arc<Base>| {
        require(core, directory, user, &[Permission::Write])?;
        require(core, directory, user, &[Permission::Search])
    };
    for entry in &set.entries {
        if let Object::Base(directory) = &entry.directory {
            may_change(directory).map_err(refused(&entry.path))?;
        }
    }
    for removed in set
        .removed_directories
        .iter()
        .filter(|one| !one.names.is_empty())
    {
        may_change(&removed.base).map_err(refused(&removed.path))?;
    }
    for object in set.objects.iter().filter(|object| !object.is_implied) {
        let parent = above(&object.base).next();
        if let Some(parent) = parent.filter(|parent| parent.kind == Kind::Directory) {
            require(core, &parent, user, &[Permission::Search]).map_err(refused(&object.path))?;
        }
    }
    Ok(())
}
