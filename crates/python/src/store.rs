//! Stores, and the functions that begin transactions in them.

use crate::convert::{
    self, CONFLICTS, Change, Commit, DURABILITIES, EndedTransaction, History, ISOLATIONS,
    OpenTransaction, choose,
};
use crate::errors::{Described, Outcome, Raised, describe};
use crate::transaction::Transaction;
use atomdir::hosting::sync;
use atomdir::{
    Door, Sequence, StartService, StoreError, StoreOptions, TransactionId, UndoChoice, Where,
};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const DOORS: &[(&str, Door)] = &[
    ("any", Door::Any),
    ("embedded", Door::Embedded),
    ("service", Door::Service),
];

/// Makes a directory a store. Does nothing if it is one. The control directory is `.atomdir` in it, or
/// `control`, which must be on the same file system.
#[pyfunction]
#[pyo3(signature = (directory, control=None))]
pub(crate) fn init(
    python: Python<'_>,
    directory: PathBuf,
    control: Option<PathBuf>,
) -> PyResult<()> {
    let made: Outcome<()> = python.detach(|| {
        atomdir::init(&directory, control.as_deref())?;
        Ok(())
    });
    made.map_err(|error| error.into_exception(python))
}

/// The root of the store that contains a path. Raises `NoStore` if none does.
#[pyfunction]
pub(crate) fn find(python: Python<'_>, path: PathBuf) -> PyResult<OsString> {
    let found: Outcome<OsString> = python.detach(|| Ok(atomdir::find(&path)?.root.into()));
    found.map_err(|error| error.into_exception(python))
}

#[pyclass(frozen)]
pub(crate) struct Store {
    /// `None` once it is closed.
    store: Mutex<Option<atomdir::Store>>,
    #[pyo3(get)]
    root: OsString,
}

impl Store {
    fn run<T: Send>(
        &self,
        python: Python<'_>,
        act: impl FnOnce(atomdir::Store) -> Outcome<T> + Send,
    ) -> PyResult<T> {
        let outcome =
            python.detach(|| act(sync::lock(&self.store).clone().ok_or(Raised::Closed)?));
        outcome.map_err(|error| error.into_exception(python))
    }
}

#[pymethods]
impl Store {
    #[new]
    fn open(
        python: Python<'_>,
        path: PathBuf,
        door: &str,
        program: Option<PathBuf>,
    ) -> PyResult<Store> {
        let door = choose("door", door, DOORS)?;
        let opened: Outcome<atomdir::Store> = python.detach(|| {
            let mut options = StoreOptions::new();
            options.door(door);
            if let Some(program) = program {
                let location = atomdir::find(&path)?;
                options.start_service(StartService::with_program(program, &location));
            }
            Ok(options.open(&path)?)
        });
        let store = opened.map_err(|error| error.into_exception(python))?;
        Ok(Store {
            root: store.root().into(),
            store: Mutex::new(Some(store)),
        })
    }

    fn begin(
        &self,
        python: Python<'_>,
        isolation: &str,
        durability: &str,
        conflicts: &str,
        label: &str,
        own_reads_only: bool,
    ) -> PyResult<Transaction> {
        let isolation = choose("isolation", isolation, ISOLATIONS)?;
        let durability = choose("durability", durability, DURABILITIES)?;
        let conflicts = choose("conflicts", conflicts, CONFLICTS)?;
        let begun = self.run(python, |store| {
            let options = store.transaction().isolation(isolation);
            let options = options.durability(durability).conflicts(conflicts);
            let options = options.own_reads_only(own_reads_only);
            Ok(options.label(label).begin()?)
        });
        Ok(Transaction::new(begun?))
    }

    fn attach(&self, python: Python<'_>, id: u64) -> PyResult<Transaction> {
        let attached = self.run(python, |store| Ok(store.attach(TransactionId(id))?));
        Ok(Transaction::new(attached?))
    }

    fn transactions(&self, python: Python<'_>) -> PyResult<Vec<OpenTransaction>> {
        let open = self.run(python, |store| Ok(store.transactions()?))?;
        Ok(open.into_iter().map(convert::open_transaction).collect())
    }

    fn ended(&self, python: Python<'_>) -> PyResult<Vec<EndedTransaction>> {
        let ended = self.run(python, |store| Ok(store.ended()?))?;
        Ok(ended.into_iter().map(convert::ended_transaction).collect())
    }

    /// Drops the history of commits that are older than so many seconds. Returns the history that is
    /// left.
    fn prune(&self, python: Python<'_>, age_seconds: Option<f64>) -> PyResult<Option<History>> {
        let age = age_seconds.map(convert::duration);
        let kept = self.run(python, |store| Ok(store.prune(age)?))?;
        Ok(kept.map(convert::history))
    }

