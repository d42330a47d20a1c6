//! The interface for programs: stores, transactions, and files in them.
//!
//! Whichever way a store is reached, a transaction is a [`session::Session`]: the
//! engine's in this process (`embedded`), or a view of the service's. Everything here is the
//! same for both.

mod annotating;
mod door;
mod error;
mod file;
mod history;
mod holding;
mod kept;
mod lock;
mod maintaining;
mod merging;
mod metadata;
mod past;
mod receipt;
mod retry;
pub(crate) mod session;
mod shared;
mod store;
mod together;
mod transaction;
mod tree;

pub use door::{Door, StoreOptions};
pub use error::{
    BeginError, CommitError, Conflict, Error, FileError, LockError, OpenError, SavepointError,
    StoreError,
};
pub use file::{File, OpenOptions};
pub use history::{ChangedPath, PartReceipt, Refreshed, Take, UndoChoice, UndoError, Where};
pub(crate) use history::{bytes_of, label_of, sides_of};
pub use kept::OpenTransaction;
pub use lock::Nested;
pub use maintaining::EndedTransaction;
pub use merging::NotMerged;
pub(crate) use merging::{InConflict, overwrite};
pub use metadata::{DirEntry, Metadata, Permissions};
pub(crate) use past::no_such_commit;
pub use past::{Differences, ShownCommit};
pub use receipt::Receipt;
pub use shared::{SharedFile, SharedTransaction};
pub(crate) use store::Begin;
pub use store::{Store, TransactionOptions};
pub use together::{Together, UncommittedTogether};
pub use transaction::{Transaction, Uncommitted};
