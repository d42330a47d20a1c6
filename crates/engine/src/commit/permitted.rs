//! Checks whether the transaction's user could make a commit's changes to the present base
//! themselves: see [`crate::base::present`].

use std::sync::Arc;

use atomdir_disk::{Disk, Kind};
use atomdir_types::TreePath;

use crate::base::core::Core;
use crate::base::credentials::{Credentials, Permission};
use crate::base::present::require;
use crate::base::{Base, above};
use crate::error::CommitError;
use crate::write_set::{Object, WriteSet};

/// Checks that the directories let the user make these changes to the base themselves.
pub(crate) fn check<D: Disk>(
    core: &Core<D>,
    set: &WriteSet,
    user: &Credentials,
) -> Result<(), CommitError> {
    let refused = |path: &TreePath| {
        let path = path.clone();
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
