//! A view's root as a descriptor: which process opens it, and when.

use crate::support::{NEVER_IDLE, TestStore, is_root};
use atomdir::client::{BeginOptions, Connection, Transaction};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};

fn opened() -> BeginOptions {
    BeginOptions {
        opened: true,
        ..BeginOptions::default()
    }
}

fn view_requests(connection: &mut Connection) -> u64 {
    connection.service_status().unwrap().view_requests
}

fn read_and_write(transaction: &Transaction, contents: &str) {
    let root = transaction.root().unwrap();
    let file = openat(root, "index.html", OFlags::RDONLY, Mode::empty()).unwrap();
    assert_eq!(
        std::io::read_to_string(std::fs::File::from(file)).unwrap(),
        "old"
    );
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let file = openat(root, "new.html", flags, Mode::RUSR | Mode::WUSR).unwrap();
    rustix::io::write(&file, contents.as_bytes()).unwrap();
}

#[test]
fn view_roots_open_on_demand_and_are_forgotten_at_abort() {
    let store = TestStore::new(NEVER_IDLE);
    let mut connection = store.connect();
    // This begin makes the mount.
    connection.begin(&BeginOptions::default()).unwrap();
    let before = view_requests(&mut connection);
    let unseen = connection.begin(&BeginOptions::default()).unwrap();
    connection.abort(unseen.id).unwrap();
    let transaction = connection.begin(&BeginOptions::default()).unwrap();
    assert_eq!(view_requests(&mut connection), before);
    read_and_write(&transaction, "new");
    connection.commit(transaction.id, &mut |_| {}).unwrap();
    let committed = std::fs::read(store.location.root.join("new.html")).unwrap();
    assert_eq!(committed, b"new");

    // A transaction that has ended is not found by its path any more.
    let ended = connection.begin(&BeginOptions::default()).unwrap();
    connection.abort(ended.id).unwrap();
    assert_eq!(ended.root().unwrap_err(), Errno::NOENT);

    let before = view_requests(&mut connection);
    let brought = connection.begin(&opened()).unwrap();
    assert!(view_requests(&mut connection) > before);
    read_and_write(&brought, "newer");
}

#[test]
fn client_without_the_mount_gets_the_view_root_as_descriptor() {
    if !is_root() {
        return;
    }
    let store = TestStore::new(NEVER_IDLE);
    let mut connection = store.connect();
    let first = connection.begin(&BeginOptions::default()).unwrap();
    let mount = first.view_path.ancestors().nth(2).unwrap().to_owned();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            leave_mount_namespace();
            unmount(&mount, UnmountFlags::DETACH).unwrap();
            let unseen = connection.begin(&BeginOptions::default()).unwrap();
            assert_eq!(unseen.root().unwrap_err(), Errno::NOENT);
            let brought = connection.begin(&opened()).unwrap();
            read_and_write(&brought, "from afar");
            connection.commit(brought.id, &mut |_| {}).unwrap();
        });
    });
    let committed = std::fs::read(store.location.root.join("new.html")).unwrap();
    assert_eq!(committed, b"from afar");
}

/// Gives only this thread its own mount namespace. Unmounts outside also reach it, so it
/// keeps no mount alive.
fn leave_mount_namespace() {
    // SAFETY: a plain system call, which changes this thread alone.
    let left = unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_FS) };
    assert_eq!(left, 0);
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", flags).unwrap();
}
