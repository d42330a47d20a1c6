//! The rules by which commits are validated, merged with what others have
//! committed, and grouped: each by a name.
//!
//! The names exist for one test. `rules::tests` switches one rule off at a time and
//! shows that some scenario then comes out differently, so that no rule can be
//! lost, and none is there for nothing. Only the engine's own unit tests can
//! switch a rule off, for their own thread; in every other build [`Rule::holds`]
//! is the constant `true`, and nothing remains of it.

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
    // What the transaction wrote. "Since" means: since its snapshot.
    /// A commit has changed an entry since that the transaction changes.
    EntryChanged,
    /// An outside writer has changed an entry that the transaction changes.
    EntryChangedOutside,
    /// A commit has removed the directory of a changed entry since.
    DirectoryRemoved,
    /// An outside writer has moved or removed the directory of a changed entry,
    /// or one above it.
    DirectoryMovedOutside,
    /// The mode or owner by which the kernel let the owner write was taken back.
    RightsTakenBack,
    /// A commit has changed an entry of a directory since that the transaction
    /// removes.
    RemovedDirectoryChanged,
    /// An outside writer has created, replaced or removed something in a directory
    /// that the transaction removes.
    RemovedDirectoryChangedOutside,
    /// A commit has removed a file since to which the transaction adds a name.
    LinkedFileRemoved,
    /// A file to which the transaction adds a name has lost the name by which the
    /// transaction knew it, or an outside writer has removed it.
    LinkedFileGone,
    /// A commit has removed an object since that the transaction writes.
    ObjectRemoved,
    /// An object that the transaction writes has lost the name by which the
    /// transaction knew it.
    ObjectUnnamed,
    /// An object that the transaction writes loses its last name by this very
    /// commit, since others have removed the rest.
    ObjectLosesLastName,
    /// An outside writer has removed an object that the transaction writes.
    ObjectGone,
    /// A commit has changed the attributes since that the transaction changes.
    AttributesChanged,
    /// A commit has written pages since that the transaction writes or cuts off, or
    /// has changed the length that it changes.
    PagesChanged,
    /// An outside writer has changed a file that the transaction writes.
    FileChangedOutside,
    /// An outside writer has changed mode or owner of a directory whose attributes
    /// the transaction changes.
    DirectoryChangedOutside,
    /// A commit has changed the attributes of a directory since that the
    /// transaction removes.
    DyingDirectoryChanged,
    /// A commit has changed a file since that loses its last name.
    DyingFileChanged,
    /// An outside writer has changed a file that loses its last name.
    DyingFileChangedOutside,
    /// Two transactions have each moved a directory below the other's.
    Loop,
    /// A file whose last name in the snapshot goes has got another name since: it
    /// lives on.
    LinkedFileLives,
    /// A file whose other names have gone since loses its last one.
    UnlinkedFileDies,

    // Outside writers.
    /// What the store's own last commit left behind is no outside writer's.
    OwnStamp,
    /// What an outside writer changed before a later commit is remembered for
    /// transactions that are older than it.
    OutsideRemembered,
    /// The same, where that commit only renames or links the file.
    OutsideRememberedByEntry,
    /// A file that looks other than when the transaction first looked was changed
    /// since it began, whatever the clock says.
    ChangedSinceFirstLook,
    /// A change after a commit that the snapshot lacks came after the begin,
    /// whatever the clock says.
    ChangedAfterNewerCommit,
    /// A change time before the begin is no conflict.
    ChangedBeforeBegin,

    // What a serializable transaction read.
    /// One that only reads does not conflict with commits.
    OnlyReads,
    /// A commit has removed an object since that was read.
    ReadRemoved,
    /// A commit has changed the attributes or names since of a file whose
    /// attributes were read.
    ReadAttributesChanged,
    /// A commit has changed the contents since of a file whose attributes were read.
    ReadAttributesOfWritten,
    /// A commit has written pages since that were read.
    ReadPagesChanged,
    /// A commit has changed the length since of a file whose end was seen.
    ReadLengthChanged,
    /// An outside writer has changed a file that was read.
    ReadFileChangedOutside,
    /// An outside writer has removed a file that was read.
    ReadFileGone,
    /// A commit has changed the attributes since of a directory.
    ReadDirectoryChanged,
    /// An outside writer has changed mode or owner of a directory.
    ReadDirectoryChangedOutside,
    /// An outside writer has removed a directory whose attributes were read.
    ReadDirectoryGone,
    /// A commit has changed a name since that was looked up.
    ReadNameChanged,
    /// An outside writer has changed a name that was looked up.
    ReadNameChangedOutside,
    /// An outside writer has removed a directory in which names were looked up.
    ReadNamesGone,
    /// A commit has changed names since in a directory that was listed.
    ReadListingChanged,
    /// An outside writer has changed names in a directory that was listed.
    ReadListingChangedOutside,
    /// An outside writer has removed a directory that was listed.
    ReadListingGone,
    /// Two reads of one directory differed.
    ReadTorn,

    // What others have committed to other parts of the same objects.
    /// A file is looked for by the name by which the transaction knows it.
    CorrectPlaces,
    /// The same for a file that gets another name.
    CorrectPlacesOfLinked,
    /// A file prepared as a whole takes in what others have committed to it.
    RefreshReplacements,
    /// A file that has got another name since is changed in place.
    ChangeLinkedInPlace,

    // Commits that wait at the same time.
    /// Nothing waits beside a commit that moves or removes a directory.
    GroupMovedDirectory,
    /// A commit does not touch what one that waits changes.
    GroupTouchesWhatWaits,
    /// Two that wait do not change the same entry.
    GroupEntries,
    /// A name that one that waits changes was not looked up.
    GroupReadNames,
    /// A directory in which one that waits changes entries was not listed.
    GroupReadListing,
    /// An object that one that waits changes was not read.
    GroupReadChanged,
    /// A file that gets another inode keeps its directory's time: the one that it
    /// will have when those that wait are in the base.
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
