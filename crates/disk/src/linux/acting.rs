//! Lets a thread of root's act with another user's rights to files.
//!
//! The kernel checks the ids and groups for files, and the thread's capabilities. A thread that
//! takes on another user's ids loses the capabilities for files. This module also takes the others
//! that say something about files, such as the one to set any extended attribute. The capability to
//! exceed quotas and reservations stays: what is done for the user has been logged and must not
//! fail for want of space. The real and effective ids stay root's: otherwise the user could send
//! signals to the thread.

use std::marker::PhantomData;

use rustix::process::{Gid, getgroups};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups,
};

use super::charge::{file_user, set_file_user};
use crate::{Errno, Result};

/// What the thread keeps: to exceed quotas, and to get its own groups back.
const KEPT: CapabilitySet = CapabilitySet::SYS_RESOURCE
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID);

/// Until this is dropped, the thread acts as the user.
pub(super) struct Acting {
    user_before: u32,
    group_before: u32,
    groups_before: Vec<Gid>,
    capabilities_before: CapabilitySets,
    /// Not `Send`: the ids belong to the thread.
    _thread: PhantomData<*const ()>,
}

impl Acting {
    /// The user's primary group is the last of `groups`.
    pub fn begin(user: u32, groups: &[u32]) -> Result<Acting> {
        let acting = Acting {
            user_before: file_user(),
            group_before: file_group(),
            groups_before: getgroups()?,
            capabilities_before: capabilities(None)?,
            _thread: PhantomData,
        };
        let list: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
        // From here on, dropping `acting` restores the previous state.
        set_thread_groups(&list)?;
        // Without a group the thread gets that of nobody in particular.
        set_file_group(groups.last().copied().unwrap_or(NO_GROUP))?;
        set_file_user(user)?;
        let mut rights = acting.capabilities_before;
        rights.effective &= KEPT;
        set_capabilities(None, rights)?;
        Ok(acting)
    }

    fn restore(&self) -> Result<()> {
        set_file_user(self.user_before)?;
        set_capabilities(None, self.capabilities_before)?;
        set_file_group(self.group_before)?;
        set_thread_groups(&self.groups_before)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        if self.restore().is_err() {
            // The kernel had no memory for this. The thread would go on as the user, and what it
            // does for others would fail or belong to that user. Recovery is safer.
            std::process::abort();
        }
    }
}

/// The kernel's overflow id, which stands for groups that cannot be mapped.
const NO_GROUP: u32 = 65_534;

fn file_group() -> u32 {
    // SAFETY: takes a plain number. This one is no group's id, so nothing changes.
    let group = unsafe { libc::setfsgid(u32::MAX) };
    group.cast_unsigned()
}

/// The call reports no error, only the previous id.
fn set_file_group(group: u32) -> Result<()> {
    // SAFETY: takes a plain number, and changes this thread alone.
    unsafe { libc::setfsgid(group) };
    match file_group() == group {
        true => Ok(()),
        false => Err(Errno::PERM),
    }
}
