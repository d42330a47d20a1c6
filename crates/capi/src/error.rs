//! Error codes, and the message and the conflicts of a thread's last error.

use crate::names::c_time;
use atomdir::client::io_reason;
use atomdir::{
    BeginError, ChangedBy, CommitError, Conflict, Error, FileError, FindError, LockError,
    NotMerged, OpenError, SavepointError, SettingsError, StoreError, Timestamp, UndoError,
};
use libc::{c_char, c_int, size_t, timespec};
use std::cell::RefCell;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

// The codes of atomdir.h.
pub(crate) const CONFLICT: c_int = -10001;
const NO_STORE: c_int = -10002;
const HELD: c_int = -10003;
const UNTRUSTED: c_int = -10004;
const SERVICE: c_int = -10005;
const POISONED: c_int = -10006;
const STALLED: c_int = -10007;
const ENDED: c_int = -10008;
const FORKED: c_int = -10009;
const IN_USE: c_int = -10010;
const REFUSED: c_int = -10011;
const INTERNAL: c_int = -10012;
const NOT_KEPT: c_int = -10013;
const CHANGED: c_int = -10014;

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    code: c_int,
    message: String,
    conflicts: Vec<LastConflict>,
}

impl Failure {
    fn new(code: c_int, message: impl ToString) -> Failure {
        Failure {
            code,
            message: message.to_string(),
            conflicts: Vec::new(),
        }
    }

    /// A failure with a system error. `errno` is positive, as in errno.h.
    pub(crate) fn errno(errno: c_int, message: impl ToString) -> Failure {
        Failure::new(-errno, message)
    }

    pub(crate) fn invalid(message: &str) -> Failure {
        Failure::errno(libc::EINVAL, message)
    }

    pub(crate) fn in_use(message: impl ToString) -> Failure {
        Failure::new(IN_USE, message)
    }

    pub(crate) fn refused(message: impl ToString) -> Failure {
        Failure::new(REFUSED, message)
    }

    /// Adds what to do if the service is what is missing.
    pub(crate) fn with_advice_about_service(mut self, advice: &str) -> Failure {
        if self.code == SERVICE {
            self.message = format!("{}; {advice}", self.message);
        }
        self
    }

    fn with(code: c_int, message: impl ToString, conflicts: &[Conflict]) -> Failure {
        Failure {
            conflicts: conflicts.iter().map(last_conflict).collect(),
            ..Failure::new(code, message)
        }
    }
}

fn system(error: &io::Error) -> c_int {
    -error.raw_os_error().unwrap_or(libc::EIO)
}

fn store_code(error: &StoreError) -> c_int {
    match error {
        StoreError::Poisoned(_) => POISONED,
        StoreError::Stalled(_) => STALLED,
        StoreError::ReadOnly => -libc::EROFS,
        StoreError::Forked { .. } => FORKED,
        StoreError::InUse => IN_USE,
        StoreError::Lost(_) => SERVICE,
        StoreError::Removed => -libc::ESTALE,
        _ => REFUSED,
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::new(store_code(&error), error)
    }
}

impl From<FindError> for Failure {
    fn from(error: FindError) -> Failure {
        let code = match &error {
            FindError::NoStore { .. } | FindError::InView { .. } => NO_STORE,
            FindError::Untrusted { .. } | FindError::ForeignView { .. } => UNTRUSTED,
            FindError::Io { errno, .. } => -errno.raw_os_error(),
            _ => REFUSED,
        };
        Failure::new(code, error)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        let code = match error {
            OpenError::Find(error) => return error.into(),
            OpenError::Held { .. } => HELD,
            OpenError::NotOwner { .. } | OpenError::WritableByOthers { .. } => UNTRUSTED,
            OpenError::Connect(_) => SERVICE,
            OpenError::Io { ref cause, .. } => system(cause),
            _ => REFUSED,
        };
        Failure::new(code, error)
    }
}

