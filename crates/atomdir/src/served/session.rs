//! A transaction of the service. Its files are used in its view, which the service has mounted;
//! everything else is a request.
//!
//! Each transaction has a connection of its own while it is open, so that several threads can
//! commit at the same time. The service aborts a transaction whose connection closes.

use super::Served;
use super::directory::Directory;
use super::failure;
use super::reads::{Reads, Slot};
use crate::api::session::{Files, LockWanted, OpenFile, Result, Session, Syncable};
use crate::api::{
    BeginError, CommitError, Conflict, LockError, OpenOptions, Refreshed, SavepointError,
    StoreError, Take, UndoError, bytes_of, label_of, sides_of,
};
use crate::client;
use crate::connection::Connection;
use crate::error::RequestError;
use crate::locks::LockOptions;
use crate::requests::SnapshotContents;
use atomdir_disk::Errno;
use atomdir_protocol::{
    BeginOptions, ChangeLine, Committed, Conflicts, Durability, FailureKind, Isolation, Others,
    Past, Portion, Side, TransactionId, ViewChoice,
};
use atomdir_types::{Terms, sync};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

pub(crate) struct ServedTransaction {
    pub(super) store: Arc<Served>,
    pub(super) connection: Slot,
    pub(super) transaction: client::Transaction,
    files: Directory,
    /// Set if it declares what it reads of files.
    reads: Option<Arc<Reads>>,
    guards: Guards,
}

/// Against whose changes the transaction is protected, and when it learns of them.
#[derive(Debug, Clone, Copy)]
struct Guards {
    isolation: Isolation,
    /// With early ones, writes fail as soon as an open transaction has written the same part.
    conflicts: Conflicts,
    declares_reads: bool,
}

impl Guards {
    fn of(options: &BeginOptions) -> Guards {
        Guards {
            isolation: options.isolation,
            conflicts: options.conflicts,
            declares_reads: options.declares_reads,
        }
    }
}

impl ServedTransaction {
    /// Begins one that has to do with this one.
    fn begin_another(
        &self,
        options: &BeginOptions,
        guards: Guards,
    ) -> std::result::Result<Arc<dyn Session>, BeginError> {
        let mut connection = self.store.connection().map_err(failure::begin_connect)?;
        let transaction = connection.begin(options).map_err(failure::begin)?;
        ServedTransaction::of(&self.store, connection, transaction, guards)
    }

    pub(super) fn begin(
        store: &Arc<Served>,
        options: &BeginOptions,
    ) -> std::result::Result<Arc<dyn Session>, BeginError> {
        let mut connection = store.connection().map_err(failure::begin_connect)?;
        let transaction = connection.begin(options).map_err(failure::begin)?;
        ServedTransaction::of(store, connection, transaction, Guards::of(options))
    }

    pub(super) fn begin_from(
        store: &Arc<Served>,
        past: Past,
    ) -> std::result::Result<(Arc<dyn Session>, Vec<Conflict>), UndoError> {
        let options = BeginOptions {
            label: label_of(&past).to_vec(),
            view: ViewChoice::Exact,
            ..BeginOptions::default()
        };
        let mut connection = store.connection().map_err(failure::begin_connect)?;
        let begun = match past {
            Past::Undo(undo) => connection.undo(undo, &options, &mut |_| {}),
            Past::Restore(restore) => connection.restore(restore, &options, &mut |_| {}),
            Past::View(view) => connection.past(view, &options),
        };
        let (transaction, not_as_then) = begun.map_err(failure::undo)?;
        let session = ServedTransaction::of(store, connection, transaction, Guards::of(&options))?;
        Ok((session, Conflict::all(not_as_then)))
    }

