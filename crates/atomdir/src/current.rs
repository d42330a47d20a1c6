//! The transaction that a process runs in, according to environment variables that the
//! program which began it has set.

use crate::TransactionId;
use crate::environment::variable;
use crate::transaction::Transaction;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

const TRANSACTION: &str = "ATOMDIR_TX";
const STORE: &str = "ATOMDIR_STORE";
const SOCKET: &str = "ATOMDIR_SOCKET";
/// The secret, in hexadecimal digits, proves that a program is in the transaction.
const SECRET: &str = "ATOMDIR_SECRET";

/// The transaction in which this process runs.
#[derive(Clone, PartialEq, Eq)]
pub struct Current {
    /// Its id.
    pub transaction: TransactionId,
    /// The store's root. The view replaces it there.
    pub store: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) secret: Vec<u8>,
}

impl Current {
    /// Returns `None` if the process is in no transaction, or in one whose service does
    /// not listen to programs in views.
    pub fn from_environment() -> Option<Current> {
        let text = variable(TRANSACTION)?;
        let socket = variable(SOCKET).filter(|path| !path.is_empty())?;
        Some(Current {
            transaction: TransactionId(text.to_str()?.parse().ok()?),
            store: variable(STORE)?.into(),
            socket: socket.into(),
            secret: parse_hexadecimal(variable(SECRET)?.to_str()?)?,
        })
    }

    /// The variables for programs that shall run in the transaction. `store` is its root.
    pub fn environment(transaction: &Transaction, store: &Path) -> Vec<(&'static str, OsString)> {
        // Without a socket of our own, hide that of an enclosing transaction's service.
        let (socket, secret) = match &transaction.within {
            Some(within) => (within.socket.clone(), hexadecimal(&within.secret)),
            None => Default::default(),
        };
        vec![
            (TRANSACTION, transaction.id.to_string().into()),
            (STORE, store.into()),
            (SOCKET, socket.into()),
            (SECRET, secret.into()),
        ]
    }
}

impl fmt::Debug for Current {
    /// Leaves out the secret, which must not get into a log.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Current")
            .field("transaction", &self.transaction)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let pairs = digits?;
    let bytes = pairs.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(high << 4 | low).ok(),
        _ => None,
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_survives_the_environment() {
        let secret = [0, 1, 0x7f, 0x80, 0xff];
        assert_eq!(
            parse_hexadecimal(&hexadecimal(&secret)).as_deref(),
            Some(&secret[..])
        );
        assert_eq!(parse_hexadecimal("abc"), None);
        assert_eq!(parse_hexadecimal("zz"), None);
    }
}
