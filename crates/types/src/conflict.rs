//! Conflicts that keep a transaction from being committed, and their causes.

use crate::{Sequence, Timestamp, TransactionId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something that the transaction has written or, if it is serializable, read, and that somebody
/// else has changed since it began; or something that another transaction has locked. The words
/// of its parts make a sentence: `{path}: {what} {by}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// Relative to the store's root, without a leading slash.
    pub path: Vec<u8>,
    /// What has happened there.
    pub what: ConflictKind,
    /// Who has done it.
    pub by: ChangedBy,
}

/// What has happened at the path of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ConflictKind {
    /// The contents of the file were changed.
    Contents,
    /// The file was changed. Its service died then, so nobody knows whether outside writers have
    /// changed other parts of it as well.
    UnknownParts,
    /// The attributes were changed.
    Attributes,
    /// The name was created, replaced or removed.
    Entry,
    /// The object was removed.
    Removed,
    /// The name leads to another object now: another file was renamed over it, or it was removed and
    /// made anew.
    Replaced,
    /// A directory above was removed or moved away.
    DirectoryRemoved,
    /// The file to which the transaction gives another name was removed.
    LinkedRemoved,
    /// The object was brought back from the history, or moved, and has a name already.
    Returned,
    /// Something was created in a directory that the transaction has removed.
    EntryInRemovedDirectory,
    /// A directory above was moved below this one.
    DirectoryLoop,
    /// The outer transaction changed contents or attributes after the nested one began.
    Outer,
    /// Another transaction has locked it.
    Locked,
    /// Another transaction has locked it, and a third one waits for that lock: a part of a
    /// deadlock.
    LockedInDeadlock {
        /// The transaction that waits.
        waiting: TransactionId,
    },
    /// An open transaction has written it, and is older or already committing.
    Written,
    /// The requested lock would not protect what the snapshot shows: it has changed since.
    ChangedBeforeLock,
    /// The transaction would land one part of it, and others have committed another part.
    OtherPart,
    /// Both have changed it, in different parts. A commit merges these, a refresh does not.
    Unmerged,
    /// What a commit replaced is not kept, so nobody knows what it changed.
    Forgotten,
    /// The serializable transaction has read the contents of the file, which were then changed.
    ReadContents,
    /// It has read the attributes, which were then changed.
    ReadAttributes,
    /// It has read the object, which was then removed.
    ReadRemoved,
    /// It has looked up the name, which was then replaced or removed.
    ReadName,
    /// It has looked up the name and found none, and then the name was created.
    ReadMissingName,
    /// It has listed the directory, whose entries were then changed.
    ReadListing,
    /// Somebody has opened the file for writing during the commit, or has locked it, so it cannot be
    /// replaced by a new inode any more. The next try changes it in place.
    UsedSince,
    /// An undo would bring an older inode of the file back, but somebody has the present one open for
    /// writing, or has locked it.
    PresentInUse,
    /// Somebody has locked a part of the file, as databases do while they use it. It is changed although
    /// the lock is exclusive, or it is removed or replaced.
    PartLocked,
    /// The file runs as a program, so it cannot be changed in place, and somebody has locked it, so
    /// it cannot be replaced by a new inode.
    LockedAndRunning,
}

impl ConflictKind {
    /// Whether a commit may take the transaction's side in it: it concerns contents, attributes or a
    /// single name. What others have put into a place, or have removed with a directory, stays.
    pub fn has_side_of_transaction(self) -> bool {
        matches!(
            self,
            ConflictKind::Contents
                | ConflictKind::UnknownParts
                | ConflictKind::Attributes
                | ConflictKind::Entry
                | ConflictKind::Replaced
                | ConflictKind::Removed
        )
    }

    /// Whether both sides may have a text at the path, which can be merged.
    pub fn may_have_texts(self) -> bool {
        matches!(
            self,
            ConflictKind::Contents
                | ConflictKind::UnknownParts
                | ConflictKind::Entry
                | ConflictKind::Replaced
        )
    }

    /// Whether it concerns a read of a serializable transaction.
    pub fn is_read(self) -> bool {
        matches!(
            self,
            ConflictKind::ReadContents
                | ConflictKind::ReadAttributes
                | ConflictKind::ReadRemoved
                | ConflictKind::ReadName
                | ConflictKind::ReadMissingName
                | ConflictKind::ReadListing
        )
    }
}

/// The author of a change that is in conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangedBy {
    /// A commit.
    Commit {
        /// Its place in the commit order.
        sequence: Sequence,
        /// `None` if the store's history no longer has the commit.
        author: Option<CommitAuthor>,
    },
    /// A transaction that is still open.
    Open {
        /// Its id.
        transaction: TransactionId,
        /// Empty if it is another user's and the reader may not see it.
        label: Vec<u8>,
    },
    /// A program in no transaction.
    Outside,
    /// The outer transaction of the one that has the conflict.
    Outer {
        /// Its id.
        transaction: TransactionId,
    },
}

