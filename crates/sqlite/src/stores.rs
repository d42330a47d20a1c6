//! The stores that this process has open. A process can open a store only once, so all databases in
//! a store share one `Store`. Closing the last of them closes the store.

use crate::failure::Failure;
use atomdir::hosting::sync;
use atomdir::{Door, Store, StoreOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

static STORES: Mutex<Vec<Weak<Store>>> = Mutex::new(Vec::new());

/// A database's hold on its store.
#[derive(Clone)]
pub(crate) struct Held(Option<Arc<Store>>);

impl Held {
    pub(crate) fn store(&self) -> &Store {
        // Only `drop` takes it out.
        self.0.as_ref().unwrap_or_else(|| unreachable!())
    }
}

impl Drop for Held {
    /// Holds `STORES` while the store closes, so that no thread opens it again before it is closed.
    fn drop(&mut self) {
        let _stores = stores();
        drop(self.0.take());
    }
}

fn stores() -> MutexGuard<'static, Vec<Weak<Store>>> {
    sync::lock(&STORES)
}

/// Opens the store that contains the file, and returns the file's path in it.
pub(crate) fn open(file: &Path, door: Door) -> Result<(Held, PathBuf), Failure> {
    let parts = file.parent().zip(file.file_name());
    let (directory, name) = parts.ok_or_else(|| Failure::cannot_open("the path has no name"))?;
    let location = atomdir::find(directory).map_err(Failure::cannot_open)?;
    let path = location.start.join(name);
    let mut stores = stores();
    stores.retain(|store| store.strong_count() > 0);
    let mut open = stores.iter().filter_map(Weak::upgrade);
    if let Some(store) = open.find(|store| store.root() == location.root) {
        return Ok((Held(Some(store)), path));
    }
    let mut options = StoreOptions::new();
    options.door(door);
    let store = options.open(directory).map_err(Failure::cannot_open)?;
    let store = Arc::new(store);
    stores.push(Arc::downgrade(&store));
    Ok((Held(Some(store)), path))
}
