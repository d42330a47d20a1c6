//! A store in a temporary directory, a model of a tree, and random operations
//! that are done to both.
#![allow(dead_code)] // Each test uses a part of it.

pub mod cache;
pub mod counting;
pub mod failing;
pub mod merge_model;
pub mod model;
pub mod script;
pub mod trees;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use atomdir_disk::{Disk, LinuxDisk, Name, Timestamp};
use atomdir_engine::{
    BeginOptions, CARRIED_BYTES_MAX, Clock, Conflicts, Durability, HistoryLimits, Isolation,
    LOG_STEP, Options, Privileges, Store, Transaction,
};
use atomdir_testing::{fresh_directory, quick_directory};

use failing::FailingDisk;

pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("the clock is past 1970");
        Timestamp {
            seconds: now.as_secs() as i64,
            nanoseconds: now.subsec_nanos(),
        }
    }
}

/// A clock that a test sets, in seconds.
#[derive(Default)]
pub struct SetClock(pub AtomicI64);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp {
            seconds: self.0.load(Ordering::Relaxed),
            nanoseconds: 0,
        }
    }
}

/// A directory that is removed when the test ends, even if it fails.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        let path = fresh_directory(&quick_directory(), "engine");
        std::fs::create_dir(path.join(".atomdir")).expect("a fresh directory takes an entry");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn create(root: &Path) {
    create_with(&LinuxDisk::new(), root);
}

pub fn create_with<D: Disk<Handle = OwnedFd>>(disk: &D, root: &Path) {
    let control = handle(&root.join(".atomdir"));
    Store::create(disk, &handle(root), &control, [7; 16]).expect("a fresh store can be made");
}

fn handle(path: &Path) -> OwnedFd {
    LinuxDisk::open_root(path).expect("the directory opens")
}

pub fn open_with<D: Disk<Handle = OwnedFd>>(
    disk: D,
    root: &Path,
) -> Result<Store<D>, atomdir_engine::StoreError> {
    open_keeping(disk, root, None)
}

/// Opens a store that keeps history within these limits.
pub fn open_keeping<D: Disk<Handle = OwnedFd>>(
    disk: D,
    root: &Path,
    history: Option<HistoryLimits>,
) -> Result<Store<D>, atomdir_engine::StoreError> {
    open_as(disk, root, own_privileges(), history)
}

fn own_privileges() -> Privileges {
    let user = rustix::process::geteuid().as_raw();
    Privileges {
        user,
        groups: vec![rustix::process::getegid().as_raw()],
        all: user == 0,
    }
}

pub fn open_as<D: Disk<Handle = OwnedFd>>(
    disk: D,
    root: &Path,
    privileges: Privileges,
    history: Option<HistoryLimits>,
) -> Result<Store<D>, atomdir_engine::StoreError> {
    open_caching(64, disk, root, privileges, history)
}

pub fn open_caching<D: Disk<Handle = OwnedFd>>(
    handles_max: usize,
    disk: D,
    root: &Path,
    privileges: Privileges,
    history: Option<HistoryLimits>,
) -> Result<Store<D>, atomdir_engine::StoreError> {
    let options = Options {
        handles_max,
        ..engine_options(privileges, history)
    };
    open_by(disk, root, options)
}

/// Opens a store whose commits take their times from this clock.
pub fn open_timed(clock: Arc<dyn Clock>, root: &Path, history: HistoryLimits) -> Store<LinuxDisk> {
    let options = Options {
        clock,
        ..engine_options(own_privileges(), Some(history))
    };
    open_by(LinuxDisk::new(), root, options).expect("the store opens")
}

fn engine_options(privileges: Privileges, history: Option<HistoryLimits>) -> Options {
    Options {
        clock: Arc::new(SystemClock),
        handles_max: 64,
        carried_bytes_max: CARRIED_BYTES_MAX,
        log_step: LOG_STEP,
        history,
        privileges,
    }
}

fn open_by<D: Disk<Handle = OwnedFd>>(
    disk: D,
    root: &Path,
    options: Options,
) -> Result<Store<D>, atomdir_engine::StoreError> {
    let hidden = Some(Name::new(b".atomdir").expect("it is a name"));
    let opened = Store::open(
        disk,
        handle(root),
        handle(&root.join(".atomdir")),
        hidden,
        options,
    );
    opened.map(|(store, _)| store)
}

pub fn open(root: &Path) -> Store<LinuxDisk> {
    open_with(LinuxDisk::new(), root).expect("the store opens")
}

/// Nothing is forgotten within a test.
pub const EVERYTHING: HistoryLimits = HistoryLimits {
    age_seconds_max: 1 << 30,
    bytes_max: 1 << 40,
    free_bytes_min: 0,
};

pub fn open_history(root: &Path) -> Store<LinuxDisk> {
    open_keeping(LinuxDisk::new(), root, Some(EVERYTHING)).expect("the store opens")
}

pub fn begin<D: Disk>(store: &Store<D>) -> Arc<Transaction<D>> {
    store.begin(options()).expect("a transaction begins")
}

pub fn begin_with<D: Disk>(store: &Store<D>, durability: Durability) -> Arc<Transaction<D>> {
    let options = BeginOptions {
        durability,
        ..options()
    };
    store.begin(options).expect("a transaction begins")
}

pub fn begin_nested<D: Disk>(store: &Store<D>, outer: &Arc<Transaction<D>>) -> Arc<Transaction<D>> {
    let begun = store.begin_nested(outer, options());
    begun.expect("it can be nested")
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

/// How often the log was flushed since the disk's changes were last taken.
pub fn take_log_flushes(disk: &FailingDisk) -> usize {
    let changes = disk.take_changes().into_iter();
    changes.filter(|change| *change == "sync_data").count()
}

/// A small generator. A test that fails prints its seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % bound.max(1) as u64) as usize
    }
}

/// The seeds of a test: the one that was requested, or the first `count`.
pub fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("ATOMDIR_SEED") {
        Ok(seed) => vec![seed.parse().expect("ATOMDIR_SEED is a number")],
        Err(_) => (1..=count).collect(),
    }
}

/// The same, and also the seeds by which a defect was once found.
pub fn seeds_and(count: u64, found: &[u64]) -> Vec<u64> {
    let mut seeds = seeds(count);
    if seeds.len() > 1 {
        seeds.extend(found);
    }
    seeds
}
