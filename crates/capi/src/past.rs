//! The past, commits of a part, and sides in conflicts.

use crate::changes::Changes;
use crate::error::{Failure, Result, c_string, count, keep_conflicts, status};
use crate::handle::{borrow, give, paths, require, take};
use crate::names::{c_time, system_time};
use crate::store::Store;
use crate::transaction::Transaction;
use atomdir::{CommitSummary, Sequence, Take};
use libc::{c_char, c_int, size_t, ssize_t, timespec, uid_t};
use std::ffi::{CStr, CString};
use std::os::fd::IntoRawFd;

/// In place of a commit's number: the store's present state.
const NOW: u64 = u64::MAX;
const OUTSIDE_AS_NOW: c_int = 1;
const MINE: c_int = 1;
const THEIRS: c_int = 2;
const MERGE: c_int = 3;

/// An array from C.
///
/// # Safety
/// `values` points to `length` values, or `length` is 0.
unsafe fn array<'a, T>(values: *const T, length: size_t) -> Result<&'a [T]> {
    match (values.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::invalid("the array is NULL")),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(values, length) }),
    }
}

/// A list of commits, which C reads one after the other.
pub struct Log {
    commits: std::vec::IntoIter<CommitSummary>,
    labels: Vec<CString>,
}

/// A commit, as `struct atomdir_commit_info`.
#[repr(C)]
pub struct CommitView {
    sequence: u64,
    transaction: u64,
    time: timespec,
    user: uid_t,
    label: *const c_char,
    changes: u64,
}

impl CommitView {
    fn new(commit: &CommitSummary, label: &CStr) -> CommitView {
        CommitView {
            sequence: commit.sequence.0,
            transaction: commit.transaction.0,
            time: c_time(commit.time),
            user: commit.user,
            label: label.as_ptr(),
            changes: commit.changes,
        }
    }
}

impl Log {
    fn new(commits: Vec<CommitSummary>) -> Log {
        Log {
            commits: commits.into_iter(),
            labels: Vec::new(),
        }
    }
}

/// # Safety
/// `store` is a handle, and `log` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_log_open(
    store: *mut Store,
    limit: size_t,
    log: *mut *mut Log,
) -> c_int {
    status(|| {
        require(log)?;
        // SAFETY: the caller's promise.
        let commits = unsafe { borrow(store) }?.store.log(limit)?;
        // SAFETY: the caller's promise.
        unsafe { give(log, Log::new(commits)) };
        Ok(())
    })
}

/// # Safety
/// `store` is a handle, `below` is null or an array of strings that ends with null, and `log` may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_log_of(
    store: *mut Store,
    below: *const *const c_char,
    before: u64,
    limit: size_t,
    log: *mut *mut Log,
) -> c_int {
    status(|| {
        require(log)?;
        // SAFETY: the caller's promise.
        let (store, paths) = unsafe { (borrow(store)?, paths(below)?) };
        let before = (before != 0).then_some(Sequence(before));
        let commits = store.store.log_of(&paths, before, limit)?;
        // SAFETY: the caller's promise.
        unsafe { give(log, Log::new(commits)) };
        Ok(())
    })
}

/// # Safety
/// `log` is a handle that no other thread uses, and `commit` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_log_next(log: *mut Log, commit: *mut CommitView) -> c_int {
    count(|| {
        require(log)?;
        require(commit)?;
        // SAFETY: the caller's promise.
        let log = unsafe { &mut *log };
        let Some(next) = log.commits.next() else {
            return Ok(0);
        };
        let label = c_string(&next.label);
        let found = CommitView::new(&next, &label);
        // The string does not move when the vector grows.
        log.labels.push(label);
        // SAFETY: the caller's promise.
        unsafe { commit.write(found) };
        Ok(1)
    }) as c_int
}

/// # Safety
/// `log` is null, or a handle that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_log_close(log: *mut Log) {
    status(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { take(log) });
        Ok(())
    });
}

/// # Safety
/// `store` is a handle, `info` is null or may be written, and `changes` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_show(
    store: *mut Store,
    commit: u64,
    info: *mut CommitView,
    changes: *mut *mut Changes,
) -> c_int {
    status(|| {
        require(changes)?;
        // SAFETY: the caller's promise.
        let shown = unsafe { borrow(store) }?.store.show(Sequence(commit))?;
        let mut opened = Changes::new(shown.changes);
        if !info.is_null() {
            let view = CommitView::new(&shown.summary, opened.keep(&shown.summary.label));
            // SAFETY: the caller's promise.
            unsafe { info.write(view) };
        }
        // SAFETY: the caller's promise.
        unsafe { give(changes, opened) };
        Ok(())
    })
}

/// # Safety
/// `store` is a handle, and `changes` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_diff(
    store: *mut Store,
    from: u64,
    to: u64,
    changes: *mut *mut Changes,
) -> c_int {
    status(|| {
        require(changes)?;
        let to = (to != NOW).then_some(Sequence(to));
        // SAFETY: the caller's promise.
        let found = unsafe { borrow(store) }?.store.diff(Sequence(from), to)?;
        keep_conflicts(&found.not_as_then);
        // SAFETY: the caller's promise.
        unsafe { give(changes, Changes::new(found.changes)) };
        Ok(())
    })
}

/// # Safety
/// `store` is a handle, `moment` points to a time, and `commit` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_commit_at(
    store: *mut Store,
    moment: *const timespec,
    commit: *mut u64,
) -> c_int {
    status(|| {
        require(commit)?;
        // SAFETY: the caller's promise.
        let (store, moment) = unsafe { (borrow(store)?, moment.as_ref()) };
        let moment = moment.ok_or_else(|| Failure::invalid("the time is NULL"))?;
        let found = store.store.commit_at(system_time(*moment)?)?;
        // SAFETY: the caller's promise.
        unsafe { commit.write(found.0) };
        Ok(())
    })
}

