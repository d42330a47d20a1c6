//! Commits that take themselves back unless they are confirmed in time; pins, which keep commits from
//! being forgotten; and other labels for commits.

use super::error::{BeginError, CommitError};
use super::history::{UndoError, cut_label};
use super::holding::Opened;
use super::store::Store;
use super::transaction::Transaction;
use atomdir_types::{Sequence, Terms};
use std::time::Duration;

impl Transaction {
    /// Has the commit take itself back after this time, unless [`Store::confirm`] or
    /// `atomdir confirm` comes first; `None`: it stays, as by default. This is `atomdir commit
    /// --confirm`. It holds for each commit of the transaction until something else is said, also if
    /// a commit fails. The time begins at the commit. Only the store's owner and root can do this.
    ///
    /// What takes the commit back is a commit of its own, made by whoever has the store open when the
    /// time has come: a service, or a program that opens the store by itself. If nobody has it open
    /// then, because the program has ended or the machine went down, the next to open it takes the commit
    /// back first. So a program that may die with its change has to see to it that somebody opens the
    /// store, for example by a [service](crate::StartService), which does not end while a commit waits.
    /// If what the commit changed was changed since, nothing is taken back.
    ///
    /// Fails with [`CommitError::Refused`] if the time is zero, if the transaction is nested, or if
    /// the store keeps no history.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// # let can_still_log_in = || true;
    /// use std::time::Duration;
    ///
    /// let tx = store.begin()?;
    /// tx.write("sshd_config", b"PasswordAuthentication no\n")?;
    /// tx.confirm_within(Some(Duration::from_secs(300)))?;
    /// let commit = tx.commit()?.sequence().expect("something has changed");
    /// if can_still_log_in() {
    ///     store.confirm(commit)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn confirm_within(&self, wait: Option<Duration>) -> Result<(), CommitError> {
        if wait == Some(Duration::ZERO) {
            let message = "the time to confirm a commit must be longer than 0";
            return Err(CommitError::Refused(message.to_owned()));
        }
        self.session.set_terms(Terms {
            confirm_ms: Some(wait.map_or(0, Terms::wait_ms)),
            ..Terms::default()
        })
    }
}

impl Store {
    /// Confirms a commit that would take itself back: see
    /// [`confirm_within`](Transaction::confirm_within). Fails with [`UndoError::NotKept`] if there is
    /// no such commit or it does not wait to be confirmed, and with [`UndoError::Refused`] if it has
    /// been taken back. Only the store's owner and root can do this.
    pub fn confirm(&self, commit: Sequence) -> Result<(), UndoError> {
        match self.current().map_err(BeginError::from)? {
            Opened::Embedded(store) => store.confirm(commit),
            Opened::Served(store) => store.ask_of_commit(|it| it.confirm(commit)),
        }
    }

    /// Keeps a commit from being forgotten: the history keeps what it replaced, however old it gets
    /// and however little space there is, so that it can be undone until it is
    /// [unpinned](Store::unpin). Later commits are forgotten as ever: an undo of the pinned one is
    /// refused where they have changed the same. Fails with [`UndoError::NotKept`] if the commit is
    /// forgotten already. Only the store's owner and root can do this.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// use std::time::Duration;
    ///
    /// let tx = store.begin()?;
    /// tx.write("a", b"1")?;
    /// let release = tx.commit()?.sequence().expect("something has changed");
    /// store.pin(release)?;
    /// store.relabel(release, "release 2.1")?;
    /// store.prune(Some(Duration::ZERO))?;
    /// store.undo(&[release], &[])?.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pin(&self, commit: Sequence) -> Result<(), UndoError> {
        self.set_pinned(commit, true)
    }

    /// Unpins a commit: it is forgotten like others. Does nothing if it is not pinned.
    pub fn unpin(&self, commit: Sequence) -> Result<(), UndoError> {
        self.set_pinned(commit, false)
    }

    fn set_pinned(&self, commit: Sequence, pinned: bool) -> Result<(), UndoError> {
        match self.current().map_err(BeginError::from)? {
            Opened::Embedded(store) => store.pin(commit, pinned),
            Opened::Served(store) => store.ask_of_commit(|it| it.pin(commit, pinned)),
        }
    }

    /// Changes what the log says of a commit. The label is cut to
    /// [`LABEL_LENGTH_MAX`](atomdir_protocol::LABEL_LENGTH_MAX) bytes. Of the user's own commits; the
    /// store's owner and root can change any.
    pub fn relabel(&self, commit: Sequence, label: impl AsRef<[u8]>) -> Result<(), UndoError> {
        let label = cut_label(label.as_ref());
        match self.current().map_err(BeginError::from)? {
            Opened::Embedded(store) => store.relabel(commit, label),
            Opened::Served(store) => store.ask_of_commit(|it| it.relabel(commit, label)),
        }
    }
}
