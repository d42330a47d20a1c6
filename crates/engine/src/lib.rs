//! Transactions over ordinary directories: snapshots, views, a redo-only log,
//! validation, apply and recovery. ARCHITECTURE.md explains how they fit
//! together.
//!
//! The engine reaches the file system only through [`atomdir_disk::Disk`], and
//! its caller provides the clock; it knows no terminal, environment or network.

#[cfg(test)]
extern crate self as atomdir_engine;

mod apply;
mod base;
mod commit;
mod control;
mod database;
mod early;
mod error;
mod ids;
#[cfg(all(debug_assertions, not(test)))]
#[doc(hidden)]
pub mod instances;
mod locks;
mod log;
mod names;
mod options;
mod progress;
mod ranges;
mod recovery;
mod requests;
mod rules;
mod seen;
mod store;
mod transaction;
mod undo;
mod view;
mod write_set;

use atomdir_types::sync::{self, lock};

pub use atomdir_format::header::StoreId;
pub use atomdir_types::{
    Change, ChangeLine, ChangedBy, Checked, CommitAuthor, CommitDetails, CommitMarks,
    CommitSummary, Conflict, ConflictKind, Conflicts, Durability, EarlyReason, EqualFile,
    ForgottenEarly, HistoryStatus, Isolation, LOCK_ALLOW, LockMode, LockScope, LockStatus, LostLog,
    MergeStep, Outcome, Partner, RecoveryReport, Sequence, Side, SidePaths, Terms, TransactionId,
    TreePath, Unconfirmed, Undo,
};
pub use base::acl::AccessControlList;
pub use base::credentials::{Credentials, Permission};
pub use base::inode_numbers::INODES_END;
pub use base::survey::BeyondOverlay;
pub use commit::checkpoint::SpaceWatch;
pub use commit::guarded::{Leaving, Located, NameNow};
pub use commit::refresh::Refreshed;
pub use commit::{Committed, Portion};
pub use control::log_elsewhere::{LogAt, NewLog};
pub use control::trial::Layers;
pub use error::{
    AnnotateError, BeginError, CommitError, ConfirmError, DropError, ForkError, FreezeError,
    Obstacle, Poison, RefreshError, SavepointError, Stalled, StoreError, SurvivalError, TermsError,
    UndoError,
};
pub use ids::NodeId;
pub use locks::{LockError, LockRequest, Patience, Waits};
pub use log::recent::RecentCommit;
pub use options::{
    BeginOptions, CARRIED_BYTES_MAX, Clock, HistoryLimits, LOG_STEP, Options, Privileges,
};
pub use progress::Progress;
pub use recovery::adopt::{Adoption, Placed};
pub use recovery::inspect::{Damage, Inspection, TornTail};
pub use recovery::{Discarded, Recovery};
pub use requests::guarded::{Change as GuardedChange, MustWait};
pub use requests::history::Marks;
pub use requests::survive::PastHold;
pub use store::aside::SetAside;
pub use store::awaited::MayWait;
pub use store::guard::{Guard, Guarding, Section};
pub use store::remembered::Run;
pub use store::stranded::Stranded;
pub use store::touched::Touched;
pub use store::{Store, StoreStatus};
pub use transaction::Transaction;
pub use transaction::budget::Budget;
pub use transaction::listed::Sides;
pub use transaction::part::Dropped;
pub use transaction::snapshot_object::SnapshotObject;
pub use undo::{Left, NotConfirmed, Past, TakenBackOr, Undone};
pub use view::{
    Caller, Entry, ListEntry, NewNode, NodeAttributes, Outdated, OverlayPrefix, SetAttributes,
    SetTime,
};
