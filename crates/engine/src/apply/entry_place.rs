//! Where apply looks for an object: a directory of the base, a staging directory or
//! limbo, and a name in it.

use atomdir_disk::{Identity, Name};

use crate::ids::TransactionId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EntryPlace {
    pub(super) parent: Parent,
    pub(super) name: Name,
}

impl EntryPlace {
    pub(super) fn in_limbo(name: Name) -> EntryPlace {
        EntryPlace {
            parent: Parent::Limbo,
            name,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parent {
    Directory(Identity),
    Stage(TransactionId),
    Limbo,
}
