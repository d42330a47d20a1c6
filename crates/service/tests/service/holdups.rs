//! Users make others wait with leases and with the kernel's directory locks, as they can on
//! any file system. Only requests that need the same object may wait.

use crate::stuck_page::{StuckPage, start_rename};
use crate::support::{
    NEVER_IDLE, TestStore, detached, is_root, process_of, users_can_mount, wait_for_end,
};
use atomdir::client::{
    BeginOptions, CommitError, Connection, FailureKind, Others, Transaction, View, ViewChoice,
};
use atomdir_testing::{as_user, wait_until};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, chown};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

const STRANGER: u32 = 64_002;
/// fusermount3 serves only users that have a name.
const NOBODY: u32 = 65_534;
const LEASED: &str = "leased";
/// From `asm-generic/fcntl.h`: sets the signal that reports a lease break.
const F_SETSIG: libc::c_int = 10;
/// More files than a service with few descriptors keeps open, and than a view remembers the contents
/// of.
const FILES_TO_FORGET_ANOTHER: usize = 4200;
/// More readers than any mount has threads.
const READERS: usize = 20;

/// The owner takes a lease on the file, and gives it back when `until` receives a message.
/// `held` gets a message once the lease is taken, and another once the kernel breaks it.
fn hold_lease(store: &TestStore, held: mpsc::Sender<()>, until: mpsc::Receiver<()>) {
    let path = store.location.root.join(LEASED);
    let owner = std::fs::metadata(&path).unwrap().uid();
    as_user(owner, move || {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let control = |command, argument: libc::c_int| {
            // SAFETY: the file is open, and the commands take numbers.
            let result = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
            assert!(result >= 0, "{}", std::io::Error::last_os_error());
            result
        };
        // SIGURG is ignored by default.
        control(F_SETSIG, libc::SIGURG);
        control(libc::F_SETLEASE, libc::F_WRLCK);
        held.send(()).unwrap();
        wait_until("a break of the lease", || {
            control(libc::F_GETLEASE, 0) != libc::F_WRLCK
        });
        held.send(()).unwrap();
        until.recv().unwrap();
        control(libc::F_SETLEASE, libc::F_UNLCK);
    });
}

/// A file with a lease on it, in a store of root's.
fn leased() -> TestStore {
    leased_in(TestStore::shared_with(&[STRANGER], NEVER_IDLE), STRANGER)
}

fn leased_in(store: TestStore, owner: u32) -> TestStore {
    let path = store.location.root.join(LEASED);
    // The file is so long that a commit changes it in place instead of replacing it.
    std::fs::write(&path, vec![b'o'; 2 << 20]).unwrap();
    chown(path, Some(owner), Some(owner)).unwrap();
    store
}

#[test]
fn a_lease_on_a_file_holds_up_only_those_who_read_it() {
    if !is_root() {
        return;
    }
    let store = leased();
    let mut innocent = store.connect();
    let reading = innocent.begin(&detached()).unwrap();
    let finished = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (give_back, until) = mpsc::channel();
        let (held, is_held) = mpsc::channel();
        let store = &store;
        scope.spawn(move || hold_lease(store, held, until));
        is_held.recv().unwrap();
        let (started, has_started) = mpsc::channel();
        for _ in 0..READERS {
            let (path, started) = (reading.view_path.join(LEASED), started.clone());
            let finished = &finished;
            scope.spawn(move || {
                let file = File::open(path).unwrap();
                started.send(()).unwrap();
                let mut byte = [0];
                file.read_exact_at(&mut byte, 0).unwrap();
                assert_eq!(&byte, b"o");
                finished.fetch_add(1, Ordering::SeqCst);
            });
        }
        for _ in 0..READERS {
            has_started.recv().unwrap();
        }
        let writing = innocent.begin(&detached()).unwrap();
        std::fs::write(writing.view_path.join("index.html"), "new").unwrap();
        let other = std::fs::read_dir(&reading.view_path).unwrap();
        assert_eq!(other.count(), 2);
        innocent.commit(writing.id, &mut |_| {}).unwrap();
        // No reader has gone on, so the lease still holds: the commit did not wait for its end.
        assert_eq!(finished.load(Ordering::SeqCst), 0);
        give_back.send(()).unwrap();
    });
    assert_eq!(finished.load(Ordering::SeqCst), READERS);
}

