//! Where views are mounted: in a directory of each store, whose parent only the
//! service's user can change.

use crate::clients::socket;
use crate::views::claim;
use atomdir::client::describe_user;
use atomdir::client::mounts;
use atomdir_disk::reason;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Stat, StatxAttributes, StatxFlags,
    flock, lstat, mkdir, open, statx, unlinkat,
};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The suffix of the socket beside a place, on which its service listens for
/// programs in views.
const SOCKET_SUFFIX: &str = ".socket";

#[derive(Debug, thiserror::Error)]
pub(crate) enum MountpointError {
    #[error("cannot make '{path}', where views are mounted: {errno}", errno = reason(errno))]
    Make { path: PathBuf, errno: Errno },
    #[error(
        "'{path}', where views are mounted, is not a directory of {} that only they can write",
        describe_user(*user)
    )]
    Foreign { path: PathBuf, user: u32 },
    #[error("another service mounts its views at '{path}'")]
    Taken { path: PathBuf },
    #[error("cannot take away the dead mount at '{path}': {errno}", errno = reason(errno))]
    Dead { path: PathBuf, errno: Errno },
}

/// The place beside it for the snapshots below native views.
pub(crate) fn lower(place: &Path) -> PathBuf {
    beside(place, "-lower")
}

/// The place beside it for exact views of a user other than the service's.
pub(crate) fn of_other(place: &Path, user: u32) -> PathBuf {
    beside(place, &format!("-{user}"))
}

/// The socket beside it, on which the service listens for programs in views.
pub(crate) fn socket_of(place: &Path) -> PathBuf {
    beside(place, SOCKET_SUFFIX)
}

fn beside(place: &Path, suffix: &str) -> PathBuf {
    let mut name = place.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    place.with_file_name(name)
}

/// Removes what an earlier service of this store left behind for users other than
/// its own. The caller must be the store's only service.
pub(crate) fn sweep_others(user: u32, place: &Path) {
    if let Ok(held) = lock(&parent(user), FlockOperation::LockShared) {
        remove_others(&held, place);
    }
}

fn remove_others(parent: &OwnedFd, place: &Path) {
    for place in others(parent, place) {
        let _ = clear(&place);
        remove(&place);
    }
}

/// The places of users other than the service's.
fn others(parent: &OwnedFd, place: &Path) -> Vec<PathBuf> {
    let mut prefix = place.file_name().unwrap_or_default().as_bytes().to_vec();
    prefix.push(b'-');
    let entries = Dir::read_from(parent).into_iter().flatten().flatten();
    let others = entries.filter_map(|entry| {
        let name = entry.file_name().to_bytes();
        let number = name.strip_prefix(prefix.as_slice())?;
        let is_other = number.iter().all(u8::is_ascii_digit);
        is_other.then(|| place.with_file_name(OsStr::from_bytes(name)))
    });
    others.collect()
}

/// All places at which the service of this one may have mounted something.
pub(crate) fn all_of(place: &Path) -> Vec<PathBuf> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = open(place.parent().unwrap_or(place), flags, Mode::empty());
    let mut places = parent.map_or_else(|_| Vec::new(), |parent| others(&parent, place));
    places.extend([lower(place), place.to_owned()]);
    places
}

/// Makes the place, with nothing mounted on it. It stays at least as long as the
/// returned lock.
pub(crate) fn prepare(place: &Path, user: u32) -> Result<OwnedFd, MountpointError> {
    let lock = prepare_parent(user)?;
    clear(place)?;
    make(place, mode(user), user)?;
    Ok(lock)
}

/// Makes the directory that holds the place. Places in it stay at least as long as
/// the returned lock.
pub(crate) fn prepare_parent(user: u32) -> Result<OwnedFd, MountpointError> {
    let parent = parent(user);
    make(&parent, mode(user), user)?;
    lock(&parent, FlockOperation::LockShared).map_err(|errno| MountpointError::Make {
        path: parent.clone(),
        errno,
    })
}

/// Other users pass through root's directory to reach their views; an ordinary
/// user's is private.
fn mode(user: u32) -> u32 {
    if user == 0 { 0o711 } else { 0o700 }
}

/// Removes what killed services of this user left behind. Only a claim that is not locked proves
/// that a service is dead. A place may look unmounted here but be mounted in another mount
/// namespace, and removing it would unmount it there.
pub(crate) fn sweep(user: u32) {
    let parent = parent(user);
    let Ok(held) = lock(&parent, FlockOperation::NonBlockingLockExclusive) else {
        return;
    };
    let Ok(entries) = Dir::read_from(&held) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_bytes();
        let Some(place) = mounts::claimed_by(name) else {
            continue;
        };
        let Some(_dead) = claim::lock_dead(&held, OsStr::from_bytes(name)) else {
            continue;
        };
        let place = parent.join(OsStr::from_bytes(place));
        let socket = socket_of(&place);
        socket::remove(
            &held,
            &socket.file_name().unwrap_or_default().to_string_lossy(),
        );
        remove_others(&held, &place);
        for place in [lower(&place), place] {
            let _ = clear(&place);
            remove(&place);
        }
        let _ = unlinkat(&held, OsStr::from_bytes(name), AtFlags::empty());
    }
}