    /// Holds an open transaction.
    pub(super) fn attach(
        store: &Arc<Served>,
        id: TransactionId,
    ) -> std::result::Result<(Arc<dyn Session>, Durability), BeginError> {
        let mut connection = store.connection().map_err(failure::begin_connect)?;
        let status = connection.status(id).map_err(failure::begin)?;
        let transaction = connection.attach(id).map_err(failure::begin)?;
        let guards = Guards {
            isolation: status.isolation,
            conflicts: status.conflicts,
            declares_reads: false,
        };
        let session = ServedTransaction::of(store, connection, transaction, guards)?;
        Ok((session, status.durability))
    }

    /// If this fails, the connection closes. That aborts a transaction which has just begun, and
    /// leaves a detached one open.
    fn of(
        store: &Arc<Served>,
        connection: Connection,
        transaction: client::Transaction,
        guards: Guards,
    ) -> std::result::Result<Arc<dyn Session>, BeginError> {
        let root = root_of(&transaction).map_err(failure::view)?;
        let connection = Arc::new(Mutex::new(Some(connection)));
        let notes_reads = guards.declares_reads && guards.isolation == Isolation::Serializable;
        let reads = notes_reads.then(|| {
            let reads = Reads::new(transaction.id, connection.clone());
            Arc::new(reads)
        });
        Ok(Arc::new(ServedTransaction {
            store: store.clone(),
            connection,
            transaction,
            files: Directory::noting(root, reads.clone()),
            reads,
            guards,
        }))
    }

    /// Call it before anything that depends on what was read.
    fn declare_reads(&self) -> std::result::Result<(), RequestError> {
        match &self.reads {
            Some(reads) => reads.declare(),
            None => Ok(()),
        }
    }

    /// Sends a request. Only one thread at a time can.
    fn ask<T, E: From<StoreError>>(
        &self,
        ended: impl FnOnce() -> E,
        ask: impl FnOnce(&mut Connection) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.store.opener.require()?;
        let mut slot = sync::lock(&self.connection);
        ask(slot.as_mut().ok_or_else(ended)?)
    }

    fn ask_for_conflicts(
        &self,
        list: impl FnOnce(
            &mut Connection,
            TransactionId,
        ) -> std::result::Result<Vec<atomdir_types::Conflict>, RequestError>,
    ) -> std::result::Result<Vec<Conflict>, CommitError> {
        self.declare_reads()
            .map_err(|error| failure::commit(error.into()))?;
        self.ask(
            || CommitError::Ended,
            |connection| {
                let found = list(connection, self.transaction.id);
                let found = found.map_err(|error| failure::commit(error.into()))?;
                Ok(Conflict::all(found))
            },
        )
    }

    fn commit_by(
        &self,
        commit: impl FnOnce(
            &mut Connection,
            TransactionId,
        ) -> std::result::Result<Committed, client::CommitError>,
    ) -> std::result::Result<Committed, CommitError> {
        self.store.opener.require()?;
        self.declare_reads()
            .map_err(|error| failure::commit(error.into()))?;
        let committed = self.ask(
            || CommitError::Ended,
            |connection| commit(connection, self.transaction.id).map_err(failure::commit),
        )?;
        self.ended();
        Ok(committed)
    }

    /// Gives the connection back for the next transaction.
    pub(super) fn ended(&self) {
        if let Some(connection) = sync::lock(&self.connection).take() {
            self.store.give_back(connection);
        }
    }
}

pub(super) fn has_ended() -> StoreError {
    StoreError::Other("the transaction has ended".to_owned())
}

/// The view's root. The descriptor that the client keeps closes with the client's transaction.
fn root_of(transaction: &client::Transaction) -> Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(transaction.root()?, 3)
}

impl Session for ServedTransaction {
    fn id(&self) -> TransactionId {
        self.transaction.id
    }

    fn as_served(&self) -> Option<&ServedTransaction> {
        Some(self)
    }

    fn isolation(&self) -> Isolation {
        self.guards.isolation
    }

    fn files(&self) -> &dyn Files {
        &self.files
    }

