//! Converts the library's errors into exceptions.
//!
//! The classes are written in Python (`_errors.py`), since a class can there also be one of Python's
//! own subclasses of `OSError`. This file chooses the class and its arguments.

use crate::convert;
use atomdir::client::{io_reason, reason};
use atomdir::{
    BeginError, ChangedBy, CommitError, Conflict, FileError, LockError, OpenError, SavepointError,
    SettingsError, StoreError, UndoError,
};
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The result of code that runs without the interpreter's lock.
pub(crate) type Outcome<T> = Result<T, Raised>;

/// An error that becomes an exception when the interpreter's lock is held again.
pub(crate) enum Raised {
    Open(OpenError),
    Init(atomdir::InitError),
    Find(atomdir::FindError),
    Begin(BeginError),
    File(FileError),
    OpenFile(std::io::Error, PathBuf),
    Commit(CommitError),
    Savepoint(SavepointError),
    Lock(LockError),
    Store(StoreError),
    Undo(UndoError),
    Settings(SettingsError),
    /// The transaction has ended.
    Ended,
    /// The store was closed.
    Closed,
}

macro_rules! from {
    ($($error:ty => $variant:ident),* $(,)?) => {
        $(impl From<$error> for Raised {
            fn from(error: $error) -> Raised {
                Raised::$variant(error)
            }
        })*
    };
}
from!(
    OpenError => Open,
    atomdir::InitError => Init,
    atomdir::FindError => Find,
    BeginError => Begin,
    FileError => File,
    CommitError => Commit,
    SavepointError => Savepoint,
    LockError => Lock,
    StoreError => Store,
    UndoError => Undo,
    SettingsError => Settings,
);

impl From<atomdir::Error> for Raised {
    fn from(error: atomdir::Error) -> Raised {
        match error {
            atomdir::Error::Open(error) => error.into(),
            atomdir::Error::Begin(error) => error.into(),
            atomdir::Error::File(error) => error.into(),
            atomdir::Error::Commit(error) => error.into(),
            atomdir::Error::Savepoint(error) => error.into(),
            atomdir::Error::Lock(error) => error.into(),
            atomdir::Error::Undo(error) => error.into(),
            atomdir::Error::Settings(error) => error.into(),
            atomdir::Error::Store(error) => error.into(),
            error => Raised::Store(StoreError::Other(error.to_string())),
        }
    }
}

impl Raised {
    pub(crate) fn into_exception(self, python: Python<'_>) -> PyErr {
        let py = python;
        match self {
            Raised::Open(OpenError::Find(error)) | Raised::Find(error) => find(py, &error),
            Raised::Open(error) => open(py, &error),
            Raised::Init(error) => simple(py, "InitError", &error),
            Raised::Begin(error) | Raised::Undo(UndoError::Begin(error)) => begin(py, &error),
            Raised::Undo(error) => undo(py, &error),
            Raised::File(error) => file(py, &error),
            Raised::OpenFile(error, path) => match error.downcast::<FileError>() {
                Ok(error) => file(py, &error),
                Err(error) => system(py, "FileError", &error, &path),
            },
            Raised::Commit(error) => commit(py, &error),
            Raised::Savepoint(SavepointError::Store(error)) => store(py, &error),
            Raised::Savepoint(error) => simple(py, "SavepointError", &error),
            Raised::Lock(error) => lock(py, &error),
            Raised::Settings(error) => settings(py, &error),
            Raised::Store(error) => store(py, &error),
            Raised::Ended => simple(py, "TransactionEnded", &"the transaction has ended"),
            Raised::Closed => simple(py, "StoreError", &"the store was closed"),
        }
    }
}

/// Calls a function of `_errors.py` that makes an exception.
fn make<'py>(python: Python<'py>, function: &str, arguments: impl PyCallArgs<'py>) -> PyErr {
    let module = python.import("atomdir._errors");
    let made = module.and_then(|module| module.getattr(function)?.call1(arguments));
    made.map_or_else(|error| error, PyErr::from_value)
}

fn simple(python: Python<'_>, class: &str, message: &dyn std::fmt::Display) -> PyErr {
    make(python, "make_error", (class, message.to_string()))
}

fn os_error(
    python: Python<'_>,
    class: &str,
    errno: Option<i32>,
    message: &dyn std::fmt::Display,
    path: &Path,
) -> PyErr {
    let arguments = (class, errno, message.to_string(), path.as_os_str());
    make(python, "make_os_error", arguments)
}

/// Python adds the error's number itself.
fn system(python: Python<'_>, class: &str, error: &std::io::Error, path: &Path) -> PyErr {
    os_error(python, class, error.raw_os_error(), &io_reason(error), path)
}

fn conflict(python: Python<'_>, class: &str, message: String, found: &[Conflict]) -> PyErr {
    let described: Vec<_> = found.iter().map(describe).collect();
    make(python, "make_conflict", (class, message, described))
}

/// The fields of the class `ConflictingChange`.
pub(crate) type Described = (
    OsString,
    String,
    &'static str,
    Option<u64>,
    Option<u64>,
    String,
    Option<f64>,
);

