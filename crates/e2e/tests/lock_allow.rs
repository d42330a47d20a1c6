//! Who may lock a file beyond those who may read or write it.
#![cfg(test)]

use atomdir_testing::exit_code::{CONFLICT, NOT_PERMITTED};
use atomdir_testing::{Fixture, User};

/// `lock --allow`: for files and directories, subtrees and names, in both kinds of view. What is
/// withdrawn is over at once.
#[test]
fn owners_say_who_else_may_lock() {
    let test = "owners_say_who_else_may_lock";
    let tree = "echo a > secret; chmod 600 secret; mkdir -m 755 closed; echo c > closed/c
        chmod 600 closed/c; echo d > closed/d; chmod 600 closed/d; chmod 777 .
        ln -s secret link; echo o > other; chmod 600 other; mkdir -m 700 shut; echo s > shut/s";
    let fixture = Fixture::new("lock-leave", tree);
    let (store, base) = (&fixture.store, &fixture.base);
    let user = User::ordinary(fixture.scratch.path());
    if !atomdir_testing::tools_present(test, &["getfattr", "setfattr"]) {
        return;
    }
    store.call(["config", "allow", "nobody,games"]).expect(0);
    store.call(["service", "start"]).expect(0);
    let begin = || {
        let id = store.call_as(&user, ["begin"]).expect(0).text();
        id.lines().next().expect("an id").to_owned()
    };
    let lock = |id: &str, options: &[&str]| {
        let words = ["lock", "--no-wait", id];
        store.call_as(&user, words.iter().chain(options))
    };
    let id = begin();
    for path in ["secret", "closed", "closed/new"] {
        lock(&id, &[path]).expect(NOT_PERMITTED);
    }
    store.call_as(&user, ["abort", &id]).expect(0);
    // Only who may write a file can say so, and links are not followed.
    let named = user.uid.to_string();
    let allow = |who: &str, path: &str| store.call(["lock", "--allow", who, path]);
    let refused = store.call_as(&user, ["lock", "--allow", &named, "secret"]);
    refused.expect(NOT_PERMITTED).says(&["who may lock"]);
    allow(&named, "link").expect(NOT_PERMITTED);
    for path in ["secret", "closed", "closed/c", "shut/s"] {
        allow("@daemon", path).expect(0);
        allow(&format!("+{named}"), path).expect(0);
    }
    let list = atomdir_testing::shell(base, "getfattr --only-values -n user.atomdir.lock secret");
    assert!(
        list.text().split(',').any(|one| one == named),
        "{}",
        list.text()
    );
    let id = begin();
    lock(&id, &["secret"]).expect(0);
    lock(&id, &["--subtree", "closed"]).expect(0);
    lock(&id, &["closed/new"]).expect(0);
    for path in ["other", "closed/d", "shut/s"] {
        lock(&id, &[path]).expect(NOT_PERMITTED);
    }
    // The user can still neither read nor write it.
    for script in ["cat secret", "echo >> secret"] {
        let run = store.call_as(&user, ["exec", &id, "--", "/bin/sh", "-ec", script]);
        assert_ne!(run.code, 0, "{script}");
    }
    let change = |script: &str| store.run(script);
    for script in [
        "echo x > secret",
        "echo x > closed/c",
        "echo x > closed/new",
    ] {
        change(script).expect(CONFLICT).says(&["locked"]);
    }
    change("echo x > closed/d").expect(0);
    // The owner takes it back: the locks are over at once, and for good.
    allow("", "secret").expect(0);
    change("echo x > secret").expect(0);
    allow(&named, "secret").expect(0);
    change("echo y > secret").expect(0);
    change("echo x > closed/c").expect(CONFLICT);
    allow(&format!("-{named}"), "closed/c").expect(0);
    change("echo x > closed/c").expect(0);
    let status = store.call_as(&user, ["status", &id, "--json"]).expect(0);
    assert!(!status.text().contains("secret"), "{}", status.text());
    store.call_as(&user, ["abort", &id]).expect(0);
    store.assert_at_rest();
}
