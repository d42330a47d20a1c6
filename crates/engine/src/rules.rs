//! Names for the rules by which commits are validated, merged with what others have
//! committed, and grouped.
//!
//! The names exist for one test. `rules::tests` switches one rule off at a time and
//! shows that some scenario then comes out differently, so each rule is needed, and
//! none can be lost unnoticed. Only the engine's own unit tests can switch a rule
//! off, for their own thread. In every other build [`Rule::holds`] is the constant
//! `true`, and costs nothing.

#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod tests;

macro_rules! rules {
    ($($(#[$about:meta])* $rule:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Rule {
            $($(#[$about])* $rule,)*
        }

        #[cfg(test)]
        impl Rule {
            pub const ALL: &[Rule] = &[$(Rule::$rule,)*];
        }
    };
}

rules! {
    // What the transaction wrote. All changes by commits are since its snapshot.
    /// A commit has changed an entry that the transaction changes.
    EntryChanged,
    /// An outside writer has changed an entry that the transaction changes.
    EntryChangedOutside,
    /// A commit has removed the directory of an entry that the transaction changes.
    DirectoryRemoved,
    /// An outside writer has moved or removed the directory of a changed entry or object,
    /// or one above it.
    DirectoryMovedOutside,
    /// A mode or owner has changed, and the kernel had let the user write because of it.
    RightsTakenBack,
    /// A commit has changed an entry of a directory that the transaction removes.
    RemovedDirectoryChanged,
    /// An outside writer has created, replaced or removed something in a directory
    /// that the transaction removes.
    RemovedDirectoryChangedOutside,
    /// A commit has removed a file to which the transaction adds a name.
    LinkedFileRemoved,
    /// A file to which the transaction adds a name has lost the name by which the
    /// transaction knew it, or an outside writer has removed it.
    LinkedFileGone,
    /// A commit has removed an object that the transaction writes.
    ObjectRemoved,
    /// An object that the transaction writes has lost the name by which the
    /// transaction knew it.
    ObjectUnnamed,
    /// This very commit removes the last name of an object that the transaction
    /// writes, since others have removed its other names.
    ObjectLosesLastName,
    /// An outside writer has removed an object that the transaction writes.
    ObjectGone,
    /// A commit has changed attributes that the transaction changes.
    AttributesChanged,
    /// A commit has written pages that the transaction writes or cuts off, or has
    /// changed a length that the transaction changes.
    PagesChanged,
    /// An outside writer has changed a file that the transaction writes.
    FileChangedOutside,
    /// An outside writer has changed mode or owner of a directory whose attributes
    /// the transaction changes, or which it removes.
    DirectoryChangedOutside,
    /// A commit has changed the attributes of a directory that the transaction
    /// removes.
    DyingDirectoryChanged,
    /// A commit has changed a file whose last name the transaction removes.
    DyingFileChanged,
    /// An outside writer has changed a file whose last name the transaction removes.
    DyingFileChangedOutside,
    /// Two transactions have each moved a directory below the other's.
    Loop,
    /// A transaction that stays open lands an object of which a commit has changed another
    /// part.
    LandedWhole,
    /// The transaction removes a file's last name of the snapshot, but the file has
    /// got another name since: the file stays. If an undo gives the file an older inode back, that
    /// is a conflict.
    LinkedFileLives,
    /// The transaction removes a name of a file whose other names have been removed
    /// since: the file goes.
    UnlinkedFileDies,

    // Outside writers.
    /// What the store's own last commit changed was not changed by an outside
    /// writer.
    OwnStamp,
    /// Changes of outside writers before a later commit are remembered for
    /// transactions older than that commit.
    OutsideRemembered,
    /// The same, where that commit only renames or links the file.
    OutsideRememberedByEntry,
    /// A file that looks different from the transaction's first look was changed
    /// after it began, whatever the clock says.
    ChangedSinceFirstLook,
    /// A change that follows a commit that the snapshot lacks came after the begin,
    /// whatever the clock says.
    ChangedAfterNewerCommit,
    /// A change whose time is before the begin is no conflict.
    ChangedBeforeBegin,

    // What others have made equal.
    /// An object that others have created is equal to the one that the transaction creates at the
    /// name: the commit takes it for its own.
    EqualCreations,
    /// An outside writer has left a file with the contents and attributes that the transaction has
    /// found.
    TimesAlone,

    // What a serializable transaction read. All changes by commits are since its
    // snapshot.
    /// A transaction that only reads does not conflict with commits.
    OnlyReads,
    /// A commit has removed an object that was read.
    ReadRemoved,
    /// A commit has changed the attributes or names of a file whose attributes were
    /// read.
    ReadAttributesChanged,
    /// A commit has changed the contents of a file whose attributes were read.
    ReadAttributesOfWritten,
    /// A commit has written pages that were read.
    ReadPagesChanged,
    /// A commit has changed the length of a file whose end was seen.
    ReadLengthChanged,
    /// An outside writer has changed a file that was read.
    ReadFileChangedOutside,
    /// An outside writer has removed a file that was read.
    ReadFileGone,
    /// A commit has changed the attributes of a directory whose attributes were
    /// read.
    ReadDirectoryChanged,
    /// An outside writer has changed mode or owner of such a directory.
    ReadDirectoryChangedOutside,
    /// An outside writer has removed a directory whose attributes were read.
    ReadDirectoryGone,
    /// A commit has changed a name that was looked up.
    ReadNameChanged,
    /// An outside writer has changed a name that was looked up.
    ReadNameChangedOutside,
    /// An outside writer has removed a directory in which names were looked up.
    ReadNamesGone,
    /// A commit has changed names in a directory that was listed.
    ReadListingChanged,
    /// An outside writer has changed names in a directory that was listed.
    ReadListingChangedOutside,
    /// An outside writer has removed a directory that was listed.
    ReadListingGone,
    /// Two reads of one directory differed.
    ReadTorn,

    // What others have committed to other parts of the same objects.
    /// A file is found by the name by which the transaction knows it.
    CorrectPlaces,
    /// The same for a file that gets another name.
    CorrectPlacesOfLinked,
    /// A file that was prepared as a whole includes what others have committed to
    /// it.
    RefreshReplacements,
    /// A file that has got another name since the snapshot is changed in place.
    ChangeLinkedInPlace,

    // Commits that wait at the same time. "Waiting": logged and not yet in the base.
    /// No commit waits beside one that moves or removes a directory.
    GroupMovedDirectory,
    /// A commit does not touch what a waiting commit changes.
    GroupTouchesWhatWaits,
    /// Two waiting commits do not change the same entry.
    GroupEntries,
    /// The transaction has not looked up a name that a waiting commit changes.
    GroupReadNames,
    /// The transaction has not listed a directory in which a waiting commit changes
    /// entries.
    GroupReadListing,
    /// The transaction has not read an object that a waiting commit changes.
    GroupReadChanged,
    /// If a file gets a new inode, its directory keeps its time: the one that it
    /// will have when the waiting commits are in the base.
    GroupDirectoryTimes,
}

impl Rule {
    #[cfg(not(test))]
    #[inline(always)]
    pub const fn holds(self) -> bool {
        true
    }

    #[cfg(test)]
    pub fn holds(self) -> bool {
        tests::OFF.get() != Some(self)
    }
}
