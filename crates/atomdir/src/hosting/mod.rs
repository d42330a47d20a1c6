//! Holding a store open: what the service and a process that embeds the engine have in
//! common. It is no part of the library's interface.

mod asking;
mod clock;
mod holder;
mod kernel;
mod leases;
pub(crate) mod log_place;
mod maintenance;
mod options;
mod patience;
mod remedy;
mod start_lock;
mod ticks;

pub(crate) use asking::Requests;
pub use atomdir_types::sync;
pub use clock::now;
pub use holder::{HeldBy, HeldHow, Holder};
pub use kernel::{FileLock, kernel_text};
pub use leases::outlast_leases;
pub use log_place::{log_at, log_path};
pub use maintenance::{
    PLAIN_NOTE, keep_set_aside, run as run_maintenance, tend_own, tend_unconfirmed, without_signals,
};
pub use options::{
    PruneLimits, engine_options, heed_terms, history_limits, privileges, prune_limits,
    store_options,
};
pub use patience::LockPatience;
pub use remedy::with_remedy;
pub use start_lock::StartLock;
pub use ticks::Ticks;
