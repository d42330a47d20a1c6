//! Makes the control directory, and writes its header.
//!
//! `place` says where a control directory counts. `inheritance` keeps what it inherits from staged
//! objects. `trial` finds out beforehand whether the file system can hold a store. `applied_mark` says
//! how far the base has come, and `id_supply` gives out transaction ids. `log_elsewhere` opens and
//! makes a log that is not in the control directory. Each states its invariants.
//!
//! Invariants
//! 1. The header is replaced as a whole and durably, or not at all.
//! 2. The header is written last when a control directory is made.
//! 3. A control directory without a header becomes a store's only if an interrupted creation has
//!    left it.

pub(crate) mod applied_mark;
pub(crate) mod id_supply;
pub(crate) mod inheritance;
pub(crate) mod log_elsewhere;
pub(crate) mod place;
pub(crate) mod trial;

use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Kind, Name, NewNode, RenameMode};
use atomdir_format::header::{self, StoreHeader, StoreId, UncheckedHeader};

use crate::control::applied_mark::AppliedFile;
use crate::control::log_elsewhere::NewLog;
use crate::control::trial::Layers;
use crate::error::StoreError;
use crate::names;

/// What a creation makes before the header.
const FILES: [&str; 5] = [
    names::HISTORY,
    names::LOCK,
    names::CLOCK,
    names::RESERVE,
    names::APPLIED,
];
const DIRECTORIES: [&str; 2] = [names::STAGE, names::LIMBO];
/// What it may leave besides.
const LEFT: [&str; 9] = [
    names::LOG_PLACE,
    names::LOG_PLACE_NEW,
    names::TRIAL,
    names::HEADER_NEW,
    ".gitignore",
    ".gitignore.new",
    "pointer.new",
    "service.log",
    "start.lock",
];

pub(crate) const PRIVATE_FILE: u32 = 0o600;
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
    root: &D::Handle,
    control: &D::Handle,
    id: StoreId,
    (layers, log): (Layers, Option<&NewLog<'_, D>>),
) -> Result<(), StoreError> {
    if exists(disk, control, names::HEADER).map_err(failed("look for the header"))? {
        return Ok(());
    }
    refuse_foreign(disk, control)?;
    inheritance::stop(disk, root, control)?;
    trial::run(disk, control, layers)?;
    let files = FILES.into_iter().chain(log.is_none().then_some(names::LOG));
    for name in files {
        if !exists(disk, control, name).map_err(failed("look for files"))? {
            let file = disk.create(control, &names::fixed(name), PRIVATE_FILE);
            file.map_err(failed("create files"))?;
        }
    }
    for name in DIRECTORIES {
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
    inheritance::stop_in(disk, root, control)?;
    match log {
        Some(log) => {
            // The log must not survive a crash that loses the control directory, which alone says
            // that it is this store's.
            let flushed = disk.sync_file_system(root);
            flushed.map_err(failed("flush the directory"))?;
            log_elsewhere::create(disk, control, id, log)?;
        }
        // An interrupted creation may have wanted the log elsewhere.
        None => remove(disk, control, &names::fixed(names::LOG_PLACE))
            .map_err(failed("remove the log's place"))?,
    }
    // The header must not survive a crash that loses the other files.
    disk.sync_directory(control)
        .map_err(failed("flush the directory"))?;
    let header = StoreHeader {
        format_version: header::FORMAT_VERSION,
        store_id: id,
        place: place::present(disk, root, control, control)?,
        last_sequence: 0,
        transaction_high_water: 0,
    };
    write_header(disk, control, &header)
}

/// Refuses a directory without a header that an interrupted creation has not left: what came with
/// an archive must not become part of a store.
fn refuse_foreign<D: Disk>(disk: &D, control: &D::Handle) -> Result<(), StoreError> {
    let failed = failed("look at what is there");
    let is_empty = |name: &Name, kind| match kind {
        Kind::File => Ok(disk.stat_at(control, name)?.length == 0),
        Kind::Directory => {
            let directory = disk.open(control, name, Access::Directory)?;
            Ok(disk.list(&directory)?.is_empty())
        }
        _ => Ok(false),
    };
    for entry in disk.list(control).map_err(&failed)? {
        let stat = disk.stat_at(control, &entry.name).map_err(&failed)?;
        let name = entry.name.as_bytes();
        let is_named = |known: &[&str]| known.iter().any(|one| one.as_bytes() == name);
        let is_made = is_named(&FILES) || is_named(&[names::LOG]) || is_named(&DIRECTORIES);
        let is_ours = is_made && is_empty(&entry.name, stat.kind).map_err(&failed)?;
        if !is_ours && !is_named(&LEFT) {
            return Err(StoreError::Foreign {
                name: String::from_utf8_lossy(name).into_owned(),
            });
        }
    }
    Ok(())
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
    let open = || disk.open(parent, name, Access::Directory);
    let is_emptied = match open() {
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return disk.unlink(parent, name),
        opened => opened.and_then(|directory| purge(disk, &directory, |_| false)),
    };
    match is_emptied {
        // A directory removed in a view may forbid even its owner to look inside.
        Err(Errno::ACCESS) => {
            let handle = disk.open(parent, name, Access::Path)?;
            let mode = disk.stat(&handle)?.attributes.mode;
            disk.set_mode(&handle, mode | 0o700)?;
            purge(disk, &open()?, |_| false)?;
        }
        emptied => emptied?,
    }
    disk.remove_directory(parent, name)
}
