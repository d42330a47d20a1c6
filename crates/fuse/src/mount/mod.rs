//! Attaching a connection to a directory: with mount(2) as root, otherwise
//! with the setuid program fusermount3.

mod helper;
mod privileged;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

pub use rustix::mount::MountFlags;

use crate::error::{MountError, UnmountError};

/// What `mount` and /proc/mounts show as the file system's type.
const SUBTYPE: &str = "atomdir";

/// How a file system is attached.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Shown as the mounted device, for example the store's path.
    pub source: String,
    /// Whether other users than the one who mounts may enter; only as root.
    pub others_allowed: bool,
    /// Only as root, but for RDONLY: fusermount3 always forbids set-user-id
    /// programs and devices.
    pub flags: MountFlags,
    /// Threads that serve requests; at least one. With rings, one for each processor.
    pub workers: usize,
    /// Whether requests shall come by io_uring where the kernel offers it.
    pub rings: bool,
}

/// A mounted file system that must be unmounted by whoever holds this.
pub(crate) struct Mount {
    path: PathBuf,
    method: Method,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Privileged,
    Helper,
}

impl Mount {
    pub fn attach(path: &Path, options: &MountOptions) -> Result<(Mount, OwnedFd), MountError> {
        let method = if rustix::process::geteuid().is_root() {
            Method::Privileged
        } else {
            Method::Helper
        };
        let device = match method {
            Method::Privileged => privileged::mount(path, options)?,
            Method::Helper => helper::mount(path, options)?,
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

    /// Detaches at once, also when in use. As root this ends the connection,
    /// too; otherwise it lives while a program is still in it.
    pub fn detach(&self) -> Result<(), UnmountError> {
        match self.method {
            Method::Privileged => privileged::unmount(&self.path),
            Method::Helper => helper::unmount(&self.path),
        }
    }
}
