//! What commits changed, what differs between two of them, and which one was the newest at a time.

use super::error::{Conflict, Error, FileError, StoreError};
use super::history::{ChangedPath, UndoError};
use super::metadata::Metadata;
use super::receipt::WhenDurable;
use super::store::Store;
use super::transaction::Transaction;
use crate::compare::{
    Affected, Attributes, CONTENTS_LENGTH_MAX, Listed, PathFilter, Seen, ViewAndSnapshot,
    change_between,
};
use atomdir_disk::Errno;
use atomdir_protocol::{ChangeLine, CommitSummary, Past, PastView, Sequence, SnapshotObject};
use atomdir_types::{Change, CommitDetails, Kind, Side, TransactionId};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

/// A commit and what it changed: see [`Store::show`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShownCommit {
    /// The commit, as the log lists it.
    pub summary: CommitSummary,
    /// What it changed, sorted by path.
    pub changes: Vec<ChangedPath>,
}

impl From<CommitDetails> for ShownCommit {
    fn from(details: CommitDetails) -> ShownCommit {
        ShownCommit {
            summary: details.summary,
            changes: details.changes.into_iter().map(ChangedPath::from).collect(),
        }
    }
}

/// What differs between two commits: see [`Store::diff`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Differences {
    /// The changes, sorted by path. Renames are a removal and an addition.
    pub changes: Vec<ChangedPath>,
    /// What is compared as it is now, since programs in no transaction have changed it after the
    /// commits.
    pub not_as_then: Vec<Conflict>,
}

impl Store {
    /// The commits that changed something at or below these paths, newest first, at most `limit` of
    /// them; without paths, all commits. `before`: only older ones. With paths, this reads what each
    /// commit changed, so only the store's owner and root can ask for other users' commits.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// let tx = store.begin()?;
    /// tx.create_dir("conf")?;
    /// tx.write("conf/a", b"1")?;
    /// let first = tx.commit()?.sequence().expect("something has changed");
    /// let tx = store.begin()?;
    /// tx.write("b", b"1")?;
    /// tx.commit()?;
    /// let commits = store.log_of(&["conf".as_ref()], None, 10)?;
    /// assert_eq!(commits.len(), 1);
    /// assert_eq!(commits[0].sequence, first);
    /// assert!(store.log_of(&[], Some(first), 10)?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn log_of(
        &self,
        paths: &[&Path],
        before: Option<Sequence>,
        limit: usize,
    ) -> Result<Vec<CommitSummary>, StoreError> {
        let paths = paths.iter().map(|path| plain(path));
        let filter = PathFilter::new(paths.collect::<Result<_, _>>()?);
        self.past_commits(&filter, before, limit)
    }

    /// What a commit changed. Only the store's owner and root can look at other users' commits.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// use atomdir::Change;
    ///
    /// let tx = store.transaction().label("first").begin()?;
    /// tx.write("a", b"1")?;
    /// let first = tx.commit()?.sequence().expect("something has changed");
    /// let shown = store.show(first)?;
    /// assert_eq!(shown.summary.label, b"first");
    /// assert_eq!(shown.changes[0].change, Change::Added);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn show(&self, commit: Sequence) -> Result<ShownCommit, UndoError> {
        Ok(self.commit_details(commit)?.into())
    }

    /// The newest commit at or before a moment, for [`at`](Store::at), [`restore`](Store::restore)
    /// and [`diff`](Store::diff). If all that the log has are later, the one before its first; 0 if
    /// the log has none.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let tx = store.begin()?;
    /// tx.write("a", b"1")?;
    /// tx.commit()?;
    /// let yesterday = SystemTime::now() - Duration::from_secs(86_400);
    /// assert!(!store.at(store.commit_at(yesterday)?)?.exists("a")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn commit_at(&self, moment: SystemTime) -> Result<Sequence, StoreError> {
        self.newest_commit_at(moment.into())
    }

    /// What differs between the store as it was just after a commit and as it was just after another
    /// one, or as it is now. Files longer than 256 MiB are the same if their lengths and times of
    /// modification are. Only the store's owner and root can compare commits.
    ///
    /// ```
    /// # let scratch = atomdir_testing::Scratch::new("doc");
    /// # atomdir::init(scratch.path(), None)?;
    /// # let store = atomdir::Store::open(scratch.path())?;
    /// # let tx = store.begin()?;
    /// # tx.write("a", b"1")?;
    /// # let first = tx.commit()?.sequence().expect("something has changed");
    /// let tx = store.begin()?;
    /// tx.write("a", b"2")?;
    /// tx.write("b", b"2")?;
    /// tx.commit()?;
    /// let changes = store.diff(first, None)?.changes;
    /// let shown: String = changes.iter().map(|one| one.change.letter()).collect();
    /// assert_eq!(shown, "MA");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn diff(&self, from: Sequence, to: Option<Sequence>) -> Result<Differences, Error> {
        let (old, mut not_as_then) = self.view_of_past(from, None)?;
        let new = to.map(|to| self.view_of_past(to, Some((old.id(), from))));
        let new = new.transpose()?;
        let new = new.map(|(view, as_now)| {
            let more = as_now.into_iter();
            let more: Vec<_> = more.filter(|one| !not_as_then.contains(one)).collect();
            not_as_then.extend(more);
            view
        });
        let mut paths = BTreeSet::new();
        for view in [Some(&old), new.as_ref()].into_iter().flatten() {
            let lines = view.change_lines()?;
            paths.extend(Affected::find(&mut Sides(view), &lines)?.into_paths());
        }
        let mut changes = Vec::new();
        for path in &paths {
            let change = compare(&old, new.as_ref(), path)?;
            changes.extend(change.map(|change| {
                ChangedPath::from(ChangeLine {
                    change,
                    path: path.clone(),
                    from: None,
                })
            }));
        }
        Ok(Differences {
            changes,
            not_as_then,
        })
    }

    fn view_of_past(
        &self,
        commit: Sequence,
        compared_with: Option<(TransactionId, Sequence)>,
    ) -> Result<(Transaction, Vec<Conflict>), UndoError> {
        let (beside, outside_since) = compared_with.unzip();
        let past = PastView {
            commit,
            outside_as_now: true,
            outside_since,
            beside,
        };
        let (session, not_as_then) = self.session_from(Past::View(past))?;
        Ok((Transaction::new(session, WhenDurable::AtOnce), not_as_then))
    }
}

