//! Which mounts are views, and of whom, and which are guards.

pub use atomdir_disk::mounts::{Mount, list, list_of, parse};
use rustix::fs::{
    AtFlags, CWD, FileType, FsWord, Mode, OFlags, Stat, StatxAttributes, StatxFlags, lstat, open,
    statfs, statx,
};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::geteuid;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The suffix of the file beside the place of a store's views, in which the service that mounts
/// there names the control directory of its store.
const CLAIM_SUFFIX: &str = ".store";
const CLAIM_LENGTH_MAX: usize = 64;

const FUSE: FsWord = 0x6573_5546;
const OVERLAY: FsWord = 0x794c_7630;
/// The file system type of an exact view's mount.
const VIEW_TYPE: &[u8] = b"fuse.atomdir";
const OVERLAY_TYPE: &[u8] = b"overlay";
/// The source that a guard has in the list of mounts.
pub const GUARD_SOURCE: &str = "atomdir-guard";
/// The source that a native view's overlay has in the list of mounts.
pub const OVERLAY_SOURCE: &str = "atomdir";

/// Whether it claims to be a view. Anybody can mount a file system that does.
pub(crate) fn claims_to_be_view(mount: &Mount) -> bool {
    is_exact_view(mount) || is_native_view(mount)
}

/// Whether it claims to be a file system of exact views.
pub fn is_exact_view(mount: &Mount) -> bool {
    mount.kind == VIEW_TYPE && mount.source != Path::new(GUARD_SOURCE)
}

/// Whether it is a guard. Only root can mount one.
pub fn is_guard(mount: &Mount) -> bool {
    mount.kind == VIEW_TYPE
        && mount.source == Path::new(GUARD_SOURCE)
        && mount.user == Some(0)
        && mount.root == Path::new("/")
}

/// The guard that is mounted on a path, if there is one.
pub fn guard_at(path: &Path) -> Option<Mount> {
    let mut mounts = list().ok()?.into_iter().rev();
    mounts.find(|mount| mount.point == path && is_guard(mount))
}

/// Whether a directory is the root of a guard. It asks only the kernel.
pub(crate) fn is_root_of_guard(directory: &OwnedFd) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let Ok(found) = statx(directory, c"", flags, StatxFlags::MNT_ID) else {
        return false;
    };
    let is_root = found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    let is_it = |mount: &Mount| mount.id == found.stx_mnt_id && is_guard(mount);
    is_root && list().is_ok_and(|mounts| mounts.iter().any(is_it))
}

/// The guards on a directory or on one above it, the innermost first. It asks only the kernel.
fn guards_above(directory: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    let mounts = list().unwrap_or_default().into_iter().rev();
    let guards = mounts.filter(is_guard).map(|mount| mount.point);
    guards.filter(move |point| directory.starts_with(point))
}

/// Whether the service that served what is mounted at a place has ended.
pub fn is_dead(point: &Path) -> bool {
    // The kernel has to ask the service.
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    let asked = statx(CWD, point, flags, StatxFlags::BASIC_STATS);
    matches!(asked, Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Where a guard is, on a directory or on one above it, whose service has ended without unmounting
/// it.
pub fn dead_guard(directory: &Path) -> Option<PathBuf> {
    guards_above(directory).find(|point| is_dead(point))
}

/// Unmounts the guard on a directory, or on one above it, if its service has ended without
/// unmounting it. Returns where it was.
pub fn clear_dead_guard(directory: &Path) -> Option<PathBuf> {
    let dead = dead_guard(directory)?;
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    unmount(&dead, flags).ok()?;
    Some(dead)
}

/// Unmounts the guard on a directory, or on one above it, without asking its service, which may hang.
/// Calls that wait for an answer fail. Returns where it was; `None`: there is none.
pub fn force_guard_away(directory: &Path) -> Result<Option<PathBuf>, Errno> {
    let Some(point) = guards_above(directory).next() else {
        return Ok(None);
    };
    // It ends the connection, and then the mount, also while programs have files open in it.
    let flags = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    unmount(&point, flags)?;
    Ok(Some(point))
}

/// Whether it claims to be a native view.
pub fn is_native_view(mount: &Mount) -> bool {
    mount.kind == OVERLAY_TYPE && mount.source == Path::new(OVERLAY_SOURCE)
}

/// The roots of stores whose services have mounted views, as those services say.
pub fn stores_with_views() -> Result<Vec<PathBuf>, Errno> {
    let views = list()?.into_iter().filter(is_exact_view);
    Ok(views.map(|mount| mount.source).collect())
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
    Ok(mount.filter(claims_to_be_view))
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

/// The file beside `place` that says whose views are there.
pub fn claim_of(place: &Path) -> PathBuf {
    let mut name = place.file_name().unwrap_or_default().to_owned();
    name.push(CLAIM_SUFFIX);
    place.with_file_name(name)
}

/// The place that the file called `name` says it is for.
pub fn claimed_by(name: &[u8]) -> Option<&[u8]> {
    name.strip_suffix(CLAIM_SUFFIX.as_bytes())
}

/// The contents of the file beside a place if its views belong to the store with this control
/// directory. They are valid as long as that file system is mounted.
pub fn claim(control: &Stat) -> String {
    format!("{:x}-{:x}\n", control.st_dev, control.st_ino)
}

/// Whether the service that mounts views at `place` is that of the store with this control
/// directory.
pub(crate) fn is_place_of(place: &Path, control: &Stat) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut found = [0; CLAIM_LENGTH_MAX];
    let length = open(claim_of(place), flags, Mode::empty())
        .and_then(|file| rustix::io::read(&file, &mut found));
    length.is_ok_and(|length| found[..length] == *claim(control).as_bytes())
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
    points_below(directory).next().is_some()
}

pub(crate) fn points_below(directory: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    let points = list()
        .unwrap_or_default()
        .into_iter()
        .map(|mount| mount.point);
    points.filter(move |point| point != directory && point.starts_with(directory))
}
