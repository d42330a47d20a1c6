//! Opening a store: through its service, or in this process.

use super::error::OpenError;
use super::holding::{Holding, Opened};
use super::store::Store;
use crate::connection::Connection;
use crate::embedded::Embedded;
use crate::hosting::HeldHow;
use crate::location::find_with;
use crate::served::Served;
use crate::{ConnectError, FindError, StartService, StoreLocation, Trust};
use std::path::Path;
use std::sync::Arc;

/// The way to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Door {
    /// The store's service if one runs, and otherwise this process until somebody else wants the
    /// store: see [`Store`].
    #[default]
    Any,
    /// This process alone, for as long as it has the store open, whoever else wants it: no
    /// service, no socket and no mount. Only the store's owner can do so.
    Embedded,
    /// The store's service alone.
    Service,
}

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    door: Door,
    trust: Trust,
    start: StartService,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            door: Door::Any,
            trust: Trust::Listed,
            start: StartService::Never,
        }
    }
}

impl StoreOptions {
    /// The defaults: a trusted store, by its service or else in this process.
    pub fn new() -> StoreOptions {
        StoreOptions::default()
    }

    /// Which way to the store is taken.
    pub fn door(&mut self, door: Door) -> &mut StoreOptions {
        self.door = door;
        self
    }

    /// Which stores are used besides the caller's own and root's.
    pub fn trust(&mut self, trust: Trust) -> &mut StoreOptions {
        self.trust = trust;
        self
    }

    /// How a service is started if none runs. Without this, none is started.
    pub fn start_service(&mut self, start: StartService) -> &mut StoreOptions {
        self.start = start;
        self
    }

    /// Opens the store that contains `path`.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store, OpenError> {
        let location = find_with(path.as_ref(), self.trust)?;
        if location.transaction.is_some() {
            let path = path.as_ref().to_owned();
            return Err(FindError::InView { path }.into());
        }
        let opened = self.open_at(&location)?;
        Ok(Store::new(Holding::new(self.clone(), location, opened)))
    }

    /// This process had the store to itself until it handed it over.
    pub(super) fn once_handed_over(mut self) -> StoreOptions {
        if self.door == Door::Embedded {
            self.door = Door::Any;
        }
        self
    }

    pub(super) fn takes_any_door(&self) -> bool {
        self.door == Door::Any
    }

    pub(super) fn open_at(&self, location: &StoreLocation) -> Result<Opened, OpenError> {
        match self.door {
            Door::Service => self.serve(location).map_err(|error| match error {
                OpenError::Connect(ConnectError::NotRunning { .. }) => {
                    held_elsewhere(error, location)
                }
                error => error,
            }),
            Door::Embedded => self.embed(location),
            Door::Any => match self.serve(location) {
                Err(OpenError::Connect(ConnectError::NotRunning { .. })) => {
                    self.embed_or_serve(location)
                }
                served => served,
            },
        }
    }

    fn serve(&self, location: &StoreLocation) -> Result<Opened, OpenError> {
        let served = Served::open(location, &self.start)?;
        Ok(Opened::Served(Arc::new(served)))
    }

    fn embed(&self, location: &StoreLocation) -> Result<Opened, OpenError> {
        let embedded = Embedded::open(location, || refuse_served(location))?;
        Ok(Opened::Embedded(Arc::new(embedded)))
    }

    /// No service ran a moment ago, and one may have started since.
    fn embed_or_serve(&self, location: &StoreLocation) -> Result<Opened, OpenError> {
        match self.embed(location) {
            Err(held @ OpenError::Held { .. }) => match self.serve(location) {
                Err(OpenError::Connect(ConnectError::NotRunning { .. })) => Err(held),
                served => served,
            },
            embedded => embedded,
        }
    }
}

/// Fails if a service runs, past which this process must not go.
fn refuse_served(location: &StoreLocation) -> Result<(), OpenError> {
    match Connection::open(location, &StartService::Never) {
        Err(ConnectError::NotRunning { .. }) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(connection) => Err(OpenError::Held {
            store: location.root.clone(),
            holder: connection.service_holder(),
            how: HeldHow::ByService,
        }),
    }
}

/// No service runs; if a program has the store open in its own process, the error names it.
fn held_elsewhere(not_running: OpenError, location: &StoreLocation) -> OpenError {
    match location.holder() {
        None => not_running,
        Some((holder, how)) => OpenError::Held {
            store: location.root.clone(),
            holder: Some(holder),
            how,
        },
    }
}
