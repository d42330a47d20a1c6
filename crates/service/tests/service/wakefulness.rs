//! That processors are kept from halting under load, and only then.

use crate::support::{NEVER_IDLE, PROGRAM, TestStore, detached};
use atomdir::{Connection, StartService, Transaction};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const DEVICE: &str = "/dev/cpu_dma_latency";

fn does_the_machine_poll(test: &str) -> bool {
    let driver = std::fs::read_to_string("/sys/devices/system/cpu/cpuidle/current_driver");
    let processors = std::thread::available_parallelism().unwrap().get();
    let polls = driver.is_ok_and(|driver| driver.trim_end() == "haltpoll")
        && processors <= 8
        && rustix::process::geteuid().is_root()
        && Path::new(DEVICE).exists();
    if !polls {
        let reason = "needs root, the cpuidle driver haltpoll and at most 8 processors";
        atomdir_testing::skip(test, reason);
    }
    polls
}

/// Else an `ATOMDIR_IDLE` around the tests would decide.
fn connect(store: &TestStore, wish: &str) -> Connection {
    let StartService::IfNeeded { arguments, .. } = store.start_service() else {
        unreachable!("it is to be started");
    };
    let variable = format!("ATOMDIR_IDLE={wish}");
    let start = StartService::IfNeeded {
        program: "env".into(),
        arguments: [variable.into(), PROGRAM.into()]
            .into_iter()
            .chain(arguments)
            .collect(),
    };
    Connection::open(&store.location, &start).unwrap()
}

fn directory_of(connection: &mut Connection) -> PathBuf {
    let process = connection.service_status().unwrap().process;
    format!("/proc/{process}").into()
}

/// It panics when the service has ended.
fn holds(service: &Path) -> bool {
    std::fs::read_dir(service.join("fd")).unwrap().any(|entry| {
        // Others come and go meanwhile.
        let target = std::fs::read_link(entry.unwrap().path());
        target.is_ok_and(|target| target == Path::new(DEVICE))
    })
}

fn has_the_thread(service: &Path) -> bool {
    std::fs::read_dir(service.join("task"))
        .unwrap()
        .any(|entry| {
            let name = std::fs::read_to_string(entry.unwrap().path().join("comm"));
            name.is_ok_and(|name| name == "wakefulness\n")
        })
}

const ASKERS: usize = 4;
/// Of each asker: seconds of load on a fast machine, a minute on a slow one.
const REQUESTS_MAX: usize = 100_000;

/// A request each.
fn look_for_nothing(transaction: &Transaction, asker: usize, is_enough: &AtomicBool) {
    for number in 0..REQUESTS_MAX {
        if is_enough.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("nothing-{asker}-{number}");
        let _ = std::fs::metadata(transaction.view_path.join(name));
    }
}

/// Says enough also when the one who should has panicked.
struct Enough<'a>(&'a AtomicBool);

impl Drop for Enough<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn processors_are_kept_awake_while_requests_are_many() {
    const TEST: &str = "processors_are_kept_awake_while_requests_are_many";
    if !does_the_machine_poll(TEST) {
        return;
    }
    let store = TestStore::new(NEVER_IDLE);
    let mut connection = connect(&store, "");
    let service = directory_of(&mut connection);
    let transaction = connection.begin(&detached()).unwrap();
    // It names itself when it runs.
    while !has_the_thread(&service) {
        std::thread::yield_now();
    }
    assert!(!holds(&service));
    let is_enough = AtomicBool::new(false);
    let began = Instant::now();
    let was_held = std::thread::scope(|scope| {
        let _enough = Enough(&is_enough);
        let askers: Vec<_> = (0..ASKERS)
            .map(|asker| {
                let (transaction, is_enough) = (&transaction, &is_enough);
                scope.spawn(move || look_for_nothing(transaction, asker, is_enough))
            })
            .collect();
        loop {
            if holds(&service) {
                return true;
            }
            if askers.iter().all(|asker| asker.is_finished()) {
                return false;
            }
            std::thread::yield_now();
        }
    });
    if !was_held {
        let per_second = (ASKERS * REQUESTS_MAX) as u64 / (1 + began.elapsed().as_secs());
        assert!(per_second < 8_000, "{per_second} requests a second");
        return atomdir_testing::skip(TEST, "views here receive too few requests");
    }
    // The transaction is still open.
    while holds(&service) {
        std::thread::yield_now();
    }
}

#[test]
fn whoever_starts_the_service_can_forbid_it() {
    let store = TestStore::new(NEVER_IDLE);
    let mut connection = connect(&store, "halt");
    connection.begin(&detached()).unwrap();
    assert!(!has_the_thread(&directory_of(&mut connection)));
}
