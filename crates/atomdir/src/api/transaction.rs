//! A transaction, and what can be done to files and directories in it.

use super::error::{CommitError, FileError, StoreError};
use super::file::{File, OpenOptions};
use super::history::{ChangedPath, Take};
use super::metadata::{DirEntry, Metadata, Permissions};
use super::receipt::{Receipt, WhenDurable};
use super::session::{AttributeChange, Files, Links, Session};
use atomdir_disk::{Errno, RenameMode};
use atomdir_engine::SetTime;
use atomdir_protocol::Committed;
use atomdir_types::TransactionId;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// An open transaction. It sees the store as of its begin, with its own changes, and nobody
/// sees these before [`commit`](Transaction::commit). Dropping it aborts it, unless the
/// program has [attached](crate::Store::attach) to it.
///
/// Several threads may use one transaction at the same time.
///
/// Paths are relative to the store's root, and stay beneath it. Symbolic links are followed as
/// long as they lead to somewhere in the store without passing outside: a link with an
/// absolute target fails with [`FileError::Outside`], and so does a `..` that leaves the
/// root. A slash at the end of a path is ignored. The store's control directory does not exist
/// in a transaction.
pub struct Transaction {
    pub(super) session: Arc<dyn Session>,
    pub(super) when_durable: WhenDurable,
    is_open: AtomicBool,
    /// It was open before this program attached to it, so it stays open when this is dropped.
    is_attached: bool,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut transaction = formatter.debug_struct("Transaction");
        transaction.field("id", &self.id()).finish_non_exhaustive()
    }
}

/// A transaction whose commit failed. Nothing of it is lost: it is still open, unless the error
/// says otherwise.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Uncommitted {
    /// The transaction.
    pub transaction: Transaction,
    /// Why it was not committed.
    pub error: CommitError,
}

impl Transaction {
    pub(super) fn new(session: Arc<dyn Session>, when_durable: WhenDurable) -> Transaction {
        Transaction {
            session,
            when_durable,
            is_open: AtomicBool::new(true),
            is_attached: false,
        }
    }

    pub(super) fn attached(session: Arc<dyn Session>, when_durable: WhenDurable) -> Transaction {
        let mut transaction = Transaction::new(session, when_durable);
        transaction.is_attached = true;
        transaction
    }

    /// Leaves it open.
    pub(super) fn keep_shared(&self) -> Result<TransactionId, StoreError> {
        self.session.keep()?;
        self.is_open.store(false, Ordering::Release);
        Ok(self.id())
    }

    /// Makes what was written so far durable.
    pub(super) fn sync_shared(&self) -> Result<(), StoreError> {
        self.session.sync()
    }

    fn files(&self) -> &dyn Files {
        self.session.files()
    }

    /// The transaction's id, by which commands and conflicts name it.
    pub fn id(&self) -> TransactionId {
        self.session.id()
    }

    /// The transaction's view, where the service has mounted it: a directory that any program
    /// can use. `None` if the store is open in this process, where nothing is mounted.
    pub fn view(&self) -> Option<&Path> {
        self.session.view()
    }

    /// A descriptor of the view's root directory, for code that uses openat(2) and the like. `None`
    /// where there is no view. A file opened relative to it is in the transaction, and its
    /// calls fail after the transaction's end.
    pub fn view_directory(&self) -> Result<Option<OwnedFd>, FileError> {
        let opened = self.session.view_directory();
        opened.map_err(self.failed("open the view of", Path::new("")))
    }

    /// Commits the transaction. When this returns, the commit is durable, unless the
    /// transaction was begun with [`Durability::Lazy`](crate::Durability::Lazy). If it fails, the
    /// transaction is aborted; see [`try_commit`](Transaction::try_commit).
    pub fn commit(self) -> Result<Receipt, CommitError> {
        self.try_commit().map_err(|uncommitted| uncommitted.error)
    }

    /// Like [`commit`](Transaction::commit), but gives the transaction back if the commit
    /// fails, so that its changes can still be read, or committed later.
    pub fn try_commit(self) -> Result<Receipt, Box<Uncommitted>> {
        self.commit_shared().map_err(|error| {
            Box::new(Uncommitted {
                transaction: self,
                error,
            })
        })
    }

    /// Commits a transaction that may have several owners.
    pub(super) fn commit_shared(&self) -> Result<Receipt, CommitError> {
        Ok(self.committed(self.session.commit()?))
    }

    pub(super) fn commit_shared_with_sides(&self, sides: &[Take]) -> Result<Receipt, CommitError> {
        let merged = match sides.contains(&Take::Merge) {
            true => self.merge_texts(sides)?,
            false => sides.to_vec(),
        };
        Ok(self.committed(self.session.commit_with_sides(&merged)?))
    }

