//! Replaces the contents of a file in a view.

use crate::files;
use atomdir::client::Transaction;
use atomdir::client::three_way::Replacement;
use rustix::fs::{Mode, OFlags, ftruncate, openat};
use rustix::io::Errno;

/// In place, so that the file keeps its attributes and its other names.
pub fn overwrite(view: &Transaction, path: &[u8], old: &[u8], new: &[u8]) -> Result<(), Errno> {
    let (directory, name) = files::open_parent(view.root()?, path)?;
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&directory, name, flags, Mode::empty())?;
    let Replacement { range, cut } = Replacement::new(old, new);
    files::write_all_at(&file, &new[range.clone()], range.start as u64)?;
    match cut {
        Some(length) => ftruncate(&file, length),
        None => Ok(()),
    }
}