    fn settings(&self, python: Python<'_>) -> PyResult<BTreeMap<&'static str, String>> {
        self.run(python, |store| Ok(store.settings()?))
    }

    fn set_setting(&self, python: Python<'_>, key: &str, value: &str) -> PyResult<()> {
        self.run(python, |store| Ok(store.set_setting(key, value)?))
    }

    /// The last commits that changed something at or below these paths, newest first.
    fn log(
        &self,
        python: Python<'_>,
        limit: usize,
        before: Option<u64>,
        paths: Vec<PathBuf>,
    ) -> PyResult<Vec<Commit>> {
        let commits = self.run(python, |store| {
            let before = before.map(Sequence);
            Ok(store.log_of(&convert::paths(&paths), before, limit)?)
        })?;
        Ok(commits.into_iter().map(convert::commit).collect())
    }

    fn show(&self, python: Python<'_>, commit: u64) -> PyResult<(Commit, Vec<Change>)> {
        let shown = self.run(python, |store| Ok(store.show(Sequence(commit))?))?;
        let changes = shown.changes.into_iter().map(convert::change);
        Ok((convert::commit(shown.summary), changes.collect()))
    }

    /// The differences, and those objects that are compared as they are now.
    fn diff(
        &self,
        python: Python<'_>,
        from: u64,
        to: Option<u64>,
    ) -> PyResult<(Vec<Change>, Vec<Described>)> {
        let found = self.run(python, |store| {
            Ok(store.diff(Sequence(from), to.map(Sequence))?)
        })?;
        let changes = found.changes.into_iter().map(convert::change);
        let not_as_then = found.not_as_then.iter().map(describe);
        Ok((changes.collect(), not_as_then.collect()))
    }

    /// The newest commit at or before a time in nanoseconds since 1970.
    fn commit_at(&self, python: Python<'_>, moment: i64) -> PyResult<u64> {
        let moment = convert::time(moment);
        let found = self.run(python, |store| Ok(store.commit_at(moment)?))?;
        Ok(found.0)
    }

    fn undo(
        &self,
        python: Python<'_>,
        commits: Vec<u64>,
        paths: Vec<PathBuf>,
        skip: Vec<PathBuf>,
        sides: (Option<Vec<PathBuf>>, Option<Vec<PathBuf>>),
    ) -> PyResult<Transaction> {
        let commits = convert::sequences(commits);
        let (mine, theirs) = sides;
        let lists = |side: &Option<Vec<PathBuf>>| side.clone().unwrap_or_default();
        let (of_mine, of_theirs) = (lists(&mine), lists(&theirs));
        let begun = self.run(python, |store| {
            let (paths, skip) = (convert::paths(&paths), convert::paths(&skip));
            let (at_mine, at_theirs) = (convert::paths(&of_mine), convert::paths(&of_theirs));
            let choice = UndoChoice {
                paths: &paths,
                skip: &skip,
                mine: side(&mine, &at_mine),
                theirs: side(&theirs, &at_theirs),
            };
            Ok(store.undo_choosing(&commits, choice)?.0)
        });
        Ok(Transaction::new(begun?))
    }

    fn restore(
        &self,
        python: Python<'_>,
        commit: u64,
        paths: Vec<PathBuf>,
    ) -> PyResult<Transaction> {
        let begun = self.run(python, |store| {
            Ok(store.restore(Sequence(commit), &convert::paths(&paths))?)
        });
        Ok(Transaction::new(begun?))
    }

    /// A transaction that shows the store as it was after a commit, and the objects that it shows as
    /// they are now.
    fn at(
        &self,
        python: Python<'_>,
        commit: u64,
        outside_as_now: bool,
    ) -> PyResult<(Transaction, Vec<Described>)> {
        let (shown, not_as_then) = self.run(python, |store| {
            Ok(match outside_as_now {
                true => store.at_outside_as_now(Sequence(commit))?,
                false => (store.at(Sequence(commit))?, Vec::new()),
            })
        })?;
        let not_as_then = not_as_then.iter().map(describe).collect();
        Ok((Transaction::new(shown), not_as_then))
    }

    fn confirm(&self, python: Python<'_>, commit: u64) -> PyResult<()> {
        self.run(python, |store| Ok(store.confirm(Sequence(commit))?))
    }

    fn pin(&self, python: Python<'_>, commit: u64) -> PyResult<()> {
        self.run(python, |store| Ok(store.pin(Sequence(commit))?))
    }

    fn unpin(&self, python: Python<'_>, commit: u64) -> PyResult<()> {
        self.run(python, |store| Ok(store.unpin(Sequence(commit))?))
    }

    fn relabel(&self, python: Python<'_>, commit: u64, label: &str) -> PyResult<()> {
        self.run(python, |store| Ok(store.relabel(Sequence(commit), label)?))
    }

    /// Not in the way of a thread that waits for the store.
    #[getter]
    fn is_embedded(&self, python: Python<'_>) -> bool {
        python.detach(|| {
            sync::lock(&self.store)
                .as_ref()
                .is_some_and(atomdir::Store::is_embedded)
        })
    }

    fn hand_over(&self, python: Python<'_>) -> PyResult<()> {
        self.run(python, |store| Ok(store.hand_over()?))
    }

    fn sync(&self, python: Python<'_>) -> PyResult<()> {
        self.run(python, |store| Ok(store.sync()?))
    }

    /// Closes the store. If transactions are open, the last of them closes it.
    fn close(&self, python: Python<'_>) -> PyResult<()> {
        let closed: Outcome<()> = python.detach(|| {
            let Some(store) = sync::lock(&self.store).take() else {
                return Ok(());
            };
            match store.close() {
                Ok(()) | Err(StoreError::InUse) => Ok(()),
                Err(error) => Err(error.into()),
            }
        });
        closed.map_err(|error| error.into_exception(python))
    }
}

/// `None` stands for all later changes.
fn side<'a>(given: &Option<Vec<PathBuf>>, paths: &'a [&'a Path]) -> Where<'a> {
    match given {
        None => Where::Everywhere,
        Some(_) => Where::At(paths),
    }
}
