//! Starting to write early what a flush will wait for later.

use std::rc::Rc;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;

use super::listing;
use crate::{Kind, Name, Result};

/// In a thread of its own, as asking to write waits when the device has enough
/// to do. It ends with the last file, or with the process.
pub(super) fn start_writing(directory: &OwnedFd, files_min: usize) {
    let Ok(directory) = directory.try_clone() else {
        return;
    };
    let thread = std::thread::Builder::new().name("write-ahead".to_owned());
    // Without a thread the flush does it all.
    let _ = thread.spawn(move || {
        let mut not_yet = Some(Vec::new());
        for_each_file(directory, |file| match &mut not_yet {
            None => start(&file),
            Some(files) => {
                files.push(file);
                if files.len() >= files_min {
                    not_yet.take().iter().flatten().for_each(start);
                }
            }
        });
    });
}

/// An entry of a directory that stays open as long as it is to be visited.
pub(super) type Place = (Rc<OwnedFd>, Name);

/// What cannot be opened, or has been moved or removed meanwhile, is passed
/// over: its flush is not less complete for that.
pub(super) fn for_each_file(root: OwnedFd, mut visit: impl FnMut(Place)) {
    let mut to_visit: Vec<Place> = Vec::new();
    let mut directory = Some(root);
    while let Some(listed) = directory.map(Rc::new) {
        for entry in listing::list(&listed).unwrap_or_default() {
            let place = (listed.clone(), entry.name);
            match entry.kind {
                Some(Kind::Directory) => to_visit.push(place),
                Some(Kind::File) => visit(place),
                _ => {}
            }
        }
        let mut next = std::iter::from_fn(|| to_visit.pop());
        directory = next.find_map(|place| open(&place, OFlags::DIRECTORY).ok());
    }
}

pub(super) fn start(place: &Place) {
    if let Ok(file) = open(place, OFlags::empty()) {
        // Unlike a sync it looks at no error, so that none is taken from the
        // flush that has to tell it.
        // SAFETY: the descriptor is open, and no memory is passed.
        unsafe {
            libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE);
        }
    }
}

fn open((directory, name): &Place, flags: OFlags) -> Result<OwnedFd> {
    // Nobody's access times change by it; without the right to that it is left.
    let flags = flags
        | OFlags::RDONLY
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOATIME
        | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(directory, name.as_bytes(), flags, Mode::empty()))
}
