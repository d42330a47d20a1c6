//! Concurrent clients, by the command and by the library, each read and write files in
//! their views. A checker looks for an order that explains what they read and wrote: see
//! `atomdir_testing::history`. Some runs kill the service again and again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use atomdir::client::{BeginOptions, CommitError, Connection};
use atomdir::{Isolation, StartService, TransactionId};
use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::history::{self, History, Key, Level, Operation, Outcome, check};
use atomdir_testing::{Fixture, Random, Store, User, binary, pick, users_can_mount};
use rustix::process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

const REGISTERS: u32 = 8;
const LISTS: u32 = 3;
const SETS: u32 = 3;
const CLIENTS: usize = 6;
const PAGE: u64 = 4096;

/// A service that was killed is back long before so many begins have failed.
const FAILED_BEGINS_MAX: usize = 1_000;

const TREE: &str = "truncate -s 32768 pages; for i in 0 1 2; do : > list$i; mkdir set$i; done; \
     for i in 1 5; do touch -d @0 time$i; done";

fn keys() -> Vec<Key> {
    let registers = (0..REGISTERS).map(Key::Register);
    let lists = (0..LISTS).map(Key::List);
    registers
        .chain(lists)
        .chain((0..SETS).map(Key::Set))
        .collect()
}

fn values(bytes: &[u8]) -> Vec<u64> {
    let (values, _) = bytes.as_chunks::<8>();
    let values = values.iter().map(|bytes| u64::from_le_bytes(*bytes));
    values.filter(|value| *value != 0).collect()
}

/// Registers are pages of one file, times, files changed in place, and files
/// replaced by a rename; lists are files that grow; sets are directories.
fn read(root: &Path, key: Key) -> io::Result<Vec<u64>> {
    match key {
        Key::Register(number) => match number % 4 {
            0 => {
                let mut bytes = [0; 8];
                let file = File::open(root.join("pages"))?;
                file.read_exact_at(&mut bytes, u64::from(number) * PAGE)?;
                Ok(values(&bytes))
            }
            1 => {
                let modified = fs::metadata(root.join(format!("time{number}")))?.modified()?;
                let since = modified.duration_since(SystemTime::UNIX_EPOCH);
                let seconds = since.map_err(io::Error::other)?.as_secs();
                Ok(Vec::from_iter((seconds > 0).then_some(seconds)))
            }
            _ => match fs::read(root.join(format!("file{number}"))) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
                bytes => Ok(values(&bytes?)),
            },
        },
        Key::List(number) => Ok(values(&fs::read(root.join(format!("list{number}")))?)),
        Key::Set(number) => {
            let mut values = Vec::new();
            for entry in fs::read_dir(root.join(format!("set{number}")))? {
                let name = entry?.file_name().into_string();
                let value = name.ok().and_then(|name| name.parse().ok());
                values.push(value.ok_or(ErrorKind::InvalidData)?);
            }
            Ok(values)
        }
    }
}

fn write(root: &Path, key: Key, value: u64) -> io::Result<()> {
    let bytes = value.to_le_bytes();
    match key {
        Key::Register(number) => match number % 4 {
            0 => {
                let file = File::options().write(true).open(root.join("pages"))?;
                file.write_all_at(&bytes, u64::from(number) * PAGE)
            }
            1 => {
                let file = File::options()
                    .write(true)
                    .open(root.join(format!("time{number}")))?;
                file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(value))
            }
            2 => {
                let mut open = File::options();
                open.write(true).create(true).truncate(false);
                let file = open.open(root.join(format!("file{number}")))?;
                file.write_all_at(&bytes, 0)
            }
            _ => {
                fs::write(root.join("new"), bytes)?;
                fs::rename(root.join("new"), root.join(format!("file{number}")))
            }
        },
        Key::List(number) => {
            let path = root.join(format!("list{number}"));
            File::options().append(true).open(path)?.write_all(&bytes)
        }
        Key::Set(number) => {
            let name = root.join(format!("set{number}")).join(value.to_string());
            File::create_new(name).map(|_| ())
        }
    }
}

