//! Copies what is in a directory, compares the copies with their originals, and removes these.
//!
//! A copy has the original's kind, contents with their holes, target, mode, owner, times and extended
//! attributes (so its access lists and capabilities, too). Names of one file are names of one copy.

use super::{Failure, Outcome, at};
use atomdir_disk::{
    Access, Attributes, Disk, Errno, Identity, Kind, LinuxDisk, Name, NewNode, Stat,
};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Security modules label what is made by their own rules, and let few change that.
const LABELS: &[u8] = b"security.selinux";

type Place = (Arc<OwnedFd>, Name);

pub(super) struct Copier<'a> {
    disk: &'a LinuxDisk,
    /// Copies of files with several names.
    copies: HashMap<Identity, Place>,
}

impl<'a> Copier<'a> {
    pub fn new(disk: &'a LinuxDisk) -> Copier<'a> {
        Copier {
            disk,
            copies: HashMap::new(),
        }
    }

    pub fn copy_entries(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        is_left_out: impl Fn(&str) -> bool,
    ) -> Outcome {
        let to = rustix::io::fcntl_dupfd_cloexec(to, 3).map_err(at("", "keep a directory of"))?;
        let to = Arc::new(to);
        for name in list(self.disk, from, "")? {
            if !is_left_out(&String::from_utf8_lossy(name.as_bytes())) {
                self.copy(from, &to, &name, "")?;
            }
        }
        Ok(())
    }

    fn copy(&mut self, from: &OwnedFd, to: &Arc<OwnedFd>, name: &Name, above: &str) -> Outcome {
        let path = shown(above, name);
        let failed = at(&path, "copy");
        let disk = self.disk;
        // Before the contents are read, so that a later change has a later time.
        let stat = disk.stat_at(from, name).map_err(&failed)?;
        refuse_unmovable(&stat, &path)?;
        if let Some((place, first)) = self.copies.get(&stat.identity) {
            return disk.link((place, first), (to, name)).map_err(&failed);
        }
        let node = match stat.kind {
            Kind::File => NewNode::File,
            Kind::Directory => NewNode::Directory,
            Kind::Symlink => NewNode::Symlink(disk.read_link(from, name).map_err(&failed)?),
            Kind::Fifo => NewNode::Fifo,
            Kind::Socket => NewNode::Socket,
            Kind::CharacterDevice => NewNode::CharacterDevice(stat.device_number),
            Kind::BlockDevice => NewNode::BlockDevice(stat.device_number),
        };
        disk.make(to, name, &node, 0o700).map_err(&failed)?;
        let original = disk.open(from, name, Access::Path).map_err(&failed)?;
        let copy = disk.open(to, name, Access::Path).map_err(&failed)?;
        match stat.kind {
            Kind::File => self
                .copy_contents((from, to), name, stat.length)
                .map_err(&failed)?,
            Kind::Directory => {
                let inside = disk.open(from, name, Access::Directory).map_err(&failed)?;
                // To move a directory is to change its entry `..`.
                if above.is_empty() && !disk.may_access(&inside, 2).map_err(&failed)? {
                    return Err(Failure::Refused(format!(
                        "there is no permission to write in '{path}', so it cannot be moved; change \
                         that first"
                    )));
                }
                let copies = disk.open(to, name, Access::Directory).map_err(&failed)?;
                let copies = Arc::new(copies);
                for name in list(disk, &inside, &path)? {
                    self.copy(&inside, &copies, &name, &path)?;
                }
            }
            _ => {}
        }
        let set = self.set_attributes((&original, &copy), &stat);
        set.map_err(at(&path, "give the copy its owner, mode and attributes of"))?;
        if stat.links > 1 && stat.kind != Kind::Directory {
            let place = (to.clone(), name.clone());
            self.copies.insert(stat.identity, place);
        }
        Ok(())
    }

    fn copy_contents(
        &self,
        (from, to): (&OwnedFd, &OwnedFd),
        name: &Name,
        length: u64,
    ) -> Result<(), Errno> {
        let disk = self.disk;
        let original = disk.open(from, name, Access::Read)?;
        let copy = disk.open(to, name, Access::ReadWrite)?;
        let mut offset = 0;
        while let Some(data) = disk.next_data(&original, offset)? {
            let end = (data.offset + data.length).min(length);
            offset = data.offset;
            while offset < end {
                let count = disk.copy_range((&original, offset), (&copy, offset), end - offset)?;
                if count == 0 {
                    break;
                }
                offset += count;
            }
            if offset < end || end == length {
                break;
            }
        }
        disk.set_length(&copy, length)
    }

    /// The owner is set first, since that clears set-id bits and capabilities, and the times last.
    fn set_attributes(
        &self,
        (original, copy): (&OwnedFd, &OwnedFd),
        stat: &Stat,
    ) -> Result<(), Errno> {
        let disk = self.disk;
        let Attributes { mode, owner, times } = stat.attributes;
        if disk.stat(copy)?.attributes.owner != owner {
            disk.set_owner(copy, owner)?;
        }
        let names = disk.xattr_names(original)?;
        // Those that the directory has handed down.
        for name in disk.xattr_names(copy)? {
            if !names.contains(&name) && name != LABELS {
                disk.remove_xattr(copy, &name)?;
            }
        }
        if stat.kind != Kind::Symlink {
            disk.set_mode(copy, mode)?;
        }
        for name in names.iter().filter(|name| *name != LABELS) {
            disk.set_xattr(copy, name, &disk.xattr(original, name)?)?;
        }
        disk.set_times(copy, times)
    }
}

/// Refuses an object whose original could not be removed after it was copied.
fn refuse_unmovable(stat: &Stat, path: &str) -> Outcome {
    let why = if stat.mount_point {
        "something is mounted on"
    } else if stat.immutable {
        "chattr has made it immutable or append-only:"
    } else {
        return Ok(());
    };
    Err(Failure::Refused(format!("{why} '{path}'")))
}

/// The names in a directory, sorted.
pub(super) fn list(disk: &LinuxDisk, directory: &OwnedFd, path: &str) -> Outcome<Vec<Name>> {
    let listed = disk.list(directory).map_err(at(path, "list"))?;
    let mut names: Vec<Name> = listed.into_iter().map(|entry| entry.name).collect();
    names.sort();
    Ok(names)
}

/// Refuses an original that is not as its copy says.
pub(super) fn check_equal(
    disk: &LinuxDisk,
    originals: &OwnedFd,
    copies: &OwnedFd,
    name: &Name,
    above: &str,
) -> Outcome {
    let path = shown(above, name);
    let failed = at(&path, "compare with its copy");
    let original = disk.stat_at(originals, name).map_err(&failed)?;
    let copy = match disk.stat_at(copies, name) {
        Err(Errno::NOENT) => return Err(changed(&path)),
        found => found.map_err(&failed)?,
    };
    let of = |stat: &Stat| {
        let Attributes { mode, owner, times } = stat.attributes;
        // That of a directory changes as its entries are removed.
        let length = (stat.kind != Kind::Directory).then_some((stat.length, times.modified));
        (stat.kind, mode, owner, length, stat.device_number)
    };
    if of(&original) != of(&copy) {
        return Err(changed(&path));
    }
    if original.kind == Kind::Symlink
        && disk.read_link(originals, name).map_err(&failed)?
            != disk.read_link(copies, name).map_err(&failed)?
    {
        return Err(changed(&path));
    }
    if original.kind == Kind::Directory {
        let inside = disk
            .open(originals, name, Access::Directory)
            .map_err(&failed)?;
        let copies = disk
            .open(copies, name, Access::Directory)
            .map_err(&failed)?;
        for name in list(disk, &inside, &path)? {
            check_equal(disk, &inside, &copies, &name, &path)?;
        }
    }
    Ok(())
}

pub(super) fn changed(path: &str) -> Failure {
    Failure::Refused(format!("'{path}' was changed while it was copied"))
}

/// Removes what is left of an original. What has been changed since stays, with all that is in its
/// place.
pub(super) fn remove_equal(
    disk: &LinuxDisk,
    originals: &OwnedFd,
    copies: &OwnedFd,
    name: &Name,
) -> Outcome {
    let path = shown("", name);
    match disk.stat_at(originals, name) {
        Err(Errno::NOENT) => return Ok(()),
        found => found.map_err(at(&path, "look at"))?,
    };
    check_equal(disk, originals, copies, name, "")?;
    let removed = atomdir_engine::Store::remove_control(disk, originals, name);
    removed.map_err(at(&path, "remove"))
}

pub(super) fn shown(above: &str, name: &Name) -> String {
    let name = String::from_utf8_lossy(name.as_bytes());
    match above {
        "" => name.into_owned(),
        above => format!("{above}/{name}"),
    }
}
