//! A statement outside an explicit transaction runs again by itself after a conflict.
//!
//! The file system cannot run it again, but SQLite can: if a step ends with `SQLITE_SCHEMA`, SQLite
//! compiles the statement again and runs it from the beginning, up to 50 times, or 25 in Debian's build
//! (SQLITE_MAX_SCHEMA_RETRY). By then it has rolled the first run back. So the commit of such a statement reports a conflict in that form. This
//! is sound as long as the program has not seen anything of the first run:
//!
//! 1. The statement is the only one that runs, so the whole transaction is its own.
//! 2. It is not `COMMIT` or `RELEASE`, after which the transaction would be gone.
//! 3. It has returned no rows (`RETURNING`).
//!
//! Functions of the program that the statement calls run again, too.

use crate::abi::{self, Database};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ptr;
use std::time::Duration;

/// Fewer than SQLite's, so that the program sees a conflict in the end, and not a changed schema.
const TRIES_MAX: u32 = 24;
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Whether a statement runs on the connection at this address of SQLite's, which this thread has
/// locked. Backups read without one, and so does the compilation of a statement.
pub(crate) fn is_any_running(address: usize) -> bool {
    let database: *mut Database = ptr::with_exposed_provenance_mut(address);
    let Some(api) = abi::api().filter(|_| !database.is_null()) else {
        return true;
    };
    // SAFETY: the connection is open: it takes a lock.
    unsafe {
        let mut statement = api.next_stmt(database, ptr::null_mut());
        while !statement.is_null() {
            if api.stmt_busy(statement) != 0 {
                return true;
            }
            statement = api.next_stmt(database, statement);
        }
    }
    false
}

/// Whether the statement that commits may run again. `database` is SQLite's connection, which
/// this thread has locked.
pub(crate) fn may_run_again(database: *mut Database, tries: u32) -> bool {
    let Some(api) = abi::api().filter(|_| !database.is_null() && tries < TRIES_MAX) else {
        return false;
    };
    let mut running = 0;
    let mut is_whole = true;
    // SAFETY: the connection is open: it is committing.
    unsafe {
        let mut statement = api.next_stmt(database, ptr::null_mut());
        while !statement.is_null() {
            if api.stmt_busy(statement) != 0 {
                running += 1;
                is_whole &= api.stmt_readonly(statement) == 0 && api.column_count(statement) == 0;
            }
            statement = api.next_stmt(database, statement);
        }
    }
    running == 1 && is_whole
}

/// Waits for a random time that grows with the tries.
pub(crate) fn pause(tries: u32) {
    let longest = Duration::from_millis(1 << tries.min(6)).min(PAUSE_MAX);
    let random = RandomState::new().build_hasher().finish();
    let longest = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    std::thread::sleep(Duration::from_micros(random % longest.max(1)));
}
