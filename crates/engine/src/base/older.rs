//! Knows the objects that a surviving transaction's snapshot shows in another state than the base
//! has: see `recovery::older`.

use std::collections::HashMap;
use std::sync::Arc;

use atomdir_disk::Identity;

use crate::base::Base;
use crate::ids::Sequence;

/// The objects that commits have changed since the oldest snapshot.
#[derive(Default)]
pub(crate) struct Older {
    /// By identity. One that got a new inode is also found by the old one, in snapshots before
    /// that commit.
    pub known: HashMap<Identity, Vec<(Sequence, Arc<Base>)>>,
    /// Those that have a history.
    pub retained: Vec<Arc<Base>>,
}

impl Older {
    /// The object that has this identity in a snapshot, if commits have changed it since.
    pub fn find(&self, identity: Identity, at: Sequence) -> Option<&Arc<Base>> {
        let known = self.known.get(&identity)?;
        let found = known.iter().find(|(until, _)| *until > at);
        found.map(|(_, base)| base)
    }
}