#[test]
fn a_lease_on_a_file_holds_up_only_commits_that_need_it() {
    if !is_root() {
        return;
    }
    let store = leased();
    let mut innocent = store.connect();
    let waiting = innocent.begin(&detached()).unwrap();
    let finished = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (give_back, until) = mpsc::channel();
        let (held, is_held) = mpsc::channel();
        let (store, finished) = (&store, &finished);
        scope.spawn(move || hold_lease(store, held, until));
        is_held.recv().unwrap();
        // Write a whole page, so that nothing has to be read first.
        let path = waiting.view_path.join(LEASED);
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(&[b'n'; 4096], 0).unwrap();
        scope.spawn(move || {
            let mut connection = store.connect();
            connection.commit(waiting.id, &mut |_| {}).unwrap();
            finished.fetch_add(1, Ordering::SeqCst);
        });
        is_held.recv().unwrap();
        for contents in ["one", "two", "three"] {
            let writing = innocent.begin(&detached()).unwrap();
            std::fs::write(writing.view_path.join("index.html"), contents).unwrap();
            innocent.commit(writing.id, &mut |_| {}).unwrap();
        }
        assert_eq!(finished.load(Ordering::SeqCst), 0);
        give_back.send(()).unwrap();
    });
    let committed = std::fs::read(store.location.root.join(LEASED)).unwrap();
    assert_eq!((committed[0], committed[4096]), (b'n', b'o'));
}

/// Begins a native transaction and brings it into the state after the end of its command.
fn begin_native(connection: &mut Connection) -> Transaction {
    let view = ViewChoice::Native;
    let options = BeginOptions {
        view,
        ..BeginOptions::default()
    };
    let id = connection.begin(&options).unwrap().id;
    let transaction = connection.take_over(id, true).unwrap();
    connection.keep(id).unwrap();
    transaction
}

/// The commit waits for a lease, so the abort certainly comes during the commit.
fn abort_during_commit(store: &TestStore, user: u32, view: View) {
    let mut aborting = as_user(user, || store.connect());
    let transaction = match view {
        View::Exact => aborting.begin(&detached()).unwrap(),
        View::Native | View::Exclusive => begin_native(&mut aborting),
    };
    std::thread::scope(|scope| {
        let (give_back, until) = mpsc::channel();
        let (held, is_held) = mpsc::channel();
        scope.spawn(move || hold_lease(store, held, until));
        is_held.recv().unwrap();
        let path = transaction.view_path.join(LEASED);
        as_user(user, || {
            let file = File::options().write(true).open(path).unwrap();
            file.write_all_at(&[b'n'; 4096], 0).unwrap();
        });
        let id = transaction.id;
        let commit = scope.spawn(move || {
            let mut connection = as_user(user, || store.connect());
            connection.commit(id, &mut |_| {})
        });
        is_held.recv().unwrap();
        aborting.abort(id).unwrap();
        let committed = commit.join().unwrap();
        give_back.send(()).unwrap();
        let error = committed.expect_err("it was aborted before its commit was in the log");
        let CommitError::Request(request) = &error else {
            panic!("{error}");
        };
        assert_eq!(
            request.kind(),
            Some(FailureKind::NoSuchTransaction),
            "{error}"
        );
    });
    let found = std::fs::read(store.location.root.join(LEASED)).unwrap();
    assert_eq!(found[0], b'o');
}

#[test]
fn commit_reports_a_concurrent_abort() {
    if !is_root() {
        return;
    }
    let store = leased();
    for (user, view) in [(0, View::Exact), (0, View::Native), (STRANGER, View::Exact)] {
        abort_during_commit(&store, user, view);
    }
    if users_can_mount() {
        let store = leased_in(TestStore::of_user(NOBODY, NEVER_IDLE), NOBODY);
        abort_during_commit(&store, NOBODY, View::Exact);
    }
}

