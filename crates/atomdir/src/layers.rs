//! The layers from which a native view's overlay is mounted.
//!
//! Invariant: whatever the service answers, only these are opened as layers: a directory that
//! passes the check of a view's root (`view_root`), or the store's root directory, as the lower one; and
//! directories below the store's control directory, on the same mount and reached without symbolic
//! links. The control directory, and the root directory that is a layer, belong to the user that the
//! service runs as.

use crate::mounts;
use crate::view_root::{self, ViewRootError};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The layers of a native view: the snapshot, and two directories of the store's
/// control directory above it.
#[derive(Debug, Clone)]
pub struct Layers {
    /// overlayfs must keep its attributes where ordinary users may write them (`userxattr`).
    pub user_xattrs: bool,
    /// If the overlay cannot be mounted, an exact view must not replace it.
    pub is_required: bool,
    pub(crate) lower: Lower,
    pub(crate) control: PathBuf,
    /// The directory of `upper` and `work`, relative to the control directory.
    pub(crate) below: PathBuf,
    pub(crate) service_user: u32,
}

/// The lower layer of an overlay.
#[derive(Debug, Clone)]
pub(crate) enum Lower {
    /// The root of the snapshot, which the service serves.
    Snapshot(PathBuf),
    /// The store's root directory.
    Base(PathBuf),
}

/// The open layers, in the order of overlayfs's options.
#[derive(Debug)]
pub struct OpenLayers {
    /// The snapshot, or the base.
    pub lower: OwnedFd,
    /// The directory that takes the changes.
    pub upper: OwnedFd,
    /// The overlay's working directory.
    pub work: OwnedFd,
}

impl Layers {
    /// Opens the layers in the present mount namespace; overlayfs accepts no others.
    pub fn open(&self) -> Result<OpenLayers, ViewRootError> {
        let io = |operation| move |errno| ViewRootError::Io { operation, errno };
        let lower = match &self.lower {
            Lower::Snapshot(path) => {
                let lower = view_root::open(path).map_err(io("opening the snapshot beneath it"))?;
                view_root::check(&lower, self.service_user)?;
                lower
            }
            Lower::Base(path) => {
                // overlayfs would show what is beneath a mount point.
                let mut points = mounts::points_below(path);
                if let Some(point) = points.find(|point| !point.starts_with(&self.control)) {
                    return Err(ViewRootError::MountPoint { point });
                }
                self.open_own(path, "opening the store's root directory")?
            }
        };
        let control = self.open_own(&self.control, "opening the control directory")?;
        let open = |name: &str| {
            let path = self.below.join(name);
            open_below(&control, &path).map_err(io("opening its layers"))
        };
        Ok(OpenLayers {
            lower,
            upper: open("upper")?,
            work: open("work")?,
        })
    }

    /// Opens a directory of the user that the service runs as.
    fn open_own(&self, path: &Path, operation: &'static str) -> Result<OwnedFd, ViewRootError> {
        let io = |errno| ViewRootError::Io { operation, errno };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(CWD, path, flags, Mode::empty()).map_err(io)?;
        match fstat(&opened).map_err(io)?.st_uid == self.service_user {
            true => Ok(opened),
            false => Err(ViewRootError::OfAnotherUser),
        }
    }
}

fn open_below(control: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::io::retry_on_intr(|| openat2(control, path, flags, Mode::empty(), resolve))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_outside_the_control_directory_are_refused() {
        let control = openat(CWD, "/proc/self", OFlags::PATH, Mode::empty()).expect("opened");
        assert!(open_below(&control, "fd".as_ref()).is_ok());
        for outside in ["/etc", "..", "fd/../..", "cwd", "root"] {
            assert!(open_below(&control, outside.as_ref()).is_err(), "{outside}");
        }
    }
}
