use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use atomdir_disk::Errno;
use rustix::mount::UnmountFlags;

use super::{MountOptions, SUBTYPE};
use crate::device;
use crate::error::{MountError, UnmountError};

pub fn mount(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let failed = |source| match source {
        Errno::PERM | Errno::ACCESS => MountError::NotPermitted {
            path: path.to_owned(),
        },
        Errno::NODEV => MountError::NoDevice { source },
        _ => MountError::Mount {
            path: path.to_owned(),
            source,
        },
    };
    let device = device::open().map_err(|source| MountError::NoDevice { source })?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    if options.others_allowed {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).map_err(|_| failed(Errno::INVAL))?;
    let kind = format!("fuse.{SUBTYPE}");
    rustix::mount::mount(&*options.source, path, &*kind, options.flags, Some(&*data))
        .map_err(failed)?;
    Ok(device)
}

pub fn unmount(path: &Path) -> Result<(), UnmountError> {
    // FORCE ends the connection even while programs are still in the mount.
    let flags = UnmountFlags::DETACH | UnmountFlags::FORCE | UnmountFlags::NOFOLLOW;
    match rustix::mount::unmount(path, flags) {
        // INVAL, NOENT: someone else has unmounted it.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(source) => Err(UnmountError::Unmount {
            path: path.to_owned(),
            source,
        }),
    }
}
