//! Opening the control directory: its lock, its header, its files.

use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, NewNode};
use atomdir_format::header::StoreHeader;

use crate::control::applied_mark::AppliedFile;
use crate::control::log_elsewhere::{self, LogAt, LogFile};
use crate::control::{ControlHandles, PRIVATE_DIRECTORY, exists, failed, read_header};
use crate::control::{inheritance, place};
use crate::error::StoreError;
use crate::names;
use crate::recovery::log_file::read_log;

/// The files that stay open as long as the store is open.
pub(crate) struct ControlFiles<D: Disk> {
    pub handles: ControlHandles<D>,
    pub log: LogFile<D>,
    pub history: D::Handle,
    pub reserve: D::Handle,
    /// Absent before the store has kept any history.
    pub past: Option<D::Handle>,
    /// Holds the store's lock.
    pub lock: D::Handle,
    pub header: StoreHeader,
}

/// Opens everything and takes the store's lock. With [`Access::Read`] nothing can
/// be changed.
pub(crate) fn open<D: Disk>(
    disk: &D,
    root: &D::Handle,
    (control, log): (D::Handle, &LogAt<D>),
    access: Access,
) -> Result<ControlFiles<D>, StoreError> {
    let header = read_header(disk, &control)?;
    place::check(disk, root, &control, &header)?;
    let opened = open_anywhere(disk, (control, log), access)?;
    if access == Access::ReadWrite {
        let control = &opened.handles.directory;
        inheritance::stop(disk, root, control)?;
        inheritance::stop_in(disk, root, control)?;
    }
    Ok(opened)
}

/// Like [`open`], also for a copy of a store.
pub(crate) fn open_anywhere<D: Disk>(
    disk: &D,
    (control, log): (D::Handle, &LogAt<D>),
    access: Access,
) -> Result<ControlFiles<D>, StoreError> {
    let open = |name: &str, access| disk.open(&control, &names::fixed(name), access);
    let file = |name: &str| open(name, access).map_err(failed("open files"));
    let lock = file(names::LOCK)?;
    disk.try_lock(&lock).map_err(|errno| match errno {
        Errno::WOULDBLOCK => StoreError::Locked,
        _ => failed("lock the store")(errno),
    })?;
    let header = read_header(disk, &control)?;
    let applied = AppliedFile::new(disk, file(names::APPLIED)?, header.store_id)
        .map_err(failed("examine"))?;
    let log = log_elsewhere::open(disk, &control, log, access, (&header, &applied))?;
    if access == Access::ReadWrite {
        mend(disk, &control, || {
            let read = read_log(disk, &log, &applied, &header, drop)?;
            Ok(read.records.is_empty())
        })?;
    }
    let directory = |name: &'static str| {
        open(name, Access::Directory).map_err(|errno| match errno {
            Errno::NOENT => StoreError::Lost { name },
            errno => failed("open directories")(errno),
        })
    };
    Ok(ControlFiles {
        log,
        history: file(names::HISTORY)?,
        reserve: file(names::RESERVE)?,
        past: match open(names::PAST, access) {
            Err(Errno::NOENT) => None,
            opened => Some(opened.map_err(failed("open files"))?),
        },
        handles: ControlHandles {
            stage: Arc::new(directory(names::STAGE)?),
            limbo: Arc::new(directory(names::LIMBO)?),
            clock: Arc::new(file(names::CLOCK)?),
            applied,
            directory: Arc::new(control),
        },
        lock,
        header,
    })
}

/// Makes directories again that somebody removed while they were empty, as `git stash --all` does.
/// That is safe while no record waits to be applied, since only such records need objects in these
/// directories. The log file may still hold older records, since emptying it becomes durable later
/// than the header.
///
/// The new directories are durable before anything is logged: recovery ends with
/// [`crate::control::write_header`], which flushes the control directory.
fn mend<D: Disk>(
    disk: &D,
    control: &D::Handle,
    nothing_waits: impl FnOnce() -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    let mut lost = Vec::new();
    for name in [names::STAGE, names::LIMBO] {
        if !exists(disk, control, name).map_err(failed("look for directories"))? {
            lost.push(names::fixed(name));
        }
    }
    if lost.is_empty() || !nothing_waits()? {
        return Ok(());
    }
    for name in lost {
        disk.make(control, &name, &NewNode::Directory, PRIVATE_DIRECTORY)
            .map_err(failed("create directories"))?;
    }
    Ok(())
}
