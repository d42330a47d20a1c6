//! Lists of what a transaction has changed.

use crate::error::{c_string, count, status};
use crate::handle::{borrow, give, require, take};
use crate::transaction::Transaction;
use atomdir::ChangedPath;
use libc::{c_char, c_int};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub struct Changes {
    left: std::vec::IntoIter<ChangedPath>,
    /// What was returned.
    paths: Vec<CString>,
}

/// A change, as `struct atomdir_change`.
#[repr(C)]
pub struct ChangeView {
    letter: c_char,
    path: *const c_char,
    old_path: *const c_char,
}

impl Changes {
    /// A copy of the path that stays where it is, although the vector may move.
    fn keep(&mut self, path: &Path) -> *const c_char {
        let path = c_string(path.as_os_str().as_bytes());
        let kept = path.as_ptr();
        self.paths.push(path);
        kept
    }
}

/// # Safety
/// `tx` is a handle, and `changes` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_changes_open(
    tx: *mut Transaction,
    changes: *mut *mut Changes,
) -> c_int {
    status(|| {
        require(changes)?;
        // SAFETY: the caller's promise.
        let listed = unsafe { borrow(tx) }?.tx.changes()?;
        let listed = Changes {
            left: listed.into_iter(),
            paths: Vec::new(),
        };
        // SAFETY: the caller's promise.
        unsafe { give(changes, listed) };
        Ok(())
    })
}

/// # Safety
/// `changes` is a handle that no other thread uses, and `change` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_changes_next(
    changes: *mut Changes,
    change: *mut ChangeView,
) -> c_int {
    count(|| {
        require(changes)?;
        require(change)?;
        // SAFETY: the caller's promise.
        let changes = unsafe { &mut *changes };
        let Some(next) = changes.left.next() else {
            return Ok(0);
        };
        let found = ChangeView {
            // One of the letters of ASCII.
            letter: next.change.letter() as c_char,
            path: changes.keep(&next.path),
            old_path: next
                .from
                .map_or(std::ptr::null(), |from| changes.keep(&from)),
        };
        // SAFETY: the caller's promise.
        unsafe { change.write(found) };
        Ok(1)
    }) as c_int
}

/// # Safety
/// `changes` is null, or a handle that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_changes_close(changes: *mut Changes) {
    status(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { take(changes) });
        Ok(())
    });
}