    /// It was committed together with others.
    pub(super) fn committed(&self, done: Committed) -> Receipt {
        self.is_open.store(false, Ordering::Release);
        self.receipt(done)
    }

    pub(super) fn receipt(&self, done: Committed) -> Receipt {
        Receipt::new(done, self.when_durable, self.session.store())
    }

    /// Aborts it, if it is open.
    pub(super) fn abort_shared(&self) {
        if self.is_open.swap(false, Ordering::AcqRel) {
            self.session.abort();
        }
    }

    /// Aborts the transaction.
    pub fn abort(self) {
        self.abort_shared();
    }

    /// Lists the changes that a commit would make, sorted by path.
    pub fn changes(&self) -> Result<Vec<ChangedPath>, FileError> {
        let changes = self.session.changes();
        let changes = changes.map_err(self.failed("list changes of", Path::new("")))?;
        Ok(changes.into_iter().map(ChangedPath::from).collect())
    }

    /// Opens a file for reading.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File<'_>, FileError> {
        self.open_with(path, OpenOptions::new().read(true))
    }

    /// Creates a file, or empties one that exists, and opens it for reading and writing.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File<'_>, FileError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        self.open_with(path, &options)
    }

    /// Opens a file as the options say.
    pub fn open_with(
        &self,
        path: impl AsRef<Path>,
        options: &OpenOptions,
    ) -> Result<File<'_>, FileError> {
        let path = path.as_ref();
        let file = self.files().open(path, options);
        let file = file.map_err(self.failed("open", path))?;
        Ok(File::new(file, &self.session, path, options.append))
    }

    /// Reads a whole file.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, FileError> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        let file = self.files().open(path, options.read(true));
        let contents = file.and_then(|file| file.read_whole());
        contents.map_err(self.failed("read", path))
    }

    /// Reads a whole file that contains UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String, FileError> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?).map_err(|error| FileError::Io {
            operation: "read",
            path: path.to_owned(),
            cause: io::Error::new(io::ErrorKind::InvalidData, error),
        })
    }

    /// Creates a file with these contents, or replaces the contents of one that exists. Such a
    /// file keeps its owner, its mode and its other names.
    pub fn write(
        &self,
        path: impl AsRef<Path>,
        contents: impl AsRef<[u8]>,
    ) -> Result<(), FileError> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let file = self.files().open(path, &options);
        let written = file.and_then(|file| file.write_at(contents.as_ref(), 0));
        written.map_err(self.failed("write", path))
    }

    /// Creates a directory.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        self.create_dir_with(path, 0o777)
    }

    /// Creates a directory with these permission bits, before the umask is applied.
    pub fn create_dir_with(&self, path: impl AsRef<Path>, mode: u32) -> Result<(), FileError> {
        let path = path.as_ref();
        let made = self.files().create_directory(path, mode);
        made.map_err(self.failed("create the directory", path))
    }

    /// Creates a symbolic link at `link` whose target is `original`.
    pub fn symlink(
        &self,
        original: impl AsRef<Path>,
        link: impl AsRef<Path>,
    ) -> Result<(), FileError> {
        let link = link.as_ref();
        let made = self.files().symlink(original.as_ref(), link);
        made.map_err(self.failed("create the symbolic link", link))
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf, FileError> {
        let path = path.as_ref();
        let target = self.files().read_link(path);
        target.map_err(self.failed("read the symbolic link", path))
    }

    /// Gives the object at `original` a second name. A symbolic link at the end of `original` is not
    /// followed.
    pub fn hard_link(
        &self,
        original: impl AsRef<Path>,
        link: impl AsRef<Path>,
    ) -> Result<(), FileError> {
        let link = link.as_ref();
        let made = self.files().link(original.as_ref(), link);
        made.map_err(self.failed("create the link", link))
    }

    /// Renames a file or directory. Replaces what has the new name, if it is of the same kind;
    /// a directory only if it is empty.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), FileError> {
        self.rename_in(from.as_ref(), to.as_ref(), RenameMode::Replace)
    }

    /// Renames a file or directory, and fails if the new name exists.
    pub fn rename_new(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
    ) -> Result<(), FileError> {
        self.rename_in(from.as_ref(), to.as_ref(), RenameMode::NoReplace)
    }

    /// Lets two objects change places.
    pub fn exchange(
        &self,
        one: impl AsRef<Path>,
        other: impl AsRef<Path>,
    ) -> Result<(), FileError> {
        self.rename_in(one.as_ref(), other.as_ref(), RenameMode::Exchange)
    }

    fn rename_in(&self, from: &Path, to: &Path, mode: RenameMode) -> Result<(), FileError> {
        let renamed = self.files().rename(from, to, mode);
        renamed.map_err(self.failed("rename", from))
    }

    /// Removes a name of a file, or of anything else but a directory.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        let path = path.as_ref();
        let removed = self.files().remove_file(path);
        removed.map_err(self.failed("remove", path))
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        let path = path.as_ref();
        let removed = self.files().remove_directory(path);
        removed.map_err(self.failed("remove the directory", path))
    }

    /// The entries of a directory, sorted by name, without `.` and `..`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntry>, FileError> {
        let path = path.as_ref();
        let entries = self.files().list(path);
        let mut entries = entries.map_err(self.failed("list", path))?;
        entries.sort_by(|one, other| one.file_name.cmp(&other.file_name));
        Ok(entries)
    }

    /// The attributes of an object. A symbolic link is followed.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata, FileError> {
        let path = path.as_ref();
        let metadata = self.files().metadata(path, Links::Follow);
        metadata.map_err(self.failed("examine", path))
    }

    /// The attributes of an object, which may be a symbolic link.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata, FileError> {
        let path = path.as_ref();
        let metadata = self.files().metadata(path, Links::Keep);
        metadata.map_err(self.failed("examine", path))
    }

    /// Whether there is an object at the path. A symbolic link is followed.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool, FileError> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sets the permission bits, with set-id and sticky bits. A symbolic link is followed.
    pub fn set_permissions(
        &self,
        path: impl AsRef<Path>,
        permissions: Permissions,
    ) -> Result<(), FileError> {
        let change = AttributeChange {
            mode: Some(permissions.mode()),
            ..AttributeChange::default()
        };
        self.change(path.as_ref(), Links::Follow, "set the mode of", change)
    }

    /// Sets the owner, the group or both, by their numeric ids. A symbolic link is not
    /// followed.
    pub fn lchown(
        &self,
        path: impl AsRef<Path>,
        user: Option<u32>,
        group: Option<u32>,
    ) -> Result<(), FileError> {
        let change = AttributeChange {
            user,
            group,
            ..AttributeChange::default()
        };
        self.change(path.as_ref(), Links::Keep, "set the owner of", change)
    }

    /// Sets the times of the last reading and of the last change of contents. A symbolic link is
    /// not followed.
    pub fn set_times(
        &self,
        path: impl AsRef<Path>,
        accessed: Option<SystemTime>,
        modified: Option<SystemTime>,
    ) -> Result<(), FileError> {
        let time = |time: SystemTime| SetTime::At(time.into());
        let change = AttributeChange {
            accessed: accessed.map(time),
            modified: modified.map(time),
            ..AttributeChange::default()
        };
        self.change(path.as_ref(), Links::Keep, "set the times of", change)
    }

    fn change(
        &self,
        path: &Path,
        links: Links,
        operation: &'static str,
        change: AttributeChange,
    ) -> Result<(), FileError> {
        let changed = self.files().set_attributes(path, links, &change);
        changed.map_err(self.failed(operation, path))
    }

    /// The value of an extended attribute, such as `user.origin`; `None` if there is none of
    /// that name. A symbolic link is not followed.
    pub fn xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>, FileError> {
        let path = path.as_ref();
        let name = name.as_ref().as_bytes();
        match self.files().xattr(path, Links::Keep, name) {
            Ok(value) => Ok(Some(value)),
            Err(Errno::NODATA) => Ok(None),
            Err(errno) => Err(self.failed("read an extended attribute of", path)(errno)),
        }
    }

    /// The names of an object's extended attributes, sorted. A symbolic link is not followed.
    pub fn xattr_names(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>, FileError> {
        let path = path.as_ref();
        let names = self.files().xattr_names(path, Links::Keep);
        let names = names.map_err(self.failed("list the extended attributes of", path))?;
        let mut names: Vec<OsString> = names.into_iter().map(OsString::from_vec).collect();
        names.sort();
        Ok(names)
    }

    /// Sets an extended attribute. A symbolic link is not followed.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), FileError> {
        let path = path.as_ref();
        let name = name.as_ref().as_bytes();
        let set = self
            .files()
            .set_xattr(path, Links::Keep, name, value.as_ref());
        set.map_err(self.failed("set an extended attribute of", path))
    }

    /// Removes an extended attribute. A symbolic link is not followed.
    pub fn remove_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<(), FileError> {
        let path = path.as_ref();
        let name = name.as_ref().as_bytes();
        let removed = self.files().remove_xattr(path, Links::Keep, name);
        removed.map_err(self.failed("remove an extended attribute of", path))
    }

    /// Gives an error the operation and the path.
    pub(super) fn failed(
        &self,
        operation: &'static str,
        path: &Path,
    ) -> impl FnOnce(Errno) -> FileError {
        move |errno| FileError::of(&*self.session, operation, path, errno)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        match self.is_attached {
            // If the service is gone, the transaction is open again with the next one.
            true if *self.is_open.get_mut() => drop(self.session.keep()),
            true => {}
            false => self.abort_shared(),
        }
    }
}
