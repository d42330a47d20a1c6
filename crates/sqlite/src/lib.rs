//! A SQLite extension: one SQLite transaction is one transaction of a store.
//!
//!     .load ./libatomdir_sqlite
//!     .open file:shop.db?vfs=atomdir
//!
//! `connection` lists the states of a connection and why they are sound. SQLite calls `vfs`.
//! `header` keeps the change counter out of conflicts, `retry` makes statements run
//! again after a conflict, and `outer` and `functions` put several connections and files into one
//! transaction.
//!
//! Invariants
//! 1. No panic leaves a function that SQLite calls: it becomes an error code.
//! 2. The extension stays loaded, since SQLite keeps pointers into it.
//!
//! Modules
//! - `vfs`, `abi`: the file system that SQLite calls; the part of SQLite's C interface that is used
//! - `connection`, `state`: a connection in one store; its databases and transaction
//! - `database`, `page_set`, `header`: a database's file in a transaction; a set of its pages; its
//!   first page's counters, which take no part in conflicts
//! - `journal`, `super_journals`: SQLite's journals, which are temporary; those for several databases
//! - `outer`, `functions`: a transaction around several of SQLite's; the SQL functions for it
//! - `retry`: makes statements run again after a conflict
//! - `pragma`: pragmas that are refused or have no effect
//! - `stores`: the stores that this process has open
//! - `failure`: errors

mod abi;
mod connection;
mod database;
mod failure;
mod functions;
mod header;
mod journal;
mod outer;
mod page_set;
mod pragma;
mod retry;
mod state;
mod stores;
mod super_journals;
mod vfs;

use std::ffi::{c_char, c_int, c_void};

/// The extension's entry point. SQLite calls it when it has loaded the library.
///
/// # Safety
/// The arguments are what SQLite passes to the entry point of an extension.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    database: *mut abi::Database,
    message: *mut *mut c_char,
    api: *const c_void,
) -> c_int {
    // SAFETY: SQLite passes its table of functions, and a connection.
    let installed = unsafe {
        abi::set_api(api);
        functions::install(database, message, api)
    };
    match (installed, vfs::register()) {
        (abi::OK, abi::OK) => abi::OK_LOAD_PERMANENTLY,
        (abi::OK, code) | (code, _) => code,
    }
}
