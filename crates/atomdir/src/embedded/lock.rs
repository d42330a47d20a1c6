//! Waiting for locks in this process.

use super::convert;
use super::session::Engine;
use crate::api::session::LockWanted;
use crate::api::{Conflict, LockError};
use atomdir_disk::LinuxDisk;
use atomdir_engine as engine;
use atomdir_types::sync;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

/// Set when a request may succeed.
#[derive(Default)]
struct Latch {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Latch {
    fn set(&self) {
        *sync::lock(&self.is_set) = true;
        self.changed.notify_all();
    }

    /// Waits until it is set, and clears it. Returns `false` if the time is over before.
    fn wait(&self, deadline: Option<Instant>) -> bool {
        let mut is_set = sync::lock(&self.is_set);
        while !*is_set {
            let Some(deadline) = deadline else {
                is_set = sync::wait(&self.changed, is_set);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            is_set = sync::wait_for(&self.changed, is_set, left).0;
        }
        *is_set = false;
        true
    }
}

pub(super) fn lock(
    store: &engine::Store<LinuxDisk>,
    transaction: &Engine,
    user: &engine::Credentials,
    wanted: &LockWanted<'_>,
) -> Result<(), LockError> {
    let paths = wanted.paths.iter();
    let request = engine::LockRequest {
        mode: wanted.mode,
        scope: wanted.scope,
        paths: paths
            .map(|path| path.as_os_str().as_bytes().to_vec())
            .collect(),
    };
    let latch = Arc::new(Latch::default());
    let woken = latch.clone();
    let deadline = wanted
        .wait
        .and_then(|wait| Instant::now().checked_add(wait));
    let mut patience = engine::Patience {
        wake: Arc::new(move || woken.set()),
        wait: &mut || latch.wait(deadline),
    };
    let locked = store.lock(transaction, &request, user, &mut patience);
    locked.map_err(lock_error)
}

fn lock_error(error: engine::LockError) -> LockError {
    let reason = error.to_string();
    match error {
        engine::LockError::Ended => LockError::Ended,
        engine::LockError::Path { path, errno } => LockError::Path {
            path: path.into(),
            cause: errno.into(),
        },
        engine::LockError::Held(_)
        | engine::LockError::Deadlock(_)
        | engine::LockError::Changed(_) => LockError::Conflict {
            conflicts: Conflict::all(error.conflicts()),
            reason,
        },
        engine::LockError::Store(error) => LockError::Store(convert::store_error(error)),
        _ => LockError::Store(crate::api::StoreError::Other(reason)),
    }
}
