//! The process that owns a store while it is in use: one per store, started
//! on first use, gone when idle. It recovers the store, mounts its views and
//! serves clients over `.atomdir/socket`; the engine does the rest.

mod access;
mod closing;
mod commit;
mod connection;
mod connections;
mod convert;
mod detach;
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
mod store;
mod ticks;
mod transactions;
mod view_mount;
mod views;

pub use atomdir_engine::{Damage, TornTail};
pub use error::ServiceError;
pub use inspect::{Inspection, inspect};
pub use lifecycle::{ServiceOptions, run};
