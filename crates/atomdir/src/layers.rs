//! What a native view's overlay is mounted with.

use crate::view_root::{self, ViewRootError};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Where a native view's layers are: the snapshot, and above it two directories of the
/// store's control directory. Nothing else is opened, whatever the service says.
#[derive(Debug, Clone)]
pub struct Layers {
    /// overlayfs has to keep its notes where ordinary users may (`userxattr`).
    pub user_marks: bool,
    /// An exact view does not do instead.
    pub is_required: bool,
    pub(crate) snapshot: PathBuf,
    pub(crate) control: PathBuf,
    /// In the control directory, where the directories `upper` and `work` are.
    pub(crate) below: PathBuf,
    pub(crate) service_user: u32,
}

/// In the order of overlayfs's options.
#[derive(Debug)]
pub struct OpenLayers {
    pub lower: OwnedFd,
    pub upper: OwnedFd,
    pub work: OwnedFd,
}

impl Layers {
    /// Opens them in the present mount namespace: overlayfs takes no others.
    pub fn open(&self) -> Result<OpenLayers, ViewRootError> {
        let io = |operation| move |errno| ViewRootError::Io { operation, errno };
        let lower =
            view_root::open(&self.snapshot).map_err(io("opening the snapshot beneath it"))?;
        view_root::check(&lower, self.service_user)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let control = openat(CWD, &self.control, flags, Mode::empty())
            .map_err(io("opening the control directory"))?;
        let owner = fstat(&control)
            .map_err(io("reading the control directory's owner"))?
            .st_uid;
        if owner != self.service_user {
            return Err(ViewRootError::OfAnotherUser);
        }
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
    fn nothing_outside_the_control_directory_is_a_layer() {
        let control = openat(CWD, "/proc/self", OFlags::PATH, Mode::empty()).expect("opened");
        assert!(open_below(&control, "fd".as_ref()).is_ok());
        for outside in ["/etc", "..", "fd/../..", "cwd", "root"] {
            assert!(open_below(&control, outside.as_ref()).is_err(), "{outside}");
        }
    }
}
