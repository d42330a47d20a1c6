//! The view log of an open transaction: its view as a value, and later changes of it.
//!
//! A record holds what one call has changed, so it counts as a whole or not at all. A change
//! contains the new state, not the operation: for each node, entry or page, the last change counts.
//! So any number of whole records from the start of the file is a state of the view.

use atomdir_disk::{Attachment, Identity, Kind, Name, NodeAttributes, Owner, Timestamp};
use atomdir_types::Partner;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewRecord {
    /// The record's place in its file, from 1, without gaps.
    pub sequence: u64,
    pub changes: Vec<ViewChange>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewChange {
    /// The first change of every file.
    Begin(Box<ViewBegin>),
    /// What the caller of the engine wants back with the transaction. Replaces the note before.
    Note(Vec<u8>),
    /// An object of the base that later changes mention.
    Object(ViewObject),
    /// A node of the view that has changes of its own, or is above one that has.
    Node(Box<ViewNode>),
    /// The node is no more.
    Gone { node: u64 },
    /// An entry of a directory. `difference` is `None` if it is the snapshot's again.
    Entry {
        directory: u64,
        name: Name,
        difference: Option<EntryDifference>,
    },
    /// The staged file holds these pages now, too.
    Pages { node: u64, start: u64, end: u64 },
    /// The object of the base has no name left in the view.
    Dying { object: u64 },
    /// The object comes back from limbo.
    Restored { object: u64 },
    /// An object that comes back from limbo, `after`, is the same file as the object `before`,
    /// whose place it takes.
    Succession { before: u64, after: u64 },
    /// A commit of the snapshot reached the base after the begin, and left the file with this stamp. As
    /// long as the file has it, no outside writer has changed the file.
    Brought { object: u64, stamp: ViewStamp },
    /// The staged files of the state before were flushed before this was written.
    Flushed,
    /// The transaction has been aborted.
    Ended,
}

/// The transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewBegin {
    pub transaction: u64,
    /// The newest commit that its snapshot holds.
    pub at: u64,
    pub began: Timestamp,
    /// The begin on the file system's own clock.
    pub began_change_time: Timestamp,
    pub user: u32,
    pub is_lazy: bool,
    pub has_early_conflicts: bool,
    pub first_try: Option<u64>,
    pub label: Vec<u8>,
    /// The commit after which it needs what later ones have replaced: it undoes some of them, or
    /// brings something back.
    pub past: Option<u64>,
    /// The boot and the disk under which the file was written.
    pub attachment: Option<Attachment>,
    /// It is in doubt: it has voted for a commit that this one decides.
    pub coordinator: Option<Partner>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewObject {
    /// The number by which the file mentions the object.
    pub number: u64,
    pub identity: Identity,
    pub kind: Kind,
    pub place: ObjectPlace,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectPlace {
    Root,
    /// The directory is an object that the file has before.
    Entry {
        directory: u64,
        name: Name,
    },
    Limbo,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewNode {
    pub node: u64,
    pub kind: Kind,
    /// The object of the snapshot, if the transaction did not make the node.
    pub object: Option<u64>,
    pub parent: u64,
    pub name: Option<Name>,
    /// The mode and owner that the kernel first used for permission checks.
    pub reported: Option<(u32, Owner)>,
    pub own: Option<ViewOwn>,
}

/// What the transaction changed about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewOwn {
    /// Their kind is the node's, which is encoded once.
    pub attributes: NodeAttributes,
    /// Which attributes the transaction set: bits for mode, owner, access time, modification time.
    pub touched: u8,
    /// The base object's when the transaction first changed it.
    pub stamp: Option<ViewStamp>,
    /// Each is set to the value, or removed.
    pub xattrs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub body: ViewBody,
    pub staged: Option<ViewStaged>,
    /// How far the staged object has the node's attributes: 0 not at all, 1 fully, 2 it had them.
    pub dress: u8,
}

/// The attributes of a base object that show whether it has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewStamp {
    pub identity: Identity,
    pub length: u64,
    pub modified: Timestamp,
    pub changed: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewBody {
    Unchanged,
    File {
        /// How many bytes of the base's contents still show through.
        base_limit: u64,
        /// The pages that the staged file holds, as half-open ranges; `None`: as before.
        pages: Option<Vec<(u64, u64)>>,
    },
    Directory {
        is_touched: bool,
        is_removed: bool,
    },
    Symlink(Vec<u8>),
    Special,
}

/// Where a node's object is in the staging directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewStaged {
    /// The node in whose staged directory it is; `None`: in the staging directory itself.
    pub parent: Option<u64>,
    pub name: Name,
    pub identity: Option<Identity>,
}

/// How an entry differs from the snapshot's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryDifference {
    /// The object that it named.
    pub before: Option<u64>,
    /// The node that it names.
    pub now: Option<u64>,
}
