//! The service as its clients see it, over a real socket.

use crate::support::{
    NEVER_IDLE, PROGRAM, TestStore, detached, has_ended, is_mounted, process_of, wait_for_end,
};
use atomdir::client::{BeginOptions, Connection, FailureKind, Others, Portion};
use atomdir::{ConnectError, Isolation, StartService};
use atomdir_testing::{pick, wait_until};
use rustix::fs::{Advice, fadvise};
use rustix::process::{Signal, kill_process};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[test]
fn service_starts_on_first_use_and_stops_cleanly() {
    let store = TestStore::new(NEVER_IDLE);
    assert!(matches!(
        store.connect_if_running(),
        Err(ConnectError::NotRunning { .. })
    ));

    let mut connection = store.connect();
    assert!(connection.started());
    let transaction = connection.begin(&Default::default()).unwrap();
    let listed = connection.transactions().unwrap();
    assert_eq!(listed[0].transaction, transaction.id);
    let mount = transaction.view_path.ancestors().nth(2).unwrap().to_owned();
    let (_, process) = process_of(&mut connection);
    drop(transaction);

    let report = connection.stop_and_abort().unwrap();
    assert_eq!(report.transactions_aborted, 1);
    assert!(!store.socket().exists());
    assert!(!is_mounted(&mount) && !mount.exists());
    assert!(has_ended(&process));
    assert!(matches!(
        store.connect_if_running(),
        Err(ConnectError::NotRunning { .. })
    ));
}

/// In a process with threads, a call that grows the table waits for an RCU grace period.
#[test]
fn a_service_has_a_large_table_of_descriptors_from_its_start() {
    let store = TestStore::new(NEVER_IDLE);
    let (number, _) = process_of(&mut store.connect());
    let status = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    let size: u32 = size.unwrap().trim().parse().unwrap();
    assert!(size >= 1024, "{size}");
}

#[test]
fn transactions_of_a_closed_connection_do_not_prevent_a_stop() {
    let store = TestStore::new(NEVER_IDLE);
    let other = store.connect();
    let mut holder = store.connect();
    for _ in 0..32 {
        holder.begin(&Default::default()).unwrap();
    }
    drop(holder);
    other.stop().unwrap();
}

#[test]
fn attached_transactions_end_with_their_connection() {
    let store = TestStore::new(NEVER_IDLE);
    let mut watcher = store.connect();
    let mut connection = store.connect();
    let attached = connection.begin(&Default::default()).unwrap().id;
    let long_lived = connection.begin(&detached()).unwrap().id;
    let kept = connection.begin(&Default::default()).unwrap().id;
    connection.keep(kept).unwrap();
    let committed = connection.begin(&Default::default()).unwrap().id;
    // The commit comes over another connection, like `atomdir commit` in a command of `run`.
    assert!(
        watcher
            .commit(committed, &mut |_| {})
            .unwrap_err()
            .is_in_use()
    );
    watcher
        .commit_portion(committed, &Portion::All, Others::End, &mut |_| {})
        .unwrap();
    drop(connection);
    // The service soon notices by itself.
    wait_until("the end of its transaction", || {
        watcher.status(attached).is_err()
    });
    let open: Vec<_> = watcher
        .transactions()
        .unwrap()
        .iter()
        .map(|one| one.transaction)
        .collect();
    assert_eq!(open, [long_lived, kept]);
    let error = watcher.commit(attached, &mut |_| {}).unwrap_err();
    assert_eq!(
        error.kind(),
        Some(FailureKind::NoSuchTransaction),
        "{error}"
    );
    assert_eq!(watcher.abort_all().unwrap(), 2);
}

#[test]
fn idle_service_ends_unless_a_transaction_is_open() {
    let store = TestStore::new(1);
    let mut connection = store.connect();
    let (_, process) = process_of(&mut connection);
    let kept = connection.begin(&detached()).unwrap().id;
    drop(connection);

    let mut connection = store.connect();
    assert!(!connection.started());
    connection.abort(kept).unwrap();
    drop(connection);
    wait_for_end(&process);
    assert!(!store.socket().exists());
}

#[test]
fn service_without_an_idle_time_runs_until_one_is_set() {
    // A service with this idle time ends as soon as it has no connection.
    const IDLE_MILLISECONDS: u64 = 1;
    let store = TestStore::new(IDLE_MILLISECONDS);
    let mut connection = store.connect();
    let (number, process) = process_of(&mut connection);
    connection.set_idle_time(None).unwrap();
    drop(connection);
    // Others start later, with the idle time that this one has no longer, and end.
    for _ in 0..3 {
        let other = TestStore::new(IDLE_MILLISECONDS);
        let (_, process) = process_of(&mut other.connect());
        wait_for_end(&process);
    }
    assert!(!has_ended(&process), "the idle time is still in force");

    let mut connection = store.connect_if_running().unwrap();
    assert_eq!(connection.service_status().unwrap().idle_ms, None);
    assert_eq!(process_of(&mut connection).0, number);
    let brief = std::time::Duration::from_millis(IDLE_MILLISECONDS);
    connection.set_idle_time(Some(brief)).unwrap();
    drop(connection);
    wait_for_end(&process);
}