pub(crate) fn describe(conflict: &Conflict) -> Described {
    let mut time = None;
    let (by, commit, transaction) = match &conflict.by {
        ChangedBy::Commit { sequence, author } => {
            let author = author.as_ref();
            time = author.map(|author| convert::seconds(author.time));
            (
                "commit",
                Some(sequence.0),
                author.map(|author| author.transaction.0),
            )
        }
        ChangedBy::Open { transaction, .. } => ("open", None, Some(transaction.0)),
        ChangedBy::Outside => ("outside", None, None),
        ChangedBy::Outer { transaction } => ("outer", None, Some(transaction.0)),
    };
    let text = conflict.to_string();
    (
        conflict.path.clone().into_os_string(),
        conflict.what.to_string(),
        by,
        commit,
        transaction,
        text,
        time,
    )
}

fn find(python: Python<'_>, error: &atomdir::FindError) -> PyErr {
    match error {
        atomdir::FindError::NoStore { start } => {
            let message = format!("{error}; `atomdir.init` makes a directory a store");
            os_error(python, "NoStore", Some(NO_ENTRY), &message, start)
        }
        atomdir::FindError::Io { path, errno } => {
            let number = Some(errno.raw_os_error());
            os_error(python, "OpenError", number, &reason(errno), path)
        }
        error => simple(python, "OpenError", error),
    }
}

fn open(python: Python<'_>, error: &OpenError) -> PyErr {
    match error {
        OpenError::Held { holder, .. } => {
            let process = holder.as_ref().map(|holder| holder.process);
            make(python, "make_held", (error.to_string(), process))
        }
        error => simple(python, "OpenError", error),
    }
}

fn begin(python: Python<'_>, error: &BeginError) -> PyErr {
    match error {
        BeginError::Store(error) => store(python, error),
        error => simple(python, "BeginError", error),
    }
}

fn undo(python: Python<'_>, error: &UndoError) -> PyErr {
    match error {
        UndoError::Conflict { conflicts } => {
            conflict(python, "UndoConflict", error.to_string(), conflicts)
        }
        UndoError::NotKept(_) => simple(python, "NotKept", error),
        error => simple(python, "UndoError", error),
    }
}

fn file(python: Python<'_>, error: &FileError) -> PyErr {
    match error {
        FileError::Conflict { conflicts, .. } => {
            conflict(python, "FileConflict", error.to_string(), conflicts)
        }
        FileError::Io { path, cause, .. } => system(python, "FileError", cause, path),
        FileError::Outside { path, .. } => {
            let reason = "the path leaves the store";
            os_error(python, "OutsideStore", error.raw_os_error(), &reason, path)
        }
        error => simple(python, "Error", error),
    }
}

fn commit(python: Python<'_>, error: &CommitError) -> PyErr {
    let os = |errno| os_error(python, "CommitError", Some(errno), error, Path::new(""));
    match error {
        CommitError::Conflict { conflicts } => {
            conflict(python, "CommitConflict", error.to_string(), conflicts)
        }
        CommitError::NotMerged { not_merged } => {
            let described = not_merged.iter().map(|one| {
                let mut found = describe(&one.conflict);
                // This description also has the reason why the text was not merged.
                found.5 = one.to_string();
                found
            });
            let described: Vec<_> = described.collect();
            let arguments = ("CommitConflict", error.to_string(), described);
            make(python, "make_conflict", arguments)
        }
        CommitError::NoSpace(_) => os(NO_SPACE),
        CommitError::Leased(_) => os(WOULD_BLOCK),
        CommitError::Io(_) => os(INPUT_OUTPUT),
        CommitError::Ended => simple(python, "TransactionEnded", error),
        CommitError::Store(error) => store(python, error),
        error => simple(python, "CommitError", error),
    }
}

/// ENOENT, ENOSPC, EAGAIN and EIO, which have these numbers on every architecture of Linux.
const NO_ENTRY: i32 = 2;
const NO_SPACE: i32 = 28;
const WOULD_BLOCK: i32 = 11;
const INPUT_OUTPUT: i32 = 5;

fn lock(python: Python<'_>, error: &LockError) -> PyErr {
    match error {
        LockError::Conflict { conflicts, .. } => {
            conflict(python, "LockConflict", error.to_string(), conflicts)
        }
        LockError::Path { path, cause } => system(python, "LockError", cause, path),
        LockError::Ended => simple(python, "TransactionEnded", error),
        LockError::Store(error) => store(python, error),
        error => simple(python, "LockError", error),
    }
}

fn settings(python: Python<'_>, error: &SettingsError) -> PyErr {
    match error {
        SettingsError::Store(error) => store(python, error),
        SettingsError::Io { store, errno, .. } => {
            let errno = Some(errno.raw_os_error());
            os_error(python, "SettingsError", errno, error, store)
        }
        error => simple(python, "SettingsError", error),
    }
}

fn store(python: Python<'_>, error: &StoreError) -> PyErr {
    simple(python, "StoreError", error)
}
