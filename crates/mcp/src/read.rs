//! Reading files and directories of a view.

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use rustix::io::{Errno, pread};
use serde_json::{Value, json};
use std::os::fd::OwnedFd;

/// The most that one answer holds.
const BYTES_MAX: usize = 64 << 10;
const NAMES_MAX: usize = 5_000;

/// Reads below the view's root. A symbolic link that leads out of the view is refused.
pub fn read(view: &str, path: &str, offset: u64) -> Result<Value, String> {
    let failed = |errno: Errno| match errno {
        Errno::NOENT => {
            format!("the transaction has no '{path}'; status lists what it has changed")
        }
        Errno::XDEV => format!("'{path}' leads out of the store; read it with run"),
        errno => format!("cannot read '{path}': {}", std::io::Error::from(errno)),
    };
    let root = open(
        view,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    );
    let root = root.map_err(|errno| match errno {
        // Only its owner sees the place where views are.
        Errno::NOENT => "the view is gone: begin another transaction".to_owned(),
        errno => failed(errno),
    })?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let file = openat2(&root, path, flags, Mode::empty(), resolve).map_err(failed)?;
    let stat = fstat(&file).map_err(failed)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => list(&file).map_err(failed),
        FileType::RegularFile => {
            let length = u64::try_from(stat.st_size).unwrap_or_default();
            contents(&file, length, offset).map_err(failed)
        }
        _ => Err(format!("'{path}' is neither a file nor a directory")),
    }
}

fn list(directory: &OwnedFd) -> Result<Value, Errno> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            let slash = match entry.file_type() {
                FileType::Directory => "/",
                FileType::Symlink => "@",
                _ => "",
            };
            entries.push(name + slash);
        }
    }
    entries.sort();
    let count = entries.len();
    entries.truncate(NAMES_MAX);
    Ok(json!({"entries": entries, "entries_count": count}))
}

fn contents(file: &OwnedFd, length: u64, offset: u64) -> Result<Value, Errno> {
    let mut bytes = vec![0; BYTES_MAX];
    let mut filled = 0;
    while filled < bytes.len() {
        let count = pread(file, &mut bytes[filled..], offset + filled as u64)?;
        if count == 0 {
            break;
        }
        filled += count;
    }
    bytes.truncate(filled);
    // A character that the limit has cut goes to the next answer.
    if let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
    let next = offset + bytes.len() as u64;
    let contents = match String::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(error) => {
            let bytes = error.into_bytes();
            let hexadecimal: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({"bytes": hexadecimal})
        }
    };
    Ok(json!({
        "contents": contents,
        "length": length,
        "next_offset": (next < length).then_some(next),
    }))
}
