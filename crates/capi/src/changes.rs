//! Lists of changes.

use crate::error::{c_string, count, status};
use crate::handle::{borrow, give, require, take};
use crate::transaction::Transaction;
use atomdir::ChangedPath;
use libc::{c_char, c_int};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub struct Changes {
    left: std::vec::IntoIter<ChangedPath>,
    /// Strings to which C has pointers. They do not move when the vector grows.
    returned: Vec<CString>,
}

/// A change, as `struct atomdir_change`.
#[repr(C)]
pub struct ChangeView {
    letter: c_char,
    path: *const c_char,
    old_path: *const c_char,
}

impl Changes {
    pub(crate) fn new(changes: Vec<ChangedPath>) -> Changes {
        Changes {
            left: changes.into_iter(),
            returned: Vec::new(),
        }
    }

    /// Copies the text. The copy does not move, and lives until the list is closed.
    pub(crate) fn keep(&mut self, text: &[u8]) -> &CStr {
        let place = self.returned.len();
        self.returned.push(c_string(text));
        &self.returned[place]
    }

    fn keep_path(&mut self, path: &Path) -> *const c_char {
        self.keep(path.as_os_str().as_bytes()).as_ptr()
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
        // SAFETY: the caller's promise.
        unsafe { give(changes, Changes::new(listed)) };
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
            // The letter is ASCII, so the cast loses nothing.
            letter: next.change.letter() as c_char,
            path: changes.keep_path(&next.path),
            old_path: next
                .from
                .map_or(std::ptr::null(), |from| changes.keep_path(&from)),
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
