//! Only its owner may use a store, unless they let others in.

use atomdir_testing::exit_code::{CONFIGURATION, NOT_PERMITTED, USAGE};
use atomdir_testing::{Fixture, User, atomdir_in, users_can_mount};

#[test]
fn roots_store_is_open_only_to_listed_users() {
    let fixture = Fixture::new("allowed", "mkdir -m 777 drop; echo x > file");
    let store = &fixture.store;
    let stranger = User::stranger(fixture.scratch.path());
    store.call(["service", "start"]).expect(0);
    let run = || store.call_as(&stranger, ["run", "--", "sh", "-ec", "echo y > drop/mine"]);
    let shown = || store.call(["config", "allow"]).expect(0).text();
    run()
        .expect(NOT_PERMITTED)
        .says(&["takes no connections from this user", "config allow"]);
    assert_eq!(shown(), "\n");
    for listed in ["games", "@games", "daemon,5", "@60"] {
        store.call(["config", "allow", listed]).expect(0);
        run().expect(0);
        store.call(["config", "allow", "daemon,@daemon"]).expect(0);
        run().expect(NOT_PERMITTED);
        store.call_as(&stranger, ["list"]).expect(NOT_PERMITTED);
    }
    assert_eq!(shown(), "daemon,@daemon\n");
    assert_eq!(
        store.call(["config"]).expect(0).text(),
        "allow daemon,@daemon\nview auto\nhistory-age 7d\nhistory-space auto\ntimes write\nappend \nguard off\nguard-history off\nguard-writers win\n"
    );
    // Only the owner and root may change or see this setting.
    store
        .call_as(&stranger, ["config", "allow", "games"])
        .expect(NOT_PERMITTED);
    store.call_as(&stranger, ["config"]).expect(NOT_PERMITTED);
    store
        .call(["config", "allow", "no-such-user"])
        .expect(USAGE);
    store
        .call(["config", "colour", "red"])
        .expect(USAGE)
        .says(&["no setting", "allow"]);
    store.call(["config", "allow", ""]).expect(0);
    run().expect(NOT_PERMITTED);
    // If it is unknown who may use the store, nobody else may.
    let settings = store.control().join("settings");
    std::fs::write(&settings, "allow what is this\n").expect("written");
    run().expect(NOT_PERMITTED);
    store.run("echo z > file").expect(0);
    std::fs::remove_file(&settings).expect("removed");

    let second = fixture.scratch.join("second");
    std::fs::create_dir(&second).expect("made");
    let init = ["init", "--allow", "games"];
    atomdir_in(&User::root(fixture.scratch.path()), &second, init).expect(0);
    let config = atomdir_in(store.user(), &second, ["config", "allow"]).expect(0);
    assert_eq!(config.text(), "games\n");
    store.assert_at_rest();
}

#[test]
fn ordinary_users_store_refuses_sharing() {
    if !users_can_mount("ordinary_users_store_refuses_sharing") {
        return;
    }
    let fixture = Fixture::owned_by("unshared", User::ordinary, "echo x > file");
    let store = &fixture.store;
    store
        .call(["config", "allow", "games"])
        .expect(CONFIGURATION)
        .says(&["not root's"]);
    store.call(["service", "start"]).expect(0);
    let stranger = User::stranger(fixture.scratch.path());
    for verb in [["list"].as_slice(), &["begin"], &["service", "stop"]] {
        let trusting = ["--trust"].iter().chain(verb);
        store.call_as(&stranger, trusting).expect(NOT_PERMITTED);
    }
    store.assert_at_rest();
}

/// Root may look after any store, and yet does not end another user's: what its service holds is
/// as before.
#[test]
fn root_does_not_end_the_store_of_another_user() {
    if !users_can_mount("root_does_not_end_the_store_of_another_user") {
        return;
    }
    let fixture = Fixture::owned_by("not-roots", User::ordinary, "echo x > file");
    let store = &fixture.store;
    let begun = store.begin();
    let root = User::root(fixture.scratch.path());
    for force in [&["deinit"][..], &["deinit", "--force"]] {
        let words = ["--trust"].iter().chain(force);
        store.call_as(&root, words).expect(NOT_PERMITTED);
    }
    store.abort(&begun).expect(0);
    store.assert_at_rest();
}
