//! What the engine is given of this process: its clock, its rights, its descriptors.

use super::clock::SystemClock;
use atomdir_engine::{CARRIED_BYTES_MAX, Options, Privileges};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Resource, getegid, geteuid, getgroups, getrlimit};
use std::sync::Arc;

/// Options for a process that needs `descriptors_reserved` descriptors for other things than
/// the engine.
pub fn engine_options(descriptors_reserved: u64) -> Options {
    Options {
        clock: Arc::new(SystemClock),
        handles_max: handles_max(descriptors_reserved),
        carried_bytes_max: CARRIED_BYTES_MAX,
        history: None,
        privileges: privileges(),
    }
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
