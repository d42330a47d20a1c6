//! The file system (VFS) that SQLite calls: C functions, which pass the work on.
//!
//! Databases are files of a store (`connection`), and journals are temporary (`journal`). All
//! other files, such as temporary databases, go to the file system beneath.

use crate::abi::{self, File, IoMethods, Vfs};
use crate::connection::{self, OpenDatabase};
use crate::failure::{Failure, Result};
use crate::journal::{self, Journal};
use crate::{pragma, stores, super_journals};
use atomdir::Door;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;

const NAME: &CStr = c"atomdir";

/// An open file of this file system. It begins as SQLite's `sqlite3_file` does.
#[repr(C)]
struct Opened {
    base: File,
    what: *mut What,
}

enum What {
    Database(OpenDatabase),
    Journal(Journal),
}

static METHODS: IoMethods = IoMethods {
    // Version 1 has no shared memory for a write-ahead log, and no mapped files.
    version: 1,
    close: Some(close),
    read: Some(read),
    write: Some(write),
    truncate: Some(truncate),
    sync: Some(sync),
    file_size: Some(file_size),
    lock: Some(lock),
    unlock: Some(unlock),
    check_reserved_lock: Some(check_reserved_lock),
    file_control: Some(file_control),
    sector_size: Some(sector_size),
    device_characteristics: Some(device_characteristics),
};

/// Registers the file system with SQLite. A second call does nothing.
pub(crate) fn register() -> c_int {
    let Some(api) = abi::api() else {
        return abi::ERROR;
    };
    // SAFETY: SQLite's default file system lives as long as the process, and so does ours.
    unsafe {
        if !api.vfs_find(NAME.as_ptr()).is_null() {
            return abi::OK;
        }
        let default = api.vfs_find(ptr::null());
        journal::set_beneath(default);
        let Some(beneath) = default.as_ref() else {
            return abi::ERROR;
        };
        let own = c_int::try_from(size_of::<Opened>()).unwrap_or(c_int::MAX);
        let vfs = Box::new(Vfs {
            file_size: beneath.file_size.max(own),
            next: ptr::null_mut(),
            name: NAME.as_ptr(),
            open: Some(open),
            delete: Some(delete),
            access: Some(access),
            ..*beneath
        });
        match api.auto_extension(Some(crate::functions::install)) {
            abi::OK => api.vfs_register(Box::into_raw(vfs), 0),
            code => code,
        }
    }
}

/// Runs the work of a C function. A failure becomes its result code, a panic `SQLITE_IOERR`.
fn guarded(act: impl FnOnce() -> Result<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => failure.report(),
        Err(_) => abi::IOERR,
    }
}

/// # Safety
/// `name` is null or a string that SQLite passes to a method of a file system.
unsafe fn text<'a>(name: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
}

unsafe extern "C" fn open(
    _: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes a file of the size that we asked for, and a name or null.
    unsafe {
        (*file).methods = ptr::null();
        let journals = abi::OPEN_MAIN_JOURNAL | abi::OPEN_SUPER_JOURNAL;
        let ours = abi::OPEN_MAIN_DB | abi::OPEN_WAL | journals;
        let (Some(path), true) = (text(name), flags & ours != 0) else {
            let vfs = journal::beneath();
            return match vfs.as_ref().and_then(|vfs| vfs.open) {
                Some(open) => open(vfs, name, file, flags, flags_out),
                None => abi::CANTOPEN,
            };
        };
        guarded(|| {
            let mut flags = flags;
            let what = if flags & abi::OPEN_MAIN_DB != 0 {
                What::Database(open_database(name, path, &mut flags)?)
            } else if flags & journals != 0 {
                if flags & abi::OPEN_SUPER_JOURNAL != 0 {
                    super_journals::open(path);
                }
                What::Journal(Journal::new())
            } else {
                return Err(Failure::cannot_open(
                    "databases in a store have no write-ahead log; run PRAGMA journal_mode = \
                     delete in the database once with plain sqlite3",
                ));
            };
            if !flags_out.is_null() {
                *flags_out = flags;
            }
            (*file.cast::<Opened>()).what = Box::into_raw(Box::new(what));
            (*file).methods = &raw const METHODS;
            Ok(abi::OK)
        })
    }
}

