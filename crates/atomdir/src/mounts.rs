//! The mounts that the kernel lists in `/proc/self/mountinfo`.

use rustix::fs::{
    AtFlags, CWD, FileType, FsWord, Mode, OFlags, StatxFlags, lstat, open, statfs, statx,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

const FUSE: FsWord = 0x6573_5546;
const OVERLAY: FsWord = 0x794c_7630;
/// The file system type of an exact view's mount.
const VIEW_TYPE: &[u8] = b"fuse.atomdir";
const OVERLAY_TYPE: &[u8] = b"overlay";
/// The source that a native view's overlay has in the list of mounts.
pub const OVERLAY_SOURCE: &str = "atomdir";
const READ_LENGTH: usize = 1 << 16;

/// A mount, as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub(crate) id: u64,
    /// `MAJOR:MINOR` of the file system.
    pub device: String,
    /// The part of the file system that is mounted.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    pub(crate) source: PathBuf,
    /// The type of file system.
    pub kind: Vec<u8>,
    /// For a FUSE file system, the user who mounted it.
    pub(crate) user: Option<u32>,
}

impl Mount {
    /// Whether it claims to be a view. Anybody can mount a file system that does.
    pub(crate) fn claims_to_be_view(&self) -> bool {
        self.is_exact_view() || self.is_native_view()
    }

    pub(crate) fn is_exact_view(&self) -> bool {
        self.kind == VIEW_TYPE
    }

    pub(crate) fn is_native_view(&self) -> bool {
        self.kind == OVERLAY_TYPE && self.source == Path::new(OVERLAY_SOURCE)
    }
}

/// The mount that `path` lies in, if it claims to be a view.
pub(crate) fn view_at(path: &Path) -> Result<Option<Mount>, Errno> {
    // Only these two kinds can be views, so for others we do not read the list.
    if !matches!(statfs(path)?.f_type, FUSE | OVERLAY) {
        return Ok(None);
    }
    let found = statx(CWD, path, AtFlags::NO_AUTOMOUNT, StatxFlags::MNT_ID)?;
    let mut mounts = list()?.into_iter();
    let mount = mounts.find(|mount| mount.id == found.stx_mnt_id);
    Ok(mount.filter(Mount::claims_to_be_view))
}

/// All mount points that this process sees. For views, that is the directory that
/// holds them, beside which their services listen.
pub fn mount_points() -> Result<Vec<PathBuf>, Errno> {
    let point = |mount: Mount| match mount.point.parent() {
        Some(parent)
            if mount.kind == VIEW_TYPE && mount.root == Path::new("/") && is_private(parent) =>
        {
            parent.to_owned()
        }
        _ => mount.point,
    };
    Ok(list()?.into_iter().map(point).collect())
}

/// Whether only root and the caller can make anything in this directory.
pub(crate) fn is_private(directory: &Path) -> bool {
    lstat(directory).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::Directory
            && stat.st_mode & 0o022 == 0
            && (stat.st_uid == 0 || stat.st_uid == geteuid().as_raw())
    })
}

/// Whether something is mounted below `directory`.
pub fn any_below(directory: &Path) -> bool {
    list().is_ok_and(|mounts| {
        let mut points = mounts.iter().map(|mount| &*mount.point);
        points.any(|point| point != directory && point.starts_with(directory))
    })
}

/// All that is mounted in this mount namespace.
pub fn list() -> Result<Vec<Mount>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = open(c"/proc/thread-self/mountinfo", flags, Mode::empty())?;
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
    Some(Mount {
        id: std::str::from_utf8(fields.first()?).ok()?.parse().ok()?,
        device: String::from_utf8_lossy(fields.get(2)?).into_owned(),
        root: unescape(fields.get(3)?),
        point: unescape(fields.get(4)?),
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
    use super::*;

    #[test]
    fn a_line_of_the_list_is_read_with_its_escapes() {
        let line = b"36 35 0:98 /7 /mnt/a\\040b rw,noatime master:1 - fuse.atomdir /srv/x\\134y rw";
        let mount = parse_line(line).expect("a whole line");
        assert_eq!((mount.id, &*mount.device), (36, "0:98"));
        assert_eq!(mount.root, Path::new("/7"));
        assert_eq!(mount.point, Path::new("/mnt/a b"));
        assert_eq!(mount.source, Path::new("/srv/x\\y"));
        assert!(mount.claims_to_be_view());
        assert_eq!(parse_line(b""), None);
        assert_eq!(parse_line(b"36 35 0:98 /7"), None);
    }
}
