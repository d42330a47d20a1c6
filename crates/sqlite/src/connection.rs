//! A SQLite connection in one store. All databases of that store that the connection has attached
//! share one transaction.
//!
//! Below, a *database* is one open file of the connection, and its *lock* is SQLite's (none, shared,
//! reserved, pending, exclusive). No lock excludes another connection.
//!
//! States and transitions
//!
//! 1. Idle: no database is locked, and there is no transaction.
//! 2. Reading: the first shared lock begins a serializable transaction. SQLite then drops its page
//!    cache (`header`), so it reads all pages that it uses in the transaction, and they
//!    enter the read set. Further databases that SQLite locks join the transaction. A step of a
//!    backup is the exception: it runs outside any statement, and a dropped cache would make the
//!    backup start over. So SQLite keeps its cache if no statement runs, none ran when the cache
//!    was filled, and the snapshot is the same.
//! 3. Writing: a reserved lock is always granted. Pages that SQLite writes go to the transaction.
//!    When its cache is full, it writes pages long before the commit.
//! 4. Commit: see below. A conflict leaves the transaction open; SQLite rolls back and gives up
//!    its locks.
//! 5. Committed: the transaction has ended, and a lock may be left, because another statement of
//!    the connection still reads. SQLite's cache then holds the pages as the commit left them. If
//!    nothing else was committed since, the next read or lock begins another transaction
//!    (`State::go_on`). It reads again all pages that SQLite may have in its cache, so that they
//!    enter the read set. If something was, or the outcome of the commit is unknown, further reads
//!    and locks fail until all locks are given up.
//! 6. The last unlock aborts what was not committed, and the connection is idle.
//!
//! Invariants
//!
//! 1. If the commit fails, SQLite can still roll back. So the commit happens before SQLite ends its
//!    journal: at `SQLITE_FCNTL_SYNC`, the last call for a database before that. With several
//!    databases it happens at the last of these calls, or when SQLite removes the super-journal,
//!    if it made one.
//! 2. SQLite also syncs after a rollback that has restored pages in the file. A sync belongs to a
//!    commit if and only if the change counter that SQLite wrote last differs from the one that the
//!    extension showed it. Every commit raises the counter, because SQLite gives up its locks
//!    between commits (`PRAGMA locking_mode=EXCLUSIVE` is refused), and every rollback restores it.
//! 3. A database with a reserved lock may turn out to be unchanged. Then SQLite does not sync it,
//!    and the commit that waited for it happens in `SQLITE_FCNTL_COMMIT_PHASETWO`. By then
//!    SQLite has marked its cache as clean. So a failure there must be an I/O error, after which
//!    SQLite drops the cache.
//! 4. Once the transaction has ended, the pages that a rollback restores are ignored: the changes
//!    that it undoes are not in the base, or the outcome of the commit is unknown.
//! 5. Journals are discarded when they are closed: they serve rollbacks only.

use crate::abi::{self, LOCK_NONE, LOCK_RESERVED};
use crate::database::Database;
use crate::failure::{Failure, Result};
use crate::outer::Outer;
use crate::retry;
use crate::state::{State, begin, begin_labelled, closed, ended, misuse};
use crate::stores::Held;
use crate::super_journals;
use atomdir::SharedTransaction;
use atomdir::hosting::sync;
use std::ffi::{CStr, c_int};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// The connections of this process, each with the address of SQLite's `sqlite3` object.
static CONNECTIONS: Mutex<Vec<(usize, Weak<Connection>)>> = Mutex::new(Vec::new());

pub(crate) struct Connection {
    held: Held,
    state: Mutex<State>,
}

impl Connection {
    /// The connection at this address. Fails if it has databases in no store, or in several.
    pub(crate) fn only_one_of(address: usize) -> Result<Arc<Connection>> {
        let connections = locked(&CONNECTIONS).clone();
        let connections = connections.into_iter().filter(|(at, _)| *at == address);
        let mut connections = connections.filter_map(|(_, connection)| connection.upgrade());
        match (connections.next(), connections.next()) {
            (Some(connection), None) => Ok(connection),
            (None, _) => Err(misuse("the connection has no database in a store")),
            _ => Err(misuse("the connection has databases in several stores")),
        }
    }

    /// Begins an outer transaction.
    /// `label`: the transaction's name in the log.
    pub(crate) fn begin(&self, label: &[u8]) -> Result<Arc<Outer>> {
        let transaction = begin_labelled(&self.held, label);
        let transaction = transaction.map_err(|error| Failure::of_begin(&error))?;
        let outer = Outer::new(self.held.store().root(), transaction.into());
        self.join(outer.clone())?;
        Ok(outer)
    }

    pub(crate) fn join(&self, outer: Arc<Outer>) -> Result<()> {
        let mut state = locked(&self.state);
        state.leave_ended();
        state.refuse_locked()?;
        if state.outer.is_some() {
            return Err(misuse("the connection is in a transaction already"));
        }
        if outer.root != self.held.store().root() {
            return Err(misuse("the transaction belongs to another store"));
        }
        state.outer = Some(outer);
        Ok(())
    }

