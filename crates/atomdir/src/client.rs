//! Requests to a store's service, and views.
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
//! A transaction that was begun without [`BeginOptions::detached`] is aborted when its
//! [`Connection`] is dropped or this process dies.

pub use crate::connection::Connection;
pub use crate::error::CommitError;
pub use crate::requests::{BeginOptions, SnapshotContents};
pub use crate::transaction::Transaction;
pub use atomdir_protocol::{Conflict, ConflictPart};
