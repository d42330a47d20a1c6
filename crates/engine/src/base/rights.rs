//! Opens up staged objects whose modes keep their own owner out.
//!
//! A process without root's rights may not write, enter or read objects that its
//! programs have closed in a view, such as files of mode 0444 and directories of mode
//! 0555. As their owner it gives itself the right for one call, and then restores the
//! mode. An object that a crash leaves open is in the staging directory, which
//! recovery empties.

use atomdir_disk::{Access, Disk, Errno, Kind, Name, Result};

const OF_DIRECTORY: u32 = 0o700;
const OF_FILE: u32 = 0o600;

/// The mode that lets the owner do everything with an object of this mode and kind.
pub(crate) fn opened_mode(kind: Kind, mode: u32) -> u32 {
    match kind {
        Kind::Directory => mode | OF_DIRECTORY,
        Kind::File => mode | OF_FILE,
        _ => mode,
    }
}

/// Calls `act`, and if that is not permitted, again with the objects opened up.
pub(crate) fn with_rights<D: Disk, T>(
    disk: &D,
    objects: &[&D::Handle],
    mut act: impl FnMut() -> Result<T>,
) -> Result<T> {
    match act() {
        Err(Errno::ACCESS) => {}
        result => return result,
    }
    let Some((object, others)) = objects.split_first() else {
        return Err(Errno::ACCESS);
    };
    let stat = disk.stat(object)?;
    let mode = stat.attributes.mode;
    let opened = opened_mode(stat.kind, mode);
    if opened == mode {
        return with_rights(disk, others, act);
    }
    disk.set_mode(object, opened)?;
    let done = with_rights(disk, others, act);
    let closed = disk.set_mode(object, mode);
    done.and_then(|done| closed.map(|()| done))
}

/// Like [`Disk::open`], but the object and the directory may be closed to their owner.
pub(crate) fn open_closed<D: Disk>(
    disk: &D,
    directory: &D::Handle,
    name: &Name,
    access: Access,
) -> Result<D::Handle> {
    let open = |access| with_rights(disk, &[directory], || disk.open(directory, name, access));
    match open(access) {
        Err(Errno::ACCESS) => {}
        result => return result,
    }
    let object = open(Access::Path)?;
    with_rights(disk, &[directory, &object], || {
        disk.open(directory, name, access)
    })
}
