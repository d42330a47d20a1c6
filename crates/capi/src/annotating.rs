//! Commits that take themselves back unless they are confirmed; pins, which keep commits from being
//! forgotten; and other labels for commits.

use crate::error::{Failure, status};
use crate::handle::{borrow, text};
use crate::store::Store;
use crate::transaction::Transaction;
use atomdir::Sequence;
use libc::{c_char, c_int};
use std::time::Duration;

/// # Safety
/// `tx` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_confirm_within(tx: *mut Transaction, wait_ms: i64) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let transaction = unsafe { borrow(tx) }?;
        if wait_ms == 0 {
            return Err(Failure::invalid("the time to confirm a commit is 0"));
        }
        let wait = u64::try_from(wait_ms).ok().map(Duration::from_millis);
        Ok(transaction.tx.confirm_within(wait)?)
    })
}

/// # Safety
/// `store` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_confirm(store: *mut Store, commit: u64) -> c_int {
    // SAFETY: the caller's promise.
    status(|| Ok(unsafe { borrow(store) }?.store.confirm(Sequence(commit))?))
}

/// # Safety
/// `store` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_pin(store: *mut Store, commit: u64, pinned: c_int) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let store = &unsafe { borrow(store) }?.store;
        let done = match pinned {
            0 => store.unpin(Sequence(commit)),
            1 => store.pin(Sequence(commit)),
            _ => return Err(Failure::invalid("it is either pinned (1) or not (0)")),
        };
        Ok(done?)
    })
}

/// # Safety
/// `store` is a handle, `label` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_relabel(
    store: *mut Store,
    commit: u64,
    label: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (store, label) = unsafe { (borrow(store)?, text(label)?) };
        Ok(store.store.relabel(Sequence(commit), label.to_bytes())?)
    })
}
