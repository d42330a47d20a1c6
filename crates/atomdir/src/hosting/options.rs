//! The engine's options that come from this process and the store's settings: clock, rights,
//! descriptors, history.

use super::clock::SystemClock;
use crate::settings::Settings;
use atomdir_disk::LinuxDisk;
use atomdir_engine::{CARRIED_BYTES_MAX, HistoryLimits, LOG_STEP, Options, Privileges, Store};
use rustix::fs::{CWD, Mode, OFlags, fstatvfs, openat};
use rustix::io::Errno;
use rustix::process::{Resource, getegid, geteuid, getgroups, getrlimit};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// While the file system has less free space than this share of it, or than the second bound
/// if that is less, the history is forgotten early.
const FREE_PERCENT_MIN: u64 = 5;
const FREE_BYTES_MIN: u64 = 1 << 30;

/// Options for a process that needs `descriptors_reserved` descriptors for other things than
/// the engine, and that keeps no history.
pub fn engine_options(descriptors_reserved: u64) -> Options {
    Options {
        clock: Arc::new(SystemClock),
        handles_max: handles_max(descriptors_reserved),
        carried_bytes_max: CARRIED_BYTES_MAX,
        log_step: LOG_STEP,
        privileges: privileges(),
        history: None,
    }
}

/// Options for a process that opens the store with this control directory.
pub fn store_options(control: impl AsFd, descriptors_reserved: u64) -> Result<Options, Errno> {
    Ok(Options {
        history: history_limits(control)?,
        ..engine_options(descriptors_reserved)
    })
}

/// How much history the store keeps. If its settings cannot be read, it keeps as much as
/// without settings: a store must open all the same, and what is not kept cannot be had later.
pub fn history_limits(control: impl AsFd) -> Result<Option<HistoryLimits>, Errno> {
    let settings = Settings::read(&control).unwrap_or_default();
    let history = settings
        .history()
        .or_else(|_| Settings::default().history());
    let found = fstatvfs(&control)?;
    let file_system_bytes = found.f_blocks.saturating_mul(found.f_frsize);
    let free_bytes_min = (file_system_bytes / 100 * FREE_PERCENT_MIN).min(FREE_BYTES_MIN);
    Ok(history.unwrap_or_default().map(|history| HistoryLimits {
        age_seconds_max: history.age.as_secs(),
        bytes_max: history.space.bytes(file_system_bytes),
        free_bytes_min,
    }))
}

/// Has the store date files, and treat programs outside that go through a guard, as its settings
/// say. If these cannot be read, files keep their times, nothing is remembered and no program waits.
pub fn heed_terms(control: impl AsFd, store: &Store<LinuxDisk>) {
    let settings = Settings::read(control).unwrap_or_default();
    store.date_at_commit(settings.times_at_commit().unwrap_or_default());
    store.wait_for_writers(settings.outside_waits().unwrap_or_default());
    let remembers = settings.remembers_outside().unwrap_or_default();
    if let Err(error) = store.remember_outside(remembers) {
        tracing::warn!(%error, "changes of programs outside are not in the history");
    }
}

/// How much history the store keeps, and how much of it is left by a request to forget.
pub struct PruneLimits {
    /// `None`: nothing is kept.
    pub configured: Option<HistoryLimits>,
    /// What is beyond these is forgotten now.
    pub now: HistoryLimits,
}

/// The limits for forgetting commits older than this, or than the settings say; with no age at all,
/// all commits.
pub fn prune_limits(
    control: impl AsFd,
    older_than: Option<Duration>,
) -> Result<PruneLimits, Errno> {
    const NONE: HistoryLimits = HistoryLimits {
        age_seconds_max: 0,
        bytes_max: 0,
        free_bytes_min: 0,
    };
    let configured = history_limits(control)?;
    let now = match (configured, older_than) {
        (None, _) | (_, Some(Duration::ZERO)) => NONE,
        (Some(limits), None) => limits,
        (Some(limits), Some(age)) => HistoryLimits {
            age_seconds_max: limits.age_seconds_max.min(seconds_rounded_up(age)),
            ..limits
        },
    };
    Ok(PruneLimits { configured, now })
}

/// A commit that is a fraction of a second too young is not forgotten.
fn seconds_rounded_up(age: Duration) -> u64 {
    age.as_secs() + u64::from(age.subsec_nanos() > 0)
}

fn handles_max(descriptors_reserved: u64) -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    // The engine keeps this many open, a quarter more that it cannot open again and,
    // while it applies a commit, as many directories again.
    let handles = descriptors.saturating_sub(descriptors_reserved) / 3;
    usize::try_from(handles.clamp(64, 1 << 16)).unwrap_or(64)
}

/// The privileges that the engine may rely on.
pub fn privileges() -> Privileges {
    Privileges {
        user: geteuid().as_raw(),
        groups: getgroups()
            .unwrap_or_default()
            .into_iter()
            .chain([getegid()])
            .map(|group| group.as_raw())
            .collect(),
        all: geteuid().is_root() && in_initial_user_namespace(),
    }
}

fn in_initial_user_namespace() -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(map) = openat(CWD, "/proc/self/uid_map", flags, Mode::empty()) else {
        return false;
    };
    let mut buffer = [0; 128];
    let length = rustix::io::read(&map, &mut buffer).unwrap_or(0);
    let text = String::from_utf8_lossy(&buffer[..length]);
    text.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_commit_is_forgotten_before_it_is_as_old_as_the_user_says() {
        for (milliseconds, seconds) in
            [(1, 1), (999, 1), (1000, 1), (1001, 2), (86_400_000, 86_400)]
        {
            let age = Duration::from_millis(milliseconds);
            assert_eq!(seconds_rounded_up(age), seconds, "{milliseconds} ms");
        }
    }
}
