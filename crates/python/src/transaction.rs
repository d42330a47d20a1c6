//! Transactions. Every path is relative to the store's root.

use crate::convert::{self, Change, Committed, SIDES, Stat, choose};
use crate::errors::{Described, Outcome, Raised, describe};
use crate::file::File;
use atomdir::hosting::sync;
use atomdir::{LockMode, LockScope, OpenOptions, Permissions, SharedTransaction, Take};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Mutex;

#[pyclass(frozen)]
pub(crate) struct Transaction {
    /// `None` once it has ended.
    transaction: Mutex<Option<SharedTransaction>>,
    #[pyo3(get)]
    id: u64,
    #[pyo3(get)]
    view: Option<OsString>,
}

impl Transaction {
    pub(crate) fn new(transaction: impl Into<SharedTransaction>) -> Transaction {
        let transaction = transaction.into();
        Transaction {
            id: transaction.id().0,
            view: transaction.view().map(OsString::from),
            transaction: Mutex::new(Some(transaction)),
        }
    }

    fn run<T: Send>(
        &self,
        python: Python<'_>,
        act: impl FnOnce(&SharedTransaction) -> Outcome<T> + Send,
    ) -> PyResult<T> {
        let outcome = python.detach(|| act(&self.open_one()?));
        outcome.map_err(|error| error.into_exception(python))
    }

    fn open_one(&self) -> Outcome<SharedTransaction> {
        sync::lock(&self.transaction).clone().ok_or(Raised::Ended)
    }
}

/// The options to open a file: read, write, append, truncate, create, create new.
type Flags = (bool, bool, bool, bool, bool, bool);

#[pymethods]
impl Transaction {
    fn open(&self, python: Python<'_>, path: PathBuf, flags: Flags, mode: u32) -> PyResult<File> {
        let (read, write, append, truncate, create, create_new) = flags;
        let mut options = OpenOptions::new();
        options.read(read).write(write).append(append);
        options.truncate(truncate).create(create);
        options.create_new(create_new).mode(mode);
        let opened = self.run(python, |tx| Ok(tx.open_shared(&path, &options)?))?;
        Ok(File::new(opened, path))
    }