    fn open_shared(
        self: Arc<Self>,
        path: &Path,
        options: &OpenOptions,
    ) -> Result<Box<dyn OpenFile>> {
        Ok(Box::new(self.files.open_file(path, options)?))
    }

    fn view(&self) -> Option<&Path> {
        Some(&self.transaction.view_path)
    }

    fn view_directory(&self) -> Result<Option<OwnedFd>> {
        self.files.open_root().map(Some)
    }

    fn changes(&self) -> Result<Vec<ChangeLine>> {
        self.store.opener.require_for_files()?;
        let mut slot = sync::lock(&self.connection);
        let connection = slot.as_mut().ok_or(Errno::STALE)?;
        let changes = connection.changes(self.transaction.id);
        changes.map_err(|error| match error {
            RequestError::Failed(_) => Errno::STALE,
            _ => Errno::IO,
        })
    }

    fn object_of(
        &self,
        side: Side,
        path: &[u8],
        contents_length_max: u64,
    ) -> Result<Option<SnapshotContents>> {
        self.store.opener.require_for_files()?;
        let mut slot = sync::lock(&self.connection);
        let connection = slot.as_mut().ok_or(Errno::STALE)?;
        let found = connection.object_of((self.transaction.id, side), path, contents_length_max);
        found.map_err(|error| match error.kind() {
            Some(FailureKind::NotPermitted) => Errno::ACCESS,
            Some(FailureKind::NoSuchTransaction) => Errno::STALE,
            _ => Errno::IO,
        })
    }

    fn met(&self) -> Vec<Conflict> {
        // If something else made the file system busy, this lists what a commit would meet.
        match self.guards.conflicts {
            Conflicts::Early => self.conflicts().unwrap_or_default(),
            Conflicts::AtCommit => Vec::new(),
        }
    }

    fn set_savepoint(&self, name: &[u8]) -> std::result::Result<(), SavepointError> {
        let id = self.transaction.id;
        self.ask(
            || SavepointError::Ended,
            |connection| {
                let set = connection.set_savepoint(id, name);
                set.map_err(failure::savepoint)
            },
        )
    }

    fn roll_back(&self, name: &[u8]) -> std::result::Result<(), SavepointError> {
        let id = self.transaction.id;
        self.ask(
            || SavepointError::Ended,
            |connection| connection.roll_back(id, name).map_err(failure::savepoint),
        )
    }

    fn nest(&self) -> std::result::Result<Arc<dyn Session>, BeginError> {
        let options = BeginOptions {
            outer: Some(self.transaction.id),
            ..BeginOptions::default()
        };
        let guards = Guards {
            declares_reads: false,
            ..self.guards
        };
        self.begin_another(&options, guards)
    }

    fn fork(&self) -> std::result::Result<Arc<dyn Session>, BeginError> {
        let options = BeginOptions {
            fork_of: Some(self.transaction.id),
            declares_reads: self.guards.declares_reads,
            ..BeginOptions::default()
        };
        self.begin_another(&options, self.guards)
    }

    fn lock(&self, wanted: &LockWanted<'_>) -> std::result::Result<(), LockError> {
        let paths = wanted.paths.iter();
        let paths: Vec<Vec<u8>> = paths
            .map(|path| path.as_os_str().as_bytes().to_vec())
            .collect();
        let options = LockOptions {
            mode: wanted.mode,
            scope: wanted.scope,
            wait: wanted.wait,
            max_age: None,
        };
        self.ask(
            || LockError::Ended,
            |connection| {
                let locked = connection.lock(self.transaction.id, &paths, &options);
                locked.map_err(failure::lock)
            },
        )
    }

    fn commit(&self) -> std::result::Result<Committed, CommitError> {
        self.commit_by(|connection, id| connection.commit(id, &mut |_| {}))
    }

