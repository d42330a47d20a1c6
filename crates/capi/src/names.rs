//! Functions for names, directories and attributes.

use crate::error::{Failure, Result, c_string, count, status};
use crate::files::c_stat;
use crate::handle::{borrow, bytes, copy, give, path, require, take, text};
use crate::transaction::Transaction;
use atomdir::{DirEntry, FileError, Metadata, Permissions, SharedTransaction, Timestamp};
use libc::{c_char, c_int, c_uint, c_void, size_t, ssize_t};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

const NO_REPLACE: c_int = 1;
const EXCHANGE: c_int = 2;

/// Runs the body of a function that takes a transaction and a path.
///
/// # Safety
/// `tx` is null or a handle, `name` null or a string.
unsafe fn at(
    tx: *mut Transaction,
    name: *const c_char,
    body: impl FnOnce(&SharedTransaction, &Path) -> Result<()>,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (transaction, path) = unsafe { (borrow(tx)?, path(name)?) };
        body(&transaction.tx, path)
    })
}

/// # Safety
/// `tx` is a handle, `name` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_mkdir(
    tx: *mut Transaction,
    name: *const c_char,
    mode: libc::mode_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { at(tx, name, |tx, path| Ok(tx.create_dir_with(path, mode)?)) }
}

/// # Safety
/// `tx` is a handle, `name` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_rmdir(tx: *mut Transaction, name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { at(tx, name, |tx, path| Ok(tx.remove_dir(path)?)) }
}

/// # Safety
/// `tx` is a handle, `name` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_unlink(tx: *mut Transaction, name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { at(tx, name, |tx, path| Ok(tx.remove_file(path)?)) }
}

/// # Safety
/// `tx` is a handle, `name` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_remove_all(tx: *mut Transaction, name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        at(tx, name, |tx, path| {
            match tx.symlink_metadata(path)?.is_dir() {
                true => tx.remove_dir_all(path)?,
                false => tx.remove_file(path)?,
            }
            Ok(())
        })
    }
}

/// # Safety
/// `tx` is a handle, `from` and `to` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_rename(
    tx: *mut Transaction,
    from: *const c_char,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    let rename = |tx: &SharedTransaction, from: &Path| {
        // SAFETY: the caller's promise.
        let to = unsafe { path(to) }?;
        match flags {
            0 => Ok(tx.rename(from, to)?),
            NO_REPLACE => Ok(tx.rename_new(from, to)?),
            EXCHANGE => Ok(tx.exchange(from, to)?),
            _ => Err(Failure::invalid("the flags are unknown")),
        }
    };
    // SAFETY: the caller's promise.
    unsafe { at(tx, from, rename) }
}

/// # Safety
/// `tx` is a handle, `from` and `to` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_link(
    tx: *mut Transaction,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { at(tx, from, |tx, from| Ok(tx.hard_link(from, path(to)?)?)) }
}

/// # Safety
/// `tx` is a handle, `target` and `name` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_symlink(
    tx: *mut Transaction,
    target: *const c_char,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { at(tx, name, |tx, name| Ok(tx.symlink(path(target)?, name)?)) }
}

/// # Safety
/// `tx` is a handle, `name` a string, and `target` points to `size` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_readlink(
    tx: *mut Transaction,
    name: *const c_char,
    target: *mut c_char,
    size: size_t,
) -> ssize_t {
    count(|| {
        // SAFETY: the caller's promise.
        let (transaction, path) = unsafe { (borrow(tx)?, path(name)?) };
        let found = transaction.tx.read_link(path)?;
        let found = c_string(found.as_os_str().as_bytes());
        // SAFETY: the caller's promise.
        let copied = unsafe { copy(found.as_bytes_with_nul(), target.cast(), size) }?;
        Ok(copied - 1)
    })
}

/// The entries of a directory, which C reads one after the other.
pub struct Directory {
    entries: std::vec::IntoIter<DirEntry>,
    /// Names to which C has pointers until the directory is closed.
    names: Vec<CString>,
}

