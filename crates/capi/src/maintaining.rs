//! Dropping history, and settings.

use crate::error::{Failure, c_string, count, status};
use crate::handle::{borrow, copy, text};
use crate::names::c_time;
use crate::store::Store;
use atomdir::{HistoryStatus, Timestamp};
use libc::{c_char, c_int, size_t, ssize_t, timespec};
use std::ffi::CStr;
use std::time::Duration;

/// The history that is kept, as `struct atomdir_history`.
#[repr(C)]
pub struct HistoryView {
    commits: u64,
    bytes: u64,
    oldest: u64,
    oldest_time: timespec,
}

impl From<HistoryStatus> for HistoryView {
    fn from(history: HistoryStatus) -> HistoryView {
        let oldest = history.oldest.map_or(0, |(sequence, _)| sequence.0);
        let time = history.oldest.map(|(_, time)| time);
        HistoryView {
            commits: history.commits,
            bytes: history.bytes,
            oldest,
            oldest_time: c_time(time.unwrap_or(Timestamp {
                seconds: 0,
                nanoseconds: 0,
            })),
        }
    }
}

/// # Safety
/// `store` is a handle, and `kept` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_prune(
    store: *mut Store,
    age_seconds: i64,
    kept: *mut HistoryView,
) -> c_int {
    count(|| {
        let age = u64::try_from(age_seconds).ok().map(Duration::from_secs);
        // SAFETY: the caller's promise.
        let history = unsafe { borrow(store) }?.store.prune(age)?;
        if !kept.is_null() {
            // SAFETY: the caller's promise.
            unsafe { kept.write(history.unwrap_or_default().into()) };
        }
        Ok(history.is_some().into())
    }) as c_int
}

fn known(name: &CStr) -> Result<&str, Failure> {
    let name = name.to_str();
    name.map_err(|_| Failure::invalid("the setting or its value is not UTF-8"))
}

/// # Safety
/// `store` is a handle, `key` a string, and `value` points to `size` bytes that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_setting(
    store: *mut Store,
    key: *const c_char,
    value: *mut c_char,
    size: size_t,
) -> ssize_t {
    count(|| {
        // SAFETY: the caller's promise.
        let (store, key) = unsafe { (borrow(store)?, text(key)?) };
        let found = store.store.setting(known(key)?)?;
        let found = c_string(found.as_bytes());
        if size == 0 {
            return Ok(found.as_bytes().len());
        }
        // SAFETY: the caller's promise.
        let copied = unsafe { copy(found.as_bytes_with_nul(), value.cast(), size) }?;
        Ok(copied - 1)
    })
}

/// # Safety
/// `store` is a handle, `key` and `value` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_set_setting(
    store: *mut Store,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (store, key, value) = unsafe { (borrow(store)?, text(key)?, text(value)?) };
        Ok(store.store.set_setting(known(key)?, known(value)?)?)
    })
}
