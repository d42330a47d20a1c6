//! Who may do what: requests by root, by a store's owner and by strangers.

use crate::support::{NEVER_IDLE, TestStore, detached, is_root, users_can_mount};
use atomdir::client::compare::PathFilter;
use atomdir::client::{ALLOW, BeginOptions, Connection, FailureKind, RequestError, Settings};
use atomdir::{ConnectError, Sequence, StartService};
use atomdir_testing::as_user;
use std::process::Command;

/// nobody: fusermount3 serves only users that have a name.
const USER: u32 = 65_534;
const STRANGER: u32 = 64_002;

fn connect_as(user: u32, store: &TestStore) -> Result<Connection, ConnectError> {
    as_user(user, || {
        Connection::open(&store.location, &store.start_service())
    })
}

#[test]
fn transactions_are_usable_only_by_owner_and_root() {
    if !is_root() {
        return;
    }
    let store = TestStore::shared_with(&[USER, STRANGER], NEVER_IDLE);
    let mut root = store.connect();
    let options = BeginOptions {
        label: b"secret".to_vec(),
        ..detached()
    };
    let roots = root.begin(&options).unwrap().id;
    let logged = root.begin(&options).unwrap().id;
    root.commit(logged, &mut |_| {}).unwrap();

    let mut user = connect_as(USER, &store).unwrap();
    let users = user.begin(&detached()).unwrap().id;
    let mut stranger = connect_as(STRANGER, &store).unwrap();
    for (is_stranger, foreign) in [(false, roots), (true, roots), (true, users)] {
        let peer = if is_stranger {
            &mut stranger
        } else {
            &mut user
        };
        let denied = [
            peer.attach(foreign).map(|_| ()).unwrap_err(),
            peer.keep(foreign).unwrap_err(),
            peer.abort(foreign).unwrap_err(),
            peer.status(foreign).map(|_| ()).unwrap_err(),
            peer.changes(foreign).map(|_| ()).unwrap_err(),
            peer.snapshot_object(foreign, b"index.html", 10)
                .map(|_| ())
                .unwrap_err(),
        ];
        for error in denied {
            assert_eq!(
                error.kind(),
                Some(FailureKind::NoSuchTransaction),
                "{error}"
            );
        }
        let error = peer.commit(foreign, &mut |_| {}).unwrap_err();
        assert_eq!(
            error.kind(),
            Some(FailureKind::NoSuchTransaction),
            "{error}"
        );
        assert!(
            peer.log(None, 10)
                .unwrap()
                .iter()
                .all(|commit| commit.label.is_empty())
        );
    }
    assert_eq!(user.transactions().unwrap().len(), 1);
    assert_eq!(stranger.transactions().unwrap().len(), 0);
    assert_eq!(stranger.abort_all().unwrap(), 0);
    for error in [
        stranger.check().map(|_| ()).unwrap_err(),
        stranger.checkpoint().unwrap_err(),
        stranger.stop().map(|_| ()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), Some(FailureKind::NotPermitted), "{error}");
    }
    assert_eq!(root.transactions().unwrap().len(), 2);
    root.commit(users, &mut |_| {}).unwrap();
}

/// Otherwise a diff would show a user what they may not read.
#[test]
fn snapshot_hides_files_the_user_cannot_read() {
    if !is_root() {
        return;
    }
    let store = TestStore::shared_with(&[USER, STRANGER], NEVER_IDLE);
    let root = &store.location.root;
    let mode = |path: &str, bits| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(bits);
        std::fs::set_permissions(root.join(path), permissions).unwrap();
    };
    std::fs::create_dir(root.join("private")).unwrap();
    std::fs::write(root.join("private/open"), "x").unwrap();
    std::fs::write(root.join("shadow"), "x").unwrap();
    mode("private", 0o700);
    mode("shadow", 0o600);
    std::fs::write(root.join("listed"), "x").unwrap();
    let mut list = Command::new("setfacl");
    list.args(["-m", "u:65534:---"]).arg(root.join("listed"));
    assert!(list.status().unwrap().success());
    let mut service = store.connect();
    let mut user = connect_as(USER, &store).unwrap();
    let transaction = user.begin(&detached()).unwrap().id;
    for hidden in ["private/open", "shadow", "listed"] {
        let error = user
            .snapshot_object(transaction, hidden.as_bytes(), 10)
            .unwrap_err();
        assert_eq!(
            error.kind(),
            Some(FailureKind::NotPermitted),
            "{hidden}: {error}"
        );
        let seen = service
            .snapshot_object(transaction, hidden.as_bytes(), 10)
            .unwrap()
            .unwrap();
        assert_eq!(seen.contents, b"x");
    }
    let seen = user
        .snapshot_object(transaction, b"index.html", 2)
        .unwrap()
        .unwrap();
    assert!(seen.object.too_long && seen.contents.is_empty());
    let seen = user
        .snapshot_object(transaction, b"index.html", 3)
        .unwrap()
        .unwrap();
    assert_eq!(seen.contents, b"old");
}

#[test]
fn ordinary_user_cannot_start_the_service_of_roots_store() {
    if !is_root() {
        return;
    }
    let store = TestStore::new(NEVER_IDLE);
    let error = connect_as(USER, &store).unwrap_err();
    assert!(
        matches!(error, ConnectError::NotPermittedToStart { .. }),
        "{error}"
    );
}

