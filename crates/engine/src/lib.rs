//! Transactions over ordinary directories: snapshots, views, a redo-only log,
//! validation, apply and recovery. ARCHITECTURE.md tells how they fit.
//!
//! The engine reaches the file system through [`atomdir_disk::Disk`] only, and
//! is handed its clock; it knows no terminal, environment or network.

#[cfg(test)]
extern crate self as atomdir_engine;

mod applied_mark;
mod apply;
mod base;
mod budget;
mod carry;
mod check;
mod checkpoint;
mod commit;
mod control;
mod core;
mod early;
mod error;
mod feasible;
mod group;
mod handles;
mod history;
mod ids;
mod inspect;
mod keep;
mod locks;
mod log;
mod look;
mod merge;
mod mount_point;
mod names;
mod nesting;
mod options;
mod prepare;
mod present;
mod progress;
mod publish;
mod ranges;
mod read_set;
mod record_builder;
mod recover;
mod remake;
mod rights;
mod rules;
mod snapshot;
mod snapshot_object;
mod stalled;
mod store;
mod transaction;
mod trial;
mod validate;
mod view;
mod view_slot;
mod write_set;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use budget::Budget;
pub use check::CheckReport;
pub use commit::Committed;
pub use error::{
    BeginError, ChangedBy, CommitError, Conflict, ConflictKind, FreezeError, SavepointError,
    Stalled, StoreError,
};
pub use ids::{NodeId, Sequence, TransactionId};
pub use inspect::{Damage, Inspection, TornTail};
pub use locks::{LockError, LockMode, LockRequest, LockScope, LockStatus, Patience, Waits};
pub use options::{
    BeginOptions, CARRIED_BYTES_MAX, Clock, Conflicts, Durability, Isolation, Options, Privileges,
};
pub use progress::Progress;
pub use recover::RecoveryReport;
pub use snapshot_object::SnapshotObject;
pub use store::{CommitSummary, Store, StoreStatus};
pub use transaction::Transaction;
pub use view::{
    Caller, Credentials, Entry, ListEntry, Marking, NewNode, NodeAttributes, Outdated,
    SetAttributes, SetTime,
};

/// A panic in another thread leaves no lock of the engine unusable: what a
/// lock guards is changed last, and whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
