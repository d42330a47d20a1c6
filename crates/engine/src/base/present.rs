//! Checks what a user may do to objects of the present base.
//!
//! A view shows the permissions of its snapshot, and the kernel decides by them. So a directory
//! that was closed later would stay open in the view, and the user could even read files that were
//! put there afterwards. If the service has rights that the transaction's user lacks, the engine
//! therefore also checks the present permissions
//!
//! 1. before a view looks at the base: for a name, a listing, or contents;
//! 2. before a commit changes it, under the commit lock: for every directory in which entries
//!    change, and for all directories above a changed object.
//!
//! An owner always passes, since they could give themselves the right. An object that
//! commits have moved aside for older snapshots has no place in the base, and so no
//! directories above it. Nobody can put anything there.

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Result};

use crate::base::acl::AccessControlList;
use crate::base::core::Core;
use crate::base::credentials::{Credentials, Permission};
use crate::base::{Base, above};

/// The permission bits that the user has.
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
    let (identity, place) = base.identity_and_place();
    let found = core.with_object(&place, identity, |handle| {
        core.disk.xattr(handle, AccessControlList::ATTRIBUTE)
    });
    match found {
        Ok(bytes) => AccessControlList::decode(&bytes).map(Some),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks that the user can reach an object and has one of these permissions on it.
pub(crate) fn require<D: Disk>(
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
    core.look(|| {
        has(base, one_of)?;
        above(base).try_for_each(|directory| has(&directory, &[Permission::Search]))
    })
}

/// Either of these permissions is enough to read contents. The kernel also reads a program that a
/// user may only run.
pub(crate) const CONTENTS: [Permission; 2] = [Permission::Read, Permission::Search];
