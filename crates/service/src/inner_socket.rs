//! A second socket, beside the mount of views: programs in a view do not see
//! the control directory, and nested transactions begin with them.

use crate::mountpoint::{self, MountpointError};
use crate::socket::{self, Listener};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

pub(crate) struct InnerSocket {
    pub(crate) listener: Listener,
    directory: OwnedFd,
    name: String,
    path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
enum InnerSocketError {
    #[error(transparent)]
    Place(#[from] MountpointError),
    #[error("cannot listen at '{path}': {errno}")]
    Listen { path: PathBuf, errno: Errno },
}

impl InnerSocket {
    /// `mountpoint`: of the views. Without the socket all works but nesting
    /// from within, so a failure is only noted.
    pub(crate) fn bind(mountpoint: &Path, user: u32) -> Option<InnerSocket> {
        let bound = try_bind(mountpoint, user);
        bound
            .inspect_err(|error| {
                tracing::warn!("nothing in a view will reach the service: {error}")
            })
            .ok()
    }

    pub(crate) fn path(&self) -> Vec<u8> {
        OsString::from(&self.path).into_vec()
    }

    pub(crate) fn remove(&self) {
        socket::remove(&self.directory, &self.name);
    }
}

fn try_bind(mountpoint: &Path, user: u32) -> Result<InnerSocket, InnerSocketError> {
    // Held until it listens, so that nobody takes it for dead.
    let lock = mountpoint::prepare_parent(user)?;
    let path = mountpoint.with_extension("socket");
    let name = path.file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let failed = |errno| InnerSocketError::Listen {
        path: path.clone(),
        errno,
    };
    let listener = Listener::bind(&lock, &name, user == 0).map_err(failed)?;
    // Another descriptor of the directory, without the lock.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(&lock, ".", flags, Mode::empty()).map_err(failed)?;
    Ok(InnerSocket {
        listener,
        directory,
        name,
        path,
    })
}
