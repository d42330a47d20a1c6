//! The engine in this process: a store that is opened here, and its transactions.
//!
//! Everything happens with this process's own rights, since no other process acts for it. So the
//! kernel's checks still apply to the user: each read of the base and each change of it is a system
//! call of this process. `permission` adds what the kernel cannot check there: the modes, owners
//! and lists that a transaction shows and has perhaps changed itself.
//!
//! Invariants
//! 1. A store is used only by the process that has opened it. A child that was forked off shares
//!    its lock and its open files, so every call checks for that first (`Embedded::here`).
//! 2. While a store is opened or being opened here, no service starts for it: opening holds the
//!    start lock, and then the store's lock.

mod annotate;
mod attributes;
mod committing;
mod convert;
mod file;
mod history;
mod lock;
mod open;
mod permission;
mod session;
#[cfg(test)]
mod tests;
mod walk;

use crate::api::session::{Session, Syncable};
use crate::api::{BeginError, Conflict, StoreError, UndoError, label_of};
use crate::hosting::{
    Requests, Ticks, keep_set_aside, run_maintenance, tend_own, tend_unconfirmed, without_signals,
};
use crate::process::Opener;
use crate::resolvers;
use atomdir_disk::LinuxDisk;
use atomdir_engine as engine;
use atomdir_protocol::Past;
use atomdir_types::sync;
use atomdir_types::{Conflicts, Durability, Isolation};
use history::look;
use permission::Protection;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use session::EmbeddedTransaction;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

/// A store that is open in this process.
pub(crate) struct Embedded {
    store: engine::Store<LinuxDisk>,
    user: engine::Credentials,
    /// Root in the initial user namespace: no permission is checked.
    is_privileged: bool,
    protection: Protection,
    umask: u32,
    opener: Opener,
    /// The control directory.
    control: OwnedFd,
    ticks: Arc<Ticks>,
    maintainer: Mutex<Option<JoinHandle<()>>>,
    /// Once nobody uses the store any more: whether all commits are durable.
    is_durable: Arc<AtomicBool>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut embedded = formatter.debug_struct("Embedded");
        embedded
            .field("opener", &self.opener)
            .finish_non_exhaustive()
    }
}

impl Embedded {
    fn start_maintenance(&self) -> std::io::Result<()> {
        let (store, ticks) = (self.store.clone(), self.ticks.clone());
        let thread = std::thread::Builder::new().name("atomdir".to_owned());
        // The program's signal handlers run in the program's own threads.
        let maintain = move || {
            run_maintenance(&store, &ticks, || tend_own(&store));
        };
        if self.store.awaits_confirmation() {
            self.ticks.wake();
        }
        let maintainer = without_signals(|| thread.spawn(maintain))?;
        let mut slot = sync::lock(&self.maintainer);
        *slot = Some(maintainer);
        Ok(())
    }

    fn is_here(&self) -> bool {
        self.opener.is_here()
    }

    /// The store, for its own process.
    fn here(&self) -> Result<&engine::Store<LinuxDisk>, StoreError> {
        self.opener.require()?;
        Ok(&self.store)
    }

    pub(crate) fn begin(
        self: &Arc<Embedded>,
        options: &crate::api::Begin,
    ) -> Result<Arc<dyn Session>, BeginError> {
        let options = engine::BeginOptions {
            owner: self.user.user,
            isolation: options.isolation,
            durability: options.durability,
            conflicts: options.conflicts,
            first_try: options.first_try,
            label: options.label.clone(),
        };
        let transaction = self.here()?.begin(options);
        let transaction = transaction.map_err(convert::begin_error)?;
        Ok(Arc::new(EmbeddedTransaction::new(
            self.clone(),
            transaction,
        )))
    }

