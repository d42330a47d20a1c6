//! Names, and the objects that are made and removed with them.

use std::collections::BTreeMap;

use atomdir_disk::{Access, DirectoryEntry, Errno, Kind, Name, NewNode, RenameMode, Result};

use crate::contents::Contents;
use crate::effect::EntryChange;
use crate::image::{Body, Inode, Number};
use crate::world::{World, inode};

type EntryKey<'a> = (Number, &'a Name);

pub(super) fn open(
    world: &World,
    directory: Number,
    name: &Name,
    access: Access,
) -> Result<Number> {
    let number = world.find(directory, name)?;
    match (access, world.inode(number)?.kind) {
        (Access::Path, _) => Ok(number),
        (_, Kind::Symlink) => Err(Errno::LOOP),
        (Access::Directory, Kind::Directory) => Ok(number),
        (Access::Directory, _) => Err(Errno::NOTDIR),
        (Access::ReadWrite, Kind::Directory) => Err(Errno::ISDIR),
        (_, Kind::Socket) => Err(Errno::NXIO),
        _ => Ok(number),
    }
}

/// Checks that the name is free and that the directory has not been removed.
fn check_free(world: &World, directory: Number, name: &Name) -> Result<()> {
    if world.directory(directory)?.contains_key(name) {
        return Err(Errno::EXIST);
    }
    if world.inode(directory)?.links == 0 {
        return Err(Errno::NOENT);
    }
    Ok(())
}

pub(super) fn create(
    world: &mut World,
    directory: Number,
    name: &Name,
    mode: u32,
) -> Result<Number> {
    check_free(world, directory, name)?;
    let body = Body::File(Contents::default());
    let new = inode(Kind::File, mode, body, world.now);
    Ok(world.create(directory, name, new))
}

pub(super) fn make(
    world: &mut World,
    directory: Number,
    name: &Name,
    node: &NewNode,
    mode: u32,
) -> Result<()> {
    check_free(world, directory, name)?;
    let (kind, body) = match node {
        NewNode::File => (Kind::File, Body::File(Contents::default())),
        NewNode::Directory => (Kind::Directory, Body::Directory(BTreeMap::new())),
        NewNode::Symlink(target) => (Kind::Symlink, Body::Symlink(target.clone())),
        NewNode::Fifo => (Kind::Fifo, Body::Other),
        NewNode::Socket => (Kind::Socket, Body::Other),
        NewNode::CharacterDevice(_) => (Kind::CharacterDevice, Body::Other),
        NewNode::BlockDevice(_) => (Kind::BlockDevice, Body::Other),
    };
    let mode = if kind == Kind::Symlink { 0o777 } else { mode };
    let mut new = inode(kind, mode, body, world.now);
    if let NewNode::CharacterDevice(device) | NewNode::BlockDevice(device) = node {
        new.device_number = *device;
    }
    world.create(directory, name, new);
    Ok(())
}

pub(super) fn link(world: &mut World, from: EntryKey<'_>, to: EntryKey<'_>) -> Result<()> {
    let number = world.find(from.0, from.1)?;
    check_free(world, to.0, to.1)?;
    if world.inode(number)?.kind == Kind::Directory {
        return Err(Errno::PERM);
    }
    world.change_entries(EntryChange {
        set: vec![(to.0, to.1.clone(), Some(number))],
        found_at: Some((from.0, from.1.clone())),
        moves_directory: false,
    });
    Ok(())
}

pub(super) fn rename(
    world: &mut World,
    from: EntryKey<'_>,
    to: EntryKey<'_>,
    mode: RenameMode,
) -> Result<()> {
    if world.device(from.0) != world.device(to.0) {
        return Err(Errno::XDEV);
    }
    let moved = world.find(from.0, from.1)?;
    let target = world.directory(to.0)?.get(to.1).copied();
    if world.inode(to.0)?.links == 0 {
        return Err(Errno::NOENT);
    }
    if mode == RenameMode::NoReplace && target.is_some() {
        return Err(Errno::EXIST);
    }
    let is_directory = |number| {
        matches!(
            world.inode(number),
            Ok(Inode {
                kind: Kind::Directory,
                ..
            })
        )
    };
    if is_directory(moved) && is_below(world, moved, to.0) {
        return Err(Errno::INVAL);
    }
    let mut left_behind = None;
    if mode == RenameMode::Exchange {
        let other = target.ok_or(Errno::NOENT)?;
        if is_directory(other) && is_below(world, other, from.0) {
            return Err(Errno::INVAL);
        }
        left_behind = Some(other);
    } else if let Some(target) = target.filter(|target| *target != moved) {
        match (is_directory(moved), is_directory(target)) {
            (false, true) => return Err(Errno::ISDIR),
            (true, false) => return Err(Errno::NOTDIR),
            (true, true) if !world.directory(target)?.is_empty() => return Err(Errno::NOTEMPTY),
            _ => {}
        }
    }
    if target == Some(moved) {
        return Ok(());
    }
    let moves_directory = is_directory(moved) || left_behind.is_some_and(is_directory);
    world.change_entries(EntryChange {
        set: vec![
            (from.0, from.1.clone(), left_behind),
            (to.0, to.1.clone(), Some(moved)),
        ],
        found_at: None,
        moves_directory,
    });
    Ok(())
}

/// Whether the directory is the other one or is below it.
fn is_below(world: &World, above: Number, directory: Number) -> bool {
    if above == directory {
        return true;
    }
    let Ok(entries) = world.directory(above) else {
        return false;
    };
    entries
        .values()
        .any(|child| is_below(world, *child, directory))
}

pub(super) fn unlink(world: &mut World, directory: Number, name: &Name) -> Result<()> {
    let number = world.find(directory, name)?;
    if world.inode(number)?.kind == Kind::Directory {
        return Err(Errno::ISDIR);
    }
    remove(world, directory, name);
    Ok(())
}

pub(super) fn remove_directory(world: &mut World, directory: Number, name: &Name) -> Result<()> {
    let number = world.find(directory, name)?;
    if !world.directory(number)?.is_empty() {
        return Err(Errno::NOTEMPTY);
    }
    remove(world, directory, name);
    Ok(())
}

fn remove(world: &mut World, directory: Number, name: &Name) {
    world.change_entries(EntryChange {
        set: vec![(directory, name.clone(), None)],
        found_at: None,
        moves_directory: false,
    });
}

pub(super) fn list(world: &World, directory: Number) -> Result<Vec<DirectoryEntry>> {
    let entries = world.directory(directory)?.iter();
    let listed = entries.map(|(name, number)| DirectoryEntry {
        name: name.clone(),
        inode: *number,
        kind: world.inode(*number).ok().map(|inode| inode.kind),
    });
    Ok(listed.collect())
}

pub(super) fn read_link(world: &World, directory: Number, name: &Name) -> Result<Vec<u8>> {
    match &world.inode(world.find(directory, name)?)?.body {
        Body::Symlink(target) => Ok(target.clone()),
        _ => Err(Errno::INVAL),
    }
}
