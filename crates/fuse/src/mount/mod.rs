//! Attaches a connection to a directory: with mount(2) as root, otherwise with the
//! setuid program fusermount3.

mod fusermount;
mod privileged;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

pub use rustix::mount::MountFlags;

use crate::error::{MountError, UnmountError};

/// The subtype that `mount` and /proc/mounts show: the type is `fuse.atomdir`.
const SUBTYPE: &str = "atomdir";

/// How a file system is attached.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Shown as the mounted device, for example the store's path.
    pub source: String,
    /// Whether users other than the one who mounts may enter. Only root may set this.
    pub others_allowed: bool,
    /// For root only, except RDONLY: fusermount3 always forbids set-user-id programs and
    /// devices.
    pub flags: MountFlags,
    /// How many threads serve requests; at least one. With rings there is one for each
    /// processor instead.
    pub workers: usize,
    /// Whether requests shall come by io_uring where the kernel offers it.
    pub rings: bool,
}

/// A mounted file system. Whoever holds this must unmount it.
pub(crate) struct Mount {
    path: PathBuf,
    method: Method,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Privileged,
    Fusermount,
}

impl Mount {
    pub fn attach(path: &Path, options: &MountOptions) -> Result<(Mount, OwnedFd), MountError> {
        let method = if rustix::process::geteuid().is_root() {
            Method::Privileged
        } else {
            Method::Fusermount
        };
        let device = match method {
            Method::Privileged => privileged::mount(path, options)?,
            Method::Fusermount => fusermount::mount(path, options)?,
        };
        Ok((
            Mount {
                path: path.to_owned(),
                method,
            },
            device,
        ))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Detaches the mount at once, even if it is in use. As root this also ends the
    /// connection; otherwise the connection lives while a program is still in the mount.
    pub fn detach(&self) -> Result<(), UnmountError> {
        match self.method {
            Method::Privileged => privileged::unmount(&self.path),
            Method::Fusermount => fusermount::unmount(&self.path),
        }
    }
}
