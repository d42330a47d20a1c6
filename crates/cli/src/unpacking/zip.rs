//! Reads zip archives.

use super::{Entry, Item, Sink};
use rustix::fs::Timespec;
use std::io::{self, Read, Seek};
use zip::{DateTime, ExtraField, ZipArchive};

const TYPE_MASK: u32 = 0o170_000;
const SYMLINK: u32 = 0o120_000;
/// No longer path is one.
const TARGET_LENGTH_MAX: u64 = 4096;

pub fn read(source: impl Read + Seek, sink: &mut Sink<'_>) -> io::Result<()> {
    let mut archive = ZipArchive::new(source)?;
    for index in 0..archive.len() {
        let path = archive.by_index_raw(index)?.name_raw().to_vec();
        match archive.by_index(index) {
            Ok(mut file) => read_entry(&mut file, path, sink)?,
            // Encrypted, for example.
            Err(error) => sink(&mut Entry {
                path,
                item: Item::Refused(error.to_string()),
                mode: 0,
                owner: None,
                modified: None,
                length: 0,
                contents: &mut io::empty(),
            })?,
        }
    }
    Ok(())
}

fn read_entry<R: Read>(
    file: &mut zip::read::ZipFile<'_, R>,
    path: Vec<u8>,
    sink: &mut Sink<'_>,
) -> io::Result<()> {
    let mode = file.unix_mode();
    let modified = modified(file);
    let item = match mode.unwrap_or(0) & TYPE_MASK {
        _ if path.ends_with(b"/") => Item::Directory,
        SYMLINK => {
            let mut target = Vec::new();
            file.by_ref()
                .take(TARGET_LENGTH_MAX)
                .read_to_end(&mut target)?;
            Item::Symlink(target)
        }
        0 | 0o100_000 => Item::File,
        0o040_000 => Item::Directory,
        _ => Item::Refused("no file, directory or link".to_owned()),
    };
    let usual = if item == Item::Directory {
        0o777
    } else {
        0o666
    };
    sink(&mut Entry {
        path,
        item,
        // Unzip does not restore set-id bits either.
        mode: mode.map_or(usual, |mode| mode & 0o777),
        owner: None,
        modified,
        length: file.size(),
        contents: file,
    })
}

/// In UTC if the archive says so, else by the clock on the wall.
fn modified<R: Read>(file: &zip::read::ZipFile<'_, R>) -> Option<Timespec> {
    let exact = file.extra_data_fields().find_map(|field| match field {
        ExtraField::ExtendedTimestamp(times) => times.mod_time(),
        _ => None,
    });
    let seconds = match exact {
        // Signed, whatever the library says.
        Some(seconds) => i64::from(seconds.cast_signed()),
        None => local(file.last_modified()?)?,
    };
    Some(Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    })
}

fn local(time: DateTime) -> Option<i64> {
    // SAFETY: zeros are valid for numbers and for a null pointer.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    parts.tm_year = i32::from(time.year()) - 1900;
    parts.tm_mon = i32::from(time.month()) - 1;
    parts.tm_mday = i32::from(time.day());
    parts.tm_hour = i32::from(time.hour());
    parts.tm_min = i32::from(time.minute());
    parts.tm_sec = i32::from(time.second());
    parts.tm_isdst = -1;
    // SAFETY: the structure is initialized, and the call writes to nothing else.
    let seconds = unsafe { libc::mktime(&mut parts) };
    (seconds != -1).then_some(seconds)
}
