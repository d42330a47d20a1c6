//! Errors of making a directory a store.

use super::FindError;
use crate::trust::Distrust;
use atomdir_disk::reason;
use rustix::io::Errno;
use std::path::PathBuf;

/// Why a directory was not made a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The path is in the view of a transaction.
    #[error("'{path}' is in the view of a transaction; stores cannot be nested")]
    InView {
        /// The path.
        path: PathBuf,
    },
    /// Somebody else could decide what the store contains.
    #[error("'{path}' would not be a store to trust: {reason}")]
    Untrusted {
        /// The path.
        path: PathBuf,
        /// The reason.
        reason: Distrust,
    },
    /// It is already a store.
    #[error(transparent)]
    Existing(#[from] FindError),
    /// It is not a directory.
    #[error("'{path}' is not a directory")]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// It does not exist.
    #[error("'{path}' does not exist")]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// It is in a store.
    #[error("'{path}' lies inside the store '{store}'; stores cannot be nested")]
    InsideStore {
        /// The path.
        path: PathBuf,
        /// The store's root.
        store: PathBuf,
    },
    /// A store is in it.
    #[error("'{path}' holds the store '{store}'; stores cannot be nested")]
    HoldsStore {
        /// The path.
        path: PathBuf,
        /// The store's root.
        store: PathBuf,
    },
    /// It is a store with another control directory.
    #[error("'{path}' is already a store, whose control directory is '{control}'")]
    OtherControl {
        /// The path.
        path: PathBuf,
        /// The control directory.
        control: PathBuf,
    },
    /// The control directory would be on another file system.
    #[error(
        "'{control}' is on another file system than '{path}', so files could not be renamed from one to the other"
    )]
    ControlElsewhere {
        /// The path.
        path: PathBuf,
        /// The control directory.
        control: PathBuf,
    },
    /// The control directory would be in the store.
    #[error(
        "the control directory '{control}' lies inside '{path}', where transactions would change it"
    )]
    ControlInside {
        /// The path.
        path: PathBuf,
        /// The control directory.
        control: PathBuf,
    },
    /// The directory cannot become a control directory.
    #[error("'{control}' cannot become a control directory: {reason}")]
    ControlUnfit {
        /// The control directory.
        control: PathBuf,
        /// The reason.
        reason: String,
    },
    /// No log can be at that path.
    #[error("the log cannot be at '{log}': {reason}")]
    LogUnfit {
        /// The path that was asked for.
        log: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The store exists, with its log elsewhere.
    #[error(
        "'{path}' is already a store, whose log is not there: `atomdir config log` shows and moves it"
    )]
    OtherLog {
        /// The store's root.
        path: PathBuf,
    },
    /// It is another user's store.
    #[error("'{path}' is a store of {owner}, who alone can make it an ordinary directory again")]
    OthersStore {
        /// The path.
        path: PathBuf,
        /// The owner, in words.
        owner: String,
    },
    /// More than its history would be lost.
    #[error("the store '{path}' holds more than its files and its history: {what}")]
    HasMore {
        /// The path.
        path: PathBuf,
        /// A list, in words, of the other things in it.
        what: String,
    },
    /// The file system is mounted read-only.
    #[error("'{path}' is on a file system that is mounted read-only")]
    ReadOnly {
        /// The path.
        path: PathBuf,
    },
    /// The file system lacks what a store needs.
    #[error("'{path}' is on a file system that cannot hold a store: {reason}")]
    Unsuitable {
        /// The path.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// It is on an overlay, and was not copied to the upper layer.
    #[error("'{path}' was not made a store of copies: {reason}")]
    NotCopied {
        /// The path.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The user may not do it.
    #[error("no permission to make '{path}' a store")]
    NotPermitted {
        /// The path.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("cannot make '{path}' a store: {operation}: {errno}", errno = reason(errno))]
    Io {
        /// The path.
        path: PathBuf,
        /// The operation that failed.
        operation: &'static str,
        /// The error of the system.
        errno: Errno,
    },
    /// The control directory could not be written.
    #[error("cannot make '{path}' a store: {message}")]
    Format {
        /// The path.
        path: PathBuf,
        /// The reason, in words.
        message: String,
    },
}
