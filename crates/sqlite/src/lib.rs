//! A SQLite extension: one SQLite transaction is one transaction of a store.
//!
//!     .load ./libatomdir_sqlite
//!     .open file:shop.db?vfs=atomdir
//!
//! `connection` has the states of a connection and the argument why they are sound.
//!
//! Invariants
//! 1. No panic leaves a function that SQLite calls: it becomes an I/O error.
//! 2. The extension stays loaded, since SQLite keeps pointers into it.

mod abi;
mod connection;
mod database;
mod failure;
mod header;
mod journal;
mod pragma;
mod stores;
mod vfs;

use std::ffi::{c_char, c_int, c_void};

/// SQLite calls it when it has loaded the library.
///
/// # Safety
/// As SQLite says of entry points of extensions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    _: *mut abi::Database,
    _: *mut *mut c_char,
    api: *const c_void,
) -> c_int {
    // SAFETY: SQLite passes its table of functions.
    unsafe { abi::set_api(api) };
    match vfs::register() {
        abi::OK => abi::OK_LOAD_PERMANENTLY,
        code => code,
    }
}
