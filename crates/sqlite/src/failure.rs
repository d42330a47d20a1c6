//! Errors, as SQLite's result codes with a message for its error log.

use crate::abi;
use atomdir::client::io_reason;
use atomdir::{BeginError, CommitError, FileError, StoreError};
use std::ffi::{CString, c_int};
use std::fmt::Display;
use std::io;

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: c_int,
    pub(crate) message: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: c_int, message: impl Display) -> Failure {
        Failure {
            code,
            message: format!("atomdir: {message}"),
        }
    }

    pub(crate) fn cannot_open(message: impl Display) -> Failure {
        Failure::new(abi::CANTOPEN, message)
    }

    /// An error of a file. `code` is for errors that have no result code of their own.
    pub(crate) fn of_file(code: c_int, error: &FileError) -> Failure {
        Failure::new(code_of(error.kind(), code), error)
    }

    pub(crate) fn of_io(code: c_int, error: &io::Error) -> Failure {
        Failure::new(code_of(error.kind(), code), io_reason(error))
    }

    pub(crate) fn of_begin(error: &BeginError) -> Failure {
        let code = match error {
            BeginError::Store(StoreError::Stalled(_)) => abi::BUSY,
            _ => abi::IOERR_LOCK,
        };
        Failure::new(code, error)
    }

    pub(crate) fn of_commit(error: &CommitError) -> Failure {
        let code = match error {
            CommitError::Conflict { .. } => abi::BUSY_SNAPSHOT,
            CommitError::Leased(_) | CommitError::Store(StoreError::Stalled(_)) => {
                abi::BUSY_SNAPSHOT
            }
            CommitError::NoSpace(_) => abi::FULL,
            _ => abi::IOERR_FSYNC,
        };
        Failure::new(code, error)
    }

    /// Writes the message to SQLite's error log, and returns the code.
    pub(crate) fn report(&self) -> c_int {
        let text = CString::new(self.message.replace('\0', " "));
        if let (Some(api), Ok(text)) = (abi::api(), text) {
            api.log(self.code, &text);
        }
        self.code
    }
}

fn code_of(kind: io::ErrorKind, otherwise: c_int) -> c_int {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => abi::FULL,
        io::ErrorKind::PermissionDenied => abi::PERM,
        io::ErrorKind::ReadOnlyFilesystem => abi::READONLY,
        io::ErrorKind::OutOfMemory => abi::NOMEM,
        _ => otherwise,
    }
}
