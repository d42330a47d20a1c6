//! Waiting for leases.
//!
//! Anyone may take a lease (fcntl(2), F_SETLEASE) on a file of their own. Then every open of the
//! file waits until the holder gives the lease back, or the kernel ends it after
//! `/proc/sys/fs/lease-break-time`. Before a commit is in the log, the engine never waits for a
//! lease; it reports the file instead. Then the thread that commits waits here, with no lock held, and
//! tries again at intervals. ARCHITECTURE.md says why.

use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(20);
/// Longer than the kernel's default limit for breaking a lease.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Tries until no lease is in the way or the time is over, or until `pause`, which waits that long,
/// returns false.
pub fn outlast_leases<T>(
    mut attempt: impl FnMut() -> T,
    is_leased: impl Fn(&T) -> bool,
    mut pause: impl FnMut(Duration) -> bool,
) -> T {
    let end = Instant::now() + TIME_MAX;
    loop {
        let tried = attempt();
        if !is_leased(&tried) || Instant::now() >= end || !pause(PAUSE) {
            return tried;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_end_without_a_lease_or_without_a_pause() {
        let mut attempts = 0;
        let mut count = || {
            attempts += 1;
            attempts
        };
        assert_eq!(outlast_leases(&mut count, |tried| *tried < 3, |_| true), 3);
        assert_eq!(outlast_leases(&mut count, |_| true, |_| false), 4);
    }
}
