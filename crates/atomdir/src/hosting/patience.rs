//! Waiting for a store that another process still has open.

use super::holder::Holder;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A killed process may hold the lock until its last system call is done.
const TIME_MAX: Duration = Duration::from_secs(10);
/// The kernel has no lock with a time limit, so we try again at intervals.
const RETRY: Duration = Duration::from_millis(20);
/// So often a holder must seem alive: between the signal and its end there is a moment in
/// which a killed process does.
const LOOKS: u32 = 3;

/// Waits for a store as long as its holder may soon give it back.
pub struct LockPatience {
    ends: Instant,
    looks: u32,
}

impl LockPatience {
    #[allow(clippy::new_without_default, reason = "it starts a time")]
    pub fn new() -> LockPatience {
        LockPatience {
            ends: Instant::now() + TIME_MAX,
            looks: 0,
        }
    }

    /// Waits a little before the next attempt. Fails with the holder, if it can be found, when
    /// there is no point in another attempt. `is_brief`: whether a holder is known to give the
    /// store back soon.
    pub fn wait(
        &mut self,
        control: impl AsFd,
        is_brief: impl Fn(&Holder) -> bool,
    ) -> Result<(), Option<Holder>> {
        let holder = Holder::find(control);
        let stays = holder
            .as_ref()
            .is_some_and(|holder| !is_brief(holder) && !holder.is_ending());
        self.looks = if stays { self.looks + 1 } else { 0 };
        if self.looks >= LOOKS || Instant::now() >= self.ends {
            return Err(holder);
        }
        std::thread::sleep(RETRY);
        Ok(())
    }
}
