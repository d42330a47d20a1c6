//! Past commits, undoing them, looking at the past; commits of a part, and sides in conflicts.

use super::error::{BeginError, CommitError, Conflict, StoreError};
use super::receipt::{Receipt, WhenDurable};
use super::store::Store;
use super::transaction::{Transaction, Uncommitted};
use atomdir_protocol::{
    Change, ChangeLine, CommitSummary, LABEL_LENGTH_MAX, Numbers, Past, PastView, Restore,
    Sequence, SidePaths, Sides, Undo,
};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Paths as requests have them.
pub(crate) fn bytes_of(paths: &[&Path]) -> Vec<Vec<u8>> {
    let paths = paths.iter().map(|path| path.as_os_str().as_bytes());
    paths.map(<[u8]>::to_vec).collect()
}

/// The name that such a transaction gets in the log.
pub(crate) fn label_of(past: &Past) -> &'static [u8] {
    match past {
        Past::Undo(_) => b"undo",
        Past::Restore(_) => b"restore",
        Past::View(_) => b"at",
    }
}

/// A label as requests may have it.
pub(super) fn cut_label(label: &[u8]) -> Vec<u8> {
    label[..label.len().min(LABEL_LENGTH_MAX)].to_vec()
}

/// How much of the commits an undo takes back, and whose side it takes where something was changed again
/// later.
#[derive(Debug, Clone, Copy, Default)]
pub struct UndoChoice<'a> {
    /// Only what was changed at or below these paths; if there are none: everything.
    pub paths: &'a [&'a Path],
    /// Nothing of what was changed at or below these paths.
    pub skip: &'a [&'a Path],
    /// Where a later change is overwritten: what was there before the commits comes back.
    pub mine: Where<'a>,
    /// Where a later change stays, and the rest is taken back.
    pub theirs: Where<'a>,
}

/// The later changes in which one side is taken.
#[derive(Debug, Clone, Copy, Default)]
pub enum Where<'a> {
    /// In none.
    #[default]
    Nowhere,
    /// In those at or below these paths. If the other side has some as well, the nearest one counts.
    At(&'a [&'a Path]),
    /// In all for which no path says otherwise.
    Everywhere,
}

impl Where<'_> {
    fn paths(self) -> SidePaths {
        match self {
            Where::Nowhere => SidePaths::default(),
            Where::At(paths) => SidePaths::These(bytes_of(paths)),
            Where::Everywhere => SidePaths::Others,
        }
    }
}

/// Why commits could not be undone, files not restored or the past not be shown, or why a commit
/// could not be confirmed, pinned or relabelled. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UndoError {
    /// Something that the commits changed was changed again since, and that change would be lost. For the past:
    /// programs in no transaction have changed it since, so that its old state is gone.
    #[error("{}", atomdir_types::conflicts_message(conflicts))]
    Conflict {
        /// Each part that was changed since.
        conflicts: Vec<Conflict>,
    },
    /// There is no such commit, what it replaced is no longer kept, or there was nothing at one of
    /// the paths.
    #[error("{0}")]
    NotKept(String),
    /// No transaction could begin.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// The store refused it, for a reason that it gives in words.
    #[error("{0}")]
    Refused(String),
}

/// The side that a commit takes in a conflict: see [`Transaction::commit_with_sides`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// The transaction's changes replace what others have changed.
    Mine,
    /// The transaction's changes there are not committed.
    Theirs,
    /// The changes of both are kept: the text is merged line by line. Where both have changed the
    /// same lines, or it is no text, the commit is refused with
    /// [`CommitError::NotMerged`], and nothing has changed. A serializable transaction cannot merge.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// # let tx = store.begin()?;
    /// # tx.write("hosts", "a\nb\nc\n")?;
    /// # tx.commit()?;
    /// use atomdir::Take;
    ///
    /// let mine = store.begin()?;
    /// mine.write("hosts", "first\na\nb\nc\n")?;
    /// let theirs = store.begin()?;
    /// theirs.write("hosts", "a\nb\nc\nlast\n")?;
    /// theirs.commit()?;
    /// let conflicts = mine.conflicts()?;
    /// mine.commit_with_sides(&vec![Take::Merge; conflicts.len()])?;
    /// assert_eq!(store.begin()?.read("hosts")?, b"first\na\nb\nc\nlast\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Merge,
}

impl Take {
    /// The numbers, from 1, of the conflicts in which `sides` takes this side.
    pub(crate) fn numbers(self, sides: &[Take]) -> Vec<u64> {
        let taken = (1..).zip(sides).filter(|(_, side)| **side == self);
        taken.map(|(number, _)| number).collect()
    }
}

/// As requests have them.
/// For the conflicts that were listed last, in this order.
pub(crate) fn sides_of(sides: &[Take]) -> Sides {
    Sides {
        mine: Numbers::These(Take::Mine.numbers(sides)),
        theirs: Numbers::These(Take::Theirs.numbers(sides)),
    }
}

