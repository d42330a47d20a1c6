//! Atomdir's public library: find or make a store, and run transactions in it
//! through the store's service.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use atomdir::{BeginOptions, Connection, StartService, find};
//!
//! let store = find("/srv/site".as_ref())?;
//! let start = StartService::with_program("atomdir", &store);
//! let mut connection = Connection::open(&store, &start)?;
//! let transaction = connection.begin(&BeginOptions::default())?;
//! std::fs::write(transaction.view_path.join("index.html"), "new")?;
//! connection.commit(transaction.id, &mut |_| {})?;
//! # Ok(()) }
//! ```
//!
//! A transaction that was begun without [`BeginOptions::detached`] is aborted
//! when its [`Connection`] is dropped or this process dies.

mod accounts;
mod connection;
mod current;
mod entered;
mod error;
mod init;
mod layers;
mod location;
mod locks;
pub mod mounts;
mod process;
mod requests;
mod settings;
mod start;
mod transaction;
mod transport;
mod trust;
mod view_root;

pub use accounts::{Account, Group, describe_user};
pub use atomdir_disk::reason;
pub use atomdir_protocol::{
    Change, ChangeLine, ChangedBy, CheckReport, CommitAuthor, CommitSummary, Committed, Conflict,
    Conflicts, Durability, ExitCode, Failure, FailureKind, Isolation, Kind, LockMode, LockScope,
    LockStatus, Others, Progress, RecoveryReport, Sequence, ServiceStatus, SnapshotObject,
    StopReport, Timestamp, TransactionId, TransactionStatus, View, ViewChoice,
};
pub use connection::Connection;
pub use current::Current;
pub use entered::Entered;
pub use error::{CommitError, ConnectError, Explain, FindError, InitError, RequestError};
pub use init::{InitOutcome, init, init_with};
pub use layers::{Layers, OpenLayers};
pub use location::{CONTROL_NAME, StoreLocation, find, find_with};
pub use locks::LockOptions;
pub use requests::{BeginOptions, Checked, CommitDetails, SnapshotContents};
pub use settings::{ALLOW, Allow, KEYS as SETTING_KEYS, ReadError, Settings, SettingsError, VIEW};
pub use start::{SERVICE_ENVIRONMENT, StartService};
pub use transaction::Transaction;
pub use trust::{Distrust, Trust};
pub use view_root::ViewRootError;