    fn commit_with_sides(&self, sides: &[Take]) -> std::result::Result<Committed, CommitError> {
        let portion = Portion::Sides(sides_of(sides));
        self.commit_by(|connection, id| {
            let done = connection.commit_portion(id, &portion, Others::Refuse, &mut |_| {});
            done.map(|done| done.committed)
        })
    }

    fn commit_part(
        &self,
        paths: &[&Path],
    ) -> std::result::Result<(Committed, Vec<ChangeLine>), CommitError> {
        let id = self.transaction.id;
        let (paths, label) = (bytes_of(paths), None);
        let portion = Portion::Part { paths, label };
        self.ask(
            || CommitError::Ended,
            |connection| {
                let done = connection.commit_portion(id, &portion, Others::Refuse, &mut |_| {});
                let part = done.map_err(failure::commit)?;
                Ok((part.committed, part.changes))
            },
        )
    }

    fn abort_part(&self, paths: &[&Path]) -> std::result::Result<Vec<ChangeLine>, CommitError> {
        let (id, paths) = (self.transaction.id, bytes_of(paths));
        self.ask(
            || CommitError::Ended,
            |connection| {
                let dropped = connection.abort_part(id, &paths);
                dropped.map_err(|error| failure::commit(error.into()))
            },
        )
    }

    fn set_terms(&self, terms: Terms) -> std::result::Result<(), CommitError> {
        let id = self.transaction.id;
        self.ask(
            || CommitError::Ended,
            |connection| {
                let set = connection.set_terms(id, terms);
                set.map_err(|error| failure::commit(error.into()))
            },
        )
    }

    fn conflicts(&self) -> std::result::Result<Vec<Conflict>, CommitError> {
        self.ask_for_conflicts(Connection::list_conflicts)
    }

    fn listed_conflicts(&self) -> std::result::Result<Vec<Conflict>, CommitError> {
        self.ask_for_conflicts(Connection::listed_conflicts)
    }

    fn refresh(&self) -> std::result::Result<Refreshed, CommitError> {
        let id = self.transaction.id;
        self.declare_reads()
            .map_err(|error| failure::commit(error.into()))?;
        let (from, to) = self.ask(
            || CommitError::Ended,
            |connection| connection.refresh(id, false).map_err(failure::commit),
        )?;
        // The view is another directory now, in the same place.
        let view = self.ask(
            || CommitError::Ended,
            |connection| {
                let view = connection.open_view(id);
                view.map_err(|error| failure::commit(error.into()))
            },
        )?;
        let root = root_of(&view).map_err(|errno| {
            let error = failure::view(errno);
            CommitError::Refused(format!(
                "the transaction has a newer snapshot now, but {error}"
            ))
        })?;
        self.files.replace(root);
        Ok(Refreshed { from, to })
    }

    fn keep(&self) -> std::result::Result<(), StoreError> {
        let id = self.transaction.id;
        self.declare_reads().map_err(failure::store)?;
        let kept = self.ask(has_ended, |connection| {
            connection.keep(id).map_err(failure::store)
        });
        kept?;
        self.ended();
        // Only a transaction that is kept can be flushed.
        self.store.ask(|connection| connection.flush(id))
    }

    fn sync(&self) -> std::result::Result<(), StoreError> {
        let id = self.transaction.id;
        self.ask(has_ended, |connection| {
            connection.flush(id).map_err(failure::store)
        })
    }

    fn abort(&self) {
        if !self.store.opener.is_here() {
            return;
        }
        let aborted = match sync::lock(&self.connection).as_mut() {
            Some(connection) => connection.abort(self.transaction.id),
            None => return,
        };
        match aborted {
            Ok(()) => self.ended(),
            Err(error) if error.kind() == Some(FailureKind::NoSuchTransaction) => self.ended(),
            // Closing the connection aborts the transaction, if the service still runs.
            Err(_) => drop(sync::lock(&self.connection).take()),
        }
    }

    fn store(&self) -> Arc<dyn Syncable> {
        Arc::new(Arc::downgrade(&self.store))
    }
}
