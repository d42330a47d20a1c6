//! Contents of files.

use crate::error::{Failure, Result, count, status};
use crate::handle::{borrow, bytes, give, path, require, take};
use crate::transaction::Transaction;
use atomdir::{Metadata, OpenOptions, SharedFile};
use libc::{c_char, c_int, c_void, size_t, ssize_t};
use std::time::SystemTime;

/// # Safety
/// `tx` is a handle, `name` a string. `data` and `size` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_read_file(
    tx: *mut Transaction,
    name: *const c_char,
    data: *mut *mut c_void,
    size: *mut size_t,
) -> c_int {
    status(|| {
        require(data)?;
        require(size)?;
        // SAFETY: the caller's promise.
        let (transaction, path) = unsafe { (borrow(tx)?, path(name)?) };
        let contents = transaction.tx.read(path)?;
        // SAFETY: the copy has room for the contents and one byte more, and does not overlap them.
        unsafe {
            let copy = libc::malloc(contents.len() + 1).cast::<u8>();
            if copy.is_null() {
                let message = format!("cannot allocate {} bytes for the file", contents.len());
                return Err(Failure::errno(libc::ENOMEM, message));
            }
            std::ptr::copy_nonoverlapping(contents.as_ptr(), copy, contents.len());
            copy.add(contents.len()).write(0);
            data.write(copy.cast());
            size.write(contents.len());
        }
        Ok(())
    })
}

/// # Safety
/// `data` is null or comes from `atomdir_read_file`, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_free(data: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { libc::free(data) };
}

/// # Safety
/// `tx` is a handle, `name` a string, and `data` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_write_file(
    tx: *mut Transaction,
    name: *const c_char,
    data: *const c_void,
    size: size_t,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (transaction, path) = unsafe { (borrow(tx)?, path(name)?) };
        // SAFETY: the caller's promise.
        let contents = unsafe { bytes(data, size) }?;
        Ok(transaction.tx.write(path, contents)?)
    })
}

fn open_options(flags: c_int, mode: u32) -> Result<OpenOptions> {
    let known = libc::O_ACCMODE
        | libc::O_APPEND
        | libc::O_CREAT
        | libc::O_EXCL
        | libc::O_TRUNC
        | libc::O_NOFOLLOW
        | libc::O_CLOEXEC;
    if flags & !known != 0 {
        return Err(Failure::invalid("some of the flags are not supported"));
    }
    let access = flags & libc::O_ACCMODE;
    let has = |flag| flags & flag != 0;
    let mut options = OpenOptions::new();
    options
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
        .append(has(libc::O_APPEND))
        .truncate(has(libc::O_TRUNC))
        .create(has(libc::O_CREAT) && !has(libc::O_EXCL))
        .create_new(has(libc::O_CREAT) && has(libc::O_EXCL))
        .follow(!has(libc::O_NOFOLLOW))
        .mode(mode);
    Ok(options)
}

/// # Safety
/// `tx` is a handle, `name` a string, and `file` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_file_open(
    tx: *mut Transaction,
    name: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
    file: *mut *mut SharedFile,
) -> c_int {
    status(|| {
        require(file)?;
        // SAFETY: the caller's promise.
        let (transaction, path) = unsafe { (borrow(tx)?, path(name)?) };
        let opened = transaction
            .tx
            .open_shared(path, &open_options(flags, mode)?)?;
        // SAFETY: the caller's promise.
        unsafe { give(file, opened) };
        Ok(())
    })
}

/// # Safety
/// `file` is null, or a handle that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_file_close(file: *mut SharedFile) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { take(file) });
        Ok(())
    })
}

/// # Safety
/// `file` is a handle, and `data` points to `size` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_pread(
    file: *mut SharedFile,
    data: *mut c_void,
    size: size_t,
    offset: u64,
) -> ssize_t {
    count(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { borrow(file) }?;
        if size == 0 {
            return Ok(0);
        }
        require(data)?;
        // SAFETY: the caller's promise. The library writes to the buffer and does not read it.
        let buffer = unsafe { std::slice::from_raw_parts_mut(data.cast::<u8>(), size) };
        Ok(file.read_at(buffer, offset)?)
    })
}

/// # Safety
/// `file` is a handle, and `data` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_pwrite(
    file: *mut SharedFile,
    data: *const c_void,
    size: size_t,
    offset: u64,
) -> ssize_t {
    count(|| {
        // SAFETY: the caller's promise.
        let (file, data) = unsafe { (borrow(file)?, bytes(data, size)?) };
        file.write_all_at(data, offset)?;
        Ok(size)
    })
}

/// # Safety
/// As for `atomdir_pwrite`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_append(
    file: *mut SharedFile,
    data: *const c_void,
    size: size_t,
) -> ssize_t {
    count(|| {
        // SAFETY: the caller's promise.
        let (file, data) = unsafe { (borrow(file)?, bytes(data, size)?) };
        file.append(data)?;
        Ok(size)
    })
}

/// # Safety
/// `file` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_ftruncate(file: *mut SharedFile, length: u64) -> c_int {
    // SAFETY: the caller's promise.
    status(|| Ok(unsafe { borrow(file) }?.set_len(length)?))
}

/// # Safety
/// `file` is a handle, and `stat` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_fstat(file: *mut SharedFile, stat: *mut libc::stat) -> c_int {
    status(|| {
        require(stat)?;
        // SAFETY: the caller's promise.
        let metadata = unsafe { borrow(file) }?.metadata()?;
        // SAFETY: the caller's promise.
        unsafe { stat.write(c_stat(&metadata)) };
        Ok(())
    })
}

#[allow(
    clippy::unnecessary_fallible_conversions,
    clippy::useless_conversion,
    reason = "the fields have other types on other architectures"
)]
pub(crate) fn c_stat(metadata: &Metadata) -> libc::stat {
    // SAFETY: the structure consists of integers, for which zeros are valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_mode = metadata.kind.type_bits() | metadata.mode;
    stat.st_ino = metadata.inode;
    stat.st_nlink = metadata.links.into();
    stat.st_uid = metadata.user;
    stat.st_gid = metadata.group;
    stat.st_rdev = metadata.device_number;
    stat.st_size = metadata.len.try_into().unwrap_or(i64::MAX);
    stat.st_blksize = 4096;
    stat.st_blocks = metadata.blocks.try_into().unwrap_or(i64::MAX);
    (stat.st_atime, stat.st_atime_nsec) = c_time(metadata.accessed);
    (stat.st_mtime, stat.st_mtime_nsec) = c_time(metadata.modified);
    (stat.st_ctime, stat.st_ctime_nsec) = c_time(metadata.changed);
    stat
}

/// Seconds since 1970, and nanoseconds, which are never negative, also before 1970.
fn c_time(time: SystemTime) -> (i64, i64) {
    let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => (seconds(since.as_secs()), since.subsec_nanos().into()),
        Err(error) => {
            let before = error.duration();
            match i64::from(before.subsec_nanos()) {
                0 => (-seconds(before.as_secs()), 0),
                fraction => (-seconds(before.as_secs()) - 1, 1_000_000_000 - fraction),
            }
        }
    }
}
