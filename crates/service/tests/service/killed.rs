//! A service is killed while one of its threads waits, uninterruptibly, for the file system's lock
//! for renames between directories.

use crate::stuck_page::{StuckPage, is_stuck, start_rename};
use crate::support::{
    NEVER_IDLE, TestStore, detached, is_root, process_of, users_can_mount, wait_for_end,
};
use atomdir::client::{BeginOptions, ViewChoice, mounts};
use atomdir_testing::{as_user, wait_until};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

const STRANGER: u32 = 64_002;
/// fusermount3 serves only users that have a name.
const NOBODY: u32 = 65_534;

struct Release<'a>(&'a StuckPage);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Whether a thread of the process waits for the lock for renames.
fn waits_to_rename(process: Pid) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).unwrap();
    let rename = format!("{} ", libc::SYS_renameat2);
    tasks.flatten().any(|task| {
        let path = task.path();
        let call = std::fs::read_to_string(path.join("syscall")).unwrap_or_default();
        call.starts_with(&rename) && is_stuck(path.to_str().unwrap())
    })
}

/// Where this store's views are mounted.
fn mount_points(store: &TestStore) -> Vec<PathBuf> {
    let mounts = mounts::list().unwrap().into_iter();
    let ours =
        mounts.filter(|mount| mounts::is_exact_view(mount) && mount.source == store.location.root);
    ours.map(|mount| mount.point).collect()
}

/// Kills the service of a store with views of its owner and of these other users.
fn kill_during_rename(store: &TestStore, owner: u32, others: &[u32]) {
    let held = store.location.root.with_file_name("held");
    for name in ["from", "to"] {
        std::fs::create_dir_all(held.join(name)).unwrap();
    }
    let mut connection = as_user(owner, || store.connect());
    let native = BeginOptions {
        view: ViewChoice::Native,
        ..BeginOptions::default()
    };
    as_user(owner, || connection.begin(&native)).unwrap();
    let writing = as_user(owner, || connection.begin(&detached())).unwrap();
    as_user(owner, || {
        std::fs::write(writing.view_path.join("new"), "new").unwrap();
    });
    let others: Vec<_> = others
        .iter()
        .map(|user| {
            as_user(*user, || {
                let mut other = store.connect();
                other.begin(&detached()).unwrap();
                other
            })
        })
        .collect();
    let points = mount_points(store);
    assert_eq!(points.len(), 2 + others.len());
    let (number, process) = process_of(&mut connection);
    let page = StuckPage::new();
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let release = Release(&page);
        let listed = File::open(held.join("to")).unwrap();
        let page = &page;
        scope.spawn(move || page.list(&listed));
        page.wait_for_fault();
        start_rename(scope, 0, held.join("from/none"), held.join("to/none"));
        scope.spawn(move || {
            let committed = connection.commit(writing.id, &mut |_| {});
            assert!(committed.is_err(), "the service was killed");
        });
        wait_until("a rename of the service", || waits_to_rename(number));

        kill_process(number, Signal::KILL).unwrap();
        for point in &points {
            let answered = &answered;
            scope.spawn(move || {
                let looked = as_user(owner, || std::fs::metadata(point.join("none")));
                answered.fetch_add(1, Ordering::SeqCst);
                let error = looked.expect_err("there is no such transaction");
                assert_ne!(error.kind(), std::io::ErrorKind::NotFound);
            });
        }
        wait_until("the end of the views", || {
            answered.load(Ordering::SeqCst) == points.len()
        });
        // Nothing but the end of the child has ended the views.
        assert!(waits_to_rename(number));
        drop(release);
    });
    wait_for_end(&process);
    // The next service mounts at the same places.
    let mut connection = as_user(owner, || store.connect());
    let reading = connection.begin(&detached()).unwrap();
    let read = as_user(owner, || {
        std::fs::read(reading.view_path.join("index.html"))
    });
    assert_eq!(read.unwrap(), b"old");
}

#[test]
fn views_of_a_killed_service_end_while_it_waits_for_a_rename() {
    if !is_root() {
        return;
    }
    let store = TestStore::shared_with(&[STRANGER], NEVER_IDLE);
    kill_during_rename(&store, 0, &[STRANGER]);
    if !users_can_mount() {
        return;
    }
    // In a thread, and so in a mount namespace, of its own.
    let of_user = || {
        // SAFETY: no other thread uses what this one no longer shares.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).unwrap();
        let connections = "/sys/fs/fuse/connections";
        mount("none", connections, "fusectl", MountFlags::empty(), None).unwrap();
        let store = TestStore::of_user(NOBODY, NEVER_IDLE);
        kill_during_rename(&store, NOBODY, &[]);
    };
    std::thread::scope(|scope| scope.spawn(of_user).join().unwrap());
}
