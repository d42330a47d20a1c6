//! The small types that several crates share: ids, times, kinds, changes, conflicts, options.
//!
//! Each is defined here and nowhere else, so no crate converts one into another's copy. Crates
//! re-export those that are part of their own interface. The protocol's messages hold these types
//! as serde encodes them, so a changed type needs a new version of the protocol. The store's files
//! do not depend on that: `crates/format` encodes every field by itself.
//!
//! Some types of one name are two on purpose. The engine's `Committed` and `SnapshotObject` contain
//! more than a client needs. The library's `Conflict` has its path as a `PathBuf`.
//!
//! Modules
//! - `ids`, `time`, `kind`: numbers that name something; times; kinds of objects
//! - `change`, `commit`, `snapshot_object`, `side`: what was changed; commits as lists show them; an
//!   object at one point in the commit order; the states that a view is compared with
//! - `conflict`, `read`, `lock`, `options`: conflicts; what was read of a file; locks; how a
//!   transaction behaves
//! - `ended`, `deviation`, `merge`: how a transaction ended; what overlayfs has done otherwise; steps
//!   of a nested commit into a native view
//! - `undo`, `equal_file`: what an undo is asked for; files of others that are as good as those that
//!   commits left
//! - `joint`: transactions of several stores that are committed together
//! - `terms`: what users say at a commit, and which commits they want to see
//! - `lost_log`: what is lost with a log that is not in the control directory
//! - `path`: paths that share what they begin with
//! - `sync`: taking locks, also after a panic

#![deny(missing_docs)]

mod change;
mod commit;
mod conflict;
mod deviation;
mod ended;
mod equal_file;
mod ids;
mod joint;
mod kind;
mod lock;
mod lost_log;
mod merge;
mod options;
pub mod path;
mod read;
mod side;
mod snapshot_object;
pub mod sync;
mod terms;
mod time;
mod undo;

pub use change::{Change, ChangeLine};
pub use commit::{
    CheckReport, Checked, CommitDetails, CommitMarks, CommitSummary, EarlyReason, ForgottenEarly,
    HistoryStatus, RecoveryReport, Unconfirmed,
};
pub use conflict::{ChangedBy, CommitAuthor, Conflict, ConflictKind, conflicts_message};
pub use deviation::{Deviation, DeviationKind};
pub use ended::EndedHow;
pub use equal_file::EqualFile;
pub use ids::{Sequence, TransactionId};
pub use joint::{Outcome, Partner};
pub use kind::Kind;
pub use lock::{LOCK_ALLOW, LockMode, LockScope, LockStatus};
pub use lost_log::LostLog;
pub use merge::MergeStep;
pub use options::{Conflicts, Durability, Isolation};
pub use path::TreePath;
pub use read::FileRead;
pub use side::{Side, SidePaths};
pub use snapshot_object::SnapshotObject;
pub use terms::{CommitFilter, Terms};
pub use time::Timestamp;
pub use undo::Undo;
