//! Moving the log of a store that nobody has open, and giving up one that is lost.
//!
//! Invariants
//! 1. A log is moved only if it holds no commit that is not durably in the base. The new one is whole
//!    before `log.place` names it, and the old one is removed after that. So at each moment the store
//!    has one log, which holds what it must.
//! 2. Giving a log up changes nothing in the base. What proves that the lost log held more, the applied
//!    mark and summaries of commits after the header's last sequence, goes before the store gets an
//!    empty log in its control directory. Done again after a crash, it ends the same.

use atomdir_disk::{Access, Disk, Errno};

use crate::control::applied_mark::AppliedFile;
use crate::control::log_elsewhere::{self, LogAt, NewLog};
use crate::control::{self, PRIVATE_FILE, failed, place, read_header};
use crate::error::StoreError;
use crate::log::{Log, read_records};
use crate::names;
use crate::recovery::control_files;
use crate::recovery::log_file::read_log;
use crate::store::Store;
use atomdir_format::header::StoreHeader;
use atomdir_format::log_place::LogId;
use atomdir_format::summary::SummaryRecord;
use atomdir_types::LostLog;

impl<D: Disk> Store<D> {
    /// Moves the log of a store that was closed in order. `None`: into the control directory. If only
    /// the removal of the old log fails, that is reported to the log of messages.
    pub fn move_log(
        disk: &D,
        root: &D::Handle,
        (control, log): (D::Handle, LogAt<D>),
        to: Option<&NewLog<'_, D>>,
    ) -> Result<(), StoreError> {
        let opened = control_files::open(disk, root, (control, &log), Access::ReadWrite)?;
        let (header, handles) = (&opened.header, &opened.handles);
        let read = read_log(disk, &opened.log, &handles.applied, header, drop)?;
        if !read.records.is_empty() {
            return Err(StoreError::CopiedTail);
        }
        let control = &handles.directory;
        match to {
            Some(new) => {
                let id = LogId(new.id);
                log_elsewhere::make(disk, header.store_id, new, (id, header.last_sequence))?;
                log_elsewhere::name(disk, control, new, id)?;
            }
            None if opened.log.id.is_some() => bring_inside(disk, control)?,
            None => return Ok(()),
        }
        let removed = match (&log, opened.log.id) {
            (LogAt::Elsewhere { directory, name }, Some(_)) => disk.unlink(directory, name),
            _ => control::remove(disk, control, &names::fixed(names::LOG)),
        };
        if let Err(errno) = removed {
            tracing::warn!(error = %atomdir_disk::reason(errno), "the old log is left over");
        }
        Ok(())
    }

    /// Gives up a log that is not in the control directory. The store gets an empty one there. Returns
    /// what is lost; `None`: the log is in the control directory.
    pub fn give_up_log(
        disk: &D,
        root: &D::Handle,
        control: D::Handle,
    ) -> Result<Option<LostLog>, StoreError> {
        let header = read_header(disk, &control)?;
        place::check(disk, root, &control, &header)?;
        if log_elsewhere::read_place(disk, &control)?.is_none() {
            return Ok(None);
        }
        let open = |name| {
            let file = disk.open(&control, &names::fixed(name), Access::ReadWrite);
            file.map_err(failed("open files"))
        };
        let lock = open(names::LOCK)?;
        disk.try_lock(&lock).map_err(|errno| match errno {
            Errno::WOULDBLOCK => StoreError::Locked,
            errno => failed("lock the store")(errno),
        })?;
        let mark = AppliedFile::new(disk, open(names::APPLIED)?, header.store_id);
        let mark = mark.map_err(failed("examine"))?;
        let lost = log_elsewhere::lost(disk, &header, &mark)?;
        forget_later(disk, open(names::HISTORY)?, &header)?;
        // Staged objects belong to commits that are lost, or to transactions that may have seen them.
        let stage = disk.open(&control, &names::fixed(names::STAGE), Access::Directory);
        if let Ok(stage) = stage {
            let purged = control::purge(disk, &stage, |_| false);
            purged.map_err(failed("remove staged files"))?;
        }
        let wiped = mark.wipe(disk);
        wiped.map_err(failed("clear the applied mark"))?;
        bring_inside(disk, &control)?;
        Ok(Some(lost))
    }
}

/// Makes an empty log in the control directory, which then is the store's.
pub(crate) fn bring_inside<D: Disk>(disk: &D, control: &D::Handle) -> Result<(), StoreError> {
    let failed = failed("make the log");
    // An interrupted move may have left one.
    let name = names::fixed(names::LOG);
    control::remove(disk, control, &name).map_err(&failed)?;
    disk.create(control, &name, PRIVATE_FILE).map_err(&failed)?;
    disk.sync_directory(control).map_err(&failed)?;
    let named = control::remove(disk, control, &names::fixed(names::LOG_PLACE));
    named.map_err(&failed)?;
    disk.sync_directory(control).map_err(&failed)
}

/// Cuts the summaries of commits off the history that a checkpoint has added in vain.
fn forget_later<D: Disk>(
    disk: &D,
    history: D::Handle,
    header: &StoreHeader,
) -> Result<(), StoreError> {
    let last = header.last_sequence;
    let id = header.store_id;
    let none = |_: SummaryRecord| None::<()>;
    let read = read_records(disk, &history, id, u64::MAX, none)?;
    let mut history = Log::<D>::new(history, id, read.tail, last);
    let end = history.end_of_prefix(disk, |summary: SummaryRecord, _| summary.sequence <= last)?;
    let cut = history.cut(disk, end);
    let cut = cut.and_then(|()| disk.sync(&history.file()));
    cut.map_err(failed("cut the history"))
}
