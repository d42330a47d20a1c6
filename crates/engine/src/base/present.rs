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

use atomdir_disk::{Disk, Errno, Result};

use crate::base::acl::AccessControlList;
use crate::base::core::Core;
use crate::base::credentials::{Credentials, Permission};
use crate::base::{Base, above};

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