/// `struct atomdir_entry`.
#[repr(C)]
pub struct Entry {
    name: *const c_char,
    kind: c_uint,
    inode: u64,
}

/// # Safety
/// `tx` is a handle, `name` a string, and `directory` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_dir_open(
    tx: *mut Transaction,
    name: *const c_char,
    directory: *mut *mut Directory,
) -> c_int {
    let open = |tx: &SharedTransaction, path: &Path| {
        require(directory)?;
        let entries = tx.read_dir(path)?.into_iter();
        let opened = Directory {
            entries,
            names: Vec::new(),
        };
        // SAFETY: the caller's promise.
        unsafe { give(directory, opened) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { at(tx, name, open) }
}

/// # Safety
/// `directory` is a handle that no other thread uses, and `entry` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_dir_next(directory: *mut Directory, entry: *mut Entry) -> c_int {
    count(|| {
        require(directory)?;
        require(entry)?;
        // SAFETY: the caller's promise.
        let directory = unsafe { &mut *directory };
        let Some(next) = directory.entries.next() else {
            return Ok(0);
        };
        let name = c_string(next.file_name.as_bytes());
        let found = Entry {
            name: name.as_ptr(),
            kind: next.kind.type_bits(),
            inode: next.inode,
        };
        // The string does not move when the vector grows.
        directory.names.push(name);
        // SAFETY: the caller's promise.
        unsafe { entry.write(found) };
        Ok(1)
    }) as c_int
}

/// # Safety
/// `directory` is null, or a handle that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_dir_close(directory: *mut Directory) {
    status(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { take(directory) });
        Ok(())
    });
}

/// Writes the attributes of an object that `look` returns.
///
/// # Safety
/// `tx` is a handle, `name` a string, and `stat` may be written.
unsafe fn examine(
    tx: *mut Transaction,
    name: *const c_char,
    stat: *mut libc::stat,
    look: fn(&SharedTransaction, &Path) -> std::result::Result<Metadata, FileError>,
) -> c_int {
    let body = |tx: &SharedTransaction, path: &Path| {
        require(stat)?;
        let found = c_stat(&look(tx, path)?);
        // SAFETY: the caller's promise.
        unsafe { stat.write(found) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { at(tx, name, body) }
}

/// # Safety
/// As for `examine`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_stat(
    tx: *mut Transaction,
    name: *const c_char,
    stat: *mut libc::stat,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { examine(tx, name, stat, |tx, path| tx.metadata(path)) }
}

/// # Safety
/// As for `examine`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_lstat(
    tx: *mut Transaction,
    name: *const c_char,
    stat: *mut libc::stat,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { examine(tx, name, stat, |tx, path| tx.symlink_metadata(path)) }
}

/// # Safety
/// `tx` is a handle, `name` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_chmod(
    tx: *mut Transaction,
    name: *const c_char,
    mode: libc::mode_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        at(tx, name, |tx, path| {
            Ok(tx.set_permissions(path, Permissions::from_mode(mode))?)
        })
    }
}