/// A path of the caller's, without what makes one path be written in several ways.
fn plain(path: &Path) -> Result<PathBuf, StoreError> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            _ => {
                let path = path.display();
                return Err(StoreError::Other(format!(
                    "'{path}' is no path below the store's root: name it relative to the root and \
                     without '..'"
                )));
            }
        }
    }
    Ok(plain)
}

fn path_of(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// `None` if there is nothing at the path.
fn found<T>(result: Result<T, FileError>) -> Result<Option<T>, FileError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(None),
            _ => Err(error),
        },
    }
}

struct Sides<'a>(&'a Transaction);

impl ViewAndSnapshot for Sides<'_> {
    type Error = FileError;

    fn before(&mut self, path: &[u8]) -> Result<Option<Seen>, FileError> {
        let object = self.0.snapshot_object(path)?;
        Ok(object.map(|object| Seen {
            kind: object.kind,
            inode: object.inode,
            is_linked: object.links > 1,
        }))
    }

    fn after(&mut self, path: &[u8]) -> Result<Option<Seen>, FileError> {
        let metadata = found(self.0.symlink_metadata(path_of(path)))?;
        Ok(metadata.map(|metadata| Seen {
            kind: metadata.kind,
            inode: metadata.inode,
            is_linked: metadata.links > 1,
        }))
    }

    fn list(&mut self, path: &[u8]) -> Result<Vec<Listed>, FileError> {
        let path = path_of(path);
        // A symbolic link would be followed.
        let metadata = found(self.0.symlink_metadata(path))?;
        if metadata.is_none_or(|metadata| !metadata.is_dir()) {
            return Ok(Vec::new());
        }
        let entries = found(self.0.read_dir(path))?.unwrap_or_default();
        let entries = entries.into_iter().map(|entry| Listed {
            name: entry.file_name.into_vec(),
            inode: entry.inode,
            is_directory: entry.kind == Kind::Directory,
        });
        Ok(entries.collect())
    }
}

