//! The operations of a transaction, as a trait that each way to a store implements.
//!
//! Paths are relative to the store's root and stay beneath it: a path that leaves the store,
//! by `..` or by a symbolic link, fails with `EXDEV`, as with openat2(2) and RESOLVE_BENEATH.

use super::error::{BeginError, CommitError, Conflict, LockError, SavepointError, StoreError};
use super::file::OpenOptions;
use super::history::{Refreshed, Take};
use super::metadata::{DirEntry, Metadata};
use crate::requests::SnapshotContents;
use crate::served::ServedTransaction;
use atomdir_disk::{Errno, RenameMode};
use atomdir_engine::SetTime;
use atomdir_protocol::Committed;
use atomdir_types::{ChangeLine, Isolation, LockMode, LockScope, Side, Terms, TransactionId};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// A change of attributes. A field that is `None` leaves its attribute as it is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AttributeChange {
    pub(crate) mode: Option<u32>,
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
    pub(crate) length: Option<u64>,
    pub(crate) accessed: Option<SetTime>,
    pub(crate) modified: Option<SetTime>,
}

/// Says what a call does if the path's last name is a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    Follow,
    Keep,
}

pub(crate) struct LockWanted<'a> {
    pub(crate) paths: &'a [&'a Path],
    pub(crate) mode: LockMode,
    pub(crate) scope: LockScope,
    pub(crate) wait: Option<Duration>,
}

/// Operations on files and directories.
pub(crate) trait Files: Send + Sync {
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<Box<dyn OpenFile + '_>>;
    fn metadata(&self, path: &Path, links: Links) -> Result<Metadata>;
    fn set_attributes(&self, path: &Path, links: Links, change: &AttributeChange) -> Result<()>;
    fn create_directory(&self, path: &Path, mode: u32) -> Result<()>;
    fn symlink(&self, target: &Path, path: &Path) -> Result<()>;
    fn read_link(&self, path: &Path) -> Result<PathBuf>;
    fn link(&self, from: &Path, to: &Path) -> Result<()>;
    fn rename(&self, from: &Path, to: &Path, mode: RenameMode) -> Result<()>;
    fn remove_file(&self, path: &Path) -> Result<()>;
    fn remove_directory(&self, path: &Path) -> Result<()>;
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>>;
    fn xattr(&self, path: &Path, links: Links, name: &[u8]) -> Result<Vec<u8>>;
    fn xattr_names(&self, path: &Path, links: Links) -> Result<Vec<Vec<u8>>>;
    fn set_xattr(&self, path: &Path, links: Links, name: &[u8], value: &[u8]) -> Result<()>;
    fn remove_xattr(&self, path: &Path, links: Links, name: &[u8]) -> Result<()>;
}

pub(crate) trait Session: Send + Sync {
    fn id(&self) -> TransactionId;
    /// Set if a service has it.
    fn as_served(&self) -> Option<&ServedTransaction> {
        None
    }
    /// Whether what was read is protected as well.
    fn isolation(&self) -> Isolation;
    fn files(&self) -> &dyn Files;
    /// Opens a file that keeps the session, for callers that cannot borrow it.
    fn open_shared(
        self: Arc<Self>,
        path: &Path,
        options: &OpenOptions,
    ) -> Result<Box<dyn OpenFile>>;
    /// Where the view is mounted, if it is.
    fn view(&self) -> Option<&Path>;
    /// The view's root, opened for reading, if the view is mounted.
    fn view_directory(&self) -> Result<Option<OwnedFd>>;
    fn changes(&self) -> Result<Vec<ChangeLine>>;
    /// What this side has at a path, with a file's contents if they have at most so many bytes.
    fn object_of(
        &self,
        side: Side,
        path: &[u8],
        contents_length_max: u64,
    ) -> Result<Option<SnapshotContents>>;
    /// The conflicts that writes have met. If there are any, the transaction can only be
    /// aborted.
    fn met(&self) -> Vec<Conflict>;
    fn set_savepoint(&self, name: &[u8]) -> std::result::Result<(), SavepointError>;
    fn roll_back(&self, name: &[u8]) -> std::result::Result<(), SavepointError>;
    /// Begins a transaction that is nested in this one.
    fn nest(&self) -> std::result::Result<Arc<dyn Session>, BeginError>;
    /// Begins a transaction with the state of this one, and independent of it.
    fn fork(&self) -> std::result::Result<Arc<dyn Session>, BeginError>;
    fn lock(&self, wanted: &LockWanted<'_>) -> std::result::Result<(), LockError>;
    fn commit(&self) -> std::result::Result<Committed, CommitError>;
    fn commit_part(
        &self,
        paths: &[&Path],
    ) -> std::result::Result<(Committed, Vec<ChangeLine>), CommitError>;
    /// Drops the changes at and below these paths, and returns the dropped changes. No file may be
    /// open.
    fn abort_part(&self, paths: &[&Path]) -> std::result::Result<Vec<ChangeLine>, CommitError>;
    /// Says on what terms it is to be committed.
    fn set_terms(&self, terms: Terms) -> std::result::Result<(), CommitError>;
    fn conflicts(&self) -> std::result::Result<Vec<Conflict>, CommitError>;
    /// The list that was made last.
    fn listed_conflicts(&self) -> std::result::Result<Vec<Conflict>, CommitError>;
    /// Commits, and takes a side in each of the conflicts that were listed last.
    fn commit_with_sides(&self, sides: &[Take]) -> std::result::Result<Committed, CommitError>;
    /// Gives the transaction a newer snapshot. No file may be open.
    fn refresh(&self) -> std::result::Result<Refreshed, CommitError>;
    fn abort(&self);
    /// Leaves the transaction open and makes its writes durable. This session then ends, even if
    /// only the second step fails.
    fn keep(&self) -> std::result::Result<(), StoreError>;
    /// Makes what was written so far durable, in a transaction that survives.
    fn sync(&self) -> std::result::Result<(), StoreError>;
    /// The store, to wait for lazy commits.
    fn store(&self) -> Arc<dyn Syncable>;
}

/// A store whose lazy commits can be made durable, also once it was closed.
pub(crate) trait Syncable: Send + Sync {
    fn sync(&self) -> std::result::Result<(), StoreError>;
}

pub(crate) trait OpenFile: Send + Sync {
    /// Reads less than the buffer holds only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// The whole contents, as one read of the length found first.
    fn read_whole(&self) -> Result<Vec<u8>> {
        let length = usize::try_from(self.length()?).map_err(|_| Errno::FBIG)?;
        let mut contents = Vec::new();
        // A file with a large hole may be longer than the memory.
        contents
            .try_reserve_exact(length)
            .map_err(|_| Errno::NOMEM)?;
        contents.resize(length, 0);
        let count = self.read_at(&mut contents, 0)?;
        contents.truncate(count);
        Ok(contents)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()>;
    /// Writes at the end of the file, and returns where that ends then.
    fn append(&self, data: &[u8]) -> Result<u64>;
    fn length(&self) -> Result<u64>;
    fn metadata(&self) -> Result<Metadata>;
    fn set_attributes(&self, change: &AttributeChange) -> Result<()>;
}