    pub(crate) fn outer(&self) -> Result<Arc<Outer>> {
        let mut state = locked(&self.state);
        state.leave_ended();
        let outer = state.outer.clone();
        outer.ok_or_else(|| misuse("call atomdir_begin() first"))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    sync::lock(mutex)
}

/// One open database file.
pub(crate) struct OpenDatabase {
    connection: Arc<Connection>,
    id: u64,
}

impl Drop for OpenDatabase {
    fn drop(&mut self) {
        let mut state = locked(&self.connection.state);
        state.databases.remove(&self.id);
        state.end_if_idle();
    }
}

impl OpenDatabase {
    /// A database whose connection SQLite has not named yet.
    pub(crate) fn new(held: Held, path: PathBuf, is_writable: bool) -> OpenDatabase {
        let connection = Arc::new(Connection {
            held,
            state: Mutex::default(),
        });
        let id = locked(&connection.state).add(Database::new(path, is_writable));
        OpenDatabase { connection, id }
    }

    /// Assigns the database to SQLite's connection at `place`. Call it before the first lock.
    ///
    /// # Safety
    /// SQLite keeps its connection at `place` as long as the file is open.
    pub(crate) unsafe fn belongs_to(&mut self, place: *const *mut abi::Database) {
        // SAFETY: the caller's promise.
        let address = unsafe { place.read() }.expose_provenance();
        match locked(&self.connection.state).databases.get_mut(&self.id) {
            // With a shared cache SQLite names another connection later.
            Some(database) if database.place == 0 => database.place = place.expose_provenance(),
            _ => return,
        }
        let mut connections = locked(&CONNECTIONS);
        connections.retain(|(_, connection)| connection.strong_count() > 0);
        let known = connections.iter().find_map(|(at, connection)| {
            let connection = connection.upgrade()?;
            let root = connection.held.store().root();
            let is_this = *at == address && root == self.connection.held.store().root();
            is_this.then_some(connection)
        });
        let Some(known) = known else {
            locked(&self.connection.state).address = address;
            connections.push((address, Arc::downgrade(&self.connection)));
            return;
        };
        if Arc::ptr_eq(&known, &self.connection) {
            return;
        }
        let database = locked(&self.connection.state).databases.remove(&self.id);
        if let Some(database) = database {
            self.id = locked(&known.state).add(database);
            self.connection = known;
        }
    }

    /// Runs `act` in the transaction. SQLite also reads without a lock when it opens a database;
    /// such a read gets a snapshot of its own.
    fn with_transaction<T>(
        &self,
        act: impl FnOnce(&mut Database, &SharedTransaction) -> Result<T>,
    ) -> Result<T> {
        let mut state = locked(&self.connection.state);
        let state = &mut *state;
        let is_locked = |database: &Database| database.lock != LOCK_NONE;
        if state.end.is_some() && state.databases.get(&self.id).is_some_and(is_locked) {
            state.go_on(&self.connection.held)?;
        }
        let database = state.databases.get_mut(&self.id).ok_or_else(closed)?;
        match &state.transaction {
            Some(transaction) => act(database, transaction),
            None if database.lock == LOCK_NONE => {
                let transaction = self.connection.held.store().begin();
                let transaction = transaction.map_err(|error| Failure::of_begin(&error))?;
                let done = act(database, &transaction.into());
                database.close_file();
                done
            }
            None => Err(ended()),
        }
    }

    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.with_transaction(|database, transaction| database.read(transaction, buffer, offset))
    }

    /// Whether the file exists, and whether it may be written.
    pub(crate) fn look(&self) -> Result<(bool, bool)> {
        self.with_transaction(|database, transaction| database.look(transaction))
    }

    pub(crate) fn length(&self) -> Result<u64> {
        // After a commit SQLite asks for the length, to see whether it must cut the file off.
        if let Some(length) = locked(&self.connection.state).committed_length(self.id) {
            return Ok(length);
        }
        self.with_transaction(|database, transaction| database.length(transaction))
    }

