//! Attributes, and the results of stat.

use atomdir_disk::{
    Attributes, Errno, FileSystemId, FileSystemStatus, Identity, Kind, Owner, Result, Stat, Times,
};

use crate::effect::What;
use crate::image::{Body, Number};
use crate::world::{BILLION, World};

const SPACE_BLOCKS: u64 = 1 << 20;
const FILES: u64 = 1 << 20;

pub(super) const STATUS: FileSystemStatus = FileSystemStatus {
    block_size: 4096,
    blocks: SPACE_BLOCKS,
    blocks_free: SPACE_BLOCKS,
    blocks_available: SPACE_BLOCKS,
    files: FILES,
    files_free: FILES,
    name_length_max: 255,
    read_only: false,
    layered: false,
    id: FileSystemId([1; 16]),
};

pub(super) fn stat(world: &World, number: Number) -> Result<Stat> {
    let inode = world.inode(number)?;
    let (length, blocks) = match &inode.body {
        Body::File(contents) => (contents.length, contents.blocks()),
        Body::Directory(_) => (4096, 8),
        Body::Symlink(target) => (target.len() as u64, 0),
        Body::Other => (0, 0),
    };
    Ok(Stat {
        identity: Identity {
            inode: number,
            birth: inode.birth,
        },
        device: inode.device,
        kind: inode.kind,
        attributes: Attributes {
            mode: inode.mode,
            owner: inode.owner,
            times: inode.times,
        },
        changed: inode.changed,
        links: inode.links,
        length,
        blocks,
        device_number: inode.device_number,
        immutable: world.immutable == Some(number),
        mount_point: false,
    })
}

pub(super) fn set_mode(world: &mut World, number: Number, mode: u32) -> Result<()> {
    if world.inode(number)?.kind == Kind::Symlink {
        return Err(Errno::OPNOTSUPP);
    }
    world.change(What::Mode(number, mode & 0o7777));
    Ok(())
}

pub(super) fn set_owner(world: &mut World, number: Number, owner: Owner) -> Result<()> {
    if owner.user == u32::MAX || owner.group == u32::MAX {
        return Err(Errno::INVAL);
    }
    let inode = world.inode(number)?;
    let mut mode = inode.mode;
    if inode.kind != Kind::Directory {
        mode = without_set_id(mode);
    }
    world.change(What::Owner(number, owner, mode));
    Ok(())
}

/// The mode that the kernel leaves when a file is written or given away.
pub(super) fn without_set_id(mode: u32) -> u32 {
    let group = if mode & 0o010 != 0 { 0o2000 } else { 0 };
    mode & !0o4000 & !group
}

pub(super) fn set_times(world: &mut World, number: Number, times: Times) -> Result<()> {
    world.inode(number)?;
    for time in [times.accessed, times.modified] {
        if u64::from(time.nanoseconds) >= BILLION {
            return Err(Errno::INVAL);
        }
    }
    world.change(What::Times(number, times));
    Ok(())
}

pub(super) fn touch(world: &mut World, number: Number) -> Result<()> {
    let now = world.time();
    let times = Times {
        accessed: now,
        modified: now,
    };
    set_times(world, number, times)
}

fn check_xattr(world: &World, number: Number, name: &[u8]) -> Result<()> {
    let kind = world.inode(number)?.kind;
    let has_prefix = |prefix: &str| name.starts_with(prefix.as_bytes());
    if has_prefix("user.") && !matches!(kind, Kind::File | Kind::Directory) {
        return Err(Errno::PERM);
    }
    let known = ["user.", "trusted.", "security.", "system."];
    if !known.into_iter().any(has_prefix) {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(())
}

pub(super) fn set_xattr(
    world: &mut World,
    number: Number,
    name: &[u8],
    value: &[u8],
) -> Result<()> {
    check_xattr(world, number, name)?;
    world.change(What::Xattr(number, name.to_vec(), Some(value.to_vec())));
    Ok(())
}

pub(super) fn remove_xattr(world: &mut World, number: Number, name: &[u8]) -> Result<()> {
    check_xattr(world, number, name)?;
    if !world.inode(number)?.xattrs.contains_key(name) {
        return Err(Errno::NODATA);
    }
    world.change(What::Xattr(number, name.to_vec(), None));
    Ok(())
}

/// Checks access as root, who may do everything except execute a file that
/// nobody may.
pub(super) fn may_access(world: &World, number: Number, bits: u32) -> Result<bool> {
    if bits > 7 {
        return Err(Errno::INVAL);
    }
    let inode = world.inode(number)?;
    let is_executable = inode.kind != Kind::File || inode.mode & 0o111 != 0;
    Ok(bits & 1 == 0 || is_executable)
}
