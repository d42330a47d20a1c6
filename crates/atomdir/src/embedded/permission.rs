//! Checks what this process's user may do in a view.
//!
//! Invariant: the user may do nothing in such a view that the kernel would refuse in a mounted file
//! system. So these are checked:
//! - search permission of every directory on the way;
//! - read and write permission of a file when it is opened, of a directory when it is listed
//!   or its entries change, and of a directory that moves to another one;
//! - sticky directories: only the owners of the directory and of an entry may remove it;
//! - ownership, for modes, owners, times and access control lists;
//! - which extended attributes a user may read and set;
//! - symbolic links and new hard links to other users' objects, as `fs.protected_symlinks` and
//!   `fs.protected_hardlinks` say.
//!
//! A file that is open stays open, whatever happens to its mode, as usual.

use super::session::Engine;
use super::walk::Known;
use crate::api::session::AttributeChange;
use atomdir_disk::{Errno, Kind, Result};
use atomdir_engine::{Credentials, NodeAttributes, NodeId, Permission, SetTime};
use rustix::fs::{CWD, Mode, OFlags, openat};

const STICKY: u32 = 0o1000;
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;
const WRITABLE_BY_ALL: u32 = 0o002;

/// Settings of the system that forbid more than modes do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Protection {
    symlinks: bool,
    hard_links: bool,
}

impl Protection {
    /// A setting that cannot be read counts as on.
    pub(super) fn of_system() -> Protection {
        let is_on = |name: &str| {
            let path = format!("/proc/sys/fs/{name}");
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let mut value = [0; 1];
            let read = openat(CWD, path, flags, Mode::empty())
                .and_then(|file| rustix::io::read(&file, &mut value));
            read.is_err() || value != *b"0"
        };
        Protection {
            symlinks: is_on("protected_symlinks"),
            hard_links: is_on("protected_hardlinks"),
        }
    }
}

/// The rights of this process's user.
pub(super) struct Rights {
    pub(super) protection: Protection,
    pub(super) user: Credentials,
    /// Root, to whom none of this applies.
    pub(super) is_privileged: bool,
}

impl Rights {
    pub(super) fn require(
        &self,
        engine: &Engine,
        node: NodeId,
        attributes: &NodeAttributes,
        permission: Permission,
    ) -> Result<()> {
        match self.is_privileged {
            true => Ok(()),
            false => engine.require(node, attributes, &self.user, permission),
        }
    }

    /// To create, remove or rename entries of a directory.
    pub(super) fn require_entries(&self, engine: &Engine, directory: &Known<'_>) -> Result<()> {
        let (node, attributes) = (directory.node, &directory.attributes);
        self.require(engine, node, attributes, Permission::Write)?;
        self.require(engine, node, attributes, Permission::Search)
    }

    /// To remove or rename this object's entry in the directory.
    pub(super) fn require_removal(
        &self,
        directory: &NodeAttributes,
        object: &NodeAttributes,
    ) -> Result<()> {
        let is_sticky = directory.mode & STICKY != 0;
        match is_sticky && !self.owns(directory) && !self.owns(object) {
            true => Err(Errno::PERM),
            false => Ok(()),
        }
    }

    /// To change the mode, the times or the access control lists.
    pub(super) fn require_owner(&self, object: &NodeAttributes) -> Result<()> {
        match self.owns(object) {
            true => Ok(()),
            false => Err(Errno::PERM),
        }
    }

    /// Whether a symbolic link may be followed: in a directory like `/tmp` only that of the
    /// user or of the directory's owner.
    pub(super) fn may_follow(
        &self,
        directory: &NodeAttributes,
        link: &NodeAttributes,
    ) -> Result<()> {
        let shared = STICKY | WRITABLE_BY_ALL;
        let is_shared = directory.mode & shared == shared;
        let owner = link.owner.user;
        match self.protection.symlinks
            && is_shared
            && owner != self.user.user
            && owner != directory.owner.user
        {
            true => Err(Errno::ACCESS),
            false => Ok(()),
        }
    }