    /// The store is open in its owner's process, and they may undo and see every commit.
    pub(crate) fn begin_from(
        self: &Arc<Embedded>,
        past: Past,
    ) -> Result<(Arc<dyn Session>, Vec<Conflict>), UndoError> {
        let store = self.here().map_err(BeginError::from)?;
        let options = engine::BeginOptions {
            owner: self.user.user,
            isolation: Isolation::Snapshot,
            durability: Durability::Durable,
            conflicts: Conflicts::AtCommit,
            first_try: None,
            label: label_of(&past).to_vec(),
        };
        let asked = past.clone();
        let mut not_as_then = Vec::new();
        let begun = match past {
            Past::Undo(undo) => {
                let undone = resolvers::take_back(store, &undo, &options);
                undone.map(|undone| {
                    not_as_then = undone.sided;
                    undone.transaction
                })
            }
            Past::Restore(restore) => {
                store.restore(restore.commit, &restore.paths, options.clone())
            }
            Past::View(view) => match look(store, &view, options.clone()) {
                Ok(shown) if shown.not_as_then.is_empty() || view.outside_as_now => {
                    not_as_then = shown.not_as_then;
                    Ok(shown.transaction)
                }
                Ok(shown) => {
                    store.abort(&shown.transaction);
                    Err(engine::UndoError::Conflict(shown.not_as_then))
                }
                Err(error) => Err(error),
            },
        };
        let transaction = begun.map_err(convert::undo_error)?;
        if let Some(commits) = asked.reported() {
            let changed = store.changed_outside(&transaction, commits, options);
            if changed.is_err() {
                store.abort(&transaction);
            }
            not_as_then.extend(changed.map_err(convert::undo_error)?);
            not_as_then.retain(|one| asked.concerns(&one.path));
            not_as_then.dedup();
        }
        let session = EmbeddedTransaction::new(self.clone(), transaction);
        Ok((Arc::new(session), Conflict::all(not_as_then)))
    }

    pub(crate) fn close(mut self) -> Result<(), StoreError> {
        self.here()?;
        self.end()
    }

    /// Makes lazy commits durable, and has those tried again that are set aside.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.here()?;
        let synced = self.synced();
        self.store.hasten_set_aside(self.user.user);
        synced
    }

    /// For [`Syncable`], as long as the store is open and afterwards.
    fn durable(self: &Arc<Embedded>) -> Arc<dyn Syncable> {
        Arc::new(Durable {
            store: Arc::downgrade(self),
            is_durable: self.is_durable.clone(),
        })
    }

    /// The requests of others who want the store.
    pub(crate) fn requests(&self) -> Result<Requests, Errno> {
        Requests::open(fcntl_dupfd_cloexec(&self.control, 3)?)
    }

    /// Fails if the store cannot be given up, since something would be lost with it. Nothing may be
    /// committed from now on.
    pub(crate) fn prepare_to_end(&self) -> Result<(), StoreError> {
        self.here()?;
        self.synced()?;
        self.is_durable.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes lazy commits durable. Fails if one is set aside.
    fn synced(&self) -> Result<(), StoreError> {
        self.store.sync().map_err(convert::store_error)?;
        match self.store.set_aside().first() {
            None => Ok(()),
            Some(first) => Err(StoreError::Stalled(format!(
                "not everything is durable: {first}"
            ))),
        }
    }

    fn end(&mut self) -> Result<(), StoreError> {
        let Some(maintainer) = sync::lock(&self.maintainer).take() else {
            return Ok(());
        };
        self.ticks.end();
        // A panic of the thread has been reported already.
        let _ = maintainer.join();
        tend_unconfirmed(&self.store);
        let synced = self.synced();
        self.is_durable.store(synced.is_ok(), Ordering::Release);
        keep_set_aside(&self.store);
        self.store.close().map_err(convert::store_error)?;
        synced
    }
}

/// For receipts of lazy commits.
pub(super) struct Durable {
    store: Weak<Embedded>,
    is_durable: Arc<AtomicBool>,
}

impl Syncable for Durable {
    fn sync(&self) -> Result<(), StoreError> {
        match self.store.upgrade() {
            Some(store) => store.sync(),
            None if self.is_durable.load(Ordering::Acquire) => Ok(()),
            None => Err(StoreError::Closed),
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        if let Err(error) = self.end() {
            // The log still has the commits that the base lacks; the next open recovers them.
            tracing::error!("the store could not be closed in order: {error}");
        }
    }
}
