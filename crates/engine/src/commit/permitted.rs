//! Checks whether the transaction's user could make a commit's changes to the present base
//! themselves: see [`crate::base::present`].
//!
//! The check comes before the record is logged, and once more right before it is applied. Apply
//! then acts with the user's rights (`apply::actor`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Attributes, Disk, Errno, Kind};
use atomdir_format::record::CommitRecord;
use atomdir_types::TreePath;

use crate::base::core::Core;
use crate::base::credentials::{Credentials, Permission};
use crate::base::present::{permissions, require};
use crate::base::privileges::{CAPABILITY, without_set_id};
use crate::base::{Base, Place, above};
use crate::error::CommitError;
use crate::write_set::{Object, ObjectWrite, WriteSet};

const STICKY: u32 = 0o1000;

type Outcome<T> = Result<T, CommitError>;

/// Checks a logged commit that is about to be applied.
pub(crate) fn check_again<D: Disk>(
    core: &Core<D>,
    set: &WriteSet,
    record: &CommitRecord,
) -> Outcome<()> {
    let Some(groups) = record.groups.clone() else {
        return Ok(());
    };
    let user = record.user;
    check(core, set, &Credentials { user, groups })
}

/// Checks that the directories and the objects let the user make these changes to the base
/// themselves.
pub(crate) fn check<D: Disk>(core: &Core<D>, set: &WriteSet, user: &Credentials) -> Outcome<()> {
    let refused = |path: &TreePath| {
        let path = path.clone();
        move |errno| CommitError::io("change", &path, errno)
    };
    // Apply must be able to act as the user.
    if core.options.privileges.all {
        let acting = core.disk.act_as(user.user, &user.groups);
        drop(acting.map_err(refused(&TreePath::from(&b".atomdir"[..])))?);
    }
    // By serial: one look at a directory, and at those above it, serves all that changes in it.
    let (mut changeable, mut searchable) = (HashSet::new(), HashSet::new());
    let mut may_change = |directory: &Arc<Base>| match changeable.insert(directory.serial) {
        true => {
            require(core, directory, user, &[Permission::Write])?;
            require(core, directory, user, &[Permission::Search])
        }
        false => Ok(()),
    };
    let mut sticky = Sticky::default();
    for entry in &set.entries {
        if let Object::Base(directory) = &entry.directory {
            may_change(directory).map_err(refused(&entry.path))?;
            if let Some(before) = &entry.before {
                let checked = sticky.check(core, (directory, before), user);
                checked.map_err(refused(&entry.path))?;
            }
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
        let parent = parent.filter(|parent| parent.kind == Kind::Directory);
        if let Some(parent) = parent.filter(|parent| searchable.insert(parent.serial)) {
            require(core, &parent, user, &[Permission::Search]).map_err(refused(&object.path))?;
        }
        check_object(core, object, user).map_err(refused(&object.path))?;
        let place = object.base.state().place.clone();
        let contents = object.contents.as_ref();
        if contents.is_some_and(|contents| contents.replacement.is_some())
            && let Place::Entry { parent, .. } = place
        {
            may_change(&parent).map_err(refused(&object.path))?;
            let replaced = (&parent, &object.base);
            let checked = sticky.check(core, replaced, user);
            checked.map_err(refused(&object.path))?;
        }
    }
    Ok(())
}

/// By serial: whether the user may only take names of their own objects from the directory.
#[derive(Default)]
struct Sticky(HashMap<u64, bool>);

impl Sticky {
    /// In a sticky directory only the object's owner and the directory's may take a name away.
    fn check<D: Disk>(
        &mut self,
        core: &Core<D>,
        (directory, object): (&Arc<Base>, &Arc<Base>),
        user: &Credentials,
    ) -> Result<(), Errno> {
        let is_sticky = match self.0.get(&directory.serial) {
            Some(known) => *known,
            None => {
                let above = core.stat_now(directory)?.attributes;
                let is_sticky = above.mode & STICKY != 0 && above.owner.user != user.user;
                self.0.insert(directory.serial, is_sticky);
                is_sticky
            }
        };
        if !is_sticky {
            return Ok(());
        }
        match core.stat_now(object) {
            Ok(stat) if stat.attributes.owner.user != user.user => Err(Errno::PERM),
            _ => Ok(()),
        }
    }
}

/// Checks what an object's own attributes allow.
fn check_object<D: Disk>(
    core: &Core<D>,
    object: &ObjectWrite,
    user: &Credentials,
) -> Result<(), Errno> {
    let Ok(stat) = core.stat_now(&object.base) else {
        // An outside writer has just removed it.
        return Ok(());
    };
    let present = stat.attributes;
    let mut set = object.xattrs.iter().filter(|(_, value)| value.is_some());
    let is_open = |name: &[u8]| name.starts_with(b"user.") || name.starts_with(b"system.");
    if set.any(|(name, _)| !is_open(name)) || !may_give(object, present, user) {
        return Err(Errno::PERM);
    }
    if present.owner.user == user.user {
        return Ok(());
    }
    let is_kept = |mode: u32| mode == present.mode || mode == without_set_id(present.mode);
    let mut xattrs = object.xattrs.iter().map(|(name, _)| name.as_slice());
    let takes_owner = object.attributes.mode.is_some_and(|mode| !is_kept(mode))
        || !xattrs.all(|name| name == CAPABILITY || name.starts_with(b"user."));
    if takes_owner {
        return Err(Errno::PERM);
    }
    let writes = object.contents.is_some() || object.xattrs.iter().any(is_of_user);
    let may_write =
        !writes || permissions(core, &object.base, user)? & Permission::Write as u32 != 0;
    may_write.then_some(()).ok_or(Errno::ACCESS)
}

fn is_of_user((name, _): &(Vec<u8>, Option<Vec<u8>>)) -> bool {
    name.starts_with(b"user.")
}

/// Nobody but root gives an object to another user, and its owner gives it only to own groups.
fn may_give(object: &ObjectWrite, present: Attributes, user: &Credentials) -> bool {
    let owner = present.owner;
    let change = &object.attributes;
    let keeps_user = change.user.is_none_or(|wanted| wanted == owner.user);
    let keeps_group = change.group.is_none_or(|wanted| wanted == owner.group);
    let is_own = |group| user.groups.contains(&group);
    keeps_user && (keeps_group || owner.user == user.user && change.group.is_none_or(is_own))
}
