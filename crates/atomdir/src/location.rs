//! Finds a store by walking up, as git does. A store is used only if it is trusted:
//! see [`crate::trust`].

pub(crate) mod pointer;
pub(crate) mod view;
pub(crate) mod way;

use crate::FindError;
use crate::accounts::describe_user;
use crate::hosting::{HeldHow, Holder};
use crate::mounts;
use crate::trust::{Distrust, Owned, Trust, configuration};
use atomdir_disk::{LinuxDisk, reason};
use atomdir_engine::{Placed, Store};
use atomdir_protocol::TransactionId;
use pointer::Pointer;
use rustix::fs::{AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use way::Way;

/// The name in a store's root of its control directory, or of a file with its path.
pub const CONTROL_NAME: &str = ".atomdir";

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreLocation {
    /// Absolute and without symbolic links.
    pub root: PathBuf,
    /// Absolute.
    pub control: PathBuf,
    /// Where the search began, relative to the root.
    pub start: PathBuf,
    /// The transaction in whose view the search began, if it began in one.
    pub transaction: Option<TransactionId>,
    /// The owner of the control directory. A service that runs as this user or as
    /// root is the store's; any other is an impostor.
    pub owner: u32,
}

impl StoreLocation {
    /// The process that has the store open, and when it gives it up. To be asked where no service
    /// answers: it is then a program that has opened the store by itself.
    pub fn holder(&self) -> Option<(Holder, HeldHow)> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let control = openat(CWD, &self.control, flags, Mode::empty()).ok()?;
        let holder = Holder::find(&control)?;
        let how = HeldHow::of(&control, Some(&holder));
        Some((holder, how))
    }

    /// Whether transactions may have been open when the last service ended: the next one opens those
    /// that survive, and reports the others. False for users who may not look.
    pub fn may_have_survivors(&self) -> bool {
        // A service that ends in order removes its socket.
        let socket = statat(CWD, self.control.join("socket"), AtFlags::SYMLINK_NOFOLLOW);
        if socket.is_ok() {
            return true;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let stage = openat(CWD, self.control.join("stage"), flags, Mode::empty());
        let entries = stage.and_then(Dir::new);
        let is_one = |entry: &Result<DirEntry, Errno>| {
            let name = entry.as_ref().map(|entry| entry.file_name().to_bytes());
            !matches!(name, Ok(b"." | b".."))
        };
        entries.is_ok_and(|entries| entries.into_iter().any(|entry| is_one(&entry)))
    }

    /// The store whose root is `root`.
    pub fn at(root: &Path) -> Result<StoreLocation, FindError> {
        StoreLocation::at_with(root, Trust::Listed)
    }

    /// Like [`at`](StoreLocation::at), for a store that may be somebody else's.
    pub fn at_with(root: &Path, trust: Trust) -> Result<StoreLocation, FindError> {
        let root = absolute(root)?;
        let (way, found) = walk(&root)?;
        let last = way.steps.len() - 1;
        if found.iter().all(|found| found.number != last) {
            return Err(FindError::NoStore { start: root });
        }
        let location = choose(&way, found, trust)?;
        match location.root == root {
            true => Ok(location),
            false => Err(FindError::Inside {
                root,
                store: location.root,
            }),
        }
    }

    /// The store whose root is `root`, which may be a copy that nobody has adopted.
    pub(crate) fn at_any_place(root: &Path, trust: Trust) -> Result<StoreLocation, FindError> {
        let root = absolute(root)?;
        let (way, mut found) = walk(&root)?;
        match found.pop() {
            Some(found) if found.number == way.steps.len() - 1 => found.locate(&way, trust, false),
            _ => Err(FindError::NoStore { start: root }),
        }
    }
}

/// Finds the store that contains `start`, in its root or in one of its views.
pub fn find(start: &Path) -> Result<StoreLocation, FindError> {
    find_with(start, Trust::Listed)
}

/// Like [`find`], for a store that may be somebody else's.
pub fn find_with(start: &Path, trust: Trust) -> Result<StoreLocation, FindError> {
    let start = absolute(start)?;
    if let Some(found) = view::store_of(&start, trust)? {
        return Ok(found);
    }
    let (way, found) = walk(&start)?;
    match found.is_empty() {
        true => Err(FindError::NoStore { start }),
        false => choose(&way, found, trust),
    }
}

/// Chooses among the directories on the way that have something called `.atomdir`. What lies in a
/// store belongs to it, so the outermost store counts: an archive or a clone may bring along a
/// control directory, and neither `init` nor anything else makes a store in another one. A store on another
/// file system does not lie in the store above, which does not reach beyond mounts.
///
/// If there is no store, the error is about the innermost directory.
fn choose(way: &Way, found: Vec<Found>, trust: Trust) -> Result<StoreLocation, FindError> {
    let mut chosen: Option<(u64, StoreLocation)> = None;
    let last = found.len() - 1;
    for (position, candidate) in found.into_iter().enumerate() {
        let device = candidate.device;
        if chosen.as_ref().is_some_and(|(outer, _)| *outer == device) {
            continue;
        }
        // A stranger's directory above does not hide a store.
        let is_last = position == last && chosen.is_none();
        let trust = if is_last { trust } else { Trust::Listed };
        match candidate.locate(way, trust, true) {
            // An interrupted `init` above is no store.
            Ok(location) if !is_last && !has_header(&location) => {}
            Ok(location) => chosen = Some((device, location)),
            Err(error) if is_last => return Err(error),
            Err(_) => {}
        }
    }
    chosen
        .map(|(_, location)| location)
        .ok_or(FindError::NoStore {
            start: way.steps[way.steps.len() - 1].path.clone(),
        })
}

/// Resolves symbolic links.
fn absolute(path: &Path) -> Result<PathBuf, FindError> {
    path.canonicalize().map_err(|error| FindError::Io {
        path: path.to_owned(),
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })
}

fn has_header(location: &StoreLocation) -> bool {
    let header = location.control.join("header");
    let found = statat(CWD, header, AtFlags::SYMLINK_NOFOLLOW);
    !matches!(found, Err(Errno::NOENT))
}

/// Looks for `.atomdir` in each directory on the way; the deepest is the last.
fn walk(path: &Path) -> Result<(Way, Vec<Found>), FindError> {
    let mut found = Vec::new();
    let way = Way::visiting(path, |number, directory| {
        let entry = match statat(directory, CONTROL_NAME, AtFlags::SYMLINK_NOFOLLOW) {
            // A directory that may not be searched does not end the search, and neither does the
            // root of a native view, which refuses the name.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::PERM) => return,
            Err(errno) => Err(errno),
            Ok(stat) => rustix::io::fcntl_dupfd_cloexec(directory, 3)
                .map(|root| (root, FileType::from_raw_mode(stat.st_mode))),
        };
        let device = fstat(directory).map_or(0, |stat| stat.st_dev);
        found.push(Found {
            number,
            device,
            entry,
        });
    });
    match way {
        Ok(way) => Ok((way, found)),
        Err((path, errno)) => Err(FindError::Io { path, errno }),
    }
}

/// A directory that has something called `.atomdir`.
struct Found {
    /// The number of its step on the way.
    number: usize,
    /// The directory's file system.
    device: u64,
    entry: Result<(OwnedFd, FileType), Errno>,
}

/// A control directory, and the way to it unless it is in the root.
struct Control {
    path: PathBuf,
    directory: OwnedFd,
    way: Option<Way>,
}

impl Found {
    /// `in_place`: refuses a copy that nobody has adopted.
    fn locate(self, way: &Way, trust: Trust, in_place: bool) -> Result<StoreLocation, FindError> {
        let root = &way.steps[self.number];
        let io = |errno| FindError::Io {
            path: root.path.join(CONTROL_NAME),
            errno,
        };
        let (handle, kind) = self.entry.map_err(io)?;
        let distrust = |reason| FindError::untrusted(&root.path, reason);
        let is_listed = match trust {
            Trust::Everyone => true,
            // The configuration is read only where it makes a difference.
            Trust::Listed => match check_root(way, self.number) {
                Ok(()) => false,
                Err(_) if configuration::lists(&root.path) => true,
                Err(reason) => return Err(distrust(reason)),
            },
        };
        let control = match kind {
            FileType::Directory => control_inside(&root.path, &handle).map_err(io)?,
            FileType::RegularFile => control_elsewhere(root, &handle, is_listed, in_place)?,
            _ => {
                let path = root.path.join(CONTROL_NAME);
                return Err(FindError::NotAControl { path });
            }
        };
        let owned = Owned::new(&control.path, &control.directory).map_err(io)?;
        if !is_listed
            && let Err(reason) = check_control(&owned, control.way.as_ref())
            && !configuration::lists(&root.path)
        {
            return Err(distrust(reason));
        }
        if in_place {
            check_placed(&root.path, &handle, &control)?;
        }
        let start = &way.steps[way.steps.len() - 1].path;
        let start = start.strip_prefix(&root.path).unwrap_or(Path::new(""));
        Ok(StoreLocation {
            root: root.path.clone(),
            control: control.path,
            start: start.to_owned(),
            transaction: None,
            owner: owned.user,
        })
    }
}

/// Checks the root itself and the directories above it.
pub(crate) fn check_root(way: &Way, number: usize) -> Result<(), Distrust> {
    way.check_above(number)?;
    way.steps[number].check_owner()
}

/// The owner and root can read the header. Others reach the store only by its service, which looks
/// at the header itself. Whatever else is wrong with it, whoever opens the store reports.
fn check_placed(root: &Path, handle: &OwnedFd, control: &Control) -> Result<(), FindError> {
    let placed = Store::placed(&LinuxDisk::new(), handle, &control.directory);
    match placed {
        // A guard's inode has no birth time. It is served only by a service that has the store.
        Ok(Placed::Elsewhere | Placed::OfAnotherRoot) if mounts::is_root_of_guard(handle) => Ok(()),
        Ok(Placed::Elsewhere) => Err(FindError::Unadopted {
            root: root.to_owned(),
        }),
        Ok(Placed::OfAnotherRoot) => Err(FindError::Copied {
            root: root.to_owned(),
            control: control.path.clone(),
        }),
        Ok(Placed::Here) | Err(_) => Ok(()),
    }
}

fn check_control(control: &Owned, way: Option<&Way>) -> Result<(), Distrust> {
    if let Some(way) = way {
        way.check_above(way.steps.len() - 1)?;
    }
    control.check_closed()
}

fn control_inside(root: &Path, handle: &OwnedFd) -> Result<Control, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(Control {
        path: root.join(CONTROL_NAME),
        directory: openat(handle, CONTROL_NAME, flags, Mode::empty())?,
        way: None,
    })
}