/// # Safety
/// `tx` is a handle, `name` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_chown(
    tx: *mut Transaction,
    name: *const c_char,
    user: libc::uid_t,
    group: libc::gid_t,
) -> c_int {
    let id = |id: u32| (id != u32::MAX).then_some(id);
    let change = |tx: &SharedTransaction, path: &Path| {
        tx.lchown(path, id(user), id(group))?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { at(tx, name, change) }
}

/// # Safety
/// `tx` is a handle, `name` a string, and `times` points to two times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_utimens(
    tx: *mut Transaction,
    name: *const c_char,
    times: *const libc::timespec,
) -> c_int {
    let change = |tx: &SharedTransaction, path: &Path| {
        require(times)?;
        // SAFETY: the caller's promise.
        let (accessed, modified) = unsafe { (times.read(), times.add(1).read()) };
        tx.set_times(path, time(accessed)?, time(modified)?)?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { at(tx, name, change) }
}

fn time(time: libc::timespec) -> Result<Option<SystemTime>> {
    match time.tv_nsec {
        libc::UTIME_OMIT => return Ok(None),
        libc::UTIME_NOW => return Ok(Some(SystemTime::now())),
        _ => {}
    }
    system_time(time).map(Some)
}

/// Converts a time for C.
pub(crate) fn c_time(time: Timestamp) -> libc::timespec {
    // SAFETY: the structure consists of numbers, and zero is valid for each.
    let mut found: libc::timespec = unsafe { std::mem::zeroed() };
    found.tv_sec = time.seconds as libc::time_t;
    found.tv_nsec = time.nanoseconds.into();
    found
}

pub(crate) fn system_time(time: libc::timespec) -> Result<SystemTime> {
    let seconds = Duration::from_secs(time.tv_sec.unsigned_abs());
    let whole = match time.tv_sec < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(seconds),
        false => SystemTime::UNIX_EPOCH.checked_add(seconds),
    };
    let fraction = u64::try_from(time.tv_nsec).ok();
    let fraction = fraction.filter(|fraction| *fraction < 1_000_000_000);
    let exact = whole.zip(fraction);
    let exact = exact.map(|(whole, fraction)| whole + Duration::from_nanos(fraction));
    exact.ok_or_else(|| Failure::invalid("the time is not valid"))
}

/// # Safety
/// `tx` is a handle, `name` and `attribute` are strings, and `value` points to `size` bytes that
/// may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_getxattr(
    tx: *mut Transaction,
    name: *const c_char,
    attribute: *const c_char,
    value: *mut c_void,
    size: size_t,
) -> ssize_t {
    count(|| {
        // SAFETY: the caller's promise.
        let (transaction, path) = unsafe { (borrow(tx)?, path(name)?) };
        // SAFETY: the caller's promise.
        let attribute = OsStr::from_bytes(unsafe { text(attribute) }?.to_bytes());
        let found = transaction.tx.xattr(path, attribute)?;
        let missing = || {
            let (path, name) = (path.display(), attribute.display());
            let message = format!("'{path}' has no extended attribute '{name}'");
            Failure::errno(libc::ENODATA, message)
        };
        // SAFETY: the caller's promise.
        unsafe { copy(&found.ok_or_else(missing)?, value, size) }
    })
}

/// # Safety
/// `tx` is a handle, `name` a string, and `names` points to `size` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_listxattr(
    tx: *mut Transaction,
    name: *const c_char,
    names: *mut c_char,
    size: size_t,
) -> ssize_t {
    count(|| {
        // SAFETY: the caller's promise.
        let (transaction, path) = unsafe { (borrow(tx)?, path(name)?) };
        let mut list = Vec::new();
        for attribute in transaction.tx.xattr_names(path)? {
            list.extend_from_slice(c_string(attribute.as_bytes()).as_bytes_with_nul());
        }
        // SAFETY: the caller's promise.
        unsafe { copy(&list, names.cast(), size) }
    })
}

/// # Safety
/// `tx` is a handle, `name` and `attribute` are strings, and `value` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_setxattr(
    tx: *mut Transaction,
    name: *const c_char,
    attribute: *const c_char,
    value: *const c_void,
    size: size_t,
) -> c_int {
    let set = |tx: &SharedTransaction, path: &Path| {
        // SAFETY: the caller's promise.
        let (attribute, value) = unsafe { (text(attribute)?, bytes(value, size)?) };
        tx.set_xattr(path, OsStr::from_bytes(attribute.to_bytes()), value)?;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { at(tx, name, set) }
}

/// # Safety
/// `tx` is a handle, `name` and `attribute` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_removexattr(
    tx: *mut Transaction,
    name: *const c_char,
    attribute: *const c_char,
) -> c_int {
    let remove = |tx: &SharedTransaction, path: &Path| {
        // SAFETY: the caller's promise.
        let attribute = OsStr::from_bytes(unsafe { text(attribute) }?.to_bytes());
        Ok(tx.remove_xattr(path, attribute)?)
    };
    // SAFETY: the caller's promise.
    unsafe { at(tx, name, remove) }
}
