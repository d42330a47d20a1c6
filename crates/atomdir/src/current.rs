//! The transaction that a process runs in, as whoever began it says in the
//! environment.

use crate::{Transaction, TransactionId};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const TRANSACTION: &str = "ATOMDIR_TX";
const STORE: &str = "ATOMDIR_STORE";
const SOCKET: &str = "ATOMDIR_SOCKET";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Current {
    pub transaction: TransactionId,
    /// The store's root, where the view stands in its place.
    pub store: PathBuf,
    pub(crate) socket: PathBuf,
}

impl Current {
    /// `None`: in no transaction, or in one whose service does not listen to
    /// those within.
    pub fn from_environment() -> Option<Current> {
        let text = std::env::var_os(TRANSACTION)?;
        let socket = std::env::var_os(SOCKET).filter(|path| !path.is_empty())?;
        Some(Current {
            transaction: TransactionId(text.to_str()?.parse().ok()?),
            store: std::env::var_os(STORE)?.into(),
            socket: socket.into(),
        })
    }

    /// For those who shall run in the transaction. `store`: its root.
    pub fn environment(transaction: &Transaction, store: &Path) -> Vec<(&'static str, OsString)> {
        // That of another service around this one must not be taken for its.
        let socket = transaction.inner_socket.clone().unwrap_or_default();
        vec![
            (TRANSACTION, transaction.id.to_string().into()),
            (STORE, store.into()),
            (SOCKET, socket.into()),
        ]
    }
}
