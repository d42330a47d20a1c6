//! Acting at another user's expense, for a process of root's.
//!
//! File systems look at two properties of the calling thread before they take blocks:
//! its user id for files, which owns what it creates and may use what is reserved for
//! that user, and CAP_SYS_RESOURCE, which is above quotas and reservations. Both belong
//! to the thread alone, so other threads keep root's.
//!
//! The thread keeps its other capabilities, so that it can go on to work in directories
//! that the user may not enter. The real and effective user ids stay root's: with these
//! the user could send signals to the thread.

use std::marker::PhantomData;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::{Errno, Result};

/// Until this is dropped, the thread acts at the user's expense.
pub(super) struct Charged {
    user_before: u32,
    capabilities_before: CapabilitySets,
    /// It belongs to its thread.
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
        // From here on, dropping it restores what was.
        set_file_user(user)?;
        // Leaving root's id has taken away what root may do with others' files.
        set_capabilities(None, bounded(capabilities_before))?;
        Ok(charged)
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        let restored = set_file_user(self.user_before)
            .and_then(|()| set_capabilities(None, self.capabilities_before));
        if restored.is_err() {
            // The kernel had no memory for it. This thread might next apply a commit, and
            // everything it made would be the user's. Recovery is the safer way on.
            std::process::abort();
        }
    }
}

/// Without what is above quotas and reservations. What a thread is permitted to have
/// stays, as it must be had again.
pub(super) fn bounded(mut rights: CapabilitySets) -> CapabilitySets {
    rights.effective.remove(CapabilitySet::SYS_RESOURCE);
    rights
}

fn file_user() -> u32 {
    // SAFETY: a plain number. This one is no user's, so that nothing is changed.
    let user = unsafe { libc::setfsuid(u32::MAX) };
    user.cast_unsigned()
}

/// The call reports no error, only which id there was before.
fn set_file_user(user: u32) -> Result<()> {
    // SAFETY: a plain number; it changes this thread alone.
    unsafe { libc::setfsuid(user) };
    match file_user() == user {
        true => Ok(()),
        false => Err(Errno::PERM),
    }
}
