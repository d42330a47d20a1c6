//! One open transaction, and who holds it.

use crate::clients::connections::ConnectionId;
use crate::transactions::secret::Secret;
use atomdir_disk::{Errno, LinuxDisk};
use atomdir_protocol::TransactionId;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) type Transaction = atomdir_engine::Transaction<LinuxDisk>;

#[derive(Clone)]
pub(crate) struct OpenTransaction {
    pub(crate) transaction: Arc<Transaction>,
    /// If false, the transaction ends with its last holder.
    pub(crate) detached: bool,
    /// Parts of its changes can be committed although others hold it.
    pub(crate) commits_while_held: bool,
    /// The connections that hold it, each with the id of its process.
    pub(crate) holders: BTreeMap<ConnectionId, u32>,
    /// For a sealed transaction, the connection that began it.
    pub(crate) controller: Option<ConnectionId>,
    /// When this connection closes, the transaction is kept open.
    pub(crate) kept_after: Option<ConnectionId>,
    /// If a program in another transaction's view began this one: that
    /// transaction.
    pub(crate) begun_within: Option<TransactionId>,
    /// For one with a native view, the connection of the process that mounted it.
    pub(crate) mounter: Option<ConnectionId>,
    /// Nobody else may enter its native view any more.
    pub(crate) is_closed: bool,
    /// Programs in the view present this at the inner socket.
    pub(crate) secret: Secret,
}

impl OpenTransaction {
    /// One that no connection holds.
    pub(crate) fn detached(transaction: &Arc<Transaction>) -> Result<OpenTransaction, Errno> {
        Ok(OpenTransaction {
            transaction: transaction.clone(),
            detached: true,
            commits_while_held: false,
            holders: BTreeMap::new(),
            controller: None,
            kept_after: None,
            begun_within: None,
            mounter: None,
            is_closed: false,
            secret: Secret::new()?,
        })
    }

    pub(crate) fn id(&self) -> TransactionId {
        self.transaction.id()
    }

    pub(crate) fn outer(&self) -> Option<TransactionId> {
        let outer = self.transaction.outer()?;
        Some(outer.id())
    }
}