fn lock(parent: &Path, how: FlockOperation) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(parent, flags, Mode::empty())?;
    rustix::io::retry_on_intr(|| flock(&directory, how))?;
    Ok(directory)
}

/// Unmounts the file systems that a killed service of this store left mounted.
pub(crate) fn clear(place: &Path) -> Result<(), MountpointError> {
    while is_mounted(place) {
        unmount(place).map_err(|errno| MountpointError::Dead {
            path: place.to_owned(),
            errno,
        })?;
    }
    Ok(())
}

/// Removes the place itself; a failure does no harm.
pub(crate) fn remove(place: &Path) {
    let _ = rustix::fs::rmdir(place);
}

pub(crate) fn parent(user: u32) -> PathBuf {
    if user == 0 {
        return PathBuf::from("/run/atomdir");
    }
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usual = PathBuf::from(format!("/run/user/{user}"));
    for runtime in named.into_iter().chain([usual]) {
        if runtime.is_absolute() && lstat(&runtime).is_ok_and(|stat| is_private(&stat, user)) {
            return runtime.join("atomdir");
        }
    }
    in_shared(Path::new("/tmp"), user)
}

/// A directory of the user in one where anybody can make names. If a stranger has taken the usual
/// name, it is one whose name nobody could guess before, and which is found again by its owner.
fn in_shared(shared: &Path, user: u32) -> PathBuf {
    let usual = format!("atomdir-{user}");
    let path = shared.join(&usual);
    let is_free_or_own = match lstat(&path) {
        Ok(stat) => is_private(&stat, user),
        Err(errno) => errno == Errno::NOENT,
    };
    if is_free_or_own {
        return path;
    }
    find_own(shared, &format!("{usual}."), user)
        .or_else(|| make_unguessable(shared, &format!("{usual}."), user))
        .unwrap_or(path)
}

/// The first by name, so that all services of the user find the same.
fn find_own(shared: &Path, prefix: &str, user: u32) -> Option<PathBuf> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(shared, flags, Mode::empty()).ok()?;
    let entries = Dir::read_from(directory).ok()?.flatten();
    let ours = entries.filter(|entry| entry.file_name().to_bytes().starts_with(prefix.as_bytes()));
    let paths = ours.map(|entry| shared.join(OsStr::from_bytes(entry.file_name().to_bytes())));
    let mut own = paths.filter(|path| lstat(path).is_ok_and(|stat| is_private(&stat, user)));
    let first = own.next()?;
    Some(own.fold(first, std::cmp::min))
}

fn make_unguessable(shared: &Path, prefix: &str, user: u32) -> Option<PathBuf> {
    let mut random = [0; 16];
    getrandom(&mut random, GetRandomFlags::empty()).ok()?;
    let path = shared.join(format!("{prefix}{:032x}", u128::from_ne_bytes(random)));
    make(&path, mode(user), user).ok()?;
    Some(path)
}

fn make(path: &Path, mode: u32, user: u32) -> Result<(), MountpointError> {
    let failed = |errno| MountpointError::Make {
        path: path.to_owned(),
        errno,
    };
    match mkdir(path, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed(errno)),
    }
    if !is_private(&lstat(path).map_err(failed)?, user) {
        return Err(MountpointError::Foreign {
            path: path.to_owned(),
            user,
        });
    }
    Ok(())
}

fn is_private(stat: &Stat, user: u32) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
        && stat.st_uid == user
        && stat.st_mode & 0o022 == 0
}

/// Also works if the mount's service is dead and every other call on it fails.
fn is_mounted(place: &Path) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    match statx(CWD, place, flags, StatxFlags::empty()) {
        Ok(found) => found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        Err(Errno::NOTCONN | Errno::CONNABORTED) => true,
        Err(_) => false,
    }
}

fn unmount(place: &Path) -> Result<(), Errno> {
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    let own = rustix::mount::unmount(place, flags);
    if own != Err(Errno::PERM) {
        return own;
    }
    // Only the helper can unmount an ordinary user's mounts.
    let done = ["fusermount3", "fusermount"].iter().any(|helper| {
        Command::new(helper)
            .args(["-u", "-z", "-q", "--"])
            .arg(place)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    });
    if done { Ok(()) } else { Err(Errno::PERM) }
}

#[cfg(test)]
mod tests;
