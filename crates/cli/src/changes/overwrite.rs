//! Replaces the contents of a file in a view.

use crate::files;
use atomdir::client::Transaction;
use rustix::fs::{Mode, OFlags, ftruncate, openat};
use rustix::io::Errno;

const PAGE: usize = 4096;

/// In place, so that the file keeps its attributes and its other names. Writes only from the
/// first page that differs to the last one, since every page that is written can conflict.
pub fn overwrite(view: &Transaction, path: &[u8], old: &[u8], new: &[u8]) -> Result<(), Errno> {
    let (directory, name) = files::open_parent(view.root()?, path)?;
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&directory, name, flags, Mode::empty())?;
    let same_start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let start = same_start / PAGE * PAGE;
    let end = match old.len() == new.len() {
        true => {
            let backwards = old.iter().rev().zip(new.iter().rev());
            let same_end = backwards.take_while(|(a, b)| a == b).count();
            (new.len() - same_end).next_multiple_of(PAGE).min(new.len())
        }
        false => new.len(),
    };
    if start < end {
        files::write_all_at(&file, &new[start..end], start as u64)?;
    }
    if old.len() > new.len() {
        ftruncate(&file, new.len() as u64)?;
    }
    Ok(())
}
