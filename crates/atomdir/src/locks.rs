//! Requests for locks.

use crate::connection::{Connection, Parts};
use crate::error::CommitError;
use crate::error::RequestError;
use atomdir_protocol::{Answer, LockMode, LockRequest, LockScope, Request, TransactionId};
use std::time::Duration;

/// How locks are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockOptions {
    /// Shared or exclusive.
    pub mode: LockMode,
    /// Which part is locked.
    pub scope: LockScope,
    /// How long to wait for others that hold conflicting locks; `None` means without limit.
    pub wait: Option<Duration>,
    /// The locks end this long after they were granted. Others can then commit changes
    /// to what they covered, and the transaction stays open. `None`: they end with the
    /// transaction.
    pub max_age: Option<Duration>,
}

impl Connection {
    /// Locks paths, relative to the store's root, until the transaction ends; all of
    /// them or none. The request fails with a conflict if others hold locks for too
    /// long, if they wait for this transaction in turn, or if an object to be locked has
    /// changed since the transaction began.
    pub fn lock(
        &mut self,
        transaction: TransactionId,
        paths: &[Vec<u8>],
        options: &LockOptions,
    ) -> Result<(), CommitError> {
        let request = Request::Lock(LockRequest {
            transaction,
            mode: options.mode,
            scope: options.scope,
            paths: paths.to_vec(),
            wait_ms: options.wait.map(milliseconds),
            max_age_ms: options.max_age.map(milliseconds),
        });
        let mut parts = Parts::default();
        match self.ask_with(&request, &mut parts, &mut |_| {}) {
            Ok((Answer::Nothing, _)) => Ok(()),
            Ok(_) => Err(self.unexpected().into()),
            Err(error) => Err(CommitError::new(error, parts)),
        }
    }

    /// Makes the service abort the transaction after `age`, counted from now, unless it
    /// ends before. Later requests for it then report why it ended.
    pub fn abort_after(
        &mut self,
        transaction: TransactionId,
        time: Duration,
    ) -> Result<(), RequestError> {
        self.nothing(&Request::AbortAfter {
            transaction,
            age_ms: milliseconds(time),
        })
    }

    /// Releases the locks on these paths, or all locks. Returns how many there were.
    pub fn unlock(
        &mut self,
        transaction: TransactionId,
        paths: Option<&[Vec<u8>]>,
    ) -> Result<u64, RequestError> {
        let request = Request::Unlock {
            transaction,
            paths: paths.map(<[Vec<u8>]>::to_vec),
        };
        let mut parts = Parts::default();
        match self.ask_with(&request, &mut parts, &mut |_| {})? {
            (Answer::Unlocked(count), _) => Ok(count),
            _ => Err(self.unexpected()),
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
