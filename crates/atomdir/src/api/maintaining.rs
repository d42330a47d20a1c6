//! Maintains a store: its settings, its history, and the notices of ended transactions.

use super::error::StoreError;
use super::store::Store;
use crate::connection::Connection;
use crate::settings::{KEYS, Settings, SettingsError};
use atomdir_types::{EndedHow, HistoryStatus, TransactionId};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, SystemTime};

/// A transaction that ended otherwise than its user wanted: see [`Store::ended`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedTransaction {
    /// Its id.
    pub id: TransactionId,
    /// The numeric id of the user whose transaction it was.
    pub user: u32,
    /// The name that it was given, perhaps cut.
    pub label: OsString,
    /// When it began.
    pub began: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// How it ended.
    pub how: EndedHow,
    /// About how many objects it had changed, if that is known.
    pub changes: Option<u64>,
}

impl From<atomdir_protocol::EndedTransaction> for EndedTransaction {
    fn from(ended: atomdir_protocol::EndedTransaction) -> EndedTransaction {
        EndedTransaction {
            id: ended.transaction,
            user: ended.owner,
            label: OsString::from_vec(ended.label),
            began: ended.began.into(),
            ended: ended.ended.into(),
            how: ended.how,
            changes: ended.changes,
        }
    }
}

impl Store {
    /// Forgets the history of commits older than this, or older than the store's settings say; with
    /// an age of zero, of all commits. Forgotten commits are still listed, and cannot be undone.
    /// Returns what is kept now; `None`: the settings say that nothing is. Only the store's owner
    /// and root can do this.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// use std::time::Duration;
    ///
    /// let tx = store.begin()?;
    /// tx.write("a", b"1")?;
    /// let commit = tx.commit()?.sequence().expect("something has changed");
    /// let a_day = Duration::from_secs(86_400);
    /// assert_eq!(store.prune(Some(a_day))?.expect("it is on").commits, 1);
    /// assert_eq!(store.prune(Some(Duration::ZERO))?.expect("it is on").commits, 0);
    /// assert!(store.undo(&[commit], &[]).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prune(&self, older_than: Option<Duration>) -> Result<Option<HistoryStatus>, StoreError> {
        self.forget(older_than)
    }

    /// The store's settings with their values, as `atomdir config` prints them. Only the store's
    /// owner and root can read them.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// store.set_setting("history-age", "30d")?;
    /// assert_eq!(store.settings()?["history-age"], "30d");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn settings(&self) -> Result<BTreeMap<&'static str, String>, SettingsError> {
        self.require_here()?;
        let settings = Settings::of(self.location())?;
        let shown = KEYS.map(|key| Ok((key, settings.show(key)?)));
        shown.into_iter().collect()
    }

    /// The value of one of them.
    pub fn setting(&self, key: &str) -> Result<String, SettingsError> {
        self.require_here()?;
        Settings::of(self.location())?.show(key)
    }

    /// Changes a setting: `allow`, `view`, `history-age` or `history-space`, with a value as for
    /// `atomdir config`; an empty one restores the default. Only the store's owner and root can do
    /// this.
    pub fn set_setting(&self, key: &str, value: &str) -> Result<(), SettingsError> {
        self.require_here()?;
        Settings::change(self.location(), key, value)?;
        // A service looks at them before each commit.
        Ok(self.heed_settings()?)
    }

    /// The transactions of this user that ended otherwise than their users wanted, for the store's
    /// owner and root those of all users, oldest first: others aborted them, they reached their
    /// maximum age, or their service was stopped or killed. Fails if the store is open in this
    /// process: only a service keeps this list.
    pub fn ended(&self) -> Result<Vec<EndedTransaction>, StoreError> {
        let ended = self.served()?.ask(Connection::ended)?;
        Ok(ended.into_iter().map(EndedTransaction::from).collect())
    }
}
