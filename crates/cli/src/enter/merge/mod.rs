//! Brings the changes of a nested transaction into our native view, when it commits.
//!
//! The service sends the steps, and the nested view, which is read-only by then, has the
//! contents. We make the changes in the mounted overlay by ordinary system calls, since
//! nobody may change its layers under it.
//!
//! Invariants
//! 1. Whatever may fail for a known reason is tried before anything that programs can see
//!    changes: contents are copied into a directory of our own, and overlayfs is made to
//!    copy the old objects that will change.
//! 2. If a later step fails all the same, the outer transaction is aborted. So is it if we
//!    die.
//! 3. No symbolic link and no mount is followed.

mod copy;
mod tree;

use super::Overlay;
use atomdir::client::{MergeStep, reason};
use copy::{copy_contents, dress, set_times};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, chownat, fstat, linkat, mkdirat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use tree::{Tree, join, parent_and_name, shown};

/// Why the changes are not in the native view.
pub enum MergeFailure {
    /// Nothing has changed.
    Refused(String),
    /// Some of them are there.
    Half(String),
}

/// What failed, and where.
pub(super) struct Failed {
    pub step: &'static str,
    pub path: Vec<u8>,
    pub errno: Errno,
}

impl Failed {
    fn message(&self) -> String {
        let path = shown(&self.path);
        format!("cannot {} '{path}': {}", self.step, reason(self.errno))
    }
}

type Result<T> = std::result::Result<T, Failed>;

pub(super) fn failed(step: &'static str, path: &[u8]) -> impl Fn(Errno) -> Failed {
    move |errno| Failed {
        step,
        path: path.to_vec(),
        errno,
    }
}

/// Carries out the steps. `source` is the root of the nested view.
pub fn merge(
    overlay: &Overlay,
    source: &OwnedFd,
    steps: &[MergeStep],
) -> std::result::Result<(), MergeFailure> {
    let mut merging = Merging {
        target: Tree::new(overlay.as_fd()),
        source: Tree::new(source.as_fd()),
        is_limited: overlay.is_limited,
        room: String::new(),
        opened: Vec::new(),
    };
    let refused = |failure: Failed| MergeFailure::Refused(failure.message());
    let half = |failure: Failed| MergeFailure::Half(failure.message());
    let root = merging.target.stat(b"").map_err(refused)?;
    if let Err(failure) = merging.prepare(steps) {
        merging.clear();
        merging.set_root_times(&root).map_err(half)?;
        return Err(refused(failure));
    }
    merging.carry_out(steps).map_err(half)?;
    if !steps.iter().any(is_root_dressed) {
        merging.set_root_times(&root).map_err(half)?;
    }
    Ok(())
}

fn is_root_dressed(step: &MergeStep) -> bool {
    matches!(step, MergeStep::Dress { path, .. } if path.is_empty())
}

struct Merging<'a> {
    target: Tree<'a>,
    source: Tree<'a>,
    /// The overlay is an ordinary user's.
    is_limited: bool,
    /// The directory in which we prepare things. Empty: not made yet.
    room: String,
    /// Directories that their owner had closed, with their modes.
    opened: Vec<(OwnedFd, Mode)>,
}

