//! Reading a directory.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::retry_on_intr;

use crate::{DirectoryEntry, Errno, Kind, Name, Result};

/// Room for about a thousand entries a call.
const BUFFER_LENGTH: usize = 32 * 1024;

/// Uses a descriptor of its own: the position in a directory belongs to the
/// open file description, and two listings of one handle may run at once.
pub(super) fn list(directory: &OwnedFd) -> Result<Vec<DirectoryEntry>> {
    let own = reopen(directory)?;
    let mut buffer: Vec<u8> = Vec::with_capacity(BUFFER_LENGTH);
    let mut raw_entries = RawDir::new(&own, buffer.spare_capacity_mut());
    let mut entries = Vec::new();
    loop {
        let entry = match raw_entries.next() {
            None => return Ok(entries),
            Some(Err(Errno::INTR)) => continue,
            Some(Err(error)) => return Err(error),
            Some(Ok(entry)) => entry,
        };
        let bytes = entry.file_name().to_bytes();
        if bytes == b"." || bytes == b".." {
            continue;
        }
        entries.push(DirectoryEntry {
            // A damaged or hostile file system may have any bytes as a name.
            name: Name::new(bytes).map_err(|_| Errno::IO)?,
            inode: entry.ino(),
            kind: Kind::of_mode(entry.file_type().as_raw_mode()),
        });
    }
}

/// Opens the directory again, instead of duplicating the descriptor.
pub(super) fn reopen(directory: &OwnedFd) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |flags| retry_on_intr(|| rustix::fs::openat(directory, c".", flags, Mode::empty()));
    match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        result => result,
    }
}
