//! Pragmas that the extension refuses, or that have no effect on a database in a store.

use crate::abi;
use std::ffi::{CStr, c_char, c_int};

fn answer(name: &str, value: Option<&str>) -> Answer {
    let name = name.to_ascii_lowercase();
    let value = value.map(|value| value.trim().to_ascii_lowercase());
    match (name.as_str(), value.as_deref()) {
        ("locking_mode", Some("exclusive")) => Answer::Refused(
            c"atomdir: locking_mode=EXCLUSIVE is not supported: each transaction reads a snapshot \
             of its own, and no connection can exclude another",
        ),
        ("journal_mode", Some("wal")) => Answer::PassAndLog(
            c"atomdir: journal_mode=WAL has no effect: a transaction of the store needs no \
              write-ahead log, and readers and writers do not wait for one another. The pragma \
              returns the mode in use",
        ),
        _ => Answer::Pass,
    }
}

enum Answer {
    /// SQLite handles the pragma as without the extension.
    Pass,
    /// The same, with a message in SQLite's error log.
    PassAndLog(&'static CStr),
    Refused(&'static CStr),
}

/// Reads SQLite's arguments: a place for the result, the name, and the value or null.
///
/// # Safety
/// `arguments` is what SQLite passes with `SQLITE_FCNTL_PRAGMA`.
pub(crate) unsafe fn control(arguments: *mut *mut c_char) -> c_int {
    let text = |at: usize| {
        // SAFETY: SQLite passes three pointers, each null or to a string.
        unsafe {
            let pointer = *arguments.add(at);
            (!pointer.is_null()).then(|| CStr::from_ptr(pointer).to_string_lossy().into_owned())
        }
    };
    let Some(name) = text(1) else {
        return abi::NOTFOUND;
    };
    match answer(&name, text(2).as_deref()) {
        Answer::Pass => abi::NOTFOUND,
        Answer::PassAndLog(message) => {
            if let Some(api) = abi::api() {
                api.log(abi::NOTICE, message);
            }
            abi::NOTFOUND
        }
        Answer::Refused(message) => {
            if let Some(api) = abi::api() {
                // SAFETY: the first pointer is for a message that SQLite frees.
                unsafe { *arguments = api.copy(message) };
            }
            abi::ERROR
        }
    }
}