/// What has become of a path between two views, or between a view and its snapshot.
fn compare(
    old: &Transaction,
    new: Option<&Transaction>,
    path: &[u8],
) -> Result<Option<Change>, FileError> {
    let before = old.attributes_of(path)?;
    let after = match new {
        Some(view) => view.attributes_of(path)?,
        None => old.snapshot_object(path)?.map(attributes_of_object),
    };
    let has_same_contents = || {
        let Some(object) = before.as_ref() else {
            return Ok(true);
        };
        if object.kind == Kind::File && object.length > CONTENTS_LENGTH_MAX {
            return Ok(true);
        }
        let contents = old.contents_of(object.kind, path)?;
        Ok(match new {
            Some(view) => contents == view.contents_of(object.kind, path)?,
            None => contents == old.snapshot_contents(object.kind, path)?,
        })
    };
    change_between(before.as_ref(), after.as_ref(), has_same_contents)
}

impl Transaction {
    fn change_lines(&self) -> Result<Vec<ChangeLine>, FileError> {
        let lines = self.session.changes();
        lines.map_err(self.failed("list changes of", Path::new("")))
    }

    fn snapshot_object(&self, path: &[u8]) -> Result<Option<SnapshotObject>, FileError> {
        let found = self.session.object_of(Side::Snapshot, path, 0);
        let found = found.map_err(self.failed("look up", path_of(path)))?;
        Ok(found.map(|found| found.object))
    }

    /// The contents of a file, or the target of a symbolic link, in the snapshot.
    fn snapshot_contents(&self, kind: Kind, path: &[u8]) -> Result<Vec<u8>, FileError> {
        let found = self
            .session
            .object_of(Side::Snapshot, path, CONTENTS_LENGTH_MAX);
        let found = found.map_err(self.failed("read", path_of(path)))?;
        Ok(found.map_or_else(Vec::new, |found| match kind {
            Kind::Symlink => found.object.target,
            _ => found.contents,
        }))
    }

    /// The same in the view.
    fn contents_of(&self, kind: Kind, path: &[u8]) -> Result<Vec<u8>, FileError> {
        let path = path_of(path);
        match kind {
            Kind::Symlink => {
                let target = self.read_link(path)?;
                Ok(OsString::from(target).into_vec())
            }
            _ => self.read(path),
        }
    }

    fn attributes_of(&self, path: &[u8]) -> Result<Option<Attributes>, FileError> {
        let path = path_of(path);
        let Some(metadata) = found(self.symlink_metadata(path))? else {
            return Ok(None);
        };
        let names = match self.xattr_names(path) {
            Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                Vec::new()
            }
            names => names?,
        };
        let mut xattrs = Vec::new();
        for name in names {
            let value = match self.xattr(path, &name) {
                // Some can be listed and not read.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
                value => value?,
            };
            xattrs.extend(value.map(|value| (name.into_vec(), value)));
        }
        Ok(Some(attributes_in_view(&metadata, xattrs)))
    }
}

fn attributes_in_view(metadata: &Metadata, xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Attributes {
    Attributes {
        kind: metadata.kind,
        mode: metadata.mode,
        user: metadata.user,
        group: metadata.group,
        device_number: metadata.device_number,
        length: metadata.len,
        modified: metadata.modified.into(),
        xattrs,
    }
}

fn attributes_of_object(object: SnapshotObject) -> Attributes {
    let mut xattrs = object.xattrs;
    xattrs.sort();
    Attributes {
        kind: object.kind,
        mode: object.mode,
        user: object.user,
        group: object.group,
        device_number: object.device_number,
        length: object.length,
        modified: object.modified,
        xattrs,
    }
}

/// The error for a sequence that names no commit in the log.
pub(crate) fn no_such_commit(commit: Sequence) -> UndoError {
    UndoError::NotKept(format!("no commit {commit} in the log"))
}