impl From<BeginError> for Failure {
    fn from(error: BeginError) -> Failure {
        match error {
            BeginError::Store(error) => error.into(),
            BeginError::Ended => Failure::new(ENDED, error),
            BeginError::View(ref cause) => Failure::new(system(cause), error),
            error => Failure::new(REFUSED, error),
        }
    }
}

impl From<UndoError> for Failure {
    fn from(error: UndoError) -> Failure {
        match error {
            UndoError::Begin(error) => error.into(),
            UndoError::Conflict { ref conflicts } => Failure::with(CHANGED, &error, conflicts),
            UndoError::NotKept(_) => Failure::new(NOT_KEPT, error),
            error => Failure::new(REFUSED, error),
        }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        match &error {
            FileError::Conflict { conflicts, .. } => Failure::with(CONFLICT, &error, conflicts),
            error => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                Failure::new(-errno, error)
            }
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.downcast::<FileError>() {
            Ok(error) => error.into(),
            Err(error) => Failure::new(system(&error), io_reason(&error)),
        }
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(errno: rustix::io::Errno) -> Failure {
        io::Error::from(errno).into()
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Failure {
        let code = match &error {
            CommitError::Conflict { conflicts } => {
                return Failure::with(CONFLICT, &error, conflicts);
            }
            CommitError::NotMerged { not_merged } => {
                return Failure {
                    conflicts: not_merged.iter().map(last_not_merged).collect(),
                    ..Failure::new(CONFLICT, &error)
                };
            }
            CommitError::NoSpace(_) => -libc::ENOSPC,
            CommitError::Leased(_) => -libc::EAGAIN,
            CommitError::Io(_) => -libc::EIO,
            CommitError::InUse(_) => IN_USE,
            CommitError::Ended => ENDED,
            CommitError::Logged(_) => POISONED,
            CommitError::Store(error) => store_code(error),
            _ => REFUSED,
        };
        Failure::new(code, error)
    }
}

impl From<SavepointError> for Failure {
    fn from(error: SavepointError) -> Failure {
        let code = match &error {
            SavepointError::NoSuchSavepoint => -libc::ENOENT,
            SavepointError::FilesOpen { .. } => IN_USE,
            SavepointError::Ended => ENDED,
            SavepointError::Io(cause) => system(cause),
            SavepointError::Store(error) => store_code(error),
            _ => REFUSED,
        };
        Failure::new(code, error)
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Failure {
        match &error {
            LockError::Conflict { conflicts, .. } => Failure::with(CONFLICT, &error, conflicts),
            LockError::Path { cause, .. } => Failure::new(system(cause), &error),
            LockError::Ended => Failure::new(ENDED, &error),
            LockError::Store(source) => Failure::new(store_code(source), &error),
            error => Failure::new(REFUSED, error),
        }
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Failure {
        let code = match &error {
            SettingsError::UnknownKey { .. } | SettingsError::BadValue { .. } => -libc::EINVAL,
            SettingsError::NotOwner { .. }
            | SettingsError::NotShareable { .. }
            | SettingsError::NotGuardable { .. } => -libc::EPERM,
            SettingsError::Io { errno, .. } => -errno.raw_os_error(),
            SettingsError::Store(error) => store_code(error),
            _ => REFUSED,
        };
        Failure::new(code, error)
    }
}

impl From<atomdir::InitError> for Failure {
    fn from(error: atomdir::InitError) -> Failure {
        Failure::new(REFUSED, error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Open(error) => error.into(),
            Error::Begin(error) => error.into(),
            Error::File(error) => error.into(),
            Error::Commit(error) => error.into(),
            Error::Savepoint(error) => error.into(),
            Error::Lock(error) => error.into(),
            Error::Undo(error) => error.into(),
            Error::Settings(error) => error.into(),
            Error::Store(error) => error.into(),
            Error::Io(error) => error.into(),
            error => Failure::new(REFUSED, error),
        }
    }
}

/// The last failure of a thread, as C strings.
#[derive(Default)]
struct Last {
    message: CString,
    conflicts: Vec<LastConflict>,
}

#[derive(Debug)]
struct LastConflict {
    path: CString,
    part: CString,
    description: CString,
    by: c_int,
    commit: u64,
    transaction: u64,
    time: Timestamp,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Makes a C string. Removes zero bytes, at which C would cut the text off.
pub(crate) fn c_string(bytes: &[u8]) -> CString {
    let bytes: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

fn last_conflict(conflict: &Conflict) -> LastConflict {
    let mut time = Timestamp::default();
    let (by, commit, transaction) = match &conflict.by {
        ChangedBy::Commit { sequence, author } => {
            time = author.as_ref().map_or(time, |author| author.time);
            let author = author.as_ref().map_or(0, |author| author.transaction.0);
            (1, sequence.0, author)
        }
        ChangedBy::Open { transaction, .. } => (2, 0, transaction.0),
        ChangedBy::Outside => (3, 0, 0),
        ChangedBy::Outer { transaction } => (4, 0, transaction.0),
    };
    LastConflict {
        path: c_string(conflict.path.as_os_str().as_bytes()),
        part: c_string(conflict.what.to_string().as_bytes()),
        description: c_string(conflict.to_string().as_bytes()),
        by,
        commit,
        transaction,
        time,
    }
}

/// A conflict whose description also has the reason why it was not merged.
fn last_not_merged(one: &NotMerged) -> LastConflict {
    LastConflict {
        description: c_string(one.to_string().as_bytes()),
        ..last_conflict(&one.conflict)
    }
}

/// Keeps the failure for this thread, and returns its code.
fn report(failure: Failure) -> c_int {
    let last = Last {
        message: c_string(failure.message.as_bytes()),
        conflicts: failure.conflicts,
    };
    // This fails only while the thread ends, when no code of the program runs in it any more.
    let _ = LAST.try_with(|slot| *slot.borrow_mut() = last);
    failure.code
}

/// Keeps the conflicts that a successful call has found.
pub(crate) fn keep_conflicts(conflicts: &[Conflict]) {
    let conflicts = conflicts.iter().map(last_conflict).collect();
    let _ = LAST.try_with(|slot| slot.borrow_mut().conflicts = conflicts);
}

/// Runs the body of a function that returns a count.
pub(crate) fn count(body: impl FnOnce() -> Result<usize>) -> isize {
    // A body that panics has not written any result, and its locks are released.
    let done = catch_unwind(AssertUnwindSafe(body));
    let failure = match done {
        Ok(Ok(count)) => return isize::try_from(count).unwrap_or(isize::MAX),
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(
            INTERNAL,
            "a bug in the library; please report what it has printed",
        ),
    };
    report(failure) as isize
}

/// Runs the body of a function that returns 0.
pub(crate) fn status(body: impl FnOnce() -> Result<()>) -> c_int {
    count(|| body().map(|()| 0)) as c_int
}

/// A conflict, as `struct atomdir_conflict`.
#[repr(C)]
pub struct ConflictView {
    path: *const c_char,
    part: *const c_char,
    description: *const c_char,
    by: c_int,
    commit: u64,
    transaction: u64,
    time: timespec,
}

#[unsafe(no_mangle)]
pub extern "C" fn atomdir_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().message.as_ptr())
        .unwrap_or(c"".as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn atomdir_conflict_count() -> size_t {
    LAST.try_with(|last| last.borrow().conflicts.len())
        .unwrap_or(0)
}

/// # Safety
/// `conflict` points to a structure that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_conflict_at(index: size_t, conflict: *mut ConflictView) -> c_int {
    let found = LAST.try_with(|last| {
        let last = last.borrow();
        last.conflicts.get(index).map(|found| ConflictView {
            path: found.path.as_ptr(),
            part: found.part.as_ptr(),
            description: found.description.as_ptr(),
            by: found.by,
            commit: found.commit,
            transaction: found.transaction,
            time: c_time(found.time),
        })
    });
    match found {
        Ok(Some(found)) if !conflict.is_null() => {
            // SAFETY: the caller's promise.
            unsafe { conflict.write(found) };
            0
        }
        // Keep the message of the last failure, whose conflicts the program is reading.
        _ => -libc::EINVAL,
    }
}