    pub(crate) fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        self.change(|database, transaction| database.write(transaction, data, offset))
    }

    pub(crate) fn truncate(&self, length: u64) -> Result<()> {
        self.change(|database, transaction| database.truncate(transaction, length))
    }

    fn change(
        &self,
        change: impl FnOnce(&mut Database, &SharedTransaction) -> Result<()>,
    ) -> Result<()> {
        let mut state = locked(&self.connection.state);
        let state = &mut *state;
        let database = state.databases.get_mut(&self.id).ok_or_else(closed)?;
        match &state.transaction {
            Some(transaction) => change(database, transaction),
            // After a commit SQLite cuts the file off, which the commit has already done. After a
            // failed commit it restores pages (invariant 4).
            None if state.end.is_some() => Ok(()),
            None => Err(closed()),
        }
    }

    pub(crate) fn lock(&self, level: c_int) -> Result<()> {
        let mut state = locked(&self.connection.state);
        state.refuse_own(self.id, level)?;
        let state = &mut *state;
        if state.end.is_some() {
            state.go_on(&self.connection.held)?;
        }
        state.leave_ended();
        let database = state.databases.get_mut(&self.id).ok_or_else(closed)?;
        if database.place != 0 && database.owner() != state.address {
            return Err(misuse(
                "a database in a store cannot be opened with cache=shared",
            ));
        }
        if let Some(outer) = &state.outer {
            outer.lock(database.key, &database.path, level)?;
        }
        if database.lock == LOCK_NONE {
            let mut at = None;
            let transaction = match (&state.transaction, &state.outer) {
                (Some(transaction), _) => transaction,
                (None, Some(outer)) => state.transaction.insert(outer.transaction.clone()),
                (None, None) => {
                    let begun = begin(&self.connection.held);
                    let begun = begun.map_err(|error| Failure::of_begin(&error))?;
                    let begun = state.transaction.insert(begun.into());
                    if !retry::is_any_running(state.address) {
                        at = begun.refresh().ok().map(|refreshed| refreshed.to);
                    }
                    begun
                }
            };
            if let Err(failure) = database.begin(transaction, at) {
                if let Some(outer) = &state.outer {
                    outer.unlock(database.key, LOCK_NONE);
                }
                state.end_if_idle();
                return Err(failure);
            }
        }
        if let Some(transaction) = state
            .transaction
            .as_ref()
            .filter(|_| level >= LOCK_RESERVED)
        {
            database.reserve(transaction)?;
        }
        database.lock = database.lock.max(level);
        Ok(())
    }

    pub(crate) fn lock_level(&self) -> c_int {
        let state = locked(&self.connection.state);
        let database = state.databases.get(&self.id);
        database.map_or(LOCK_NONE, |database| database.lock)
    }

    pub(crate) fn unlock(&self, level: c_int) {
        let mut state = locked(&self.connection.state);
        let state = &mut *state;
        if let Some(database) = state.databases.get_mut(&self.id) {
            database.unlock(level);
            if let Some(outer) = &state.outer {
                if std::mem::take(&mut database.is_dirty) {
                    outer.damage();
                }
                outer.unlock(database.key, level);
            }
        }
        let is_writing = |database: &Database| database.lock >= LOCK_RESERVED;
        if !state.databases.values().any(is_writing) {
            state.super_journal = None;
        }
        state.end_if_idle();
    }

    /// Commits, if this is the last database of a commit that has no super-journal. SQLite calls it
    /// when it has written all changes of this database, or a rollback has restored the pages.
    pub(crate) fn sync(&self, super_journal: Option<&CStr>) -> Result<()> {
        let ours = super_journal.filter(|name| super_journals::is_open(name));
        if let Some(name) = ours {
            self.refuse_other_stores(name)?;
        }
        let mut state = locked(&self.connection.state);
        let state = &mut *state;
        let database = state.databases.get_mut(&self.id).ok_or_else(closed)?;
        database.is_dirty = false;
        if !database.is_committing() {
            return Ok(());
        }
        let transaction = state.transaction.as_ref().ok_or_else(ended)?;
        database.prepare(transaction)?;
        if let Some(name) = ours {
            state.super_journal = Some(name.to_owned());
            return Ok(());
        }
        let waits = |database: &Database| database.lock >= LOCK_RESERVED && !database.is_prepared;
        match state.databases.values().any(waits) {
            true => Ok(()),
            false => state.commit().map_err(|failure| state.run_again(failure)),
        }
    }

    /// Commits what `sync` has prepared but not committed. SQLite calls it after its own commit.
    pub(crate) fn end_commit(&self) -> Result<()> {
        let mut state = locked(&self.connection.state);
        let is_prepared = |database: &Database| database.is_prepared;
        if !state.databases.values().any(is_prepared) {
            return Ok(());
        }
        state.commit().map_err(|failure| Failure {
            code: abi::IOERR_COMMIT_ATOMIC,
            ..failure
        })
    }

    /// One commit cannot span two stores.
    fn refuse_other_stores(&self, super_journal: &CStr) -> Result<()> {
        let connections = with_super_journal(super_journal);
        let is_this = |other: &Arc<Connection>| Arc::ptr_eq(other, &self.connection);
        match connections.iter().all(is_this) {
            true => Ok(()),
            false => Err(misuse(
                "the transaction has changed databases in two stores; change each store in a \
                 transaction of its own",
            )),
        }
    }
}

fn with_super_journal(name: &CStr) -> Vec<Arc<Connection>> {
    let connections = locked(&CONNECTIONS).clone().into_iter();
    let open = connections.filter_map(|(_, known)| known.upgrade());
    open.filter(|known| locked(&known.state).super_journal.as_deref() == Some(name))
        .collect()
}

/// Commits the databases of a super-journal, which SQLite is removing.
pub(crate) fn end_super_journal(name: &CStr) -> Result<()> {
    super_journals::close(name);
    for connection in with_super_journal(name) {
        locked(&connection.state).commit()?;
    }
    Ok(())
}
