//! Transactions that stay open when the program ends, for a store with a service.

use super::error::{BeginError, StoreError};
use super::shared::SharedTransaction;
use super::store::Store;
use super::transaction::Transaction;
use crate::connection::Connection;
use atomdir_protocol::{Survival, TransactionStatus};
use atomdir_types::TransactionId;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::SystemTime;

/// An open transaction of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenTransaction {
    /// Its id, by which [`Store::attach`] finds it.
    pub id: TransactionId,
    /// The numeric id of the user whose transaction it is.
    pub user: u32,
    /// The name in the log.
    pub label: OsString,
    /// When it began.
    pub began: SystemTime,
    /// Whether it survives the death of the service and of the machine.
    pub survives: bool,
    /// How many commits the history keeps for it, whatever its limits are.
    pub kept_commits: u64,
    /// How many bytes of the disk those of them take that are beyond the history's limits, as of
    /// the last checkpoint. They stay taken until no open transaction needs these commits.
    pub kept_bytes: u64,
}

impl From<TransactionStatus> for OpenTransaction {
    fn from(status: TransactionStatus) -> OpenTransaction {
        OpenTransaction {
            id: status.transaction,
            user: status.owner,
            label: OsString::from_vec(status.label),
            began: status.began.into(),
            survives: matches!(status.survival, Survival::Survives),
            kept_commits: status.kept_commits,
            kept_bytes: status.kept_bytes,
        }
    }
}

impl Store {
    /// The open transactions of this user, for root those of all users; oldest first. A store that
    /// is open in this process has none that it could attach to, and fails.
    pub fn transactions(&self) -> Result<Vec<OpenTransaction>, StoreError> {
        let open = self.served()?.ask(Connection::transactions)?;
        Ok(open.into_iter().map(OpenTransaction::from).collect())
    }

    /// Goes on with an open transaction of this user, which `atomdir begin`, `atomdir run` or
    /// [`Transaction::keep`] has left open. Dropping it leaves it open. It has an exact view: others
    /// can work in it at the same time.
    pub fn attach(&self, id: TransactionId) -> Result<Transaction, BeginError> {
        let (session, durability) = self.served()?.attach(id)?;
        Ok(Transaction::attached(session, durability.into()))
    }
}

impl Transaction {
    /// Leaves the transaction open, for [`Store::attach`] or the command, and makes what was written
    /// in it durable: it survives the end of this program, of the service and of the machine. If this
    /// fails, `Store::transactions` says whether the transaction is open.
    pub fn keep(self) -> Result<TransactionId, StoreError> {
        self.keep_shared()
    }

    /// Makes what was written so far durable, in a transaction that survives its service: one to
    /// which this program has [attached](Store::attach). Another one ends with this program, so it
    /// has nothing to make durable, and this fails. Data that is still in the buffers of open
    /// files is not included.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.sync_shared()
    }
}

impl SharedTransaction {
    /// Like [`Transaction::keep`], for all its owners.
    pub fn keep(&self) -> Result<TransactionId, StoreError> {
        self.keep_shared()
    }

    /// Like [`Transaction::sync`].
    pub fn sync(&self) -> Result<(), StoreError> {
        self.sync_shared()
    }
}