/// Root's rights must not be used on files that an ordinary user can write.
#[test]
fn a_users_store_is_served_as_that_user_even_when_root_starts_it() {
    if !is_root() {
        return;
    }
    let store = TestStore::of_user(USER, NEVER_IDLE);
    let mut root = store.connect();
    assert!(root.started());
    assert_eq!(root.service_status().unwrap().user, USER);
    let error = root.begin(&Default::default()).unwrap_err();
    assert_eq!(error.kind(), Some(FailureKind::NotPermitted), "{error}");
    assert!(root.transactions().unwrap().is_empty());
    let error = connect_as(STRANGER, &store).unwrap_err();
    assert!(
        matches!(error, ConnectError::NotPermitted { .. }),
        "{error}"
    );
    if !users_can_mount() {
        return;
    }
    let begun = as_user(USER, || {
        let mut user = Connection::open(&store.location, &StartService::Never).unwrap();
        let transaction = user.begin(&detached()).unwrap();
        std::fs::write(transaction.view_path.join("index.html"), "new").unwrap();
        transaction.id
    });
    // Root can still end a transaction that it cannot enter.
    root.commit(begun, &mut |_| {}).unwrap();
    let committed = std::fs::read(store.location.root.join("index.html")).unwrap();
    assert_eq!(committed, b"new");
}

fn is_refused<T>(result: Result<T, atomdir::client::RequestError>) -> bool {
    result.is_err_and(|error| error.kind() == Some(FailureKind::NotPermitted))
}

/// The log of a path lists a user's own commits back to the last commit of somebody else, which
/// may have changed the path as well. A log that would go past it is refused.
#[test]
fn log_of_a_path_reveals_nothing_about_commits_of_others() {
    if !is_root() {
        return;
    }
    let store = TestStore::shared_with(&[USER], NEVER_IDLE);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&store.location.root, open).unwrap();
    let mut root = store.connect();
    let mut user = connect_as(USER, &store).unwrap();
    let mut commit = |by_root: bool, name: &str| {
        let by = if by_root { &mut root } else { &mut user };
        let begun = by.begin(&detached()).unwrap();
        std::fs::write(begun.view_path.join(name), "x").unwrap();
        let committed = by.commit(begun.id, &mut |_| {}).unwrap();
        committed.sequence.unwrap()
    };
    let first = commit(false, "own");
    // This process has written it as root.
    let own = store.location.root.join("own");
    std::fs::set_permissions(own, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let hidden = commit(true, "roots");
    let (second, last) = (commit(false, "own"), commit(false, "beside"));
    let filter = PathFilter::new(vec!["own".into()]);
    let log = |by: &mut Connection, before, limit| {
        let found = by.log_of(&filter, before, limit)?;
        Ok::<Vec<Sequence>, RequestError>(found.iter().map(|one| one.sequence).collect())
    };
    assert_eq!(log(&mut user, None, 1).unwrap(), [second]);
    assert!(is_refused(log(&mut user, None, 2)));
    assert!(is_refused(log(&mut user, Some(second), 1)));
    assert_eq!(log(&mut user, Some(hidden), 2).unwrap(), [first]);
    assert_eq!(log(&mut root, None, u64::MAX).unwrap(), [second, first]);
    let all = user.log(None, u64::MAX).unwrap();
    let all: Vec<Sequence> = all.iter().map(|one| one.sequence).collect();
    assert_eq!(all, [last, second, hidden, first]);
}

/// The service keeps the store's root open, so it has to check by itself that the user can
/// still reach the root by its path.
#[test]
fn transactions_require_access_to_the_stores_path() {
    if !is_root() {
        return;
    }
    let store = TestStore::shared_with(&[USER, STRANGER], NEVER_IDLE);
    let mode = |path: &std::path::Path, bits| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(bits);
        std::fs::set_permissions(path, permissions).unwrap();
    };
    // Root's connection keeps the service running while others come and go.
    let mut root = store.connect();
    mode(&store.location.root, 0o777);
    let mut user = connect_as(USER, &store).unwrap();
    let open = user.begin(&detached()).unwrap();
    std::fs::write(open.view_path.join("new"), "x").unwrap();
    let above = store.location.root.parent().unwrap().to_owned();
    for closed in [&above, &store.location.root] {
        mode(closed, 0o700);
        assert!(is_refused(user.begin(&detached())));
        assert!(is_refused(user.attach(open.id)));
        assert!(is_refused(user.snapshot_object(open.id, b"index.html", 10)));
        let commit = user.commit(open.id, &mut |_| {}).unwrap_err();
        assert_eq!(commit.kind(), Some(FailureKind::NotPermitted), "{commit}");
        assert_eq!(user.transactions().unwrap().len(), 1);
        root.begin(&detached()).unwrap();
        mode(closed, 0o777);
    }
    user.commit(open.id, &mut |_| {}).unwrap();
    // When the owner withdraws the permission, an open connection can no longer begin or
    // commit, only abort.
    let last = user.begin(&detached()).unwrap().id;
    Settings::change(&store.location, ALLOW, "").unwrap();
    assert!(is_refused(user.begin(&detached())));
    assert_eq!(
        user.commit(last, &mut |_| {}).unwrap_err().kind(),
        Some(FailureKind::NotPermitted)
    );
    user.abort(last).unwrap();
    assert!(matches!(
        connect_as(USER, &store).unwrap_err(),
        ConnectError::NotPermitted { .. }
    ));
}
