//! The transaction that a process runs in, as whoever began it says in the
//! environment.

use crate::{Transaction, TransactionId};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

const TRANSACTION: &str = "ATOMDIR_TX";
const STORE: &str = "ATOMDIR_STORE";
const SOCKET: &str = "ATOMDIR_SOCKET";
/// In hexadecimal digits: what proves to the service that a program is in the transaction.
const SECRET: &str = "ATOMDIR_SECRET";

#[derive(Clone, PartialEq, Eq)]
pub struct Current {
    pub transaction: TransactionId,
    /// The store's root, where the view stands in its place.
    pub store: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) secret: Vec<u8>,
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
            secret: parse_hexadecimal(std::env::var_os(SECRET)?.to_str()?)?,
        })
    }

    /// For those who shall run in the transaction. `store`: its root.
    pub fn environment(transaction: &Transaction, store: &Path) -> Vec<(&'static str, OsString)> {
        // That of another service around this one must not be taken for its.
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
    /// Without the secret, which must not get into a log.
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
