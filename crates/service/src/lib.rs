//! The process that owns a store while it is in use: one per store, started
//! on first use, gone when idle. It recovers the store, mounts its views and
//! serves clients over `.atomdir/socket`; the engine does the rest.
//!
//! Invariants
//! 1. The service runs as the store's owner, even if root starts it: the control
//!    files are that user's to write, and they say who shall own what (`owner`).
//! 2. A peer is who the kernel says (SO_PEERCRED). Whatever it sends harms its own
//!    connection only.
//! 3. If the service has rights that a transaction's user has not, the view and the
//!    commit also ask the base's present permissions (`present` in the engine), and
//!    each request asks whether the user could reach the root (`access`).
//! 4. What is staged for a user is staged at that user's expense (`Disk::charge`).
//!    The log and the apply are at the store's.

mod access;
mod closing;
mod commit;
mod connection;
mod connections;
mod convert;
mod detach;
mod discretion;
mod error;
mod expiry;
mod inner_socket;
mod inspect;
mod latch;
mod leases;
mod lifecycle;
mod limits;
mod locks;
mod maintenance;
mod memory;
mod mountpoint;
mod native;
mod nesting;
mod owner;
mod permissions;
mod replies;
mod report;
mod requests;
mod sealing;
mod service;
mod sharing;
mod signals;
mod snapshot_access;
mod socket;
mod start_lock;
mod status;
mod store;
mod ticks;
mod transactions;
mod view_mount;
mod views;

pub use atomdir_engine::{Damage, TornTail};
pub use error::ServiceError;
pub use inspect::{Inspection, inspect};
pub use lifecycle::{ServiceOptions, run};
