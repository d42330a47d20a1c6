//! Makes the control directory, and writes its header.
//!
//! `trial` finds out beforehand whether the file system can hold a store. `applied_mark` says
//! how far the base has come, and `id_supply` gives out transaction ids; each states its
//! invariants.
//!
//! Invariants
//! 1. The header is replaced as a whole and durably, or not at all.
//! 2. The header is written last when a control directory is made.

pub(crate) mod applied_mark;
pub(crate) mod id_supply;
pub(crate) mod trial;

use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Name, NewNode, RenameMode};
use atomdir_format::header::{self, StoreHeader, StoreId, UncheckedHeader};

use crate::control::applied_mark::AppliedFile;
use crate::error::StoreError;
use crate::names;

const PRIVATE_FILE: u32 = 0o600;
pub(crate) const PRIVATE_DIRECTORY: u32 = 0o700;

/// Handles in the control directory, open for as long as the store is.
pub(crate) struct ControlHandles<D: Disk> {
    pub directory: Arc<D::Handle>,
    pub stage: Arc<D::Handle>,
    pub limbo: Arc<D::Handle>,
    pub clock: Arc<D::Handle>,
    pub applied: AppliedFile<D>,
}

pub(crate) fn failed(step: &'static str) -> impl Fn(Errno) -> StoreError {
    move |errno| match errno {
        Errno::ROFS => StoreError::ReadOnly,
        _ => StoreError::Control { step, errno },
    }
}

/// Makes an empty directory the control directory of a store. Does nothing if it is one already.
/// Refuses file systems that cannot hold a store. The header comes last: with it the store exists.
pub(crate) fn create<D: Disk>(
    disk: &D,
    control: &D::Handle,
    id: StoreId,
) -> Result<(), StoreError> {
    if exists(disk, control, names::HEADER).map_err(failed("look for the header"))? {
        return Ok(());
    }
    trial::run(disk, control)?;
    for name in [
        names::LOG,
        names::HISTORY,
        names::LOCK,
        names::CLOCK,
        names::RESERVE,
        names::APPLIED,
    ] {
        if !exists(disk, control, name).map_err(failed("look for files"))? {
            let file = disk.create(control, &names::fixed(name), PRIVATE_FILE);
            file.map_err(failed("create files"))?;
        }
    }
    for name in [names::STAGE, names::LIMBO] {
        if !exists(disk, control, name).map_err(failed("look for directories"))? {
            let made = disk.make(
                control,
                &names::fixed(name),
                &NewNode::Directory,
                PRIVATE_DIRECTORY,
            );
            made.map_err(failed("create directories"))?;
        }
    }
    // The header must not survive a crash that loses the other files.
    disk.sync_directory(control)
        .map_err(failed("flush the directory"))?;
    let stat = disk.stat(control).map_err(failed("read the attributes"))?;
    let header = StoreHeader {
        format_version: header::FORMAT_VERSION,
        store_id: id,
        control_identity: stat.identity,
        last_sequence: 0,
        transaction_high_water: 0,
    };
    write_header(disk, control, &header)
}

pub(crate) fn exists<D: Disk>(disk: &D, control: &D::Handle, name: &str) -> Result<bool, Errno> {
    match disk.stat_at(control, &names::fixed(name)) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Replaces the header, durably.
pub(crate) fn write_header<D: Disk>(
    disk: &D,
    control: &D::Handle,
    header: &StoreHeader,
) -> Result<(), StoreError> {
    let names = (names::HEADER_NEW, names::HEADER);
    replace(disk, control, names, &header.encode()).map_err(failed("write the header"))
}

/// Replaces a file of the control directory durably, by writing it under another name first.
pub(crate) fn replace<D: Disk>(
    disk: &D,
    control: &D::Handle,
    (new, name): (&str, &str),
    bytes: &[u8],
) -> Result<(), Errno> {
    let (new, name) = (names::fixed(new), names::fixed(name));
    remove(disk, control, &new)?;
    let file = disk.create(control, &new, PRIVATE_FILE)?;
    disk.write_at(&file, bytes, 0)?;
    disk.sync(&file)?;
    disk.rename((control, &new), (control, &name), RenameMode::Replace)?;
    disk.sync_directory(control)
}

/// Removes a file of the control directory that may not be there.
pub(crate) fn remove<D: Disk>(disk: &D, control: &D::Handle, name: &Name) -> Result<(), Errno> {
    match disk.unlink(control, name) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

pub(crate) fn read_header<D: Disk>(
    disk: &D,
    control: &D::Handle,
) -> Result<StoreHeader, StoreError> {
    let name = names::fixed(names::HEADER);
    let file = disk
        .open(control, &name, Access::Read)
        .map_err(failed("open the header"))?;
    let mut bytes = [0; header::LENGTH + 1];
    let count = disk
        .read_at(&file, &mut bytes, 0)
        .map_err(failed("read the header"))?;
    let unchecked = UncheckedHeader::new(&bytes[..count]);
    let header = unchecked.and_then(|unchecked| unchecked.check());
    header.map_err(|error| StoreError::Header {
        reason: error.to_string(),
    })
}

/// Removes everything in a directory of the control directory, except the names for which `keep` is
/// true.
pub(crate) fn purge<D: Disk>(
    disk: &D,
    directory: &D::Handle,
    keep: impl Fn(&Name) -> bool,
) -> Result<(), Errno> {
    for entry in disk.list(directory)? {
        if keep(&entry.name) {
            continue;
        }
        match entry.kind {
            Some(kind) if kind != atomdir_disk::Kind::Directory => {
                remove(disk, directory, &entry.name)?;
            }
            _ => remove_tree(disk, directory, &entry.name)?,
        }
    }
    Ok(())
}

pub(crate) fn remove_tree<D: Disk>(disk: &D, parent: &D::Handle, name: &Name) -> Result<(), Errno> {
    let stat = match disk.stat_at(parent, name) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error),
    };
    if stat.kind != atomdir_disk::Kind::Directory {
        return disk.unlink(parent, name);
    }
    // A directory removed in a view may forbid even its owner to look inside.
    if stat.attributes.mode & 0o700 != 0o700 {
        let handle = disk.open(parent, name, Access::Path)?;
        disk.set_mode(&handle, stat.attributes.mode | 0o700)?;
    }
    let directory = disk.open(parent, name, Access::Directory)?;
    purge(disk, &directory, |_| false)?;
    disk.remove_directory(parent, name)
}
