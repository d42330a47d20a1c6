//! Functions for transactions.

use crate::error::{CONFLICT, Failure, Result, c_string, status};
use crate::handle::{borrow, give, paths, require, string, take, text};
use crate::store::Store;
use atomdir::{
    CommitError, Conflicts, Durability, Error, Isolation, LockMode, LockScope, Receipt,
    SharedTransaction, TransactionId,
};
use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

const SERIALIZABLE: c_int = 1;
const LAZY: c_int = 2;
const EARLY: c_int = 4;
const OWN_READS: c_int = 8;
const DEFERRED: c_int = 16;
const SHARED: c_int = 1;
const SUBTREE: c_int = 2;

pub struct Transaction {
    pub(crate) tx: SharedTransaction,
    view: Option<CString>,
}

impl Transaction {
    pub(crate) fn new(tx: SharedTransaction) -> Transaction {
        let view = tx.view().map(|view| c_string(view.as_os_str().as_bytes()));
        Transaction { tx, view }
    }

    /// Commits, and returns the commit's place in the order.
    pub(crate) fn commit_by(
        &self,
        commit: impl FnOnce(&SharedTransaction) -> std::result::Result<Receipt, CommitError>,
    ) -> Result<u64> {
        match self.tx.open_files() {
            0 => {}
            count => return Err(files_open(count)),
        }
        let receipt = commit(&self.tx)?;
        Ok(receipt.sequence().map_or(0, |sequence| sequence.0))
    }
}

fn options<'a>(
    store: &'a Store,
    flags: c_int,
    label: Option<&CStr>,
) -> Result<atomdir::TransactionOptions<'a>> {
    if flags & !(SERIALIZABLE | LAZY | DEFERRED | EARLY | OWN_READS) != 0 {
        return Err(Failure::invalid("the flags are unknown"));
    }
    let mut options = store.store.transaction();
    if flags & SERIALIZABLE != 0 {
        options = options.isolation(Isolation::Serializable);
    }
    match (flags & LAZY != 0, flags & DEFERRED != 0) {
        (true, true) => return Err(Failure::invalid("it is either lazy or deferred")),
        (true, false) => options = options.durability(Durability::Lazy),
        (false, true) => options = options.durability(Durability::Deferred),
        (false, false) => {}
    }
    if flags & EARLY != 0 {
        options = options.conflicts(Conflicts::Early);
    }
    let options = options.own_reads_only(flags & OWN_READS != 0);
    Ok(options.label(label.map_or(&[][..], CStr::to_bytes)))
}

/// # Safety
/// `store` is a handle, `label` null or a string, and `tx` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_begin(
    store: *mut Store,
    flags: c_int,
    label: *const c_char,
    tx: *mut *mut Transaction,
) -> c_int {
    status(|| {
        require(tx)?;
        // SAFETY: the caller's promise.
        let (store, label) = unsafe { (borrow(store)?, string(label)?) };
        let begun = options(store, flags, label)?.begin()?;
        // SAFETY: the caller's promise.
        unsafe { give(tx, Transaction::new(begun.into())) };
        Ok(())
    })
}

/// # Safety
/// `outer` is a handle, and `tx` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_nest(outer: *mut Transaction, tx: *mut *mut Transaction) -> c_int {
    status(|| {
        require(tx)?;
        // SAFETY: the caller's promise.
        let nested = unsafe { borrow(outer) }?.tx.nest()?;
        // SAFETY: the caller's promise.
        unsafe { give(tx, Transaction::new(nested)) };
        Ok(())
    })
}

/// # Safety
/// `tx` is a handle, and `fork` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_fork(tx: *mut Transaction, fork: *mut *mut Transaction) -> c_int {
    status(|| {
        require(fork)?;
        // SAFETY: the caller's promise.
        let forked = unsafe { borrow(tx) }?.tx.fork()?;
        // SAFETY: the caller's promise.
        unsafe { give(fork, Transaction::new(forked.into())) };
        Ok(())
    })
}

/// # Safety
/// `tx` is a handle, which is not used afterwards if this succeeds. `sequence` is null or may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_commit(tx: *mut Transaction, sequence: *mut u64) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let committed = unsafe { borrow(tx) }?.commit_by(|tx| tx.commit())?;
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

/// # Safety
/// `tx` is a handle, which is not used afterwards if this succeeds. `id` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_keep(tx: *mut Transaction, id: *mut u64) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let kept = unsafe { borrow(tx) }?.tx.keep()?;
        // SAFETY: the caller's promise.
        unsafe {
            drop(take(tx));
            if !id.is_null() {
                id.write(kept.0);
            }
        }
        Ok(())
    })
}

/// # Safety
/// `tx` is a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_tx_sync(tx: *mut Transaction) -> c_int {
    // SAFETY: the caller's promise.
    status(|| Ok(unsafe { borrow(tx) }?.tx.sync()?))
}

