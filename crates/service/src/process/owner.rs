//! The service always runs as the store's owner. Root must not act with root's
//! rights on control files that an ordinary user can write, for they say which
//! objects get which owner and mode.

use crate::ServiceError;
use atomdir::client::Account;
use rustix::io::Errno;
use rustix::process::geteuid;

/// If the store is not root's, a process of root becomes the store's owner.
pub(crate) fn become_owner(owner: u32, control_group: u32) -> Result<(), ServiceError> {
    if owner == 0 || !geteuid().is_root() {
        return Ok(());
    }
    let failed = |operation| {
        move |errno| ServiceError::Owner {
            owner,
            operation,
            errno,
        }
    };
    let group = match Account::of(owner) {
        Some(Account { name, group, .. }) => {
            // SAFETY: the name is a C string; no other thread runs yet.
            check(unsafe { libc::initgroups(name.as_ptr(), group) })
                .map_err(failed("initgroups"))?;
            group
        }
        None => {
            // SAFETY: an empty list needs no memory.
            check(unsafe { libc::setgroups(0, std::ptr::null()) }).map_err(failed("setgroups"))?;
            control_group
        }
    };
    // SAFETY: plain numbers; no other thread runs yet.
    check(unsafe { libc::setresgid(group, group, group) }).map_err(failed("setresgid"))?;
    // SAFETY: as above.
    check(unsafe { libc::setresuid(owner, owner, owner) }).map_err(failed("setresuid"))
}

fn check(result: libc::c_int) -> Result<(), Errno> {
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
