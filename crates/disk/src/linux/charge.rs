//! Lets a process of root's act at another user's expense.
//!
//! Before a file system allocates blocks it looks at two properties of the calling
//! thread: its user id for files and CAP_SYS_RESOURCE. The id owns what the thread
//! creates, and may use space that is reserved for that user. The capability exempts from
//! quotas and reservations. Both belong to the thread alone, so other threads keep
//! root's.
//!
//! The thread keeps its other capabilities, so that it can still work in directories that
//! the user may not enter. The real and effective user ids stay root's: otherwise the
//! user could send signals to the thread.

use std::marker::PhantomData;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::{Errno, Result};

/// Until this is dropped, the thread acts at the user's expense.
pub(super) struct Charged {
    user_before: u32,
    capabilities_before: CapabilitySets,
    /// Not `Send`: the charge belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl Charged {
    pub fn begin(user: u32) -> Result<Charged> {
        let capabilities_before = capabilities(None)?;
        let user_before = file_user();
        let charged = Charged {
            user_before,
            capabilities_before,
            _thread: PhantomData,
        };
        // From here on, dropping `charged` restores the previous state.
        set_file_user(user)?;
        // Giving up root's id has also cleared its rights to other users' files.
        set_capabilities(None, bounded(capabilities_before))?;
        Ok(charged)
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        let restored = set_file_user(self.user_before)
            .and_then(|()| set_capabilities(None, self.capabilities_before));
        if restored.is_err() {
            // The kernel had no memory for this. The thread might next apply a commit,
            // and everything it made would belong to the user. Recovery is safer.
            std::process::abort();
        }
    }
}

/// Removes the capability to exceed quotas and reservations. It stays permitted, so that the thread
/// can get it back.
pub(super) fn bounded(mut rights: CapabilitySets) -> CapabilitySets {
    rights.effective.remove(CapabilitySet::SYS_RESOURCE);
    rights
}

pub(super) fn file_user() -> u32 {
    // SAFETY: takes a plain number. This one is no user's id, so nothing changes.
    let user = unsafe { libc::setfsuid(u32::MAX) };
    user.cast_unsigned()
}

/// The call reports no error, only the previous id.
pub(super) fn set_file_user(user: u32) -> Result<()> {
    // SAFETY: takes a plain number, and changes this thread alone.
    unsafe { libc::setfsuid(user) };
    match file_user() == user {
        true => Ok(()),
        false => Err(Errno::PERM),
    }
}
