//! A log outside the control directory, on another disk or file system.
//!
//! The file `log.place` in the control directory names the log: its path and its id. The log begins
//! with a head: its id, and which of the store's headers its records follow. The engine knows no
//! paths, so its caller opens the directory in which the log is.
//!
//! Invariants
//! 1. No flush of the base covers the log, and none of the log covers the base. What one relies on of
//!    the other is flushed by itself. So a record is flushed before the base changes, and the base
//!    before the header says that it has the commits.
//! 2. Only a log is used whose head has the id that `log.place` names, and this store's checksum.
//! 3. The head follows the store's header. Before a checkpoint replaces the header, the head names
//!    both the old last sequence and the new one, durably. So a log whose head does not name the
//!    header's last sequence was not in use with this base: one of the two is an older copy. Such a
//!    log is neither applied nor written.
//! 4. The head names only the new last sequence once the header does. That is not flushed by itself:
//!    the next flush of the log covers it together with the first record that follows.
//! 5. What a crash may leave of a log that is being made is replaced. No other file ever is.
//! 6. A log that cannot be used stays as it is, and so does the store, until somebody gives the log up
//!    (`recovery::relocate`).

use atomdir_disk::{Access, Disk, Errno, Kind, Name, reason};
use atomdir_format::header::{StoreHeader, StoreId};
use atomdir_format::log_place::{FRAMES_AT, HEAD_LENGTH, LogHead, LogId, LogPlace};
use atomdir_types::LostLog;

use crate::control::applied_mark::AppliedFile;
use crate::control::{self, PRIVATE_FILE, failed};
use crate::error::StoreError;
use crate::names;

/// More than the longest path and an id.
const PLACE_LENGTH_MAX: usize = 8192;

/// How the caller reaches a store's log.
pub enum LogAt<D: Disk> {
    /// It is in the control directory.
    Inside,
    /// It has this name in this directory.
    Elsewhere { directory: D::Handle, name: Name },
    /// The directory cannot be used.
    Unreachable { reason: String },
}

/// A log to be made outside the control directory.
pub struct NewLog<'a, D: Disk> {
    pub directory: &'a D::Handle,
    pub name: Name,
    /// Absolute.
    pub path: Vec<u8>,
    /// Drawn at random.
    pub id: [u8; 16],
}

impl<D: Disk> NewLog<'_, D> {
    pub(crate) fn failed(&self) -> impl Fn(Errno) -> StoreError {
        let path = String::from_utf8_lossy(&self.path).into_owned();
        move |errno| StoreError::NewLog {
            path: path.clone(),
            reason: match errno {
                Errno::EXIST => "there is something already".to_owned(),
                errno => reason(errno),
            },
        }
    }
}

/// An open log, in the control directory or elsewhere.
pub(crate) struct LogFile<D: Disk> {
    pub handle: D::Handle,
    /// `None`: it is in the control directory, and has no head.
    pub id: Option<LogId>,
}

impl<D: Disk> LogFile<D> {
    /// Where the frames begin.
    pub fn start(&self) -> u64 {
        self.id.map_or(0, |_| FRAMES_AT)
    }
}

/// Where the log is; `None`: in the control directory.
pub(crate) fn read_place<D: Disk>(
    disk: &D,
    control: &D::Handle,
) -> Result<Option<LogPlace>, StoreError> {
    let failed = failed("read where the log is");
    let name = names::fixed(names::LOG_PLACE);
    let file = match disk.open(control, &name, Access::Read) {
        Err(Errno::NOENT) => return Ok(None),
        file => file.map_err(&failed)?,
    };
    let mut bytes = vec![0; PLACE_LENGTH_MAX];
    let count = disk.read_at(&file, &mut bytes, 0).map_err(&failed)?;
    let place = LogPlace::decode(&bytes[..count]);
    place.map(Some).ok_or_else(|| StoreError::Damaged {
        file: names::LOG_PLACE,
        offset: 0,
        reason: "it is not a path and an id".to_owned(),
    })
}

/// Opens the log. With [`Access::Read`] nothing can be changed.
pub(crate) fn open<D: Disk>(
    disk: &D,
    control: &D::Handle,
    at: &LogAt<D>,
    access: Access,
    (header, applied): (&StoreHeader, &AppliedFile<D>),
) -> Result<LogFile<D>, StoreError> {
    let Some(place) = read_place(disk, control)? else {
        let handle = disk.open(control, &names::fixed(names::LOG), access);
        return Ok(LogFile {
            handle: handle.map_err(failed("open files"))?,
            id: None,
        });
    };
    let opened = open_at(disk, at, access)
        .and_then(|log| check_head(disk, &log, (place.id, header)).map(|()| log));
    match opened {
        Ok(handle) => Ok(LogFile {
            handle,
            id: Some(place.id),
        }),
        Err(reason) => Err(StoreError::Log {
            path: String::from_utf8_lossy(&place.path).into_owned(),
            reason,
            lost: lost(disk, header, applied)?,
        }),
    }
}

/// What nobody knows without the log.
pub(crate) fn lost<D: Disk>(
    disk: &D,
    header: &StoreHeader,
    applied: &AppliedFile<D>,
) -> Result<LostLog, StoreError> {
    let failed = failed("read the applied mark");
    let (ever, now) = (applied.durable(disk), applied.read(disk));
    let (ever, now) = (ever.map_err(&failed)?, now.map_err(&failed)?);
    Ok(LostLog {
        in_base: header.last_sequence,
        applied: ever.map_or(0, |sequence| sequence.0),
        is_in_base: now.is_some(),
    })
}

