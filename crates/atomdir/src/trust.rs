//! Decides which stores this process trusts enough to use.
//!
//! The user who controls a store's control directory decides which program answers there
//! and what it answers. A user who can rename a directory on the way to it can put another
//! in its place.
//!
//! Invariants: a store is trusted only if
//! 1. its root and its control directory belong to the caller or to root, and nobody else
//!    can write in the control directory;
//! 2. every directory above them belongs to the caller or to root, and nobody else can
//!    rename its entries: others cannot write in it, or it is sticky;
//!
//! or if the caller's own configuration lists its root, or the caller says so for one call. Others
//! may write in the root itself, as in that of a shared store: if they replace the control
//! directory, the replacement fails the first condition.

pub(crate) mod configuration;

use crate::accounts::{Account, Group, accounts, describe_user};
use atomdir_engine::AccessControlList;
use rustix::fs::{CWD, Mode, OFlags, fstat, getxattr, openat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The user id that the kernel shows for users whom the user namespace does not map.
pub(crate) const OVERFLOW_USER: u32 = 65_534;

/// Which stores are trusted besides the caller's own and root's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trust {
    /// Those that the caller's configuration lists: see docs/running.md.
    #[default]
    Listed,
    /// Any owner's store. For a store that the caller has named.
    Everyone,
}

/// Why a store is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// The path belongs to another user.
    #[error("'{path}' belongs to {}", describe_user(*user))]
    Foreign {
        /// The path.
        path: PathBuf,
        /// The numeric id of that user.
        user: u32,
    },
    /// Others can write at the path.
    #[error("'{path}' can be written by others than its owner")]
    Writable {
        /// The path.
        path: PathBuf,
    },
}

/// The longest access control list (XATTR_SIZE_MAX).
const LIST_LENGTH_MAX: usize = 64 << 10;

/// The owner and permissions of a file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) path: PathBuf,
    pub(crate) user: u32,
    group: u32,
    mode: u32,
    /// Its access control list lets others write.
    names_writer: bool,
}

impl Owned {
    /// Messages call the object `path`.
    pub(crate) fn new(path: &Path, object: impl AsFd) -> Result<Owned, Errno> {
        let stat = fstat(&object)?;
        // The group's bits are the list's mask: without them the list lets nobody write by name.
        let names_writer = stat.st_mode & 0o020 != 0 && names_writer(object, stat.st_uid)?;
        Ok(Owned {
            path: path.to_owned(),
            user: stat.st_uid,
            group: stat.st_gid,
            mode: stat.st_mode,
            names_writer,
        })
    }

    /// Reads them from the object at `path`; follows links.
    pub(crate) fn at(path: &Path) -> Result<Owned, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Owned::new(path, openat(CWD, path, flags, Mode::empty())?)
    }

    /// For a root: others may write in it.
    pub(crate) fn check_owner(&self) -> Result<(), Distrust> {
        let user = self.user;
        if user == 0 || (user == geteuid().as_raw() && !self.is_of_unmapped_user()) {
            return Ok(());
        }
        let path = self.path.clone();
        Err(Distrust::Foreign { path, user })
    }

    /// For a control directory, the file that names it, and the caller's configuration:
    /// nobody else can write.
    pub(crate) fn check_closed(&self) -> Result<(), Distrust> {
        self.check_owner()?;
        if self.others_can_write() {
            let path = self.path.clone();
            return Err(Distrust::Writable { path });
        }
        Ok(())
    }

    /// For a directory above: nobody else can rename its entries. In a sticky one only the
    /// owner of an entry can, and each entry on the way is checked as well.
    pub(crate) fn check_above(&self) -> Result<(), Distrust> {
        // The user namespace of a command in a transaction maps only its user, and so does that
        // of `unshare -r`, as root. Root's directories there seem to belong to the same user as
        // everybody else's. Without this exception no store could be used there. The root and
        // the control directory must still be the caller's.
        if !self.is_of_unmapped_user() && !self.may_be_of_outer_root() {
            self.check_owner()?;
        }
        if self.others_can_write() && self.mode & libc::S_ISVTX == 0 {
            let path = self.path.clone();
            return Err(Distrust::Writable { path });
        }
        Ok(())
    }

    fn others_can_write(&self) -> bool {
        let (by_group, by_all) = (self.mode & 0o020 != 0, self.mode & 0o002 != 0);
        by_all || self.names_writer || (by_group && !is_private_group(self.group, self.user))
    }

    /// The kernel shows users that the user namespace does not map as this id, which some
    /// systems also call nobody. If root is mapped, the id needs no exception.
    fn is_of_unmapped_user(&self) -> bool {
        self.user == OVERFLOW_USER && !is_root_mapped()
    }

    /// Root here is another user outside, so root's own directories have this id.
    fn may_be_of_outer_root(&self) -> bool {
        self.user == OVERFLOW_USER && user_map().is_some_and(|map| hides_outer_root(&map))
    }
}

