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
type Place = (Rc<OwnedFd>, Name);

/// What cannot be opened, or has been moved or removed meanwhile, is passed
/// over: its flush is not less complete for that.
fn for_each_file(root: OwnedFd, mut visit: impl FnMut(Place)) {
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

fn start(place: &Place) {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;
    use crate::LinuxDisk;

    #[test]
    fn every_regular_file_is_found_and_no_access_time_changes() {
        let place = std::env::temp_dir().join(format!("atomdir-ahead-{}", std::process::id()));
        let deep = place.join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(place.join("one"), "1").unwrap();
        std::fs::write(deep.join("two"), "2").unwrap();
        symlink("one", place.join("link")).unwrap();
        symlink("a", place.join("directory")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, place.join("fifo"), Mode::RUSR).unwrap();
        // Older than the modification: a listing would renew it.
        let long_ago = std::process::Command::new("touch")
            .args(["-a", "-d", "@1000000000"])
            .args([&place, &deep, &place.join("one")])
            .status();
        assert!(long_ago.unwrap().success());

        let mut found = BTreeSet::new();
        for_each_file(LinuxDisk::open_root(&place).unwrap(), |file| {
            start(&file);
            found.insert(file.1.as_bytes().to_vec());
        });
        let accessed =
            [&place, &deep, &place.join("one")].map(|path| path.metadata().unwrap().atime());
        std::fs::remove_dir_all(&place).unwrap();
        assert_eq!(found, BTreeSet::from([b"one".to_vec(), b"two".to_vec()]));
        assert_eq!(accessed, [1_000_000_000; 3]);
    }
}
