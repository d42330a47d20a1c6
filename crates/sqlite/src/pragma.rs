//! Pragmas that would change what the extension relies on.

use crate::abi;
use std::ffi::{CStr, CString, c_char, c_int};

/// Answers a pragma: SQLite goes on if the result is `NOTFOUND`.
pub(crate) fn answer(name: &str, value: Option<&str>, is_empty: impl FnOnce() -> bool) -> Answer {
    let name = name.to_ascii_lowercase();
    let value = value.map(|value| value.trim().to_ascii_lowercase());
    match (name.as_str(), value.as_deref()) {
        ("journal_mode", Some("wal")) => Answer::Refused(
            "atomdir: the database needs no write-ahead log: several connections read and \
             write at the same time, and a commit flushes once",
        ),
        ("locking_mode", Some("exclusive")) => Answer::Refused(
            "atomdir: locking_mode=EXCLUSIVE is not possible, because a transaction has a \
             snapshot of its own and no connection shuts out another",
        ),
        ("page_size", Some(size)) if !is_empty() => match size.parse::<u32>() {
            Ok(_) => Answer::Refused(
                "atomdir: the page size of a database that exists cannot be changed; use plain \
                 sqlite3 and VACUUM, or copy it into a new database",
            ),
            Err(_) => Answer::Pass,
        },
        ("page_size", Some(size)) => match size.parse::<u32>() {
            Ok(size) if size % 4096 != 0 => Answer::Refused(
                "atomdir: the page size must be a multiple of 4096, since that is the unit of \
                 conflicts",
            ),
            _ => Answer::Pass,
        },
        _ => Answer::Pass,
    }
}

pub(crate) enum Answer {
    Pass,
    Refused(&'static str),
}

/// Reads SQLite's arguments: a place for the result, the name, and the value or null.
///
/// # Safety
/// `arguments` is what SQLite passes with `SQLITE_FCNTL_PRAGMA`.
pub(crate) unsafe fn control(
    arguments: *mut *mut c_char,
    is_empty: impl FnOnce() -> bool,
) -> c_int {
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
    let Answer::Refused(message) = answer(&name, text(2).as_deref(), is_empty) else {
        return abi::NOTFOUND;
    };
    if let (Some(api), Ok(message)) = (abi::api(), CString::new(message)) {
        // SAFETY: the first pointer is for a message that SQLite frees.
        unsafe { *arguments = api.copy(&message) };
    }
    abi::ERROR
}