/// A path that a transaction has changed: see [`Transaction::changes`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedPath {
    /// What has happened there.
    pub change: Change,
    /// The path, relative to the store's root.
    pub path: PathBuf,
    /// The old path of something that was renamed.
    pub from: Option<PathBuf>,
}

impl From<ChangeLine> for ChangedPath {
    fn from(line: ChangeLine) -> ChangedPath {
        let path = |bytes| PathBuf::from(OsString::from_vec(bytes));
        ChangedPath {
            change: line.change,
            path: path(line.path),
            from: line.from.map(path),
        }
    }
}

/// The result of committing a part of a transaction: see [`Transaction::commit_part`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PartReceipt {
    /// The commit.
    pub receipt: Receipt,
    /// The changes that are committed, sorted by path.
    pub landed: Vec<ChangedPath>,
}

/// The result of a refresh: see [`Transaction::refresh`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refreshed {
    /// The newest commit in the snapshot before; 0: none.
    pub from: Sequence,
    /// The newest commit in the snapshot now.
    pub to: Sequence,
}

impl Store {
    /// The last commits, newest first, at most `limit` of them. The history is limited in
    /// length, so old ones may be missing.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// let tx = store.transaction().label("first").begin()?;
    /// tx.write("a", b"1")?;
    /// tx.commit()?;
    /// let last = &store.log(1)?[0];
    /// assert_eq!((&last.label[..], last.changes), (&b"first"[..], 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn log(&self, limit: usize) -> Result<Vec<CommitSummary>, StoreError> {
        self.log_of(&[], None, limit)
    }

    /// Begins a transaction that takes back what these commits changed, and nothing else. Its
    /// commit makes that so, and can be undone as well. With `paths`, it takes back only what was
    /// changed at and below them. The store's owner and root can undo all commits, others their own.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// # let tx = store.begin()?;
    /// # tx.write("a", b"1")?;
    /// # tx.commit()?;
    /// let tx = store.begin()?;
    /// tx.remove_file("a")?;
    /// let removed = tx.commit()?.sequence().expect("something has changed");
    /// store.undo(&[removed], &[])?.commit()?;
    /// assert_eq!(store.begin()?.read("a")?, b"1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn undo(&self, commits: &[Sequence], paths: &[&Path]) -> Result<Transaction, UndoError> {
        let choice = UndoChoice {
            paths,
            ..UndoChoice::default()
        };
        Ok(self.undo_choosing(commits, choice)?.0)
    }

    /// Like [`undo`](Store::undo), and takes a side where something was changed again later. Also
    /// returns these later changes. What no side can be taken in fails with
    /// [`UndoError::Refused`].
    ///
    /// ```
    /// use atomdir::{UndoChoice, Where};
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// # for text in [b"1", b"2"] {
    /// # let tx = store.begin()?;
    /// # tx.write("a", text)?;
    /// # tx.commit()?;
    /// # }
    /// let first = store.log(2)?[1].sequence;
    /// let choice = UndoChoice {
    ///     mine: Where::Everywhere,
    ///     ..UndoChoice::default()
    /// };
    /// let (tx, overwritten) = store.undo_choosing(&[first], choice)?;
    /// assert_eq!(overwritten[0].path.to_str(), Some("a"));
    /// tx.commit()?;
    /// assert!(!store.begin()?.exists("a")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn undo_choosing(
        &self,
        commits: &[Sequence],
        choice: UndoChoice<'_>,
    ) -> Result<(Transaction, Vec<Conflict>), UndoError> {
        self.begin_from(Past::Undo(Undo {
            commits: commits.to_vec(),
            paths: bytes_of(choice.paths),
            equal: Vec::new(),
            skip: bytes_of(choice.skip),
            mine: choice.mine.paths(),
            theirs: choice.theirs.paths(),
        }))
    }

    /// Begins a transaction in which everything at and below these paths is as it was just after a
    /// commit; after commit 0, as it was before the first one. Only the store's owner and root can
    /// do this.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// let tx = store.begin()?;
    /// tx.write("a", b"1")?;
    /// let first = tx.commit()?.sequence().expect("something has changed");
    /// # let tx = store.begin()?;
    /// # tx.write("a", b"2")?;
    /// # tx.commit()?;
    /// store.restore(first, &["a".as_ref()])?.commit()?;
    /// assert_eq!(store.begin()?.read("a")?, b"1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restore(&self, commit: Sequence, paths: &[&Path]) -> Result<Transaction, UndoError> {
        let paths = bytes_of(paths);
        Ok(self.begin_from(Past::Restore(Restore { commit, paths }))?.0)
    }

    /// Begins a transaction that shows the store as it was just after a commit; after commit 0, as
    /// it was before the first one. Nothing can be changed in it, and it can only be aborted.
    /// Fails with a conflict if programs in no transaction have changed what commits changed. Only
    /// the store's owner and root can look at the past.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// # let tx = store.begin()?;
    /// # tx.write("a", b"1")?;
    /// # let first = tx.commit()?.sequence().expect("something has changed");
    /// let tx = store.begin()?;
    /// tx.write("a", b"2")?;
    /// tx.commit()?;
    /// assert_eq!(store.at(first)?.read("a")?, b"1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn at(&self, commit: Sequence) -> Result<Transaction, UndoError> {
        Ok(self.look(commit, false)?.0)
    }

    /// Like [`at`](Store::at). If programs in no transaction have changed something as well, it
    /// appears as it is now, and is listed.
    pub fn at_outside_as_now(
        &self,
        commit: Sequence,
    ) -> Result<(Transaction, Vec<Conflict>), UndoError> {
        self.look(commit, true)
    }

    fn look(
        &self,
        commit: Sequence,
        outside_as_now: bool,
    ) -> Result<(Transaction, Vec<Conflict>), UndoError> {
        self.begin_from(Past::View(PastView {
            commit,
            outside_as_now,
            outside_since: outside_as_now.then_some(Sequence(0)),
            beside: None,
        }))
    }

    fn begin_from(&self, past: Past) -> Result<(Transaction, Vec<Conflict>), UndoError> {
        let (session, not_as_then) = self.session_from(past)?;
        // Undoing is durable, as every transaction that does not ask for less.
        Ok((Transaction::new(session, WhenDurable::AtOnce), not_as_then))
    }
}

