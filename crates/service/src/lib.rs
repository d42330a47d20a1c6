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

mod access;
mod aside;
mod claim;
mod closing;
mod commit;
mod conflicts;
mod connection;
mod connections;
mod convert;
mod detach;
mod discretion;
mod error;
mod expiry;
mod history_settings;
mod inner_socket;
mod inspect;
mod latch;
mod leases;
mod lending;
mod lifecycle;
mod limits;
mod locks;
mod log;
mod memory;
mod merge_turns;
mod merges;
mod mountpoint;
mod native;
mod nesting;
mod notices;
mod owner;
mod parts;
mod permissions;
mod refresh;
mod replies;
mod report;
mod requests;
mod sealing;
mod service;
mod sharing;
mod side_access;
mod signals;
mod socket;
mod status;
mod store;
mod survival;
mod transactions;
mod turn;
mod undo;
mod view_mount;
mod views;
mod waiters;

pub use atomdir_engine::{Damage, TornTail};
pub use error::ServiceError;
pub use inspect::{Inspection, inspect};
pub use lifecycle::{ServiceOptions, run};
