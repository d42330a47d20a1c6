//! Transactions over the files of a directory.
//!
//! A program that changes several files writes each to a temporary file, flushes it, renames it,
//! and flushes the directory; if it is killed half-way, some files are new and some are old. With
//! this library it writes the files and commits:
//!
//! ```
//! # let scratch = atomdir_testing::Scratch::new("doc");
//! # let data = scratch.path();
//! # atomdir::init(data, None)?;
//! # std::fs::write(data.join("b"), "b")?;
//! let store = atomdir::Store::open(data)?;
//! let tx = store.begin()?;
//! tx.write("a.toml", b"port = 80\n")?;
//! tx.rename("b", "c")?;
//! tx.commit()?;
//! # assert!(data.join("a.toml").exists() && data.join("c").exists());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! After a kill, a crash or a power cut the directory has all changes of a commit or none, and
//! a commit that has returned survives. [`Store::open`] says how a store is reached,
//! [`Transaction`] what can be done in one, and [`Store::run`] tries again after a conflict.
//!
//! [`client`] is the other interface: requests to a store's service and what it reports, for
//! programs that work with views, as the command `atomdir` does.

#![deny(missing_docs)]

mod accounts;

mod api;
mod brought;
mod choosing;
pub mod client;
mod compare;
mod connection;
mod current;
mod embedded;
mod ended;
mod entered;
mod environment;
mod error;
mod history;
#[doc(hidden)]
pub mod hosting;
mod init;
mod joint;
mod layers;
mod lent;
mod location;
mod locks;
mod merging;
mod mounts;
mod peer;
mod process;
mod requests;
mod resolvers;
mod served;
mod services;
mod settings;
mod start;
mod surroundings;
mod three_way;
mod transaction;
mod transport;
mod trust;
mod view_root;

pub use api::{
    BeginError, ChangedPath, CommitError, Conflict, Differences, DirEntry, Door, EndedTransaction,
    Error, File, FileError, LockError, Metadata, Nested, NotMerged, OpenError, OpenOptions,
    OpenTransaction, PartReceipt, Permissions, Receipt, Refreshed, SavepointError, SharedFile,
    SharedTransaction, ShownCommit, Store, StoreError, StoreOptions, Take, Together, Transaction,
    TransactionOptions, Uncommitted, UncommittedTogether, UndoChoice, UndoError, Where,
};
pub use atomdir_types::{
    Change, ChangedBy, CommitAuthor, CommitMarks, CommitSummary, ConflictKind, Conflicts,
    Durability, EndedHow, HistoryStatus, Isolation, Kind, LockMode, LockScope, Sequence, Timestamp,
    TransactionId, Unconfirmed,
};
pub use error::{ConnectError, FindError, InitError};
pub use hosting::{HeldHow, Holder};
pub use init::{
    AdoptOutcome, DeinitOutcome, InitOutcome, adopt_with, check_deinit, deinit_with, give_up_log,
    init, init_copying, init_with, init_with_log, log_of, move_log,
};
pub use location::{CONTROL_NAME, StoreLocation, find};
pub use settings::SettingsError;
pub use start::StartService;
pub use three_way::{ThreeWay, WhyNotMerged};
pub use trust::{Distrust, Trust};
