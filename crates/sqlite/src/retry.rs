//! Makes SQLite run a statement outside an explicit transaction again after a conflict.
//!
//! The extension cannot run it again, but SQLite can: if a step ends with `SQLITE_SCHEMA`, SQLite
//! rolls it back, compiles the statement again and runs it from the beginning, up to 50 times, or 25
//! in Debian's build (SQLITE_MAX_SCHEMA_RETRY). So the commit of such a statement returns
//! `SQLITE_SCHEMA` for a conflict. This is sound if the program has seen nothing of the first run:
//!
//! 1. No other statement runs, so the transaction consists of this statement alone.
//! 2. It is not `COMMIT` or `RELEASE`, after which the transaction would be gone.
//! 3. It returns no rows (`RETURNING`).
//!
//! Functions of the program that the statement calls run again, too.

use crate::abi::{self, Database};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ptr;
use std::time::Duration;

/// Below SQLite's limit, so that the program gets a conflict in the end and not `SQLITE_SCHEMA`.
const TRIES_MAX: u32 = 24;
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Whether a statement runs on SQLite's connection at this address; this thread holds its mutex.
/// Backups and the compilation of statements read while none runs.
pub(crate) fn is_any_running(address: usize) -> bool {
    let database: *mut Database = ptr::with_exposed_provenance_mut(address);
    let Some(api) = abi::api().filter(|_| !database.is_null()) else {
        return true;
    };
    // SAFETY: the connection is open, since it is taking a lock.
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

/// Whether the statement that commits may run again. `database` is SQLite's connection; this
/// thread holds its mutex.
pub(crate) fn may_run_again(database: *mut Database, tries: u32) -> bool {
    let Some(api) = abi::api().filter(|_| !database.is_null() && tries < TRIES_MAX) else {
        return false;
    };
    let mut running = 0;
    let mut is_whole = true;
    // SAFETY: the connection is open, since it is committing.
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

/// Sleeps for a random time, at most 50 ms, whose upper bound grows with the tries.
pub(crate) fn pause(tries: u32) {
    let longest = Duration::from_millis(1 << tries.min(6)).min(PAUSE_MAX);
    let random = RandomState::new().build_hasher().finish();
    let longest = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    std::thread::sleep(Duration::from_micros(random % longest.max(1)));
}
