//! A directory of the base, a staging directory or limbo, and a name in it.

use atomdir_disk::{Identity, Name};

use crate::ids::TransactionId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryPlace {
    pub parent: Parent,
    pub name: Name,
}

impl EntryPlace {
    pub fn in_limbo(name: Name) -> EntryPlace {
        EntryPlace {
            parent: Parent::Limbo,
            name,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parent {
    Directory(Identity),
    Stage(TransactionId),
    Limbo,
}