/// Opens a database. Clears the flags for writing if the file may only be read.
///
/// # Safety
/// `name` is what SQLite passes to open a database.
unsafe fn open_database(
    name: *const c_char,
    path: &CStr,
    flags: &mut c_int,
) -> Result<OpenDatabase> {
    let parameter = |key: &CStr| {
        let api = abi::api()?;
        // SAFETY: SQLite keeps the parameters behind the name.
        unsafe { text(api.uri_parameter(name, key.as_ptr())) }
    };
    let door = match parameter(c"door").map(CStr::to_bytes) {
        None | Some(b"any") => Door::Any,
        Some(b"service") => Door::Service,
        Some(b"embedded") => Door::Embedded,
        Some(_) => {
            return Err(Failure::cannot_open(
                "the parameter door must be any, service or embedded",
            ));
        }
    };
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let (held, path_in_store) = stores::open(path, door)?;
    let is_writable = *flags & abi::OPEN_READWRITE != 0;
    let database = OpenDatabase::new(held, path_in_store, is_writable);
    let cannot_open = |failure: Failure| Failure {
        code: abi::CANTOPEN,
        ..failure
    };
    let (exists, may_be_written) = database.look().map_err(cannot_open)?;
    if *flags & abi::OPEN_CREATE == 0 && !exists {
        let message = format_args!("the database '{}' does not exist", path.display());
        return Err(Failure::cannot_open(message));
    }
    if !may_be_written {
        *flags &= !(abi::OPEN_READWRITE | abi::OPEN_CREATE);
        *flags |= abi::OPEN_READONLY;
    }
    Ok(database)
}

/// Whether this is the name of a journal or a write-ahead log. This file system leaves none after a
/// crash; `Database::begin` looks for those of other programs.
fn is_journal(name: &CStr) -> bool {
    let ends = [&b"-journal"[..], b"-wal"];
    ends.iter().any(|end| name.to_bytes().ends_with(end))
}

unsafe extern "C" fn delete(_: *mut Vfs, name: *const c_char, flush: c_int) -> c_int {
    // SAFETY: SQLite passes a name.
    match unsafe { text(name) } {
        None => abi::OK,
        Some(journal) if is_journal(journal) => abi::OK,
        Some(journal) if super_journals::is_open(journal) => guarded(|| {
            connection::end_super_journal(journal)?;
            Ok(abi::OK)
        }),
        // SAFETY: the file belongs to the file system beneath, and SQLite's arguments are passed on.
        Some(_) => unsafe {
            let vfs = journal::beneath();
            match vfs.as_ref().and_then(|vfs| vfs.delete) {
                Some(delete) => delete(vfs, name, flush),
                None => abi::IOERR,
            }
        },
    }
}

unsafe extern "C" fn access(
    _: *mut Vfs,
    name: *const c_char,
    flags: c_int,
    result: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes a name and a place for the result, and both are passed on.
    unsafe {
        *result = 0;
        if text(name).is_none_or(is_journal) {
            return abi::OK;
        }
        let vfs = journal::beneath();
        match vfs.as_ref().and_then(|vfs| vfs.access) {
            Some(access) => access(vfs, name, flags, result),
            None => abi::IOERR,
        }
    }
}

/// # Safety
/// `file` is one that `open` has opened, and nobody else uses it at the moment.
unsafe fn what<'a>(file: *mut File) -> &'a mut What {
    // SAFETY: the caller's promise.
    unsafe { &mut *(*file.cast::<Opened>()).what }
}

fn offset(number: i64) -> Result<u64> {
    u64::try_from(number).map_err(|_| Failure::new(abi::IOERR, "SQLite passed a negative offset"))
}

unsafe extern "C" fn close(file: *mut File) -> c_int {
    guarded(|| {
        // SAFETY: SQLite does not use the file any more.
        unsafe {
            drop(Box::from_raw((*file.cast::<Opened>()).what));
            (*file).methods = ptr::null();
        }
        Ok(abi::OK)
    })
}

