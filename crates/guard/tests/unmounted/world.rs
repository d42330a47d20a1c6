//! A store with a guard over it, and without a mount.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use atomdir_disk::{FileUsers, Identity, LinuxDisk, Name, Timestamp};
use atomdir_engine::{
    BeginOptions, CARRIED_BYTES_MAX, Clock, Conflicts, Durability, Guarding, HistoryLimits,
    Isolation, LOG_STEP, MayWait, Options, Privileges, Store, Touched, Transaction,
};
use atomdir_guard::{Guarded, Known};
use atomdir_testing::{fresh_directory, quick_directory};

struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }
}

/// Notes which commits were applied, in their order, as the kernel would see it.
struct Kernel {
    known: Arc<Known>,
    changed: Arc<Mutex<Vec<bool>>>,
}

impl Guarding for Kernel {
    fn users(&self, path: &[u8], file: Identity) -> FileUsers {
        self.known.users(path, file)
    }

    fn forget(&self, touched: &Touched) {
        self.known.forget(touched);
    }

    fn begin(&self, may_wait: MayWait) {
        self.known.begin(may_wait);
    }

    fn retry(&self) {
        self.known.retry();
    }

    fn changed(&self, applied: bool) {
        self.known.changed(applied);
        self.changed.lock().expect("unlocked").push(applied);
    }
}

pub type Open = Arc<Transaction<LinuxDisk>>;

pub struct Scratch(pub PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn options() -> BeginOptions {
    BeginOptions {
        owner: 0,
        isolation: Isolation::Snapshot,
        durability: Durability::Durable,
        conflicts: Conflicts::AtCommit,
        first_try: None,
        label: b"test".to_vec(),
    }
}

pub fn open(root: &Path) -> Store<LinuxDisk> {
    let user = rustix::process::geteuid().as_raw();
    let options = Options {
        clock: Arc::new(Still),
        handles_max: 16,
        carried_bytes_max: CARRIED_BYTES_MAX,
        log_step: LOG_STEP,
        history: Some(HistoryLimits {
            age_seconds_max: 1 << 30,
            bytes_max: 1 << 40,
            free_bytes_min: 0,
        }),
        privileges: Privileges {
            user,
            groups: vec![rustix::process::getegid().as_raw()],
            all: user == 0,
        },
    };
    let handle = |path: &Path| LinuxDisk::open_root(path).expect("it opens");
    let hidden = Name::new(b".atomdir").expect("a name");
    let control = handle(&root.join(".atomdir"));
    let opened = Store::open(
        LinuxDisk::new(),
        handle(root),
        control,
        Some(hidden),
        options,
    );
    opened.expect("the store opens").0
}

pub struct World {
    pub store: Store<LinuxDisk>,
    pub guarded: Guarded,
    changed: Arc<Mutex<Vec<bool>>>,
    // Removed at last.
    scratch: Scratch,
}

impl World {
    pub fn new() -> World {
        let scratch = Scratch(fresh_directory(&quick_directory(), "guard"));
        let root = &scratch.0;
        std::fs::create_dir(root.join(".atomdir")).expect("made");
        let handle = |path: &Path| LinuxDisk::open_root(path).expect("it opens");
        let control = handle(&root.join(".atomdir"));
        Store::create(&LinuxDisk::new(), &handle(root), &control, [7; 16]).expect("created");
        let store = open(root);
        let known = Arc::new(Known::new(&handle(root)).expect("it can be looked at"));
        let changed = Arc::default();
        let kernel = Kernel {
            known: known.clone(),
            changed: Arc::clone(&changed),
        };
        let guard = store.guard(Arc::new(kernel)).expect("it has none");
        let hidden = Name::new(b".atomdir").ok();
        let guarded = Guarded::new(guard, known, hidden);
        World {
            store,
            guarded,
            changed,
            scratch,
        }
    }

    /// Of each commit since the last time whether it was applied.
    pub fn take_changed(&self) -> Vec<bool> {
        std::mem::take(&mut *self.changed.lock().expect("unlocked"))
    }

    pub fn root(&self) -> &Path {
        &self.scratch.0
    }

    pub fn close(self) -> Scratch {
        self.scratch
    }
}
