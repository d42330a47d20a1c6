//! Users who make others wait, by what they may do outside as well: each holds up
//! only those who need the very thing.

use crate::support::{NEVER_IDLE, TestStore, as_user, detached, is_root};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, chown};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

const STRANGER: u32 = 64_002;
const LEASED: &str = "leased";
/// Of `asm-generic/fcntl.h`: which signal asks for the lease.
const F_SETSIG: libc::c_int = 10;
/// More than any mount has threads.
const READERS: usize = 20;

/// A lease of the stranger's on a file of theirs, given back when `until` says so.
/// Answers on `held` once it is there.
fn hold_lease(store: &TestStore, held: mpsc::Sender<()>, until: mpsc::Receiver<()>) {
    let path = store.location.root.join(LEASED);
    as_user(STRANGER, move || {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let control = |command, argument: libc::c_int| {
            // SAFETY: the file is open, and the commands take numbers.
            let result = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        };
        // What it is asked by goes unheard.
        control(F_SETSIG, libc::SIGURG);
        control(libc::F_SETLEASE, libc::F_WRLCK);
        held.send(()).unwrap();
        until.recv().unwrap();
        control(libc::F_SETLEASE, libc::F_UNLCK);
    });
}

/// A file with a lease on it, in a store of root's.
fn leased() -> TestStore {
    let store = TestStore::new(NEVER_IDLE);
    let path = store.location.root.join(LEASED);
    std::fs::write(&path, [b'o'; 8192]).unwrap();
    chown(path, Some(STRANGER), Some(STRANGER)).unwrap();
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
        // The kernel has not ended the lease, so nobody waited for that.
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
        // A whole page, for which nothing has to be read.
        let path = waiting.view_path.join(LEASED);
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(&[b'n'; 4096], 0).unwrap();
        let (committing, is_committing) = mpsc::channel();
        scope.spawn(move || {
            let mut connection = store.connect();
            committing.send(()).unwrap();
            connection.commit(waiting.id, &mut |_| {}).unwrap();
            finished.fetch_add(1, Ordering::SeqCst);
        });
        is_committing.recv().unwrap();
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
