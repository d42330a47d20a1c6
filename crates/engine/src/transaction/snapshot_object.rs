//! What a path was in a transaction's snapshot, for comparing with its view.

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Result};

use crate::base::acl;
use crate::base::landed::Landed;
use crate::base::snapshot::Snapshot;
use crate::transaction::Transaction;
use crate::view::NodeAttributes;

/// An object in the snapshot.
#[derive(Debug, Clone)]
pub struct SnapshotObject {
    pub kind: Kind,
    pub attributes: NodeAttributes,
    /// Sorted by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The target of a symbolic link; empty for other kinds.
    pub target: Vec<u8>,
}

impl SnapshotObject {
    /// Whether there is an access list. If so, the mode alone does not say who may
    /// read it.
    pub fn has_access_list(&self) -> bool {
        self.xattrs.iter().any(|(name, _)| name == acl::ACCESS)
    }
}

impl<D: Disk> Transaction<D> {
    /// What the snapshot has at a path, for comparing with the view.
    pub fn snapshot_object(&self, path: &[u8]) -> Result<Option<SnapshotObject>> {
        let landed = self.landed()?;
        let snapshot = Snapshot::with_landed(&self.core, self.at, &landed);
        let Some((base, stat)) = snapshot.resolve(path)? else {
            return Ok(None);
        };
        let target = match stat.kind {
            Kind::Symlink => snapshot.read_link(&base)?,
            _ => Vec::new(),
        };
        let attributes = crate::view::node::attributes_of(&stat);
        let mut xattrs = snapshot.xattrs(&base)?;
        xattrs.sort();
        Ok(Some(SnapshotObject {
            kind: stat.kind,
            xattrs,
            attributes,
            target,
        }))
    }

    /// Fills the buffer from the contents of a path in the snapshot, with zeros past
    /// their end.
    pub fn read_snapshot(&self, path: &[u8], offset: u64, buffer: &mut [u8]) -> Result<()> {
        let landed = self.landed()?;
        let snapshot = Snapshot::with_landed(&self.core, self.at, &landed);
        let (base, _) = snapshot.resolve(path)?.ok_or(Errno::STALE)?;
        snapshot.read(&base, offset, buffer)?;
        // If the transaction has ended, this may have read versions that were already
        // dropped.
        self.landed().map(drop)
    }

    /// Fails if the transaction has ended.
    fn landed(&self) -> Result<Arc<Landed>> {
        self.wait_with(|view| Ok(view.landed.clone()))
    }
}
