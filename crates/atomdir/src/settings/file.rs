//! Small text files in a store's control directory, which are replaced as a whole.

use super::{ReadError, SettingsError};
use crate::StoreLocation;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fchmod, fchown, fstat, fsync};
use rustix::fs::{Gid, Uid, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::os::fd::{AsFd, OwnedFd};

const LENGTH_MAX: usize = 1 << 20;

pub(super) struct TextFile {
    pub name: &'static str,
    /// For a moment: the next one.
    pub name_new: &'static str,
    pub mode: Mode,
}

impl TextFile {
    /// Reads the whole file. There is none before the first change; then the text is empty.
    pub fn read(&self, control: impl AsFd) -> Result<String, ReadError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(control, self.name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(String::new()),
            Err(errno) => return Err(ReadError::Io(errno)),
        };
        let stat = fstat(&file).map_err(ReadError::Io)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(ReadError::Damaged("it is not a file".to_owned()));
        }
        read_all(&file)
    }

    /// Replaces it in a store's control directory.
    pub fn change(&self, store: &StoreLocation, text: &str) -> Result<(), SettingsError> {
        let control = open_control(store, OFlags::RDONLY)?;
        let written = self.write(&control, store.owner, text);
        written.map_err(|errno| failed(store, "write", errno))
    }

    pub fn write(&self, control: &OwnedFd, owner: u32, text: &str) -> Result<(), Errno> {
        // A killed process may have left one.
        let _ = unlinkat(control, self.name_new, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(control, self.name_new, flags, self.mode)?;
        // Whatever the umask is.
        fchmod(&file, self.mode)?;
        if geteuid().as_raw() != owner {
            fchown(&file, Some(Uid::from_raw(owner)), None::<Gid>)?;
        }
        let mut bytes = text.as_bytes();
        while !bytes.is_empty() {
            let count = rustix::io::write(&file, bytes)?;
            bytes = &bytes[count..];
        }
        fsync(&file)?;
        renameat(control, self.name_new, control, self.name)?;
        fsync(control)
    }
}

/// `access`: for reading; or as a path, which those may open whom the store admits.
pub(super) fn open_control(
    store: &StoreLocation,
    access: OFlags,
) -> Result<OwnedFd, SettingsError> {
    let io = |errno| failed(store, "open", errno);
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let control = openat(CWD, &store.control, access | flags, Mode::empty()).map_err(io)?;
    if fstat(&control).map_err(io)?.st_uid != store.owner {
        return Err(io(Errno::STALE));
    }
    Ok(control)
}

fn failed(store: &StoreLocation, operation: &'static str, errno: Errno) -> SettingsError {
    SettingsError::Io {
        store: store.root.clone(),
        operation,
        errno,
    }
}

fn read_all(file: &OwnedFd) -> Result<String, ReadError> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        match rustix::io::retry_on_intr(|| rustix::io::read(file, &mut part)) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
            Err(errno) => return Err(ReadError::Io(errno)),
        }
        if bytes.len() > LENGTH_MAX {
            return Err(ReadError::Damaged("the file is too long".to_owned()));
        }
    }
    String::from_utf8(bytes).map_err(|_| ReadError::Damaged("it is not UTF-8".to_owned()))
}