    fn read<'py>(&self, python: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyBytes>> {
        let contents = self.run(python, |tx| Ok(tx.read(path)?))?;
        Ok(PyBytes::new(python, &contents))
    }

    fn write(&self, python: Python<'_>, path: PathBuf, contents: &[u8]) -> PyResult<()> {
        self.run(python, |tx| Ok(tx.write(path, contents)?))
    }

    fn mkdir(&self, python: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        self.run(python, |tx| Ok(tx.create_dir_with(path, mode)?))
    }

    fn symlink(&self, python: Python<'_>, target: PathBuf, path: PathBuf) -> PyResult<()> {
        self.run(python, |tx| Ok(tx.symlink(target, path)?))
    }

    fn readlink(&self, python: Python<'_>, path: PathBuf) -> PyResult<OsString> {
        self.run(python, |tx| Ok(tx.read_link(path)?.into()))
    }

    fn link(&self, python: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<()> {
        self.run(python, |tx| Ok(tx.hard_link(from, to)?))
    }

    fn rename(&self, python: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<()> {
        self.run(python, |tx| Ok(tx.rename(from, to)?))
    }

    fn exchange(&self, python: Python<'_>, one: PathBuf, other: PathBuf) -> PyResult<()> {
        self.run(python, |tx| Ok(tx.exchange(one, other)?))
    }

    fn copy(&self, python: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<u64> {
        self.run(python, |tx| Ok(tx.copy(from, to)?))
    }

    fn unlink(&self, python: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run(python, |tx| Ok(tx.remove_file(path)?))
    }

    fn rmdir(&self, python: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run(python, |tx| Ok(tx.remove_dir(path)?))
    }

    fn remove_all(&self, python: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run(python, |tx| {
            match tx.symlink_metadata(&path)?.is_dir() {
                true => tx.remove_dir_all(path)?,
                false => tx.remove_file(path)?,
            }
            Ok(())
        })
    }

    /// The name of each entry, and its type as in `st_mode`.
    fn list(&self, python: Python<'_>, path: PathBuf) -> PyResult<Vec<(OsString, u32)>> {
        let entries = self.run(python, |tx| Ok(tx.read_dir(path)?))?;
        let entries = entries.into_iter();
        Ok(entries
            .map(|entry| (entry.file_name, entry.kind.type_bits()))
            .collect())
    }

    fn stat(&self, python: Python<'_>, path: PathBuf, follow: bool) -> PyResult<Stat> {
        self.run(python, |tx| {
            let metadata = match follow {
                true => tx.metadata(path)?,
                false => tx.symlink_metadata(path)?,
            };
            Ok(convert::stat(&metadata))
        })
    }

    fn chmod(&self, python: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        self.run(python, |tx| {
            Ok(tx.set_permissions(path, Permissions::from_mode(mode))?)
        })
    }

    fn chown(
        &self,
        python: Python<'_>,
        path: PathBuf,
        user: Option<u32>,
        group: Option<u32>,
    ) -> PyResult<()> {
        self.run(python, |tx| Ok(tx.lchown(path, user, group)?))
    }

    fn utime(
        &self,
        python: Python<'_>,
        path: PathBuf,
        accessed: Option<i64>,
        modified: Option<i64>,
    ) -> PyResult<()> {
        let (accessed, modified) = (accessed.map(convert::time), modified.map(convert::time));
        self.run(python, |tx| Ok(tx.set_times(path, accessed, modified)?))
    }

    fn xattr<'py>(
        &self,
        python: Python<'py>,
        path: PathBuf,
        name: OsString,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = self.run(python, |tx| Ok(tx.xattr(path, name)?))?;
        Ok(value.map(|value| PyBytes::new(python, &value)))
    }

    fn xattr_names(&self, python: Python<'_>, path: PathBuf) -> PyResult<Vec<OsString>> {
        self.run(python, |tx| Ok(tx.xattr_names(path)?))
    }

    fn set_xattr(
        &self,
        python: Python<'_>,
        path: PathBuf,
        name: OsString,
        value: &[u8],
    ) -> PyResult<()> {
        self.run(python, |tx| Ok(tx.set_xattr(path, name, value)?))
    }

    fn remove_xattr(&self, python: Python<'_>, path: PathBuf, name: OsString) -> PyResult<()> {
        self.run(python, |tx| Ok(tx.remove_xattr(path, name)?))
    }

    fn changes(&self, python: Python<'_>) -> PyResult<Vec<Change>> {
        let changes = self.run(python, |tx| Ok(tx.changes()?))?;
        Ok(changes.into_iter().map(convert::change).collect())
    }

    fn lock(
        &self,
        python: Python<'_>,
        paths: Vec<PathBuf>,
        shared: bool,
        subtree: bool,
        wait_seconds: Option<f64>,
    ) -> PyResult<()> {
        let mode = match shared {
            true => LockMode::Shared,
            false => LockMode::Exclusive,
        };
        let scope = match subtree {
            true => LockScope::Subtree,
            false => LockScope::Object,
        };
        let wait = wait_seconds.map(convert::duration);
        self.run(python, |tx| {
            Ok(tx.lock_all(&convert::paths(&paths), mode, scope, wait)?)
        })
    }

    /// `None`: the commit stays.
    fn confirm_within(&self, python: Python<'_>, wait_seconds: Option<f64>) -> PyResult<()> {
        let wait = wait_seconds.map(convert::duration);
        self.run(python, |tx| Ok(tx.confirm_within(wait)?))
    }

    fn set_savepoint(&self, python: Python<'_>, name: &str) -> PyResult<()> {
        self.run(python, |tx| Ok(tx.set_savepoint(name)?))
    }

    fn roll_back(&self, python: Python<'_>, savepoint: &str) -> PyResult<()> {
        self.run(python, |tx| Ok(tx.roll_back(savepoint)?))
    }

    fn nest(&self, python: Python<'_>) -> PyResult<Transaction> {
        Ok(Transaction::new(self.run(python, |tx| Ok(tx.nest()?))?))
    }

    fn fork(&self, python: Python<'_>) -> PyResult<Transaction> {
        Ok(Transaction::new(self.run(python, |tx| Ok(tx.fork()?))?))
    }

    fn commit(&self, python: Python<'_>) -> PyResult<Committed> {
        self.run(python, |tx| {
            let receipt = tx.commit()?;
            drop(sync::lock(&self.transaction).take());
            Ok(convert::committed(&receipt))
        })
    }

    /// Commits. `sides` has a side for each conflict of the last list.
    fn commit_with_sides(&self, python: Python<'_>, sides: Vec<String>) -> PyResult<Committed> {
        let sides = sides.iter().map(|side| choose("a side", side, SIDES));
        let sides: Vec<Take> = sides.collect::<PyResult<_>>()?;
        self.run(python, |tx| {
            let receipt = tx.commit_with_sides(&sides)?;
            drop(sync::lock(&self.transaction).take());
            Ok(convert::committed(&receipt))
        })
    }

    fn commit_part(
        &self,
        python: Python<'_>,
        paths: Vec<PathBuf>,
    ) -> PyResult<(Option<u64>, Vec<Change>)> {
        let part = self.run(python, |tx| Ok(tx.commit_part(&convert::paths(&paths))?))?;
        let sequence = part.receipt.sequence().map(|sequence| sequence.0);
        Ok((
            sequence,
            part.landed.into_iter().map(convert::change).collect(),
        ))
    }

    fn abort_part(&self, python: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Vec<Change>> {
        let dropped = self.run(python, |tx| Ok(tx.abort_part(&convert::paths(&paths))?))?;
        Ok(dropped.into_iter().map(convert::change).collect())
    }

    /// Returns the newest commit in the old and in the new snapshot.
    fn refresh(&self, python: Python<'_>) -> PyResult<(u64, u64)> {
        let refreshed = self.run(python, |tx| Ok(tx.refresh()?))?;
        Ok((refreshed.from.0, refreshed.to.0))
    }

    fn conflicts(&self, python: Python<'_>) -> PyResult<Vec<Described>> {
        let found = self.run(python, |tx| Ok(tx.conflicts()?))?;
        Ok(found.iter().map(describe).collect())
    }

    /// The versions of the text in the conflict at this index of the last list: the ancestor, this
    /// transaction's, theirs, and the merged one; and whether that has markers. If the conflict is not
    /// about a text, the reason.
    fn texts_in_conflict<'py>(
        &self,
        python: Python<'py>,
        place: usize,
    ) -> PyResult<(Vec<Bound<'py, PyBytes>>, bool, Option<String>)> {
        let texts = self.run(python, |tx| match tx.listed_conflicts()?.get(place) {
            Some(conflict) => Ok(Some(tx.texts_in_conflict(conflict)?)),
            None => Ok(None),
        })?;
        let texts = match texts {
            Some(Ok(texts)) => texts,
            Some(Err(why)) => return Ok((Vec::new(), false, Some(why.to_string()))),
            None => {
                let message = format!("the last list of conflicts has no index {place}");
                return Err(PyIndexError::new_err(message));
            }
        };
        let (merged, is_marked) = match texts.merged() {
            Ok(merged) => (merged, false),
            Err(marked) => (marked, true),
        };
        let versions = [&texts.ancestor, &texts.mine, &texts.theirs, &merged];
        let versions = versions.map(|text| PyBytes::new(python, text));
        Ok((versions.into(), is_marked, None))
    }

    /// Detaches from the transaction, which stays open. Returns its id.
    fn keep(&self, python: Python<'_>) -> PyResult<u64> {
        self.run(python, |tx| {
            let id = tx.keep()?;
            drop(sync::lock(&self.transaction).take());
            Ok(id.0)
        })
    }

    /// Makes the changes so far durable.
    fn sync(&self, python: Python<'_>) -> PyResult<()> {
        self.run(python, |tx| Ok(tx.sync()?))
    }

    /// Aborts the transaction, unless it has ended.
    fn abort(&self, python: Python<'_>) {
        python.detach(|| {
            let open = sync::lock(&self.transaction).take();
            if let Some(transaction) = open {
                transaction.abort();
            }
        });
    }
}