/// Whether the access control list lets anyone write except the owner, the caller and root.
/// For a list that cannot be decoded the answer is yes.
fn names_writer(object: impl AsFd, owner: u32) -> Result<bool, Errno> {
    // getxattr(2) does not accept an `O_PATH` descriptor.
    let path = format!("/proc/self/fd/{}", object.as_fd().as_raw_fd());
    let name = OsStr::from_bytes(AccessControlList::ATTRIBUTE);
    let mut list = vec![0; LIST_LENGTH_MAX];
    let length = match getxattr(path, name, &mut list[..]) {
        Ok(length) => length,
        Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(false),
        Err(errno) => return Err(errno),
    };
    let trusted = [0, owner, geteuid().as_raw()];
    let list = AccessControlList::decode(&list[..length]);
    Ok(list.map_or(true, |list| {
        list.names_writer(|user| trusted.contains(&user))
    }))
}

/// Many systems give each user a private group, and a umask that lets the group write. Such
/// a group has the user's name and no other members.
fn is_private_group(group: u32, user: u32) -> bool {
    // Groups that the user namespace does not map have this id, too.
    if group == OVERFLOW_USER {
        return false;
    }
    let (Some(account), Some(group)) = (Account::of(user), Group::of(group)) else {
        return false;
    };
    account.name == group.name && is_alone_in(&account, &group, &accounts())
}

/// A group does not list members for whom it is the primary group.
fn is_alone_in(account: &Account, group: &Group, accounts: &[Account]) -> bool {
    account.group == group.group
        && group.members.iter().all(|member| *member == account.name)
        && accounts
            .iter()
            .all(|other| other.group != group.group || other.user == account.user)
}

pub(crate) fn is_root_mapped() -> bool {
    // Without proof we do not treat the overflow user as root.
    user_map().is_none_or(|map| map.iter().any(|[inside, ..]| *inside == 0))
}

/// The users that the user namespace maps: first id inside, first id outside, count.
type UserMap = Vec<[u64; 3]>;

fn user_map() -> Option<UserMap> {
    let mut buffer = [0; 4096];
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let map = openat(CWD, "/proc/self/uid_map", flags, Mode::empty()).ok()?;
    let length = rustix::io::read(&map, &mut buffer).ok()?;
    let text = String::from_utf8_lossy(&buffer[..length]);
    let line = |line: &str| {
        let numbers = line.split_whitespace().map(|word| word.parse().ok());
        numbers.collect::<Option<Vec<u64>>>()?.try_into().ok()
    };
    text.lines().map(line).collect()
}

/// Whether root outside has no id inside, and the overflow id is nobody's inside. In namespaces
/// within others, "outside" is the next one, whose root may be an ordinary user: then the answer
/// is no, which only refuses more. Where the overflow id is also a user's own, as in containers
/// with many users, it proves nothing.
fn hides_outer_root(map: &[[u64; 3]]) -> bool {
    let covers = |first: u64, count: u64, id: u64| id >= first && id - first < count;
    let maps_root = map
        .iter()
        .any(|[_, outside, count]| covers(*outside, *count, 0));
    let overflow = u64::from(OVERFLOW_USER);
    let maps_overflow = map
        .iter()
        .any(|[inside, _, count]| covers(*inside, *count, overflow));
    !maps_root && !maps_overflow
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn roots_directories_are_recognized_only_where_nobody_else_has_their_id() {
        // `unshare -r` by an ordinary user and by root, and without any namespace.
        assert!(hides_outer_root(&[[0, 1000, 1]]));
        assert!(!hides_outer_root(&[[0, 0, 1]]));
        assert!(!hides_outer_root(&[[0, 0, 4_294_967_295]]));
        // Containers: one with a user 65534 of its own, and one without.
        assert!(!hides_outer_root(&[[0, 100_000, 65_536]]));
        assert!(hides_outer_root(&[[0, 1000, 1], [1, 100_000, 1000]]));
        // A user who is nobody outside cannot be distinguished from root.
        assert!(!hides_outer_root(&[[65_534, 65_534, 1]]));
    }

    #[test]
    fn a_primary_group_of_others_is_not_private() {
        let name = |text: &str| CString::new(text).expect("no zero");
        let account = |text: &str, user, group| Account {
            name: name(text),
            user,
            group,
            home: PathBuf::from("/"),
        };
        let group = |members: &[&str]| Group {
            name: name("ann"),
            group: 7,
            members: members.iter().map(|one| name(one)).collect(),
        };
        let ann = account("ann", 1, 7);
        let (alias, bob) = (account("anna", 1, 7), account("bob", 2, 8));
        let accounts = [ann.clone(), alias, bob];
        assert!(is_alone_in(&ann, &group(&[]), &accounts));
        assert!(is_alone_in(&ann, &group(&["ann"]), &accounts));
        assert!(!is_alone_in(&ann, &group(&["bob"]), &accounts));
        assert!(!is_alone_in(&ann, &group(&[]), &[account("bob", 2, 7)]));
    }
}