/// How a client begins and commits.
enum Door<'a> {
    Command(&'a Store),
    Library(&'a Store, Option<Connection>),
}

struct Begun {
    id: String,
    view: PathBuf,
}

/// Starts the service as the command does, in the same runtime directory, so that each
/// service finds the mount that a killed one left behind.
fn start_service(store: &Store) -> StartService {
    let runtime = store.user().home().join("run");
    let program = [binary().display().to_string()];
    let arguments = ["service", "run", "--detach", "--store"].map(str::to_owned);
    let all = [format!("XDG_RUNTIME_DIR={}", runtime.display())]
        .into_iter()
        .chain(program)
        .chain(arguments)
        .chain([store.path().display().to_string()]);
    StartService::IfNeeded {
        program: PathBuf::from("/usr/bin/env"),
        arguments: all.map(Into::into).collect(),
    }
}

impl Door<'_> {
    /// `None`: the service was killed.
    fn begin(&mut self, isolation: Isolation) -> Option<Begun> {
        match self {
            Door::Command(store) => {
                let level = match isolation {
                    Isolation::Snapshot => "snapshot",
                    Isolation::Serializable => "serializable",
                };
                let outcome = store.call(["begin", "--isolation", level]);
                let text = outcome.text();
                let (id, view) = text.trim_end().split_once('\n')?;
                Some(Begun {
                    id: id.to_owned(),
                    view: PathBuf::from(view),
                })
            }
            Door::Library(store, connection) => {
                if connection.is_none() {
                    let found = atomdir::find(store.path()).expect("it is a store");
                    *connection = Connection::open(&found, &start_service(store)).ok();
                }
                let options = BeginOptions {
                    isolation,
                    ..BeginOptions::default()
                };
                match connection.as_mut()?.begin(&options) {
                    Ok(transaction) => Some(Begun {
                        id: transaction.id.to_string(),
                        view: transaction.view_path,
                    }),
                    Err(_) => {
                        *connection = None;
                        None
                    }
                }
            }
        }
    }

    fn commit(&mut self, begun: &Begun) -> Outcome {
        match self {
            Door::Command(store) => match store.call(["commit", &begun.id]).code {
                0 => Outcome::Committed,
                CONFLICT => Outcome::Aborted,
                _ => Outcome::Unknown,
            },
            Door::Library(_, connection) => {
                let id = TransactionId(begun.id.parse().expect("ids are numbers"));
                let committed = connection.as_mut().map(|open| open.commit(id, &mut |_| {}));
                match committed {
                    Some(Ok(_)) => Outcome::Committed,
                    Some(Err(CommitError::Conflict { .. })) => Outcome::Aborted,
                    _ => {
                        *connection = None;
                        Outcome::Unknown
                    }
                }
            }
        }
    }

    fn abort(&mut self, begun: &Begun) {
        // If the service was killed, nothing is left to end.
        match self {
            Door::Command(store) => drop(store.call(["abort", &begun.id])),
            Door::Library(_, connection) => {
                let id = TransactionId(begun.id.parse().expect("ids are numbers"));
                let _ = connection.as_mut().map(|connection| connection.abort(id));
            }
        }
    }
}

struct Workload<'a> {
    store: &'a Store,
    isolation: Isolation,
    moments: AtomicU64,
    values: AtomicU64,
    done: Mutex<Vec<history::Transaction>>,
    /// How many clients still run.
    clients: AtomicUsize,
}

/// Counts a client as running until it ends, even by a panic.
struct Client<'a>(&'a AtomicUsize);

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Makes the calling thread, and all that it starts, act as the user.
fn become_user(user: &User) {
    if user.is_root() {
        return;
    }
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    set_thread_res_gid(gid, gid, gid).expect("root may");
    set_thread_res_uid(uid, uid, uid).expect("root may");
    // Changing the user closed /proc/self, which the library needs.
    set_dumpable_behavior(DumpableBehavior::Dumpable).expect("it may be set");
}

