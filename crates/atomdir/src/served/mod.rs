//! Transactions of a store's service, used through their views.
//!
//! `directory` and `file` are the operations on files, which the kernel resolves and checks, and
//! `reads` notes what is read. `session` is the rest of a transaction, `together` commits those of several
//! stores, and `failure` translates what
//! the service reports.
//!
//! A child that was forked off shares the connections, so every call checks that it comes from
//! the process that has opened the store.

pub(crate) mod directory;
mod failure;
mod file;
mod reads;
mod session;
mod together;

use crate::api::session::{Session, Syncable};
use crate::api::{Begin, BeginError, Conflict, StoreError, UndoError};
use crate::connection::Connection;
use crate::error::RequestError;
use crate::process::Opener;
use crate::{ConnectError, StartService, StoreLocation};
use atomdir_protocol::{BeginOptions, Past, Sequence};
use atomdir_types::sync;
use atomdir_types::{CommitDetails, Durability, TransactionId};
pub(crate) use session::ServedTransaction;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
pub(crate) use together::{commit_together, link};

/// So many connections are kept for the next transactions.
const IDLE_MAX: usize = 8;

/// A store whose service this process uses.
pub(crate) struct Served {
    location: StoreLocation,
    start: StartService,
    opener: Opener,
    /// Connections without a transaction. The last one returned is the next one used.
    idle: Mutex<Vec<Connection>>,
}

impl fmt::Debug for Served {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut served = formatter.debug_struct("Served");
        served
            .field("root", &self.location.root)
            .finish_non_exhaustive()
    }
}

impl Served {
    /// Connects to the service, and starts it if `start` says so.
    pub(crate) fn open(
        location: &StoreLocation,
        start: &StartService,
    ) -> Result<Served, ConnectError> {
        let connection = Connection::open(location, start)?;
        Ok(Served {
            location: location.clone(),
            start: start.clone(),
            opener: Opener::this_process(),
            idle: Mutex::new(vec![connection]),
        })
    }

    pub(crate) fn begin(self: &Arc<Served>, begin: &Begin) -> Result<Arc<dyn Session>, BeginError> {
        self.opener.require()?;
        let options = BeginOptions {
            isolation: begin.isolation,
            durability: begin.durability,
            conflicts: begin.conflicts,
            first_try: begin.first_try,
            label: begin.label.clone(),
            declares_reads: begin.declares_reads,
            ..BeginOptions::default()
        };
        ServedTransaction::begin(self, &options)
    }

    /// Sends a request that is about no transaction.
    pub(crate) fn ask<T>(
        &self,
        ask: impl FnOnce(&mut Connection) -> Result<T, RequestError>,
    ) -> Result<T, StoreError> {
        self.ask_with(ask)?.map_err(failure::store)
    }

    /// The same, and leaves the request's error to the caller.
    fn ask_with<T>(
        &self,
        ask: impl FnOnce(&mut Connection) -> Result<T, RequestError>,
    ) -> Result<Result<T, RequestError>, StoreError> {
        self.opener.require()?;
        let mut connection = self.connection().map_err(failure::connect)?;
        let answer = ask(&mut connection);
        // After a failed request the service goes on reading.
        if matches!(answer, Ok(_) | Err(RequestError::Failed(_))) {
            self.give_back(connection);
        }
        Ok(answer)
    }

    pub(crate) fn show(&self, commit: Sequence) -> Result<CommitDetails, UndoError> {
        self.ask_of_commit(|connection| connection.show(commit))
    }

    /// Sends a request that is about a past commit.
    pub(crate) fn ask_of_commit<T>(
        &self,
        ask: impl FnOnce(&mut Connection) -> Result<T, RequestError>,
    ) -> Result<T, UndoError> {
        let answer = self.ask_with(ask).map_err(BeginError::from)?;
        answer.map_err(|error| failure::undo(error.into()))
    }

    pub(crate) fn begin_from(
        self: &Arc<Served>,
        past: Past,
    ) -> Result<(Arc<dyn Session>, Vec<Conflict>), UndoError> {
        self.opener.require().map_err(BeginError::from)?;
        ServedTransaction::begin_from(self, past)
    }

    pub(crate) fn attach(
        self: &Arc<Served>,
        id: TransactionId,
    ) -> Result<(Arc<dyn Session>, Durability), BeginError> {
        self.opener.require()?;
        ServedTransaction::attach(self, id)
    }

    /// Returns a connection that still works, if possible one that is open.
    fn connection(&self) -> Result<Connection, ConnectError> {
        loop {
            let idle = sync::lock(&self.idle).pop();
            match idle {
                Some(idle) if idle.is_closed() => {}
                Some(idle) => return Ok(idle),
                None => return Connection::open(&self.location, &self.start),
            }
        }
    }

    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.ask(Connection::sync)
    }

    /// Fails if the service cannot be reached, for example because it has ended.
    pub(crate) fn reach(&self) -> Result<(), ConnectError> {
        self.give_back(self.connection()?);
        Ok(())
    }

    fn give_back(&self, connection: Connection) {
        let mut idle = sync::lock(&self.idle);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }
}

/// For receipts of lazy commits.
impl Syncable for Weak<Served> {
    fn sync(&self) -> Result<(), StoreError> {
        self.upgrade().ok_or(StoreError::Closed)?.sync()
    }
}
