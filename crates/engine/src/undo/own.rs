//! Checks an undo on behalf of a user to whom the service gives no rights of its own.
//!
//! The commit checks that the user may write where it writes, as for any transaction of theirs. But
//! an undo also does what no call of theirs could: it brings objects back as they were, with their
//! owner, mode and contents, which the user was perhaps never allowed to read, and removes
//! directories with everything in them. So these must all be the user's own. They can give themselves
//! every right on such objects.

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind};

use crate::base::Base;
use crate::base::credentials::Credentials;
use crate::base::privileges::CAPABILITY;
use crate::error::UndoError;
use crate::ids::NodeId;
use crate::undo::choosing::looked_at;
use crate::view::View;

const SET_GROUP_ID: u32 = 0o2000;

pub(super) fn check<D: Disk>(view: &mut View<D>, user: &Credentials) -> Result<(), UndoError> {
    let changed: Vec<NodeId> = view.changed_nodes().collect();
    for node in changed {
        let path = view.path(node);
        let found = looked_at(&path, view.node(node))?;
        let base = found.base.clone();
        let is_removed = found.is_removed_directory();
        let has_old_bytes = found.own().is_some_and(|own| {
            own.staged.is_some() || own.xattrs.values().any(|value| value.is_some())
        });
        let is_refused = match &base {
            Some(base) if view.restored.contains(&base.serial) => {
                looked_at(&path, has_foreign(view, base, user))?
            }
            Some(base) if is_removed || has_old_bytes => {
                let stat = looked_at(&path, view.snapshot_stat(base))?;
                stat.attributes.owner.user != user.user
            }
            Some(_) => false,
            None => {
                let attributes = looked_at(&path, view.attributes(node))?;
                !is_own(user, attributes.owner, attributes.mode)
            }
        };
        if is_refused {
            let path = String::from_utf8_lossy(&path).into_owned();
            return Err(UndoError::NotYours { path });
        }
    }
    Ok(())
}

fn is_own(user: &Credentials, owner: atomdir_disk::Owner, mode: u32) -> bool {
    let has_group = mode & SET_GROUP_ID == 0 || user.groups.contains(&owner.group);
    owner.user == user.user && has_group
}

/// Whether an object that comes back, or anything in it, is another user's, or has rights that the
/// user could not give it.
fn has_foreign<D: Disk>(
    view: &View<D>,
    base: &Arc<Base>,
    user: &Credentials,
) -> Result<bool, Errno> {
    let snapshot = view.snapshot();
    let mut open = vec![base.clone()];
    while let Some(base) = open.pop() {
        let attributes = snapshot.stat(&base)?.attributes;
        let is_privileged = base.kind == Kind::File && has_capabilities(view, &base)?;
        if is_privileged || !is_own(user, attributes.owner, attributes.mode) {
            return Ok(true);
        }
        if base.kind == Kind::Directory {
            for (name, _, _) in snapshot.list(&base)? {
                let found = snapshot.lookup(&base, &name)?;
                open.extend(found.map(|found| found.base));
            }
        }
    }
    Ok(false)
}

fn has_capabilities<D: Disk>(view: &View<D>, base: &Arc<Base>) -> Result<bool, Errno> {
    let (identity, place) = base.identity_and_place();
    let core = &view.core;
    let found = core.with_object(&place, identity, |handle| {
        core.disk.xattr(handle, CAPABILITY)
    });
    match found {
        Ok(_) => Ok(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno),
    }
}
