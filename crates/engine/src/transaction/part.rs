//! Drops a part of a transaction's changes: see `view::part`.

use atomdir_disk::Disk;
use atomdir_types::{ChangeLine, TreePath};

use crate::error::DropError;
use crate::transaction::Transaction;
use crate::view::Outdated;
use crate::view::part::NoPart;

/// The changes that were dropped from a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Sorted by path.
    pub changes: Vec<ChangeLine<TreePath>>,
    /// The data that caches of the view must drop.
    pub outdated: Vec<Outdated>,
}

impl<D: Disk> Transaction<D> {
    /// Drops the changes at and below these paths, and what needs them. The rest stays.
    pub fn drop_part(&self, paths: &[Vec<u8>]) -> Result<Dropped, DropError> {
        if self.outer().is_some() {
            return Err(DropError::InOuter);
        }
        let mut guard = self.view.lock();
        let view = guard.as_mut().ok_or(DropError::Ended)?;
        match view.nested() {
            Some(nested) => return Err(DropError::Nested { nested }),
            None if view.lower => return Err(DropError::Native),
            None if view.frozen => return Err(DropError::Frozen),
            None => {}
        }
        self.leave_to_user();
        let part = view.part_to_drop(paths);
        let part = part.map_err(|error| match error {
            NoPart::Unchanged { path } => DropError::Unchanged {
                path: String::from_utf8_lossy(&path).into_owned(),
            },
            NoPart::Unknown { path, errno } => DropError::Io {
                path: String::from_utf8_lossy(&path).into_owned(),
                errno,
            },
        })?;
        let changes = view.changes_in(&part).map_err(DropError::Staging)?;
        let outdated = view.drop_part(&part).map_err(DropError::Staging)?;
        self.share.update(|| view.kept_objects());
        view.record().map_err(DropError::Staging)?;
        Ok(Dropped { changes, outdated })
    }
}
