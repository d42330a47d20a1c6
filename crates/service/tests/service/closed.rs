//! Root takes permissions away while a user's transaction is open. What the user can no
//! longer reach in the base they can no longer open in their view, and commits that change
//! it are refused. Files that are already open stay open.

use crate::support::{NEVER_IDLE, TestStore, detached, is_root};
use atomdir::StartService;
use atomdir::client::{Connection, FailureKind, Transaction};
use atomdir_testing::as_user;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

const USER: u32 = 65_534;

/// The change's name, and how to make it in a view.
type Change = (&'static str, fn(&Path));

struct Scene {
    store: TestStore,
    /// Keeps the service alive.
    _root: Connection,
    user: Connection,
}

fn scene() -> Scene {
    let store = TestStore::shared_with(&[USER], NEVER_IDLE);
    let root = &store.location.root;
    for directory in ["d/sub/deep", "drop/sub", "e"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    mode(&root.join("drop"), 0o777);
    mode(&root.join("drop/sub"), 0o777);
    for file in ["d/old", "d/sub/old", "f", "drop/sub/own"] {
        fs::write(root.join(file), "old").unwrap();
    }
    chown(root.join("drop/sub/own"), Some(USER), Some(USER)).unwrap();
    let connection = store.connect();
    let user = as_user(USER, || {
        Connection::open(&store.location, &StartService::Never).unwrap()
    });
    Scene {
        store,
        _root: connection,
        user,
    }
}

fn mode(path: &Path, bits: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
}

fn is_refused<T>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

#[test]
fn open_view_shows_nothing_from_directories_closed_since() {
    if !is_root() {
        return;
    }
    let mut scene = scene();
    let Transaction { view_path, .. } = scene.user.begin(&detached()).unwrap();
    let root = scene.store.location.root.clone();
    as_user(USER, || {
        // The kernel has now cached the directories' old permissions.
        assert_eq!(fs::read(view_path.join("d/old")).unwrap(), b"old");
        assert!(fs::metadata(view_path.join("d/sub/deep")).is_ok());
        assert!(fs::metadata(view_path.join("f")).is_ok());
        assert!(fs::metadata(view_path.join("e")).is_ok());
    });
    mode(&root.join("d"), 0o700);
    mode(&root.join("e"), 0o711);
    mode(&root.join("f"), 0o600);
    fs::write(root.join("d/new"), "secret").unwrap();
    fs::write(root.join("d/sub/new"), "secret").unwrap();
    fs::write(root.join("d/sub/deep/new"), "secret").unwrap();
    fs::write(root.join("f"), "secret").unwrap();
    as_user(USER, || {
        for closed in ["d/new", "d/sub/new", "d/sub/deep/new", "f"] {
            let read = fs::read(view_path.join(closed));
            assert!(is_refused(read), "{closed}");
        }
        let listed = fs::read_dir(view_path.join("e"));
        let listed = listed.and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        assert!(is_refused(listed));
        // Files that are open stay open.
        assert_eq!(fs::read(view_path.join("drop/sub/own")).unwrap(), b"old");
    });
    // The user can read the file once its directory has been opened again.
    mode(&root.join("d"), 0o755);
    as_user(USER, || {
        assert_eq!(fs::read(view_path.join("d/new")).unwrap(), b"secret");
    });
}

#[test]
fn commit_below_a_directory_closed_since_is_refused() {
    if !is_root() {
        return;
    }
    let mut scene = scene();
    let root = scene.store.location.root.clone();
    let changes: [Change; 4] = [
        ("made", |view| {
            fs::write(view.join("drop/sub/new"), "x").unwrap()
        }),
        ("written", |view| {
            fs::write(view.join("drop/sub/own"), "x").unwrap()
        }),
        ("moved", |view| {
            fs::rename(view.join("drop/sub/own"), view.join("drop/own")).unwrap()
        }),
        ("removed", |view| {
            fs::remove_file(view.join("drop/sub/own")).unwrap()
        }),
    ];
    for (name, change) in changes {
        for (closed, bits) in [("drop/sub", 0o700), ("drop", 0o700), ("drop/sub", 0o755)] {
            let transaction = scene.user.begin(&detached()).unwrap();
            as_user(USER, || change(&transaction.view_path));
            mode(&root.join(closed), bits);
            let committed = scene.user.commit(transaction.id, &mut |_| {});
            // Writing a file needs no right to write its directory.
            if bits == 0o755 && name == "written" {
                committed.unwrap();
            } else {
                let error = committed.unwrap_err();
                // If the directory's own permissions have changed, that is a conflict.
                let expected = [FailureKind::NotPermitted, FailureKind::Conflict];
                assert!(
                    error.kind().is_some_and(|kind| expected.contains(&kind)),
                    "{name} {closed}: {error}"
                );
                scene.user.abort(transaction.id).unwrap();
                assert!(root.join("drop/sub/own").exists() && !root.join("drop/sub/new").exists());
            }
            mode(&root.join(closed), 0o777);
        }
    }
}
