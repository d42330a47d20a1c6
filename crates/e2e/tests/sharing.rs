#![cfg(test)]

//! Several programs in one transaction: which of them hold it, and what a commit then does.

use std::fs;

use atomdir_testing::exit_code::{CONFLICT, NO_SUCH, USAGE};
use atomdir_testing::{Fixture, Store, Waiting, binary, wait_until};

fn for_each_owner(test: &str, check: impl Fn(&Store, &dyn Fn(&str) -> Option<String>)) {
    Fixture::for_each_owner(test, "echo old > file", |fixture| {
        let base = |name: &str| fs::read_to_string(fixture.base.join(name)).ok();
        check(&fixture.store, &base);
    });
}

fn status(store: &Store, id: &str) -> String {
    store.call(["--json", "status", id]).expect(0).text()
}

#[test]
fn commit_is_refused_while_others_are_in_the_transaction() {
    for_each_owner("busy", |store, base| {
        let view = store.begin();
        let exec = ["exec", &view.id];
        let mut first = Waiting::start(store, &exec, "echo in", "echo new > file");
        let mut second = Waiting::start(store, &exec, "echo in", "cat file");
        let shown = status(store, &view.id);
        for waiting in [&first, &second] {
            assert!(shown.contains(&waiting.child.id().to_string()), "{shown}");
        }
        let process = first.child.id().to_string();
        store
            .commit(&view)
            .expect(CONFLICT)
            .says(&["in use", &process]);
        assert_eq!(first.end(), Some(0));
        store.commit(&view).expect(CONFLICT).says(&["in use"]);
        assert_eq!(second.end(), Some(0));
        assert!(status(store, &view.id).contains(r#""holders":[]"#));
        store.commit(&view).expect(0);
        assert_eq!(base("file").as_deref(), Some("new\n"));
    });
}

#[test]
fn commit_waits_for_others_or_ends_their_views_by_force() {
    for_each_owner("wait", |store, base| {
        let view = store.begin();
        let exec = ["exec", &view.id];
        let mut inside = Waiting::start(store, &exec, "echo in", "echo waited > file");
        let mut commit = store.command(["commit", "--wait", &view.id]);
        let mut commit = commit.spawn().expect("the commit starts");
        store.call(["exec", &view.id, "--", "true"]).expect(0);
        assert_eq!(commit.try_wait().expect("it can be asked"), None);
        assert_eq!(inside.end(), Some(0));
        assert!(commit.wait().expect("it ends").success());
        assert_eq!(base("file").as_deref(), Some("waited\n"));

        let view = store.begin();
        let exec = ["exec", &view.id];
        let first = "echo forced > file; echo in";
        let mut inside = Waiting::start(store, &exec, first, "cat file; echo late > late");
        let nested = store.begin_with(&["--in", &view.id]);
        store.exec(&nested, "echo nested > file").expect(0);
        store.call(["commit", "--force", &view.id]).expect(0);
        assert_eq!(base("file").as_deref(), Some("forced\n"));
        assert_ne!(inside.end(), Some(0), "its view has ended");
        assert_eq!(base("late"), None);
        store.call(["status", &nested.id]).expect(NO_SUCH);
    });
}

#[test]
fn abort_waits_for_others_if_asked_to() {
    for_each_owner("abort-wait", |store, base| {
        let view = store.begin();
        let mut inside = Waiting::start(store, &["exec", &view.id], "echo in", "echo x > file");
        let mut abort = store.command(["abort", "--wait", &view.id]);
        let mut abort = abort.spawn().expect("the abort starts");
        store.call(["exec", &view.id, "--", "true"]).expect(0);
        assert_eq!(abort.try_wait().expect("it can be asked"), None);
        assert_eq!(inside.end(), Some(0));
        assert!(abort.wait().expect("it ends").success());
        store.call(["status", &view.id]).expect(NO_SUCH);
        assert_eq!(base("file").as_deref(), Some("old\n"));

        let view = store.begin();
        let atomdir = binary().display().to_string();
        let within = ["exec", &view.id, "--", &atomdir, "abort", "--wait"];
        store.call(within).expect(USAGE).says(&["never end"]);
        store.call(["abort", &view.id]).expect(0);
    });
}

/// `run` holds its transaction, and so does every program that attaches to it.
#[test]
fn transaction_without_holders_is_aborted() {
    for_each_owner("holders", |store, base| {
        let mut run = Waiting::start(
            store,
            &["run", "--view", "exact"],
            "echo $ATOMDIR_TX",
            "echo run > file",
        );
        let id = run.said.clone();
        let exec = ["exec", &id];
        let mut inside = Waiting::start(store, &exec, "echo in", "echo exec > file; cat file");
        run.kill();
        store.call(["status", &id]).expect(0);
        assert_eq!(inside.end(), Some(0));
        wait_until("the abort", || store.call(["status", &id]).code == NO_SUCH);
        assert_eq!(base("file").as_deref(), Some("old\n"));

        // While another program is attached, `run` does not commit, and nothing is lost.
        let mut run = Waiting::start(
            store,
            &["run", "--view", "exact"],
            "echo $ATOMDIR_TX",
            "echo run > file",
        );
        let id = run.said.clone();
        let exec = ["exec", &id];
        let mut inside = Waiting::start(store, &exec, "echo in", "true");
        assert_eq!(run.end(), Some(CONFLICT));
        assert_eq!(inside.end(), Some(0));
        store.call(["commit", &id]).expect(0);
        assert_eq!(base("file").as_deref(), Some("run\n"));
    });
}
