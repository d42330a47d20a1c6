//! The service as a process: starting it, becoming the store's owner, opening the store, reporting,
//! and ending it.

pub(crate) mod dead_guard;
pub(crate) mod detach;
pub(crate) mod history_settings;
pub(crate) mod inspect;
pub(crate) mod lifecycle;
pub(crate) mod memory;
pub(crate) mod mount_namespace;
pub(crate) mod notify;
pub(crate) mod owner;
pub(crate) mod report;
pub(crate) mod signals;
pub(crate) mod starter_settings;
pub(crate) mod store;
pub(crate) mod watchdog;