/// # Safety
/// `store` is a handle, `commits` points to `length` numbers, `below` is null or an array of
/// strings that ends with null, and `tx` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_undo(
    store: *mut Store,
    commits: *const u64,
    length: size_t,
    below: *const *const c_char,
    tx: *mut *mut Transaction,
) -> c_int {
    status(|| {
        require(tx)?;
        // SAFETY: the caller's promise.
        let (store, commits, paths) =
            unsafe { (borrow(store)?, array(commits, length)?, paths(below)?) };
        let commits: Vec<Sequence> = commits.iter().copied().map(Sequence).collect();
        let begun = store.store.undo(&commits, &paths)?;
        // SAFETY: the caller's promise.
        unsafe { give(tx, Transaction::new(begun.into())) };
        Ok(())
    })
}

/// # Safety
/// `store` is a handle, `below` an array of strings that ends with null, and `tx` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_restore(
    store: *mut Store,
    commit: u64,
    below: *const *const c_char,
    tx: *mut *mut Transaction,
) -> c_int {
    status(|| {
        require(tx)?;
        // SAFETY: the caller's promise.
        let (store, paths) = unsafe { (borrow(store)?, paths(below)?) };
        let begun = store.store.restore(Sequence(commit), &paths)?;
        // SAFETY: the caller's promise.
        unsafe { give(tx, Transaction::new(begun.into())) };
        Ok(())
    })
}

/// # Safety
/// `store` is a handle, and `tx` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_at(
    store: *mut Store,
    commit: u64,
    flags: c_int,
    tx: *mut *mut Transaction,
) -> c_int {
    status(|| {
        require(tx)?;
        // SAFETY: the caller's promise.
        let store = &unsafe { borrow(store) }?.store;
        let commit = Sequence(commit);
        let shown = match flags {
            0 => store.at(commit)?,
            OUTSIDE_AS_NOW => {
                let (shown, not_as_then) = store.at_outside_as_now(commit)?;
                keep_conflicts(&not_as_then);
                shown
            }
            _ => return Err(Failure::invalid("the flags are unknown")),
        };
        // SAFETY: the caller's promise.
        unsafe { give(tx, Transaction::new(shown.into())) };
        Ok(())
    })
}

/// # Safety
/// `tx` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_view_directory(tx: *mut Transaction) -> c_int {
    count(|| {
        // SAFETY: the caller's promise.
        let opened = unsafe { borrow(tx) }?.tx.view_directory()?;
        let directory = opened.ok_or_else(|| {
            Failure::errno(
                libc::EOPNOTSUPP,
                "the transaction has no view, since the store is open in this process; use its \
                 service",
            )
        })?;
        // A valid descriptor is not negative, so the cast loses nothing.
        Ok(directory.into_raw_fd() as usize)
    }) as c_int
}

/// # Safety
/// `tx` is a handle, `below` an array of strings that ends with null, and `sequence` is null or may
/// be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_commit_part(
    tx: *mut Transaction,
    below: *const *const c_char,
    sequence: *mut u64,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (transaction, paths) = unsafe { (borrow(tx)?, paths(below)?) };
        let landed = transaction.tx.commit_part(&paths)?;
        if !sequence.is_null() {
            let landed = landed.receipt.sequence().map_or(0, |sequence| sequence.0);
            // SAFETY: the caller's promise.
            unsafe { sequence.write(landed) };
        }
        Ok(())
    })
}

/// # Safety
/// `tx` is a handle, `below` an array of strings that ends with null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_abort_part(
    tx: *mut Transaction,
    below: *const *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (transaction, paths) = unsafe { (borrow(tx)?, paths(below)?) };
        transaction.tx.abort_part(&paths)?;
        Ok(())
    })
}

/// # Safety
/// `tx` is a handle, and `to` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_refresh(tx: *mut Transaction, to: *mut u64) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let refreshed = unsafe { borrow(tx) }?.tx.refresh()?;
        if !to.is_null() {
            // SAFETY: the caller's promise.
            unsafe { to.write(refreshed.to.0) };
        }
        Ok(())
    })
}

/// # Safety
/// `tx` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_list_conflicts(tx: *mut Transaction) -> ssize_t {
    count(|| {
        // SAFETY: the caller's promise.
        let found = unsafe { borrow(tx) }?.tx.conflicts()?;
        keep_conflicts(&found);
        Ok(found.len())
    })
}

/// # Safety
/// `tx` is a handle, which is not used afterwards if this succeeds. `sides` points to `length`
/// numbers, and `sequence` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_commit_with_sides(
    tx: *mut Transaction,
    sides: *const c_int,
    length: size_t,
    sequence: *mut u64,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (transaction, sides) = unsafe { (borrow(tx)?, array(sides, length)?) };
        let sides = sides.iter().map(|side| match *side {
            MINE => Ok(Take::Mine),
            THEIRS => Ok(Take::Theirs),
            MERGE => Ok(Take::Merge),
            side => Err(Failure::invalid(&format!("the side {side} is unknown"))),
        });
        let sides = sides.collect::<Result<Vec<Take>>>()?;
        let committed = transaction.commit_by(|tx| tx.commit_with_sides(&sides))?;
        // SAFETY: the caller's promise.
        unsafe {
            drop(take(tx));
            if !sequence.is_null() {
                sequence.write(committed);
            }
        }
        Ok(())
    })
}