/// Each of these connections may come while the service is ending.
#[test]
fn clients_reconnect_while_the_service_keeps_ending() {
    let store = TestStore::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let mut connection = store.connect();
                    let transaction = connection.begin(&Default::default()).unwrap();
                    connection.commit(transaction.id, &mut |_| {}).unwrap();
                }
            });
        }
    });
}

#[test]
fn many_first_clients_share_one_service() {
    let store = TestStore::new(NEVER_IDLE);
    let clients: Vec<Connection> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..16).map(|_| scope.spawn(|| store.connect())).collect();
        starting
            .into_iter()
            .map(|one| one.join().unwrap())
            .collect()
    });
    let mut processes: Vec<u32> = Vec::new();
    for mut client in clients {
        processes.push(client.service_status().unwrap().process);
    }
    processes.dedup();
    assert_eq!(processes.len(), 1);
}

#[test]
fn second_service_reports_the_running_one() {
    let store = TestStore::new(NEVER_IDLE);
    let _first = store.connect();
    let second = Command::new(PROGRAM)
        .arg(&store.location.root)
        .arg("0")
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let message = String::from_utf8_lossy(&second.stderr);
    assert!(message.contains("already open"), "{message}");
}

#[test]
fn killed_service_is_replaced_and_its_mount_removed() {
    let store = TestStore::new(NEVER_IDLE);
    let mut connection = store.connect();
    // A serializable transaction does not survive the service's death.
    let options = BeginOptions {
        isolation: Isolation::Serializable,
        ..detached()
    };
    let transaction = connection.begin(&options).unwrap();
    let mount = transaction.view_path.ancestors().nth(2).unwrap().to_owned();
    let (number, process) = process_of(&mut connection);
    kill_process(number, Signal::KILL).unwrap();
    wait_for_end(&process);
    let error = connection.commit(transaction.id, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("has gone"), "{error}");
    // The kernel still shows what it has cached, but nothing can be changed.
    assert!(std::fs::write(transaction.view_path.join("index.html"), "new").is_err());

    let mut next = store.connect();
    assert!(next.started());
    assert!(!is_mounted(&mount));
    assert!(next.transactions().unwrap().is_empty());
    let begun = next.begin(&Default::default()).unwrap();
    assert_ne!(begun.id, transaction.id);
    assert_eq!(
        std::fs::read(begun.view_path.join("index.html")).unwrap(),
        b"old"
    );
}

#[test]
fn signal_ends_the_service_in_order() {
    let store = TestStore::new(NEVER_IDLE);
    let mut connection = store.connect();
    let transaction = connection.begin(&detached()).unwrap();
    let mount = transaction.view_path.ancestors().nth(2).unwrap().to_owned();
    let view = &transaction.view_path;
    std::fs::write(view.join("index.html"), "new").unwrap();
    std::fs::write(view.join("made"), "here").unwrap();
    let (number, process) = process_of(&mut connection);
    kill_process(number, Signal::TERM).unwrap();
    wait_for_end(&process);
    assert!(!store.socket().exists());
    assert!(!is_mounted(&mount));

    // The detached transaction is open again, with all that was written.
    let mut next = store.connect();
    assert!(next.started());
    let listed = next.transactions().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].transaction, transaction.id);
    let again = next.attach(transaction.id).unwrap();
    assert_eq!(again.view_path, *view);
    assert_eq!(std::fs::read(view.join("index.html")).unwrap(), b"new");
    assert_eq!(std::fs::read(view.join("made")).unwrap(), b"here");
    next.commit(transaction.id, &mut |_| {}).unwrap();
    let base = &store.location.root;
    assert_eq!(std::fs::read(base.join("index.html")).unwrap(), b"new");
    assert_eq!(std::fs::read(base.join("made")).unwrap(), b"here");
}

#[test]
fn failed_start_reports_the_cause() {
    let store = TestStore::new(NEVER_IDLE);
    let writable = std::os::unix::fs::PermissionsExt::from_mode(0o722);
    std::fs::set_permissions(&store.location.control, writable).unwrap();
    let error = Connection::open(&store.location, &store.start_service()).unwrap_err();
    let ConnectError::Failed(failure) = error else {
        panic!("{error}");
    };
    assert_eq!(failure.kind, FailureKind::Misconfigured, "{failure}");
    assert!(
        failure
            .hint
            .is_some_and(|hint| hint.starts_with("`chmod go-w "))
    );

    let missing = StartService::IfNeeded {
        program: "/nonexistent".into(),
        arguments: Vec::new(),
    };
    let error = Connection::open(&store.location, &missing).unwrap_err();
    assert!(matches!(error, ConnectError::Start { .. }), "{error}");

    let silent = StartService::IfNeeded {
        program: "/bin/true".into(),
        arguments: Vec::new(),
    };
    let error = Connection::open(&store.location, &silent).unwrap_err();
    assert!(
        matches!(error, ConnectError::StartedBadly { .. }),
        "{error}"
    );
}

