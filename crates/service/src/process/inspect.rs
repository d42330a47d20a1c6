//! Inspects a store that no service has open, without changing it.

use crate::ServiceError;
use crate::process::store::{self, Directories};
use std::path::Path;

pub use atomdir_engine::Inspection;

/// Inspects the store whose root is `store`, as its owner: a process of root
/// gives up root's rights for that. Fails with [`ServiceError::AlreadyRunning`]
/// if it is in use.
pub fn inspect(store: &Path) -> Result<Inspection, ServiceError> {
    Directories::open(store::locate(store)?)?.inspect()
}
