//! The mounts that the kernel lists in `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, open};

use crate::Errno;

const READ_LENGTH: usize = 1 << 16;

/// A mount, as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub id: u64,
    /// The mount that it is mounted on. The list may lack it.
    pub parent: u64,
    /// `MAJOR:MINOR` of the file system.
    pub device: String,
    /// The part of the file system that is mounted.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Whether the mount is read-only. Its file system may be, too, which does not count here.
    pub is_read_only: bool,
    pub source: PathBuf,
    /// The type of file system.
    pub kind: Vec<u8>,
    /// For a FUSE file system, the user who mounted it.
    pub user: Option<u32>,
}

/// All that is mounted in this mount namespace.
pub fn list() -> Result<Vec<Mount>, Errno> {
    list_in("/proc/thread-self/mountinfo")
}

/// All that is mounted in the mount namespace of another process and reachable from its root
/// directory, with paths relative to that.
pub fn list_of(process: u32) -> Result<Vec<Mount>, Errno> {
    list_in(&format!("/proc/{process}/mountinfo"))
}

fn list_in(path: &str) -> Result<Vec<Mount>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    let mut text = Vec::new();
    let mut buffer = vec![0; READ_LENGTH];
    loop {
        match rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut buffer[..]))? {
            0 => break,
            count => text.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(parse(&text))
}

/// Parses a text in the form of `/proc/self/mountinfo`.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter_map(parse_line).collect()
}

/// `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let separator = fields.iter().position(|field| *field == b"-")?;
    let options = fields.get(separator + 3).copied().unwrap_or_default();
    let mut options = options.split(|byte| *byte == b',');
    let user = options.find_map(|option| option.strip_prefix(b"user_id="));
    let number = |at: usize| std::str::from_utf8(fields.get(at)?).ok()?.parse().ok();
    let mut own_options = fields.get(5)?.split(|byte| *byte == b',');
    Some(Mount {
        id: number(0)?,
        parent: number(1)?,
        device: String::from_utf8_lossy(fields.get(2)?).into_owned(),
        root: unescape(fields.get(3)?),
        point: unescape(fields.get(4)?),
        is_read_only: own_options.any(|option| option == b"ro"),
        kind: fields.get(separator + 1)?.to_vec(),
        source: unescape(fields.get(separator + 2)?),
        user: user.and_then(|user| std::str::from_utf8(user).ok()?.parse().ok()),
    })
}

/// The kernel writes space, tab, newline and backslash as octal escapes.
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_line_of_the_list_is_read_with_its_escapes() {
        let line =
            b"36 35 0:98 /7 /mnt/a\\040b rw,noatime master:1 - fuse.x /srv/x\\134y rw,user_id=7";
        let mount = parse_line(line).expect("a whole line");
        assert_eq!((mount.id, mount.parent, &*mount.device), (36, 35, "0:98"));
        assert!(!mount.is_read_only);
        assert_eq!(mount.root, Path::new("/7"));
        assert_eq!(mount.point, Path::new("/mnt/a b"));
        assert_eq!(mount.source, Path::new("/srv/x\\y"));
        assert_eq!((&*mount.kind, mount.user), (&b"fuse.x"[..], Some(7)));
        assert_eq!(parse_line(b""), None);
        assert_eq!(parse_line(b"36 35 0:98 /7"), None);
    }
}
