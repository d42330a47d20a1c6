//! Starts early to write data that a flush would have to wait for later.

use std::ops::ControlFlow;
use std::rc::Rc;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;

use super::listing;
use crate::{Kind, Name, Result};

/// Runs in a thread of its own, so that the caller need not wait.
pub(super) fn start_writing(directory: &OwnedFd, files_min: usize) {
    // The kernel reports a write error once to each open file description that is older than the
    // error. This thread must not use up the report of the caller's description, so it opens
    // another.
    let Ok(own) = listing::reopen(directory) else {
        return;
    };
    let thread = std::thread::Builder::new().name("write-ahead".to_owned());
    // If no thread can be started, the flush writes everything.
    let _ = thread.spawn(move || {
        let (own, mut found) = (Rc::new(own), 0);
        let looked = for_each_file(own.clone(), |_| {
            found += 1;
            if found < files_min {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        if looked.is_break() {
            let _ = retry_on_intr(|| rustix::fs::syncfs(&*own));
        }
    });
}

/// Visits the regular files below a directory until `visit` breaks off. Skips
/// directories that cannot be opened, or that have been moved or removed
/// meanwhile.
pub(super) fn for_each_file(
    root: Rc<OwnedFd>,
    mut visit: impl FnMut(&Name) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut to_visit: Vec<(Rc<OwnedFd>, Name)> = Vec::new();
    let mut directory = Some(root);
    while let Some(listed) = directory {
        for entry in listing::list(&listed).unwrap_or_default() {
            match entry.kind {
                Some(Kind::Directory) => to_visit.push((listed.clone(), entry.name)),
                Some(Kind::File) => visit(&entry.name)?,
                _ => {}
            }
        }
        let mut next = std::iter::from_fn(|| to_visit.pop());
        directory = next.find_map(|(above, name)| open_directory(&above, &name).ok().map(Rc::new));
    }
    ControlFlow::Continue(())
}

fn open_directory(above: &OwnedFd, name: &Name) -> Result<OwnedFd> {
    // Leaves access times unchanged if this process has the right to.
    let flags =
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NOATIME | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(above, name.as_bytes(), flags, Mode::empty()))
}
