//! Past commits, undoing them, and commits of a part.

use super::error::{BeginError, CommitError, Conflict, StoreError};
use super::store::Store;
use super::transaction::Transaction;
use atomdir_protocol::{ChangeLine, CommitSummary, Sequence};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Paths as requests have them.
pub(crate) fn bytes_of(paths: &[&Path]) -> Vec<Vec<u8>> {
    let paths = paths.iter().map(|path| path.as_os_str().as_bytes());
    paths.map(<[u8]>::to_vec).collect()
}

/// Why commits could not be undone. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UndoError {
    /// What the commits changed was changed again since, and that would be lost.
    #[error("{}", super::error::conflicts_message(conflicts))]
    Conflict {
        /// Each part that was changed since.
        conflicts: Vec<Conflict>,
    },
    /// There is no such commit, or what it replaced is no longer kept.
    #[error("{0}")]
    NotKept(String),
    /// No transaction could begin.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// The store refused it, for a reason that it gives in words.
    #[error("{0}")]
    Refused(String),
}

/// The result of committing a part of a transaction: see [`Transaction::commit_part`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PartReceipt {
    /// The commit's place in the commit order.
    pub sequence: Option<Sequence>,
    /// The changes that are committed, sorted by path.
    pub landed: Vec<ChangeLine>,
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
        self.past_commits(limit)
    }

    /// Begins a transaction that takes back what these commits changed, and nothing else. Its
    /// commit makes that so, and can be undone as well. With `paths`, it takes back only what was
    /// changed at and below them. Only the store's owner and root can undo commits.
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
        let session = self.undo_session(commits, paths)?;
        // Undoing is durable, as every transaction that does not ask for less.
        Ok(Transaction::new(session, true))
    }
}

impl Transaction {
    /// Commits the changes at and below these paths, and what they need. The transaction stays
    /// open with the rest. Fails if nothing has changed at one of the paths.
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
        self.session.commit_part(paths)
    }

    /// Lists the conflicts that keep the transaction from being committed now. Drops all
    /// savepoints.
    pub fn conflicts(&self) -> Result<Vec<Conflict>, CommitError> {
        self.session.conflicts()
    }
}