impl Transaction {
    /// Commits the changes at and below these paths, and the changes that these need. The
    /// transaction stays open with the rest. Fails if nothing has changed at one of the paths.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// let tx = store.begin()?;
    /// tx.write("done", b"1")?;
    /// tx.write("not yet", b"2")?;
    /// tx.commit_part(&["done".as_ref()])?;
    /// assert!(store.begin()?.exists("done")? && !store.begin()?.exists("not yet")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn commit_part(&self, paths: &[&Path]) -> Result<PartReceipt, CommitError> {
        let (done, landed) = self.session.commit_part(paths)?;
        Ok(PartReceipt {
            receipt: self.receipt(done),
            landed: landed.into_iter().map(ChangedPath::from).collect(),
        })
    }

    /// Drops the changes at and below these paths, and the changes that need them. The transaction
    /// stays open with the rest. Returns the dropped changes, sorted by path. Fails if nothing has
    /// changed at one of the paths.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// let mut tx = store.begin()?;
    /// tx.write("good", b"1")?;
    /// tx.write("wrong", b"2")?;
    /// tx.abort_part(&["wrong".as_ref()])?;
    /// assert!(tx.exists("good")? && !tx.exists("wrong")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn abort_part(&mut self, paths: &[&Path]) -> Result<Vec<ChangedPath>, CommitError> {
        let dropped = self.session.abort_part(paths)?;
        Ok(dropped.into_iter().map(ChangedPath::from).collect())
    }

    /// Lists the conflicts that keep the transaction from being committed now, for
    /// [`commit_with_sides`](Transaction::commit_with_sides). Drops all savepoints.
    pub fn conflicts(&self) -> Result<Vec<Conflict>, CommitError> {
        self.session.conflicts()
    }

    /// Brings the snapshot up to date: from now on the transaction sees what others have committed
    /// meanwhile, under its own changes, and its commit conflicts only with what is changed
    /// later. If others have changed the same as the transaction, this fails with
    /// [`CommitError::Conflict`], and nothing has changed. Drops all savepoints.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// let mut tx = store.begin()?;
    /// tx.write("mine", b"1")?;
    /// let other = store.begin()?;
    /// other.write("theirs", b"2")?;
    /// other.commit()?;
    /// assert!(!tx.exists("theirs")?);
    /// tx.refresh()?;
    /// assert!(tx.exists("theirs")? && tx.exists("mine")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refresh(&mut self) -> Result<Refreshed, CommitError> {
        self.session.refresh()
    }

    /// Commits, and takes a side in each conflict of the list that
    /// [`conflicts`](Transaction::conflicts) returned last, in its order. A conflict for which no
    /// side is given refuses the commit, and so does one in which others have changed something
    /// since: list the conflicts again then. If the commit is refused after texts were merged, they
    /// are merged in the transaction. No file may be open.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// use atomdir::Take;
    ///
    /// let mine = store.begin()?;
    /// mine.write("a", b"mine")?;
    /// let theirs = store.begin()?;
    /// theirs.write("a", b"theirs")?;
    /// theirs.commit()?;
    /// let conflicts = mine.conflicts()?;
    /// mine.commit_with_sides(&vec![Take::Mine; conflicts.len()])?;
    /// assert_eq!(store.begin()?.read("a")?, b"mine");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn commit_with_sides(self, sides: &[Take]) -> Result<Receipt, Box<Uncommitted>> {
        self.commit_shared_with_sides(sides).map_err(|error| {
            Box::new(Uncommitted {
                transaction: self,
                error,
            })
        })
    }
}
