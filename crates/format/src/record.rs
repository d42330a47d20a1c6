//! The records of the log. A commit is a state to reach, not steps to take.
//!
//! Objects are identified by [`Identity`]; names and slots only say where an
//! object may be found. So a record can be applied any number of times, and the
//! records of a log's tail can be composed into one.

use atomdir_disk::{Attributes, Extent, Identity, Kind, Name, NewNode, Owner, Timestamp};
use atomdir_types::{ChangeLine, TreePath};

#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly every record is a commit")]
pub enum LogRecord {
    Commit(CommitRecord),
    Cancellation(Cancellation),
}

/// Changes nothing, and says that a commit did not happen. Its own sequence belongs to no commit
/// either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancellation {
    pub sequence: u64,
    /// An earlier commit's sequence. If it is the record's own, the record takes the place of the
    /// commit, where commits are listed or kept.
    pub cancelled: u64,
    pub time: Timestamp,
}

impl LogRecord {
    pub fn sequence(&self) -> u64 {
        match self {
            LogRecord::Commit(commit) => commit.sequence,
            LogRecord::Cancellation(cancellation) => cancellation.sequence,
        }
    }

    pub fn time(&self) -> Timestamp {
        match self {
            LogRecord::Commit(commit) => commit.time,
            LogRecord::Cancellation(cancellation) => cancellation.time,
        }
    }

    pub fn commit(&self) -> Option<&CommitRecord> {
        match self {
            LogRecord::Commit(commit) => Some(commit),
            LogRecord::Cancellation(_) => None,
        }
    }

    /// Whether it takes the place of a commit.
    pub fn is_own_cancellation(&self) -> bool {
        matches!(self, LogRecord::Cancellation(one) if one.cancelled == one.sequence)
    }

    /// What takes the place of this record where commits are listed or kept, if the commit did
    /// not happen.
    pub fn cancelled(&self) -> LogRecord {
        LogRecord::Cancellation(Cancellation {
            sequence: self.sequence(),
            cancelled: self.sequence(),
            time: self.time(),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitRecord {
    /// Position in the commit order, from 1, without gaps.
    pub sequence: u64,
    pub transaction: u64,
    /// The staging directory of its new objects and contents: that of this transaction, or of an
    /// earlier one, which the transaction has taken over.
    pub stage: u64,
    pub time: Timestamp,
    /// The numeric user id of the transaction's owner.
    pub user: u32,
    /// The user's groups, the primary one last, if the commit is applied with no more rights than
    /// that user has. `None`: with the rights of the store's owner.
    pub groups: Option<Vec<u32>>,
    /// Programs outside transactions have made the changes, through a guard: they were in the base
    /// before the record was written, so it is never applied.
    pub is_outside: bool,
    /// The user's name for it: the command line of `run`, or a message.
    pub label: Vec<u8>,
    pub directories: Vec<DirectoryReference>,
    pub objects: Vec<ObjectReference>,
    pub entries: Vec<EntryChange>,
    pub updates: Vec<Update>,
    pub made: Vec<Made>,
    pub summary: Vec<ChangeLine<TreePath>>,
    /// What the commit replaces, if the store keeps that.
    pub before: Option<Before>,
}

/// A directory that the record's entries and locators mention. It comes after
/// those that lead to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryReference {
    pub identity: Identity,
    pub locator: Locator,
}

/// Where an object was when the record was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Locator {
    /// The store's root directory.
    Root,
    Entry {
        directory: u32,
        name: Name,
    },
    /// In the staging directory that the record names.
    Staged {
        slot: u64,
    },
    /// In limbo, under its identity, or under names that no record mentions.
    Limbo,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectReference {
    pub identity: Identity,
    pub kind: Kind,
    pub locator: Locator,
}

/// The entry `name` of `directory` must name `after`, or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryChange {
    pub directory: u32,
    pub name: Name,
    pub before: Option<Identity>,
    /// An index into the record's objects.
    pub after: Option<u32>,
    /// `before` loses its last name and is kept in limbo, under its identity.
    pub buries: bool,
}

/// Changes to an object that stays where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// An index into the record's objects.
    pub object: u32,
    pub attributes: AttributesChange,
    /// The owner that the object had when the record was written. Rights to the object are meant for
    /// this one, or for the one that the update sets.
    pub owner: Option<Owner>,
    /// Each is set to the value, or removed.
    pub xattrs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub content: Option<ContentChange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttributesChange {
    pub mode: Option<u32>,
    pub user: Option<u32>,
    pub group: Option<u32>,
    pub accessed: Option<Timestamp>,
    pub modified: Option<Timestamp>,
}

/// New contents of a file, written in place: first the file is cut to `keep` bytes, then its length
/// is set, then each extent is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentChange {
    /// `None`: nothing is cut. What lies behind `length` then stays, because an outside writer has
    /// appended it since the record was written.
    pub keep: Option<u64>,
    pub length: u64,
    pub extents: Vec<Extent>,
    /// The transaction has written all of the file. The extents are those that differ from what was
    /// there.
    pub is_whole: bool,
    /// The modification time that the file had; `None` for a new file.
    pub found_modified: Option<Timestamp>,
    pub source: Source,
}

/// Where the new contents are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// At the same offsets of the staged file in this slot.
    Staged { slot: u64 },
    /// In the record. Ranges that no run covers are holes.
    Carried { runs: Vec<Run> },
}

/// Bytes at an offset of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub offset: u64,
    pub bytes: Vec<u8>,
}

/// A new object that the record holds in full. It was not flushed; if a crash
/// has lost it, recovery makes it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Never a directory.
    pub node: NewNode,
    /// All of its attributes and contents.
    pub update: Update,
}

/// What the commit replaces, besides the objects that it moves to limbo.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Before {
    /// The space that everything takes that the commit keeps in limbo.
    pub limbo_bytes: u64,
    pub objects: Vec<Former>,
    pub successions: Vec<Succession>,
    /// The commits that this one takes back. Empty if it changes more than that, or may do so.
    pub takes_back: Vec<u64>,
    /// Some of what these commits changed stays as they left it, in objects that go to limbo, or a
    /// file gets a new inode.
    pub leaves_traces: bool,
}

/// A file that the commit has given another inode: a new one, because it was written whole, or
/// one from limbo, because that was undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Succession {
    pub before: Identity,
    /// An index into the record's objects.
    pub after: u32,
}

/// An object that goes on, as it was before the commit changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Former {
    /// An index into the record's objects.
    pub object: u32,
    pub attributes: Attributes,
    /// Its change time.
    pub changed: Timestamp,
    pub length: u64,
    /// The extended attributes that the commit changes; `None` if there was none.
    pub xattrs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// What the commit overwrites or cuts off.
    pub extents: Vec<Extent>,
    pub pages: FormerPages,
}

/// Where the bytes of [`Former::extents`] are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormerPages {
    /// At the same offsets of a file in limbo that is named for the object and the commit.
    Limbo,
    /// In the record. Ranges that no run covers are holes.
    Carried { runs: Vec<Run> },
}