impl Workload<'_> {
    fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::SeqCst)
    }

    fn client(&self, number: usize, mut random: Random, transactions: usize) {
        let _client = Client(&self.clients);
        become_user(self.store.user());
        let mut failed_begins = 0;
        let mut door = match number % 2 {
            0 => Door::Command(self.store),
            _ => Door::Library(self.store, None),
        };
        let mut done = 0;
        while done < transactions {
            let began = self.moment();
            let Some(begun) = door.begin(self.isolation) else {
                failed_begins += 1;
                assert!(failed_begins < FAILED_BEGINS_MAX, "no begin succeeds");
                continue;
            };
            failed_begins = 0;
            let mut operations = Vec::new();
            let outcome = match self.operate(&begun.view, &mut random, &mut operations) {
                Ok(()) => door.commit(&begun),
                // The service was killed.
                Err(_) => Outcome::Aborted,
            };
            if outcome == Outcome::Aborted {
                door.abort(&begun);
            }
            let transaction = history::Transaction {
                name: format!("T{}", begun.id),
                operations,
                outcome,
                began,
                ended: self.moment(),
            };
            self.done
                .lock()
                .expect("no client panicked")
                .push(transaction);
            done += 1;
        }
    }

    fn operate(
        &self,
        view: &Path,
        random: &mut Random,
        operations: &mut Vec<Operation>,
    ) -> io::Result<()> {
        let keys = keys();
        for _ in 0..1 + random.below(5) {
            let key = *random.choose(&keys);
            let writes = random.chance(3);
            if !writes || matches!(key, Key::Register(_)) {
                operations.push(Operation::Read(key, read(view, key)?));
            }
            if writes {
                let value = self.values.fetch_add(1, Ordering::SeqCst);
                operations.push(Operation::Write(key, value));
                write(view, key, value)?;
            }
        }
        Ok(())
    }

    /// Kills the service each time another `interval` transactions have ended.
    fn kill_every(&self, interval: usize, transactions: usize) {
        let mut next = interval;
        let is_over = || self.clients.load(Ordering::SeqCst) == 0;
        while next + interval < transactions && !is_over() {
            if self.done.lock().expect("no client panicked").len() >= next {
                self.store.kill_service();
                next += interval;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Runs so many transactions by each client. Returns their history and the base's state
/// afterwards.
fn run(
    test: &str,
    owner: fn(&Path) -> User,
    isolation: Isolation,
    each: usize,
    kill_interval: Option<usize>,
) -> History {
    let fixture = Fixture::owned_by("histories", owner, TREE);
    let mut random = Random::for_test(test);
    let workload = Workload {
        store: &fixture.store,
        isolation,
        moments: AtomicU64::new(1),
        values: AtomicU64::new(1),
        done: Mutex::new(Vec::new()),
        clients: AtomicUsize::new(CLIENTS),
    };
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let seed = random.number();
            let workload = &workload;
            scope.spawn(move || workload.client(number, Random::from_seed(seed), each));
        }
        if let Some(interval) = kill_interval {
            workload.kill_every(interval, each * CLIENTS);
        }
    });
    // The next command recovers the store.
    fixture.store.run("true").expect(0);
    fixture.store.assert_at_rest();
    let read_base = |key| read(&fixture.base, key).expect("the base can be read");
    let last: BTreeMap<Key, Vec<u64>> = keys()
        .into_iter()
        .map(|key| (key, read_base(key)))
        .collect();
    History {
        transactions: workload.done.into_inner().expect("no client panicked"),
        last,
    }
}

#[track_caller]
fn explain(history: &History, level: Level) {
    let count = |outcome| {
        let all = history.transactions.iter();
        all.filter(|transaction| transaction.outcome == outcome)
            .count()
    };
    let committed = count(Outcome::Committed);
    println!(
        "{level:?}: {committed} committed, {} aborted, {} unknown; serializable: {}",
        count(Outcome::Aborted),
        count(Outcome::Unknown),
        check(history, Level::Serializable).is_ok()
    );
    assert!(
        committed > history.transactions.len() / 10,
        "nearly all conflict"
    );
    if let Err(anomaly) = check(history, level) {
        panic!("{level:?} does not allow {anomaly}");
    }
}

#[test]
fn serializable_clients_have_a_serial_order() {
    let test = "serializable_clients_have_a_serial_order";
    let history = run(
        test,
        User::root,
        Isolation::Serializable,
        pick(50, 300),
        None,
    );
    explain(&history, Level::Serializable);
}

#[test]
fn snapshot_clients_see_snapshots() {
    let test = "snapshot_clients_see_snapshots";
    let history = run(test, User::root, Isolation::Snapshot, pick(50, 300), None);
    explain(&history, Level::Snapshot);
}

fn run_with_kills(test: &str, owner: fn(&Path) -> User, isolation: Isolation) -> History {
    run(test, owner, isolation, pick(40, 250), Some(pick(40, 30)))
}

#[test]
fn serializable_clients_of_a_killed_service_have_a_serial_order() {
    let test = "serializable_clients_of_a_killed_service_have_a_serial_order";
    let history = run_with_kills(test, User::root, Isolation::Serializable);
    explain(&history, Level::Serializable);
}

#[test]
fn snapshot_clients_of_a_killed_service_see_snapshots() {
    let test = "snapshot_clients_of_a_killed_service_see_snapshots";
    let history = run_with_kills(test, User::root, Isolation::Snapshot);
    explain(&history, Level::Snapshot);
}

#[test]
fn serializable_clients_of_an_ordinary_user_have_a_serial_order() {
    let test = "serializable_clients_of_an_ordinary_user_have_a_serial_order";
    if users_can_mount(test) {
        let history = run_with_kills(test, User::ordinary, Isolation::Serializable);
        explain(&history, Level::Serializable);
    }
}

#[test]
fn snapshot_clients_of_an_ordinary_user_see_snapshots() {
    let test = "snapshot_clients_of_an_ordinary_user_see_snapshots";
    if users_can_mount(test) {
        let history = run_with_kills(test, User::ordinary, Isolation::Snapshot);
        explain(&history, Level::Snapshot);
    }
}