/// Returns why it fails.
fn open_at<D: Disk>(disk: &D, at: &LogAt<D>, access: Access) -> Result<D::Handle, String> {
    let (directory, name) = match at {
        LogAt::Elsewhere { directory, name } => (directory, name),
        LogAt::Unreachable { reason } => return Err(reason.clone()),
        LogAt::Inside => return Err("its directory was not opened".to_owned()),
    };
    let opened = disk.open(directory, name, access);
    let log = opened.map_err(|errno| match errno {
        Errno::NOENT => "it is not there; is its file system mounted?".to_owned(),
        errno => reason(errno),
    })?;
    let stat = disk.stat(&log).map_err(reason)?;
    if stat.kind != Kind::File {
        return Err("it is not a regular file".to_owned());
    }
    // Two stores, or a store and a copy of its whole file system, may name the same log.
    match disk.try_lock(&log) {
        Ok(()) => Ok(log),
        Err(Errno::WOULDBLOCK) => Err("another process has it open".to_owned()),
        Err(errno) => Err(reason(errno)),
    }
}

/// Returns why the log is not that of this store in its present state.
fn check_head<D: Disk>(
    disk: &D,
    log: &D::Handle,
    (id, header): (LogId, &StoreHeader),
) -> Result<(), String> {
    let mut bytes = [0; HEAD_LENGTH];
    let count = disk.read_at(log, &mut bytes, 0).map_err(reason)?;
    let head = LogHead::decode(header.store_id, &bytes).filter(|_| count == HEAD_LENGTH);
    let Some(head) = head else {
        return Err("it is another store's log, or no log, or its head is damaged".to_owned());
    };
    let (last, follows) = (header.last_sequence, [head.follows, head.follows_next]);
    if head.id != id {
        return Err("it is another log of this store, which is no longer in use".to_owned());
    }
    match last {
        last if follows.contains(&last) => Ok(()),
        last if last > head.follows_next => Err(format!(
            "it is an older copy: it follows commit {}, and the base has all up to {last}",
            head.follows_next
        )),
        last => Err(format!(
            "the store is an older copy: its base has all commits up to {last}, and the log \
             follows commit {}",
            head.follows
        )),
    }
}

/// Writes the head: see the invariants.
pub(crate) fn write_head<D: Disk>(
    disk: &D,
    log: &D::Handle,
    store: StoreId,
    head: &LogHead,
) -> Result<(), Errno> {
    disk.write_at(log, &head.encode(store), 0)
}

/// Names the log of a store that is being made, and makes it, in this order: should this be
/// interrupted, the next attempt knows the file as its own.
pub(crate) fn create<D: Disk>(
    disk: &D,
    control: &D::Handle,
    store: StoreId,
    new: &NewLog<'_, D>,
) -> Result<(), StoreError> {
    let known = read_place(disk, control)?.filter(|place| place.path == new.path);
    let known = known.map(|place| place.id);
    let failed = new.failed();
    let is_left_over = is_left_over(disk, new, known).map_err(&failed)?;
    let id = known.unwrap_or(LogId(new.id));
    name(disk, control, new, id)?;
    if is_left_over {
        disk.unlink(new.directory, &new.name).map_err(&failed)?;
    }
    make(disk, store, new, (id, 0))
}

/// Makes a log for a store whose base has all commits up to `follows`. It is durable when this returns,
/// and is not yet the store's.
pub(crate) fn make<D: Disk>(
    disk: &D,
    store: StoreId,
    new: &NewLog<'_, D>,
    (id, follows): (LogId, u64),
) -> Result<(), StoreError> {
    let failed = new.failed();
    let file = disk.create(new.directory, &new.name, PRIVATE_FILE);
    let file = file.map_err(&failed)?;
    let head = LogHead {
        id,
        follows,
        follows_next: follows,
    };
    let written = disk.set_length(&file, FRAMES_AT);
    let written = written.and_then(|()| write_head(disk, &file, store, &head));
    written.map_err(&failed)?;
    disk.sync(&file).map_err(&failed)?;
    disk.sync_directory(new.directory).map_err(&failed)
}

/// Names the log in the control directory, durably. From then on it is the store's.
pub(crate) fn name<D: Disk>(
    disk: &D,
    control: &D::Handle,
    new: &NewLog<'_, D>,
    id: LogId,
) -> Result<(), StoreError> {
    let path = new.path.clone();
    let place = LogPlace { path, id }.encode();
    let names = (names::LOG_PLACE_NEW, names::LOG_PLACE);
    control::replace(disk, control, names, &place).map_err(failed("write where the log is"))
}

/// Whether the file is what a crash has left of a log that was being made: nothing but zeros, or the
/// log that an interrupted creation of this store has named.
fn is_left_over<D: Disk>(
    disk: &D,
    new: &NewLog<'_, D>,
    known: Option<LogId>,
) -> Result<bool, Errno> {
    let file = match disk.open(new.directory, &new.name, Access::Read) {
        Err(Errno::NOENT) => return Ok(false),
        Err(Errno::LOOP | Errno::NXIO) => return Err(Errno::EXIST),
        file => file?,
    };
    let stat = disk.stat(&file)?;
    if stat.kind != Kind::File || stat.length > FRAMES_AT {
        return Err(Errno::EXIST);
    }
    let mut bytes = vec![0; stat.length as usize];
    disk.read_at(&file, &mut bytes, 0)?;
    let claimed = bytes.first_chunk().and_then(LogHead::claimed_id);
    let is_known = known.is_some() && claimed == known;
    match is_known || bytes.iter().all(|byte| *byte == 0) {
        true => Ok(true),
        false => Err(Errno::EXIST),
    }
}
