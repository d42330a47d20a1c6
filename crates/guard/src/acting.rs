//! Makes new objects belong to the caller, with the mode that the caller's umask leaves.

use std::cell::Cell;

use atomdir_disk::{Charge, Disk, LinuxDisk};
use atomdir_fuse::{Request, Result};
use rustix::fs::Mode;
use rustix::io::Errno;

/// Until this is dropped, the thread makes objects for the caller, and takes space at the caller's
/// expense.
pub struct Acting {
    // Dropped by hand, before the group.
    charge: Option<Charge>,
    has_group: bool,
}

impl Acting {
    pub fn begin(disk: &LinuxDisk, request: &Request) -> Result<Acting> {
        let mut acting = Acting {
            charge: None,
            has_group: false,
        };
        if request.group != 0 {
            set_file_group(request.group)?;
            acting.has_group = true;
        }
        if request.user != 0 {
            acting.charge = Some(disk.charge(request.user)?);
        }
        Ok(acting)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        drop(self.charge.take());
        if self.has_group && set_file_group(0).is_err() {
            // What this thread makes for others would belong to the group.
            std::process::abort();
        }
    }
}

/// The call reports no error, only the previous id.
fn set_file_group(group: u32) -> Result<()> {
    // SAFETY: takes a plain number, and changes this thread alone. The second number is no group's.
    let now = unsafe {
        libc::setfsgid(group);
        libc::setfsgid(u32::MAX)
    };
    match now.cast_unsigned() == group {
        true => Ok(()),
        false => Err(Errno::PERM),
    }
}

thread_local! {
    /// Whether this thread's umask is its own.
    static IS_APART: Cell<bool> = const { Cell::new(false) };
}

/// Sets the umask of this thread alone. The base's file system applies it, unless the directory has
/// a default ACL.
pub fn set_umask(umask: u32) -> Result<()> {
    if !IS_APART.get() {
        // SAFETY: from now on this thread has its own working directory, root and umask. It uses no
        // path that starts from the first, and changes only the last.
        if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
            let error = std::io::Error::last_os_error();
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::PERM));
        }
        IS_APART.set(true);
    }
    rustix::process::umask(Mode::from_raw_mode(umask));
    Ok(())
}