unsafe extern "C" fn read(file: *mut File, to: *mut c_void, amount: c_int, from: i64) -> c_int {
    guarded(|| {
        let length = usize::try_from(amount).unwrap_or(0);
        // SAFETY: SQLite passes a buffer of that length.
        let buffer = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), length) };
        buffer.fill(0);
        // SAFETY: the file is open.
        let count = match unsafe { what(file) } {
            What::Database(database) => database.read(buffer, offset(from)?)?,
            What::Journal(journal) => journal.read(buffer, offset(from)?)?,
        };
        Ok(match count == length {
            true => abi::OK,
            false => abi::IOERR_SHORT_READ,
        })
    })
}

unsafe extern "C" fn write(file: *mut File, from: *const c_void, amount: c_int, to: i64) -> c_int {
    guarded(|| {
        let length = usize::try_from(amount).unwrap_or(0);
        // SAFETY: SQLite passes that many bytes.
        let data = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) };
        // SAFETY: the file is open.
        match unsafe { what(file) } {
            What::Database(database) => database.write(data, offset(to)?)?,
            What::Journal(journal) => journal.write(data, offset(to)?)?,
        }
        Ok(abi::OK)
    })
}

unsafe extern "C" fn truncate(file: *mut File, length: i64) -> c_int {
    guarded(|| {
        // SAFETY: the file is open.
        match unsafe { what(file) } {
            What::Database(database) => database.truncate(offset(length)?)?,
            What::Journal(journal) => journal.truncate(offset(length)?)?,
        }
        Ok(abi::OK)
    })
}

/// Does nothing: `SQLITE_FCNTL_SYNC`, which SQLite sends before this call, has committed and flushed.
unsafe extern "C" fn sync(_: *mut File, _: c_int) -> c_int {
    abi::OK
}

unsafe extern "C" fn file_size(file: *mut File, result: *mut i64) -> c_int {
    guarded(|| {
        // SAFETY: the file is open.
        let length = match unsafe { what(file) } {
            What::Database(database) => database.length()?,
            What::Journal(journal) => journal.length()?,
        };
        // SAFETY: SQLite passes a place for the result.
        unsafe { *result = i64::try_from(length).unwrap_or(i64::MAX) };
        Ok(abi::OK)
    })
}

unsafe extern "C" fn lock(file: *mut File, level: c_int) -> c_int {
    guarded(|| {
        // SAFETY: the file is open.
        if let What::Database(database) = unsafe { what(file) } {
            database.lock(level)?;
        }
        Ok(abi::OK)
    })
}

unsafe extern "C" fn unlock(file: *mut File, level: c_int) -> c_int {
    guarded(|| {
        // SAFETY: the file is open.
        if let What::Database(database) = unsafe { what(file) } {
            database.unlock(level);
        }
        Ok(abi::OK)
    })
}

/// Reports no lock: transactions of other connections do not exclude this one before its commit.
unsafe extern "C" fn check_reserved_lock(_: *mut File, result: *mut c_int) -> c_int {
    // SAFETY: SQLite passes a place for the result.
    unsafe { *result = 0 };
    abi::OK
}

unsafe extern "C" fn file_control(file: *mut File, what_for: c_int, data: *mut c_void) -> c_int {
    guarded(|| {
        // SAFETY: the file is open.
        let What::Database(database) = (unsafe { what(file) }) else {
            return Ok(abi::NOTFOUND);
        };
        // SAFETY: SQLite passes the argument that sqlite3.h gives for each request.
        unsafe {
            match what_for {
                abi::FCNTL_PDB => database.belongs_to(data.cast()),
                abi::FCNTL_SYNC => database.sync(text(data.cast()))?,
                abi::FCNTL_COMMIT_PHASETWO => database.end_commit()?,
                abi::FCNTL_LOCKSTATE => *data.cast::<c_int>() = database.lock_level(),
                abi::FCNTL_PRAGMA => return Ok(pragma::control(data.cast())),
                abi::FCNTL_VFSNAME => {
                    let api = abi::api();
                    let name = api.map_or(ptr::null_mut(), |api| api.copy(NAME));
                    *data.cast::<*mut c_char>() = name;
                }
                _ => return Ok(abi::NOTFOUND),
            }
        }
        Ok(abi::OK)
    })
}

unsafe extern "C" fn sector_size(_: *mut File) -> c_int {
    4096
}

unsafe extern "C" fn device_characteristics(_: *mut File) -> c_int {
    abi::IOCAP_POWERSAFE_OVERWRITE
}
