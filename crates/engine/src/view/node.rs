//! The nodes of a view: the difference between its tree and its snapshot.
//!
//! Invariants
//! 1. A node without `own` looks exactly as the snapshot has it.
//! 2. A node is kept while the kernel knows it (`View::lookups`), while another has
//!    it as parent (`children`), while an entry of the difference names it
//!    (`links` of a node with `own`, or `listed`), or while it holds changes
//!    that a commit must write or validate.
//! 3. `own.entries` holds no entry that equals the snapshot's.

use std::collections::BTreeMap;
use std::sync::Arc;

use atomdir_disk::{Identity, Kind, Name, Owner};

use super::types::NodeAttributes;
use crate::base::{Base, Stamp};
use crate::ids::NodeId;
use crate::ranges::RangeSet;

#[derive(Clone)]
pub(crate) struct Node {
    pub kind: Kind,
    /// The object of the snapshot; `None` if the transaction made the object.
    pub base: Option<Arc<Base>>,
    /// The node's directory in the view, or its last one; the root is its own
    /// parent.
    pub parent: NodeId,
    pub name: Option<Name>,
    /// The mode and owner that the kernel first used for permission checks.
    pub reported: Option<(u32, Owner)>,
    /// How many nodes have this one as their parent.
    pub children: u64,
    /// How many entries of the difference name this node.
    pub listed: u32,
    pub own: Option<Arc<Own>>,
    /// Since the first read or change of the file, stores through mappings of other programs change
    /// its times: see `View::watch_stores`.
    pub is_watched: bool,
}

/// The changes that the transaction made to a node.
#[derive(Clone)]
pub(crate) struct Own {
    pub attributes: NodeAttributes,
    pub touched: Touched,
    /// The base object's stamp when the transaction first changed it.
    pub stamp: Option<Stamp>,
    /// Each is set to a value, or removed.
    pub xattrs: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    pub body: OwnBody,
    /// Where the node's object is in the staging directory, if it has one.
    pub staged: Option<Staged>,
    pub dress: Dress,
}

/// How far a new node's staged object has the node's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dress {
    /// Not at all: only the node has them.
    Bare,
    /// Fully: the object was made outside the view and taken over.
    Complete,
    /// It was taken over, and the view has changed it since: `xattrs` holds the
    /// changes.
    Outdated,
}

/// Which attributes the transaction set, by a call or by a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    pub mode: bool,
    pub owner: bool,
    pub accessed: bool,
    pub modified: bool,
}

impl Touched {
    /// The value for a new object: the transaction set all attributes.
    pub const ALL: Touched = Touched {
        mode: true,
        owner: true,
        accessed: true,
        modified: true,
    };
}

#[derive(Clone)]
pub(crate) enum OwnBody {
    /// Contents, entries or link target are those of the snapshot.
    Unchanged,
    File(Contents),
    Directory(DirectoryDelta),
    Symlink(Vec<u8>),
    /// FIFOs, sockets, device nodes.
    Special,
}

/// A regular file's contents: pages of the staged file over the base's.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// How many bytes of the base's contents still show through.
    pub base_limit: u64,
    /// Numbers of the pages that the staged file holds. Kept only while
    /// `base_limit` is not 0: otherwise the whole file is staged.
    pub pages: RangeSet,
    /// The writing program prefers that the commit changes the base's file in place, however short
    /// it is.
    pub in_place: bool,
}

#[derive(Clone, Default)]
pub(crate) struct DirectoryDelta {
    pub entries: BTreeMap<Name, EntryDelta>,
    /// Entries were added or removed, even if that cancelled out. The directory's
    /// modification time is the transaction's.
    pub is_touched: bool,
    /// The directory was removed; its entries are kept for validation.
    pub removed: bool,
    /// The default ACL that new entries inherit; known once it has been read.
    pub default_acl: Option<Option<Arc<[u8]>>>,
}

#[derive(Clone)]
pub(crate) struct EntryDelta {
    pub before: Option<Arc<Base>>,
    pub now: Option<NodeId>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Staged {
    pub parent: StagedParent,
    pub name: Name,
    /// Known at commit, once the object is complete.
    pub identity: Option<Identity>,
}

impl Staged {
    /// In the staging directory itself. `identity`: if the object is complete.
    pub fn in_slot(name: Name, identity: Option<Identity>) -> Staged {
        Staged {
            parent: StagedParent::Slots,
            name,
            identity,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StagedParent {
    /// The transaction's staging directory itself.
    Slots,
    /// The staged directory of a new directory of the view.
    Node(NodeId),
}

impl Node {
    /// Another node has this one as its parent no more.
    pub fn lose_child(&mut self) {
        assert!(self.children > 0, "a directory has lost a node twice");
        self.children -= 1;
    }

    /// An entry of the difference names this node no more.
    pub fn lose_entry(&mut self) {
        assert!(self.listed > 0, "a node has lost an entry twice");
        self.listed -= 1;
    }

    pub fn own(&self) -> Option<&Own> {
        self.own.as_deref()
    }

    pub fn directory_delta(&self) -> Option<&DirectoryDelta> {
        match &self.own.as_ref()?.body {
            OwnBody::Directory(delta) => Some(delta),
            _ => None,
        }
    }

    pub fn contents(&self) -> Option<&Contents> {
        match &self.own.as_ref()?.body {
            OwnBody::File(contents) => Some(contents),
            _ => None,
        }
    }

    pub fn is_removed_directory(&self) -> bool {
        self.directory_delta().is_some_and(|delta| delta.removed)
    }

    /// Whether the transaction has removed its last name.
    pub fn is_unnamed(&self) -> bool {
        self.own().is_some_and(|own| own.attributes.links == 0)
    }

    /// Whether the node can be dropped once the kernel has forgotten it: see the
    /// second invariant.
    pub fn is_disposable(&self) -> bool {
        if self.children > 0 || self.listed > 0 {
            return false;
        }
        match &self.own {
            None => true,
            // Validation needs the entries of a removed directory.
            Some(own) => {
                own.attributes.links == 0 && !(self.is_removed_directory() && self.base.is_some())
            }
        }
    }
}
