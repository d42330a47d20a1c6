//! Settings of the history and of files' times, which take effect while the service runs.

use atomdir_disk::sync;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use atomdir::hosting::{heed_terms, history_limits};
use atomdir_disk::{LinuxDisk, Timestamp};
use atomdir_engine::Store;
use rustix::fs::AtFlags;

/// Tells one version of the settings from another: each is a file of its own.
type Version = (u64, Timestamp);

/// Looks at the store's settings before each commit.
pub(crate) struct HistorySettings {
    /// The version that is in effect; `None`: there was no file.
    seen: Mutex<Option<Version>>,
}

impl HistorySettings {
    /// For a store that was just opened.
    pub(crate) fn new(control: &OwnedFd, store: &Store<LinuxDisk>) -> HistorySettings {
        heed_terms(control, store);
        HistorySettings {
            seen: Mutex::new(version(control)),
        }
    }

    /// Lets the store keep as much as its settings say now. If that fails, it goes on as before,
    /// and the next commit tries again.
    pub(crate) fn heed(&self, control: &OwnedFd, store: &Store<LinuxDisk>) {
        let seen = || sync::lock(&self.seen);
        let now = version(control);
        if *seen() == now {
            return;
        }
        heed_terms(control, store);
        let limits = history_limits(control).map_err(atomdir_disk::reason);
        let set = limits.and_then(|limits| {
            let set = store.set_history(limits);
            set.map_err(|error| error.to_string())
        });
        match set {
            Ok(()) => *seen() = now,
            Err(error) => tracing::warn!("the history is kept as before: {error}"),
        }
    }
}

fn version(control: &OwnedFd) -> Option<Version> {
    let found = rustix::fs::statat(control, "settings", AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let changed = Timestamp::of_fields(found.st_ctime, found.st_ctime_nsec);
    Some((found.st_ino, changed))
}