#[test]
fn freeze_waits_for_mapped_writes_that_a_lease_holds_up() {
    if !is_root() {
        return;
    }
    let store = leased();
    // The file does not fill its page, so the service reads the old bytes before it
    // accepts the write.
    std::fs::write(store.location.root.join(LEASED), [b'o'; 100]).unwrap();
    for number in 0..FILES_TO_FORGET_ANOTHER {
        std::fs::write(store.location.root.join(number.to_string()), "x").unwrap();
    }
    let start = store.start_service_with_few_descriptors();
    let mut sealing = Connection::open(&store.location, &start).unwrap();
    let transaction = sealing.begin(&detached()).unwrap();
    let mapped = Mapped::open(&transaction.view_path.join(LEASED));
    assert_eq!(mapped.first(), b'o');
    // The service no longer has the file open, so a lease on it is possible.
    for number in 0..FILES_TO_FORGET_ANOTHER {
        std::fs::read(transaction.view_path.join(number.to_string())).unwrap();
    }
    let is_frozen = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (give_back, until) = mpsc::channel();
        let (held, is_held) = mpsc::channel();
        let (store, is_frozen) = (&store, &is_frozen);
        scope.spawn(move || hold_lease(store, held, until));
        is_held.recv().unwrap();
        mapped.set_first(b'n');
        let mut innocent = store.connect();
        scope.spawn(move || {
            let frozen = sealing.freeze(transaction.id, Others::Refuse, &mut |_| {});
            frozen.unwrap();
            is_frozen.fetch_add(1, Ordering::SeqCst);
            sealing.commit(transaction.id, &mut |_| {}).unwrap();
        });
        is_held.recv().unwrap();
        for contents in ["one", "two", "three"] {
            let writing = innocent.begin(&detached()).unwrap();
            std::fs::write(writing.view_path.join("index.html"), contents).unwrap();
            innocent.abort(writing.id).unwrap();
        }
        assert_eq!(is_frozen.load(Ordering::SeqCst), 0);
        give_back.send(()).unwrap();
    });
    let committed = std::fs::read(store.location.root.join(LEASED)).unwrap();
    assert_eq!(committed[0], b'n');
}

/// The first page of a file, mapped as shared.
struct Mapped(*mut u8);

// SAFETY: it is only an address, and it is moved to another thread, not shared.
unsafe impl Send for Mapped {}

impl Mapped {
    fn open(path: &Path) -> Mapped {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, which stays until the process ends.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                access,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED);
        Mapped(address.cast())
    }

    fn first(&self) -> u8 {
        // SAFETY: the mapping stays.
        unsafe { self.0.read_volatile() }
    }

    fn set_first(&self, byte: u8) {
        // SAFETY: the mapping stays, and nobody else in this process uses it.
        unsafe { self.0.write_volatile(byte) }
    }
}

/// Any user can hold the kernel's directory locks, for instance by listing a directory into
/// memory mapped from their own FUSE file system.
#[test]
fn directory_locks_in_a_users_view_hold_up_nobody_else() {
    if !is_root() {
        return;
    }
    let store = TestStore::shared_with(&[STRANGER], NEVER_IDLE);
    let mut root = store.connect();
    let page = StuckPage::new();
    let (begun, wrapper) = as_user(STRANGER, || {
        let mut stranger = store.connect();
        let begun = stranger.begin(&detached()).unwrap();
        let wrapper = begun.view_path.parent().unwrap().to_owned();
        assert_eq!(
            std::fs::read(begun.view_path.join("index.html")).unwrap(),
            b"old"
        );
        (begun, wrapper)
    });
    std::thread::scope(|scope| {
        let directory = File::open(&wrapper).unwrap();
        let page = &page;
        scope.spawn(move || page.list(&directory));
        page.wait_for_fault();
        let mount = wrapper.parent().unwrap();
        start_rename(scope, STRANGER, mount.join("none"), wrapper.join("none"));
        // The stranger's own request may wait. It fails when the service stops.
        let store = &store;
        scope.spawn(move || {
            as_user(STRANGER, || {
                let mut stranger = store.connect_if_running().unwrap();
                let second = stranger.begin(&BeginOptions {
                    opened: true,
                    ..detached()
                });
                assert!(second.is_err());
            });
        });

        let ours = root.begin(&detached()).unwrap();
        std::fs::write(ours.view_path.join("index.html"), "new").unwrap();
        root.attach(ours.id).unwrap();
        root.commit(ours.id, &mut |_| {}).unwrap();
        assert!(root.service_status().unwrap().poisoned.is_none());
        assert_eq!(root.transactions().unwrap().len(), 1);
        root.abort(begun.id).unwrap();
        let (_, process) = process_of(&mut root);
        root.stop_and_abort().unwrap();
        wait_for_end(&process);
        page.release();
    });
}