fn control_elsewhere(
    root: &Owned,
    handle: &OwnedFd,
    listed: bool,
    in_place: bool,
) -> Result<Control, FindError> {
    let path = root.path.join(CONTROL_NAME);
    let io = |errno| FindError::Io {
        path: path.clone(),
        errno,
    };
    let (pointer, file) = Pointer::read(handle, CONTROL_NAME).map_err(io)?;
    let written_by = Owned::new(&path, &file).map_err(io)?;
    if !listed
        && let Err(reason) = written_by.check_closed()
        && !configuration::lists(&root.path)
    {
        return Err(FindError::untrusted(&root.path, reason));
    }
    let Some(pointer) = pointer else {
        return Err(FindError::NotAControl { path });
    };
    let control = root.path.join(&pointer.control);
    if in_place && fstat(handle).map_err(io)?.st_ino != pointer.root_inode {
        return Err(FindError::Copied {
            root: root.path.clone(),
            control,
        });
    }
    let bad = |reason| FindError::BadControl {
        path: path.clone(),
        control: control.clone(),
        reason,
    };
    let way = Way::to(&control).map_err(|(_, errno)| bad(reason(errno)))?;
    let owner = way.steps[way.steps.len() - 1].user;
    // Otherwise anyone could use another user's control directory for a tree of their own.
    if owner != written_by.user {
        return Err(bad(format!(
            "it belongs to {}, and the file that names it to {}",
            describe_user(owner),
            describe_user(written_by.user)
        )));
    }
    let directory = rustix::io::fcntl_dupfd_cloexec(&way.end, 3).map_err(io)?;
    Ok(Control {
        path: control.clone(),
        directory,
        way: Some(way),
    })
}

/// Whether `directory` has an entry called `.atomdir` that the caller would trust. If
/// looking fails for a reason other than a missing entry or permission, the answer is
/// yes.
pub(crate) fn is_root(directory: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entry = openat(CWD, directory.join(CONTROL_NAME), flags, Mode::empty());
    match entry.and_then(|entry| Owned::new(directory, entry)) {
        Ok(owned) => owned.check_owner().is_ok(),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => false,
        Err(_) => true,
    }
}