/// # Safety
/// `store` is a handle, and `tx` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_attach(
    store: *mut Store,
    id: u64,
    tx: *mut *mut Transaction,
) -> c_int {
    status(|| {
        require(tx)?;
        // SAFETY: the caller's promise.
        let attached = unsafe { borrow(store) }?.store.attach(TransactionId(id))?;
        // SAFETY: the caller's promise.
        unsafe { give(tx, Transaction::new(attached.into())) };
        Ok(())
    })
}

/// # Safety
/// `tx` is null, or a handle that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_abort(tx: *mut Transaction) {
    status(|| {
        // SAFETY: the caller's promise.
        if let Some(transaction) = unsafe { take(tx) } {
            transaction.tx.abort();
        }
        Ok(())
    });
}

type Body = Option<unsafe extern "C" fn(*mut Transaction, *mut c_void) -> c_int>;

/// # Safety
/// `store` is a handle, `label` null or a string. `body` can be called with `argument` several times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_run(
    store: *mut Store,
    flags: c_int,
    label: *const c_char,
    body: Body,
    argument: *mut c_void,
) -> c_int {
    // The body's last return value. A body that fails sets the message itself.
    let mut returned = 0;
    let done = status(|| {
        let body = body.ok_or_else(|| Failure::invalid("the function is NULL"))?;
        // SAFETY: the caller's promise.
        let (store, label) = unsafe { (borrow(store)?, string(label)?) };
        let mut open_files = 0;
        let done = options(store, flags, label)?.run_shared(|tx| {
            let mut handle = Transaction::new(tx.clone());
            // SAFETY: the caller's promise.
            returned = unsafe { body(&mut handle, argument) };
            open_files = tx.open_files();
            match returned {
                0 if open_files == 0 => Ok(()),
                CONFLICT => Err(Error::Commit(CommitError::Conflict {
                    conflicts: Vec::new(),
                })),
                _ => Err(Error::other("the function has failed")),
            }
        });
        let of_the_body = |error: &Error| match error {
            Error::Commit(CommitError::Conflict { conflicts }) => conflicts.is_empty(),
            error => matches!(error, Error::Other(_)),
        };
        match done {
            Err(error) if returned != 0 && of_the_body(&error) => Ok(()),
            _ if returned == 0 && open_files > 0 => Err(files_open(open_files)),
            // Success; or the commit failed, or a transaction could not begin.
            done => {
                returned = 0;
                Ok(done?)
            }
        }
    });
    match returned {
        0 => done,
        returned => returned,
    }
}

fn files_open(count: usize) -> Failure {
    Failure::in_use(format!(
        "{count} files are open in the transaction; close them first"
    ))
}

/// # Safety
/// `tx` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_id(tx: *const Transaction) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { tx.as_ref() }.map_or(0, |transaction| transaction.tx.id().0)
}

/// # Safety
/// `tx` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_view(tx: *const Transaction) -> *const c_char {
    // SAFETY: the caller's promise.
    let view = unsafe { tx.as_ref() }.and_then(|transaction| transaction.view.as_ref());
    view.map_or(std::ptr::null(), |view| view.as_ptr())
}

/// # Safety
/// `tx` is a handle, `name` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_set_savepoint(tx: *mut Transaction, name: *const c_char) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (transaction, name) = unsafe { (borrow(tx)?, text(name)?) };
        Ok(transaction.tx.set_savepoint(name.to_bytes())?)
    })
}

/// # Safety
/// `tx` is a handle, `savepoint` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_roll_back(
    tx: *mut Transaction,
    savepoint: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (transaction, name) = unsafe { (borrow(tx)?, text(savepoint)?) };
        Ok(transaction.tx.roll_back(name.to_bytes())?)
    })
}

/// # Safety
/// `tx` is a handle, `name` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_lock(
    tx: *mut Transaction,
    name: *const c_char,
    flags: c_int,
    wait_ms: c_int,
) -> c_int {
    let names = [name, std::ptr::null()];
    // SAFETY: the caller's promise, and the array ends with null.
    unsafe { atomdir_lock_all(tx, names.as_ptr(), flags, wait_ms) }
}

/// # Safety
/// `tx` is a handle, `names` an array of strings that ends with null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_lock_all(
    tx: *mut Transaction,
    names: *const *const c_char,
    flags: c_int,
    wait_ms: c_int,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let (transaction, paths) = unsafe { (borrow(tx)?, paths(names)?) };
        if paths.is_empty() {
            return Err(Failure::invalid("no path to lock is given"));
        }
        if flags & !(SHARED | SUBTREE) != 0 {
            return Err(Failure::invalid("the flags are unknown"));
        }
        let mode = match flags & SHARED {
            0 => LockMode::Exclusive,
            _ => LockMode::Shared,
        };
        let scope = match flags & SUBTREE {
            0 => LockScope::Object,
            _ => LockScope::Subtree,
        };
        let wait = u64::try_from(wait_ms).ok().map(Duration::from_millis);
        Ok(transaction.tx.lock_all(&paths, mode, scope, wait)?)
    })
}
