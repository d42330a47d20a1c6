//! Lists of open transactions, and of transactions that were not ended by their users.

use crate::error::{Result, c_string, count, status};
use crate::handle::{borrow, give, require, take};
use crate::names::c_time;
use crate::store::Store;
use atomdir::client::describe_end;
use atomdir::{EndedHow, EndedTransaction, OpenTransaction};
use libc::{c_char, c_int, timespec, uid_t};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

const ABORTED: c_int = 1;
const AGE: c_int = 2;
const STOPPED: c_int = 3;
const DIED: c_int = 4;
const NOBODY: uid_t = uid_t::MAX;
const NOT_KNOWN: u64 = u64::MAX;

/// A list that C reads element by element.
pub struct List<T> {
    left: std::vec::IntoIter<T>,
    /// Strings to which C has pointers. They do not move when the vector grows.
    returned: Vec<CString>,
}

impl<T> List<T> {
    fn new(all: Vec<T>) -> List<T> {
        List {
            left: all.into_iter(),
            returned: Vec::new(),
        }
    }

    fn keep(&mut self, text: &[u8]) -> *const c_char {
        let text = c_string(text);
        let kept = text.as_ptr();
        self.returned.push(text);
        kept
    }

    /// Writes the next element for C, converted by `view`. Returns 0 at the end.
    ///
    /// # Safety
    /// `list` is null, or a handle that no other thread uses, and `found` is null or may be written.
    unsafe fn next<V>(
        list: *mut List<T>,
        found: *mut V,
        view: impl FnOnce(&mut List<T>, T) -> V,
    ) -> Result<usize> {
        require(list)?;
        require(found)?;
        // SAFETY: the caller's promise.
        let list = unsafe { &mut *list };
        let Some(next) = list.left.next() else {
            return Ok(0);
        };
        let next = view(list, next);
        // SAFETY: the caller's promise.
        unsafe { found.write(next) };
        Ok(1)
    }
}

/// An open transaction, as `struct atomdir_transaction_info`.
#[repr(C)]
pub struct OpenView {
    id: u64,
    user: uid_t,
    label: *const c_char,
    began: timespec,
    survives: c_int,
    kept_commits: u64,
}

/// # Safety
/// `store` is a handle, and `list` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_transactions_open(
    store: *mut Store,
    list: *mut *mut List<OpenTransaction>,
) -> c_int {
    status(|| {
        require(list)?;
        // SAFETY: the caller's promise.
        let open = unsafe { borrow(store) }?.store.transactions()?;
        // SAFETY: the caller's promise.
        unsafe { give(list, List::new(open)) };
        Ok(())
    })
}

/// # Safety
/// `list` is a handle that no other thread uses, and `found` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_transactions_next(
    list: *mut List<OpenTransaction>,
    found: *mut OpenView,
) -> c_int {
    count(|| {
        let view = |list: &mut List<_>, open: OpenTransaction| OpenView {
            id: open.id.0,
            user: open.user,
            label: list.keep(open.label.as_bytes()),
            began: c_time(open.began.into()),
            survives: open.survives.into(),
            kept_commits: open.kept_commits,
        };
        // SAFETY: the caller's promise.
        unsafe { List::next(list, found, view) }
    }) as c_int
}

/// # Safety
/// `list` is null, or a handle that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_transactions_close(list: *mut List<OpenTransaction>) {
    status(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { take(list) });
        Ok(())
    });
}

/// A transaction that was not ended by its user, as `struct atomdir_ended_info`.
#[repr(C)]
pub struct EndedView {
    id: u64,
    user: uid_t,
    label: *const c_char,
    began: timespec,
    ended: timespec,
    how: c_int,
    by: uid_t,
    description: *const c_char,
    changes: u64,
}

impl EndedView {
    fn new(list: &mut List<EndedTransaction>, ended: EndedTransaction) -> EndedView {
        let (how, by) = match ended.how {
            EndedHow::Aborted { by } => (ABORTED, by),
            EndedHow::Age { .. } => (AGE, NOBODY),
            EndedHow::Stopped { by } => (STOPPED, by.unwrap_or(NOBODY)),
            EndedHow::Died => (DIED, NOBODY),
        };
        EndedView {
            id: ended.id.0,
            user: ended.user,
            label: list.keep(ended.label.as_bytes()),
            began: c_time(ended.began.into()),
            ended: c_time(ended.ended.into()),
            how,
            by,
            description: list.keep(describe_end(ended.how).as_bytes()),
            changes: ended.changes.unwrap_or(NOT_KNOWN),
        }
    }
}

/// # Safety
/// `store` is a handle, and `list` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_ended_open(
    store: *mut Store,
    list: *mut *mut List<EndedTransaction>,
) -> c_int {
    status(|| {
        require(list)?;
        // SAFETY: the caller's promise.
        let ended = unsafe { borrow(store) }?.store.ended()?;
        // SAFETY: the caller's promise.
        unsafe { give(list, List::new(ended)) };
        Ok(())
    })
}

/// # Safety
/// `list` is a handle that no other thread uses, and `found` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_ended_next(
    list: *mut List<EndedTransaction>,
    found: *mut EndedView,
) -> c_int {
    // SAFETY: the caller's promise.
    count(|| unsafe { List::next(list, found, EndedView::new) }) as c_int
}

/// # Safety
/// `list` is null, or a handle that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_ended_close(list: *mut List<EndedTransaction>) {
    status(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { take(list) });
        Ok(())
    });
}
