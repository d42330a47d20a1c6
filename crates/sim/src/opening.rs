//! How the simulated stores are made and opened, and with which options transactions begin in them.

use std::sync::Arc;

use atomdir_disk::{Disk, Name, NewNode};
use atomdir_engine::{
    BeginOptions, CARRIED_BYTES_MAX, Conflicts, Durability, HistoryLimits, Isolation, Layers,
    LogAt, NewLog, Options, Privileges, Recovery, Store, StoreError, Transaction,
};

use crate::disk::SimDisk;
use crate::operation::name_of;
use crate::tree::CONTROL;

/// Short, since each way of tearing a step is tried.
const LOG_STEP: u64 = 8 << 10;

/// Nothing is forgotten before [`Step::Prune`].
pub(crate) const HISTORY: HistoryLimits = HistoryLimits {
    age_seconds_max: 1 << 40,
    bytes_max: 1 << 40,
    free_bytes_min: 0,
};

/// The name of a log that is not in the control directory.
pub(crate) const LOG: &str = "store.log";

pub(crate) type SimStore = Store<SimDisk>;

pub(crate) fn make_store(disk: &SimDisk) -> Result<(), StoreError> {
    let failed = |errno| StoreError::Control {
        step: "make",
        errno,
    };
    let name = Name::new(CONTROL).expect("a constant is a valid name");
    match disk.make(&disk.root(), &name, &NewNode::Directory, 0o700) {
        Ok(()) | Err(atomdir_disk::Errno::EXIST) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let control = disk.directory_at(".atomdir").map_err(failed)?;
    let second = disk.second_root();
    let log = second.as_ref().map(|directory| NewLog {
        directory,
        name: name_of(LOG).expect("a constant is a valid name"),
        path: format!("/{LOG}").into_bytes(),
        id: [9; 16],
    });
    Store::create_in(
        disk,
        &disk.root(),
        &control,
        [7; 16],
        (Layers::Any, log.as_ref()),
    )?;
    disk.sync_directory(&disk.root()).map_err(failed)
}

pub(crate) fn open(disk: &SimDisk) -> Result<(SimStore, Recovery), StoreError> {
    open_with(disk, CARRIED_BYTES_MAX, false)
}

pub(crate) fn open_with(
    disk: &SimDisk,
    carried_bytes_max: u64,
    keeps_history: bool,
) -> Result<(SimStore, Recovery), StoreError> {
    let control = disk.directory_at(".atomdir");
    let control = control.map_err(|errno| StoreError::Control {
        step: "find",
        errno,
    })?;
    let options = Options {
        clock: Arc::new(disk.clone()),
        handles_max: 64,
        carried_bytes_max,
        log_step: LOG_STEP,
        history: keeps_history.then_some(HISTORY),
        privileges: Privileges {
            user: 0,
            groups: vec![0],
            all: true,
        },
    };
    Store::open_with_log(
        disk.clone(),
        disk.root(),
        (control, log_at(disk)),
        Name::new(CONTROL).ok(),
        options,
    )
}

/// The log is on the second file system, if there is one.
pub(crate) fn log_at(disk: &SimDisk) -> LogAt<SimDisk> {
    match disk.second_root() {
        Some(directory) => LogAt::Elsewhere {
            directory,
            name: name_of(LOG).expect("a constant is a valid name"),
        },
        None => LogAt::Inside,
    }
}

type Begun = Result<Arc<Transaction<SimDisk>>, String>;

pub(crate) fn options(isolation: Isolation, durability: Durability) -> BeginOptions {
    BeginOptions {
        conflicts: Conflicts::AtCommit,
        first_try: None,
        owner: 0,
        isolation,
        durability,
        label: b"simulated".to_vec(),
    }
}

pub(crate) fn begin(store: &SimStore, durability: Durability) -> Begun {
    let begun = store.begin(options(Isolation::Snapshot, durability));
    begun.map_err(|error| format!("begin: {error}"))
}

/// Likewise, with every commit that has returned in the base or published.
pub(crate) fn begin_published(store: &SimStore, durability: Durability) -> Begun {
    let begun = store.begin_published(options(Isolation::Snapshot, durability));
    begun.map_err(|error| format!("begin: {error}"))
}

/// Likewise, with every commit that has returned in the base.
pub(crate) fn begin_in_base(store: &SimStore, durability: Durability) -> Begun {
    let begun = store.begin_in_base(options(Isolation::Snapshot, durability));
    begun.map_err(|error| format!("begin: {error}"))
}
