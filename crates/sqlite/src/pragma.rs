//! Pragmas that would change what the extension relies on.

use crate::abi;
use std::ffi::{CStr, CString, c_char, c_int};

/// Answers a pragma: SQLite goes on if the result is `NOTFOUND`.
pub(crate) fn answer(name: &str, value: Option<&str>) -> Answer {
    let name = name.to_ascii_lowercase();
    let value = value.map(|value| value.trim().to_ascii_lowercase());
    match (name.as_str(), value.as_deref()) {
        ("locking_mode", Some("exclusive")) => Answer::Refused(
            "atomdir: locking_mode=EXCLUSIVE is not possible, because a transaction has a \
             snapshot of its own and no connection shuts out another",
        ),
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
    let Answer::Refused(message) = answer(&name, text(2).as_deref()) else {
        return abi::NOTFOUND;
    };
    if let (Some(api), Ok(message)) = (abi::api(), CString::new(message)) {
        // SAFETY: the first pointer is for a message that SQLite frees.
        unsafe { *arguments = api.copy(&message) };
    }
    abi::ERROR
}
