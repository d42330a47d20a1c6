//! The names of the super-journals that SQLite has open in this file system. SQLite makes one for a
//! commit of several databases, and removes it to commit them.

use atomdir::hosting::sync;
use std::ffi::{CStr, CString};
use std::sync::{Mutex, MutexGuard};

static OPEN: Mutex<Vec<CString>> = Mutex::new(Vec::new());

fn names() -> MutexGuard<'static, Vec<CString>> {
    sync::lock(&OPEN)
}

pub(crate) fn open(name: &CStr) {
    names().push(name.to_owned());
}

pub(crate) fn is_open(name: &CStr) -> bool {
    names().iter().any(|open| open.as_c_str() == name)
}

pub(crate) fn close(name: &CStr) {
    names().retain(|open| open.as_c_str() != name);
}