    /// To give the object another name.
    pub(super) fn require_link(
        &self,
        engine: &Engine,
        node: NodeId,
        object: &NodeAttributes,
    ) -> Result<()> {
        if self.owns(object) || !self.protection.hard_links {
            return Ok(());
        }
        let runs_as_group = SET_GROUP_ID | GROUP_EXECUTE;
        let is_plain = object.kind == Kind::File
            && object.mode & SET_USER_ID == 0
            && object.mode & runs_as_group != runs_as_group;
        let may_use = || {
            self.require(engine, node, object, Permission::Read)?;
            self.require(engine, node, object, Permission::Write)
        };
        match is_plain && may_use().is_ok() {
            true => Ok(()),
            false => Err(Errno::PERM),
        }
    }

    /// Checks a change of attributes, and returns what of the mode may be set.
    pub(super) fn require_change(
        &self,
        engine: &Engine,
        node: NodeId,
        object: &NodeAttributes,
        change: &AttributeChange,
    ) -> Result<AttributeChange> {
        let mut allowed = *change;
        if self.is_privileged {
            return Ok(allowed);
        }
        if change.length.is_some() {
            self.require(engine, node, object, Permission::Write)?;
        }
        if change.mode.is_some() || change.user.is_some() || change.group.is_some() {
            self.require_owner(object)?;
        }
        let keeps_user = change.user.is_none_or(|user| user == object.owner.user);
        let has_group = |group| group == object.owner.group || self.user.groups.contains(&group);
        if !keeps_user || !change.group.is_none_or(has_group) {
            return Err(Errno::PERM);
        }
        let group = change.group.unwrap_or(object.owner.group);
        if let Some(mode) = &mut allowed.mode
            && !self.user.groups.contains(&group)
        {
            *mode &= !SET_GROUP_ID;
        }
        let times = [change.accessed, change.modified];
        if times
            .iter()
            .any(|time| matches!(time, Some(SetTime::At(_))))
        {
            self.require_owner(object)?;
        } else if times.iter().any(Option::is_some) && !self.owns(object) {
            self.require(engine, node, object, Permission::Write)?;
        }
        Ok(allowed)
    }

    /// To read an extended attribute.
    pub(super) fn require_xattr(
        &self,
        engine: &Engine,
        node: NodeId,
        object: &NodeAttributes,
        name: &[u8],
    ) -> Result<()> {
        if name.starts_with(b"user.") {
            if !has_user_xattrs(object) {
                return Err(Errno::NODATA);
            }
            return self.require(engine, node, object, Permission::Read);
        }
        match self.may_see_xattr(name) {
            true => Ok(()),
            false => Err(Errno::NODATA),
        }
    }

    pub(super) fn may_see_xattr(&self, name: &[u8]) -> bool {
        self.is_privileged || !name.starts_with(b"trusted.")
    }

    /// To set or remove an extended attribute.
    pub(super) fn require_xattr_change(
        &self,
        engine: &Engine,
        node: NodeId,
        object: &NodeAttributes,
        name: &[u8],
    ) -> Result<()> {
        if name.starts_with(b"user.") {
            let is_shared = object.kind == Kind::Directory && object.mode & STICKY != 0;
            if !has_user_xattrs(object) || (is_shared && !self.owns(object)) {
                return Err(Errno::PERM);
            }
            return self.require(engine, node, object, Permission::Write);
        }
        if name.starts_with(b"system.posix_acl_") {
            return self.require_owner(object);
        }
        if name.starts_with(b"trusted.") || name.starts_with(b"security.") {
            return match self.is_privileged {
                true => Ok(()),
                false => Err(Errno::PERM),
            };
        }
        Err(Errno::OPNOTSUPP)
    }

    fn owns(&self, object: &NodeAttributes) -> bool {
        self.is_privileged || object.owner.user == self.user.user
    }
}

/// Only files and directories have attributes that programs choose.
fn has_user_xattrs(object: &NodeAttributes) -> bool {
    matches!(object.kind, Kind::File | Kind::Directory)
}
