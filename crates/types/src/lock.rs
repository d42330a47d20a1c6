//! Locks on request.

use serde::{Deserialize, Serialize};

/// The extended attribute that says who may lock a file or directory without the right to read or
/// write it: numbers of users and, after `@`, of groups, between commas.
pub const LOCK_ALLOW: &str = "user.atomdir.lock";

/// What others may do with something that is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockMode {
    /// They may hold shared locks on it, too.
    Shared,
    /// They may hold no lock on it, and commit no change of it.
    Exclusive,
}

/// How much of the object at a path is locked. Where no object exists, the lock is on the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockScope {
    /// A file's contents and attributes; a directory's own entries and attributes, but nothing
    /// below them.
    Object,
    /// The pages of a file that contain these bytes.
    Bytes {
        /// The first byte.
        start: u64,
        /// The first byte after them.
        end: u64,
    },
    /// Everything at and below the path that the holder may change; for a shared lock, that they
    /// may read.
    Subtree,
}

/// A lock that a transaction holds or asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockStatus {
    /// Relative to the store's root, as it was requested.
    pub path: Vec<u8>,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// Which part is locked.
    pub scope: LockScope,
    /// If false, the request still waits.
    pub granted: bool,
}