#[test]
fn requests_for_unknown_objects_are_refused() {
    let store = TestStore::new(NEVER_IDLE);
    let mut connection = store.connect();
    let error = connection.attach(atomdir::TransactionId(999)).unwrap_err();
    assert_eq!(error.kind(), Some(FailureKind::NoSuchTransaction));
    let error = connection.show(atomdir::Sequence(999)).unwrap_err();
    assert_eq!(error.kind(), Some(FailureKind::NoSuchCommit));
    assert!(connection.check().unwrap().problems.is_empty());
    connection.sync().unwrap();
    connection.checkpoint().unwrap();
}

#[test]
fn service_ends_after_its_store_is_deleted() {
    for is_whole in [true, false] {
        let store = TestStore::new(0);
        let mut connection = store.connect();
        let transaction = connection.begin(&detached()).unwrap();
        let (_, process) = process_of(&mut connection);
        if is_whole {
            std::fs::remove_dir_all(&store.location.root).unwrap();
        } else {
            // A user may be unable to remove staged objects.
            for entry in std::fs::read_dir(&store.location.control).unwrap() {
                let path = entry.unwrap().path();
                if !path.is_dir() {
                    std::fs::remove_file(path).unwrap();
                }
            }
        }
        let error = connection.commit(transaction.id, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("was removed"), "{error}");
        drop(connection);
        wait_for_end(&process);
    }
}

#[test]
fn leftovers_of_killed_services_are_removed() {
    let store = TestStore::new(NEVER_IDLE);
    let mut connection = store.connect();
    let transaction = connection.begin(&detached()).unwrap();
    let place = transaction.view_path.ancestors().nth(2).unwrap();
    let left = place.with_file_name("0-0");
    std::fs::create_dir(&left).unwrap();

    let socket = place.with_file_name("0-0.socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    // Nobody holds a lock on this file, so its service has ended.
    let claim = place.with_file_name("0-0.store");
    std::fs::write(&claim, "0-0\n").unwrap();

    let _next = TestStore::new(NEVER_IDLE).connect();
    assert!(!left.exists() && !socket.exists() && !claim.exists());
    assert!(place.with_extension("socket").exists());
    assert!(place.with_extension("store").exists());
    assert!(is_mounted(place), "what is in use stays");
}

/// The kernel takes a directory's lock to drop a cached name in it, and also while it looks up
/// other names there. A service thread that waits for this lock must not keep the connection
/// from breaking, or the processes that hold the lock would wait for ever. The same is true
/// of the child process, which runs the barrier.
#[test]
fn killed_service_exits_during_view_changes() {
    const ROUNDS: usize = 5;
    for _ in 0..pick(10, 100) {
        let store = TestStore::new(NEVER_IDLE);
        let mut connection = store.connect();
        let begun = connection.begin(&detached()).unwrap();
        let mount = begun.view_path.ancestors().nth(2).unwrap().to_owned();
        let directory = begun.view_path.join("read");
        let file = |number: i32| directory.join(number.to_string());
        std::fs::create_dir(&directory).unwrap();
        for number in 0..100 {
            std::fs::write(file(number), "read").unwrap();
        }
        let (number, process) = process_of(&mut connection);
        let is_over = AtomicBool::new(false);
        let goes_on = || !is_over.load(Ordering::Relaxed);
        // How many rounds each disturbing thread has done.
        let rounds: [AtomicUsize; 9] = Default::default();
        let is_enough = |done: &AtomicUsize| done.load(Ordering::Relaxed) >= ROUNDS;
        let are_done = || rounds.iter().all(is_enough);
        let count = |disturber: usize| rounds[disturber].fetch_add(1, Ordering::Relaxed);
        std::thread::scope(|scope| {
            for looking in 0..4 {
                let (mount, goes_on, count) = (&mount, &goes_on, &count);
                scope.spawn(move || {
                    for name in 0.. {
                        let _ = std::fs::metadata(mount.join(format!("{looking}-{name}")));
                        count(looking);
                        if !goes_on() {
                            break;
                        }
                    }
                });
            }
            for beginning in 4..8 {
                let mut connection = store.connect_if_running().unwrap();
                let (goes_on, count) = (&goes_on, &count);
                scope.spawn(move || {
                    // Go on until the service is killed.
                    while goes_on() {
                        if let Ok(begun) = connection.begin(&Default::default()) {
                            let _ = connection.abort(begun.id);
                        }
                        count(beginning);
                    }
                });
            }
            scope.spawn(|| {
                while goes_on() {
                    (0..100).for_each(|number| read_anew(&file(number)));
                    count(8);
                }
            });
            // In a thread of its own: if it panics, the others end before the test fails.
            let waiting = scope.spawn(|| wait_until("the rounds of each thread", are_done));
            let waited = waiting.join();
            kill_process(number, Signal::KILL).unwrap();
            wait_for_end(&process);
            is_over.store(true, Ordering::Relaxed);
            waited.unwrap();
        });
    }
}

/// Reads the file from the view instead of the kernel's cache, as long as the view exists.
fn read_anew(path: &Path) {
    if let Ok(file) = File::open(path) {
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        let _ = std::io::read_to_string(file);
    }
}