impl Merging<'_> {
    fn prepare(&mut self, steps: &[MergeStep]) -> Result<()> {
        self.make_room()?;
        for (number, step) in steps.iter().enumerate() {
            match step {
                MergeStep::Create { path } => self.prepare_new(number, path)?,
                MergeStep::Dress {
                    path,
                    contents: true,
                    ..
                } => {
                    self.source.open(path, OFlags::RDONLY)?;
                }
                _ => {}
            }
            self.check_old(step)?;
        }
        Ok(())
    }

    fn make_room(&mut self) -> Result<()> {
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty()).map_err(failed("get a name for", b"."))?;
        let room = format!(".atomdir-{:016x}", u64::from_ne_bytes(random));
        let made = mkdirat(self.target.root, &room, Mode::RWXU);
        made.map_err(failed("make a directory in", b"."))?;
        self.room = room;
        Ok(())
    }

    /// Our own directory in the root must not show in its times.
    fn set_root_times(&self, before: &Stat) -> Result<()> {
        let object = self.target.object(b"")?;
        set_times(object.as_fd(), before).map_err(failed("set the times of", b"."))
    }

    fn room(&self) -> Result<OwnedFd> {
        self.target.directory(self.room.as_bytes())
    }

    /// Copies the contents of a new file.
    fn prepare_new(&mut self, number: usize, path: &[u8]) -> Result<()> {
        let stat = self.source.stat(path)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        let from = self.source.open(path, OFlags::RDONLY)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let room = self.room()?;
        let to = rustix::fs::openat(&room, new_name(number), flags, Mode::RUSR | Mode::WUSR)
            .map_err(failed("create", path))?;
        copy_contents(&from, &to).map_err(failed("copy", path))
    }

    /// Tries what overlayfs refuses for some old objects, all in an ordinary user's overlay.
    fn check_old(&self, step: &MergeStep) -> Result<()> {
        if !self.is_limited {
            return match step {
                MergeStep::Dress { path, contents, .. } if *contents => self.check_changeable(path),
                _ => Ok(()),
            };
        }
        let path = match step {
            MergeStep::Dress { path, .. } => return self.check_changeable(path),
            MergeStep::Park { path, .. } => {
                self.check_movable(path)?;
                path
            }
            MergeStep::Link { path, to } => {
                self.check_changeable(to)?;
                path
            }
            MergeStep::Remove { path, .. }
            | MergeStep::Place { path, .. }
            | MergeStep::Create { path } => path,
        };
        self.check_changeable(parent_and_name(path).0)
    }

    /// Has overlayfs copy an object to its upper layer. It has to, before any change.
    fn check_changeable(&self, path: &[u8]) -> Result<()> {
        let stat = match self.target.stat(path) {
            Ok(stat) => stat,
            // An earlier step will put it there.
            Err(Failed {
                errno: Errno::NOENT | Errno::NOTDIR,
                ..
            }) => return Ok(()),
            Err(failure) => return Err(failure),
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            let object = self.target.object(path)?;
            return chownat(&object, c"", None, None, AtFlags::EMPTY_PATH)
                .map_err(failed("change", path));
        }
        match self.target.open(path, OFlags::WRONLY) {
            // Its owner may change it all the same.
            Err(failure) if failure.errno != Errno::ACCESS => Err(failure),
            _ => Ok(()),
        }
    }

    /// An old directory is moved with all that is in it, object by object (`tree::rename`).
    fn check_movable(&self, path: &[u8]) -> Result<()> {
        self.check_changeable(path)?;
        for name in self.target.names(path)? {
            self.check_movable(&join(path, &name))?;
        }
        Ok(())
    }

    fn carry_out(&mut self, steps: &[MergeStep]) -> Result<()> {
        let mut steps = steps.iter().enumerate().peekable();
        let is_dress = |step: &MergeStep| matches!(step, MergeStep::Dress { .. });
        while let Some((number, step)) = steps.next_if(|(_, step)| !is_dress(step)) {
            self.arrange(number, step)?;
        }
        self.clear();
        for (_, step) in steps {
            if let MergeStep::Dress {
                path,
                contents,
                attributes,
            } = step
            {
                self.dress(path, *contents, *attributes)?;
            }
        }
        Ok(())
    }

    fn arrange(&mut self, number: usize, step: &MergeStep) -> Result<()> {
        match step {
            MergeStep::Remove { path, is_directory } => {
                let mut flags = AtFlags::empty();
                flags.set(AtFlags::REMOVEDIR, *is_directory);
                let (above, name) = self.parent(path)?;
                unlinkat(above, name, flags).map_err(failed("remove", path))
            }
            MergeStep::Park { path, place } => {
                let (above, name) = self.parent(path)?;
                let room = self.room()?;
                let parked = parked_name(*place);
                tree::rename((above.as_fd(), name), (room.as_fd(), parked.as_ref()))
                    .map_err(failed("move", path))
            }
            MergeStep::Place { path, place } => {
                let (above, name) = self.parent(path)?;
                rename_to_free(self.room()?, parked_name(*place), above, name)
                    .map_err(failed("move", path))
            }
            MergeStep::Link { path, to } => {
                let (from, old) = self.parent(to)?;
                let (above, name) = self.parent(path)?;
                linkat(from, old, above, name, AtFlags::empty()).map_err(failed("link", path))
            }
            MergeStep::Create { path } => self.create(number, path),
            MergeStep::Dress { .. } => Ok(()),
        }
    }

    fn create(&mut self, number: usize, path: &[u8]) -> Result<()> {
        let fail = failed("create", path);
        let (above, name) = self.parent(path)?;
        let object = self.source.object(path)?;
        let stat = fstat(&object).map_err(&fail)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        match kind {
            FileType::RegularFile => rename_to_free(self.room()?, new_name(number), above, name),
            // It gets its attributes when everything is in it.
            FileType::Directory => return mkdirat(above, name, Mode::RWXU).map_err(fail),
            FileType::Symlink => rustix::fs::readlinkat(&object, c"", Vec::new())
                .and_then(|target| rustix::fs::symlinkat(target, above, name)),
            kind => rustix::fs::mknodat(above, name, kind, Mode::RUSR, stat.st_rdev),
        }
        .map_err(&fail)?;
        let made = self.target.object(path)?;
        dress(object.as_fd(), made.as_fd(), true).map_err(fail)
    }

    fn dress(&mut self, path: &[u8], contents: bool, attributes: bool) -> Result<()> {
        let source = self.source.object(path)?;
        let target = self.target.object(path)?;
        if contents {
            let from = self.source.open(path, OFlags::RDONLY)?;
            let to = match self.target.open(path, OFlags::WRONLY) {
                Err(failure) if failure.errno == Errno::ACCESS => {
                    copy::chmod(target.as_fd(), Mode::RUSR | Mode::WUSR)
                        .map_err(failed("open", path))?;
                    self.target.open(path, OFlags::WRONLY)?
                }
                opened => opened?,
            };
            copy_contents(&from, &to).map_err(failed("write", path))?;
        }
        dress(source.as_fd(), target.as_fd(), attributes || contents)
            .map_err(failed("change the attributes of", path))
    }

    /// Opens the directory of a path. If its owner has closed it, it is open until the last
    /// name has changed.
    fn parent<'p>(&mut self, path: &'p [u8]) -> Result<(OwnedFd, &'p OsStr)> {
        let (above, name) = parent_and_name(path);
        let directory = self.target.directory(above)?;
        let stat = fstat(&directory).map_err(failed("look at", above))?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        if self.is_limited && !mode.contains(Mode::WUSR | Mode::XUSR) {
            copy::chmod(directory.as_fd(), mode | Mode::RWXU).map_err(failed("open", above))?;
            let kept = self.target.directory(above)?;
            self.opened.push((kept, mode));
        }
        Ok((directory, OsStr::from_bytes(name)))
    }

    /// Removes our own directory with everything in it, and closes directories again.
    fn clear(&mut self) {
        for (directory, mode) in self.opened.drain(..).rev() {
            // If the directory is gone, so is its mode.
            let _ = copy::chmod(directory.as_fd(), mode);
        }
        if !self.room.is_empty() {
            // If a part of it stayed, the commit of the outer transaction would fail.
            let _ = tree::remove(self.target.root, self.room.as_ref());
            self.room.clear();
        }
    }
}

/// Programs in the outer view go on meanwhile, and one may have made something of this name.
fn rename_to_free(
    room: OwnedFd,
    old: String,
    above: OwnedFd,
    name: &OsStr,
) -> rustix::io::Result<()> {
    renameat_with(room, old, above, name, RenameFlags::NOREPLACE)
}

fn new_name(number: usize) -> String {
    format!("new-{number}")
}

fn parked_name(place: u64) -> String {
    format!("parked-{place}")
}