/// The transaction that made a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitAuthor {
    /// Its id.
    pub transaction: TransactionId,
    /// Empty if it is another user's and the reader may not see it.
    pub label: Vec<u8>,
    /// When the commit was made.
    pub time: Timestamp,
}

impl ChangedBy {
    /// A commit whose author is not known, or not known yet.
    pub fn commit(sequence: Sequence) -> ChangedBy {
        ChangedBy::Commit {
            sequence,
            author: None,
        }
    }

    /// The label of the transaction that has made the change; empty if there is none.
    pub fn label(&self) -> &[u8] {
        match self {
            ChangedBy::Commit { author, .. } => author.as_ref().map_or(&[], |author| &author.label),
            ChangedBy::Open { label, .. } => label,
            ChangedBy::Outside | ChangedBy::Outer { .. } => &[],
        }
    }

    /// Removes the label, for a reader who may not see it.
    pub fn hide_label(&mut self) {
        match self {
            ChangedBy::Commit { author, .. } => {
                if let Some(author) = author {
                    author.label = Vec::new();
                }
            }
            ChangedBy::Open { label, .. } => *label = Vec::new(),
            ChangedBy::Outside | ChangedBy::Outer { .. } => {}
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conflict { path, what, by } = self;
        let path = String::from_utf8_lossy(path);
        write!(formatter, "'{path}': {what} {by}")
    }
}

impl fmt::Display for ConflictKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            ConflictKind::Contents => "its contents were changed",
            ConflictKind::UnknownParts => {
                "it was changed, in parts that nobody knows since the service died"
            }
            ConflictKind::Attributes => "its attributes were changed",
            ConflictKind::Forgotten => "what was changed here or below is not kept: it was changed",
            ConflictKind::Entry => "the name was created, replaced or removed",
            ConflictKind::Removed => "it was removed",
            ConflictKind::Replaced => "it was replaced",
            ConflictKind::DirectoryRemoved => "a directory above it was removed or moved",
            ConflictKind::LinkedRemoved => "the file that it links to was removed",
            ConflictKind::Returned => "it was brought back or moved",
            ConflictKind::EntryInRemovedDirectory => {
                "something was created in the removed directory"
            }
            ConflictKind::DirectoryLoop => "a directory above was moved below it",
            ConflictKind::Outer => "it was changed since the nested transaction began",
            ConflictKind::Locked => "it is locked",
            ConflictKind::LockedInDeadlock { waiting } => {
                return write!(formatter, "transaction {waiting} waits for it; locked");
            }
            ConflictKind::Written => "it was written",
            ConflictKind::ChangedBeforeLock => "it was changed since the transaction began",
            ConflictKind::Unmerged => "another part of it was changed, which only a commit merges",
            ConflictKind::OtherPart => {
                "another part of it was changed, so it can only be committed with all the rest"
            }
            ConflictKind::ReadContents => "it was read, and its contents were changed",
            ConflictKind::ReadAttributes => "its attributes were read, and were changed",
            ConflictKind::ReadRemoved => "it was read, and was removed",
            ConflictKind::ReadName => "the name was looked up, and was replaced or removed",
            ConflictKind::ReadMissingName => {
                "the name was looked up while there was none, and was created"
            }
            ConflictKind::ReadListing => "the directory was listed, and its entries were changed",
            ConflictKind::UsedSince => "it was opened for writing or locked during the commit",
            ConflictKind::PresentInUse => {
                "the file that it was cannot come back, since it is open for writing or locked"
            }
            ConflictKind::PartLocked => {
                "another program has locked a part of it, as databases do while they use it"
            }
            ConflictKind::LockedAndRunning => {
                "a program runs from it, so it cannot be changed, and it cannot be replaced either, \
                 since it is locked"
            }
        })
    }
}

impl fmt::Display for ChangedBy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangedBy::Commit { sequence, author } => {
                write!(formatter, "by commit {sequence}")?;
                let Some(CommitAuthor {
                    transaction, label, ..
                }) = author
                else {
                    return Ok(());
                };
                write!(formatter, " (transaction {transaction}")?;
                if !label.is_empty() {
                    write!(formatter, ": {}", String::from_utf8_lossy(label))?;
                }
                formatter.write_str(")")
            }
            ChangedBy::Open { transaction, label } => {
                write!(formatter, "by transaction {transaction}")?;
                if !label.is_empty() {
                    write!(formatter, " ({})", String::from_utf8_lossy(label))?;
                }
                Ok(())
            }
            ChangedBy::Outside => {
                formatter.write_str("from outside, by a program in no transaction")
            }
            ChangedBy::Outer { transaction } => {
                write!(formatter, "in the outer transaction {transaction}")
            }
        }
    }
}

/// One line about all of these: the first of them, and how many more there are.
pub fn conflicts_message(conflicts: &[impl fmt::Display]) -> String {
    let first = conflicts.first();
    let first = first.map_or_else(String::new, |first| format!(": {first}"));
    match conflicts.len().saturating_sub(1) {
        0 => format!("conflict{first}"),
        more => format!("conflict{first} (and {more} more)"),
    }
}
