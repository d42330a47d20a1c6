//! The process that owns a store while it is in use. Each store has one, which
//! starts on first use and ends when idle. It recovers the store, mounts its views
//! and serves clients over `.atomdir/socket`; the engine does the rest.
//!
//! Invariants
//! 1. The service runs as the store's owner, even if root starts it: that user can
//!    write the control files, and they say who shall own what (`owner`).
//! 2. The kernel says who a peer is (SO_PEERCRED). Whatever a peer sends harms only
//!    its own connection.
//! 3. If the service has rights that a transaction's user lacks, the view and the
//!    commit also check the base's present permissions (`present` in the engine),
//!    and each request checks whether the user could reach the root (`access`).
//! 4. A user pays for what is staged for that user (`Disk::charge`). The store's
//!    owner pays for the log and the apply.

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
