//! The process that owns a store while it is in use. Each store has one, which
//! starts on first use and ends when idle. It recovers the store, mounts its views
//! and serves clients over `.atomdir/socket`; the engine does the rest.
//!
//! Invariants
//! 1. The service runs as the store's owner, even if root starts it: that user can write the
//!    control files, and these record the owner of each object (`owner`).
//! 2. The kernel says who a peer is (SO_PEERCRED). Whatever a peer sends harms only
//!    its own connection.
//! 3. If the service has rights that a transaction's user lacks, the view and the
//!    commit also check the base's present permissions (`present` in the engine),
//!    and each request checks whether the user could reach the root (`access`).
//! 4. Staged data is charged to the transaction's user (`Disk::charge`). The log and the apply are
//!    charged to the store's owner.

mod clients;
mod error;
mod process;
mod requests;
mod rights;
mod service;
mod transactions;
mod views;

pub use atomdir_engine::{Damage, TornTail};
pub use error::ServiceError;
pub use process::inspect::{Inspection, inspect};
pub use process::lifecycle::{ServiceOptions, run};
