//! Functions for stores.

use crate::error::{Failure, Result, c_string, status};
use crate::handle::{borrow, give, path, require, string, take};
use atomdir::{Door, StartService, StoreError, StoreOptions};
use libc::{c_char, c_int};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const EMBEDDED: c_int = 1;
const SERVICE: c_int = 2;
const START: c_int = 4;

pub struct Store {
    pub(crate) store: atomdir::Store,
    root: CString,
}

/// Opens a store through its service. If `start`, the command starts one if none runs.
pub(crate) fn open_service(path: &Path, start: bool) -> Result<atomdir::Store> {
    let mut options = StoreOptions::new();
    options.door(Door::Service);
    if start {
        let location = atomdir::find(path)?;
        options.start_service(StartService::with_program("atomdir", &location));
    }
    Ok(options.open(path)?)
}

/// # Safety
/// `directory` is a string, `control` null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_init(directory: *const c_char, control: *const c_char) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (directory, control) = unsafe { (path(directory)?, string(control)?) };
        let control = control.map(|control| Path::new(OsStr::from_bytes(control.to_bytes())));
        atomdir::init(directory, control)?;
        Ok(())
    })
}

/// # Safety
/// `start` is a string, and `store` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_open(
    start: *const c_char,
    flags: c_int,
    store: *mut *mut Store,
) -> c_int {
    status(|| {
        require(store)?;
        // SAFETY: the caller's promise.
        let path = unsafe { path(start) }?;
        let opened = match flags {
            0 => atomdir::Store::open(path)?,
            EMBEDDED => StoreOptions::new().door(Door::Embedded).open(path)?,
            SERVICE => open_service(path, false)?,
            START => open_service(path, true)?,
            _ => return Err(Failure::invalid("the flags are unknown")),
        };
        let root = c_string(opened.root().as_os_str().as_bytes());
        let opened = Store {
            store: opened,
            root,
        };
        // SAFETY: the caller's promise.
        unsafe { give(store, opened) };
        Ok(())
    })
}

/// # Safety
/// `store` is null, or a handle that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_close(store: *mut Store) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let Some(store) = (unsafe { take(store) }) else {
            return Ok(());
        };
        match store.store.close() {
            // The store closes when its last transaction ends.
            Ok(()) | Err(StoreError::InUse) => Ok(()),
            Err(error) => Err(error.into()),
        }
    })
}

/// # Safety
/// `store` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_root(store: *const Store) -> *const c_char {
    // SAFETY: the caller's promise.
    let store = unsafe { store.as_ref() };
    store.map_or(std::ptr::null(), |store| store.root.as_ptr())
}

/// # Safety
/// `store` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_is_embedded(store: *const Store) -> c_int {
    // SAFETY: the caller's promise.
    let store = unsafe { store.as_ref() };
    c_int::from(store.is_some_and(|store| store.store.is_embedded()))
}

/// # Safety
/// `store` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_hand_over(store: *mut Store) -> c_int {
    // SAFETY: the caller's promise.
    status(|| Ok(unsafe { borrow(store) }?.store.hand_over()?))
}

/// # Safety
/// `store` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_sync(store: *mut Store) -> c_int {
    // SAFETY: the caller's promise.
    status(|| Ok(unsafe { borrow(store) }?.store.sync()?))
}
