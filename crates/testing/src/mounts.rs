//! The mounts in `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::mount::UnmountFlags;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub point: PathBuf,
    pub file_system: String,
    pub source: PathBuf,
    /// The minor part of the file system's device number. A FUSE connection is named by it.
    pub minor: u32,
}

impl Mount {
    pub fn is_atomdir(&self) -> bool {
        self.file_system.contains("atomdir")
    }
}

pub fn mounts() -> Vec<Mount> {
    let text = std::fs::read("/proc/self/mountinfo").expect("the mount table is readable");
    text.split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect()
}

/// Detaches a mount even if it is in use or its server is dead.
pub fn unmount(point: &Path) {
    if let Err(error) = rustix::mount::unmount(point, UnmountFlags::DETACH) {
        eprintln!("cannot unmount {}: {error}", point.display());
    }
}

/// `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS`
fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let device = String::from_utf8_lossy(fields.get(2)?);
    let separator = fields.iter().position(|field| *field == b"-")?;
    Some(Mount {
        point: unescape(fields.get(4)?),
        file_system: String::from_utf8_lossy(fields.get(separator + 1)?).into_owned(),
        source: unescape(fields.get(separator + 2)?),
        minor: device.split_once(':')?.1.parse().ok()?,
    })
}

/// The kernel writes space, tab, newline and backslash as octal numbers.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = match (first, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'))
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes).into()
}
