#![cfg(test)]

//! Transactions of several stores that stay open: all of them commit, or none, whichever is named and
//! whoever dies in between. The client is killed between the steps of the commit by leaving out the rest.

use atomdir::client::{Connection, Others};
use atomdir::{StartService, TransactionId, find};
use atomdir_testing::exit_code::{CONFLICT, NO_SUCH, USAGE};
use atomdir_testing::{Fixture, Store, shell, wait_until};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

struct Open<'a> {
    store: &'a Store,
    id: String,
    view: PathBuf,
}

impl Open<'_> {
    fn number(&self) -> TransactionId {
        TransactionId(self.id.parse().expect("it is a number"))
    }

    fn connect(&self) -> Connection {
        let store = find(self.store.path()).expect("it is a store");
        Connection::open(&store, &StartService::Never).expect("the service answers")
    }

    /// As the store's user.
    fn write(&self, contents: &str) {
        let file = self.view.join("file");
        let script = format!("printf %s '{contents}' > '{}'", file.display());
        self.store.outside(&script).expect(0);
    }

    fn status(&self) -> Value {
        let listed = json(self.store, &["list"])["transactions"].take();
        let mut all = listed.as_array().cloned().unwrap_or_default();
        all.retain(|one| one["transaction"].to_string() == self.id);
        all.pop().unwrap_or_default()
    }
}

fn json(store: &Store, words: &[&str]) -> Value {
    let words = ["--json"].iter().chain(words);
    let text = store.call(words).expect(0).text();
    serde_json::from_str(&text).expect("it is JSON")
}

fn begin<'a>(first: &'a Store, second: &'a Store) -> [Open<'a>; 2] {
    let other = second.path().to_str().expect("it is text");
    let text = first.call(["-C", other, "begin"]).expect(0).text();
    let lines: Vec<&str> = text.lines().collect();
    let [id, view, root, other_id, other_view] = lines[..] else {
        panic!("{text}");
    };
    assert_eq!(root, other);
    let open = |store, id: &str, view: &str| Open {
        store,
        id: id.to_owned(),
        view: view.into(),
    };
    [open(first, id, view), open(second, other_id, other_view)]
}

fn hold(stores: [&Store; 2], contents: &str) -> bool {
    let read = |store: &Store| fs::read_to_string(store.path().join("file"));
    stores
        .iter()
        .all(|store| read(store).is_ok_and(|read| read == contents))
}

#[test]
fn verbs_act_on_all_linked_transactions() {
    Fixture::for_each_owner("linked-stores", "echo old > file", |fixture| {
        let (first, second) = (&fixture.store, &fixture.beside());
        second.outside("echo old > file").expect(0);
        let (a, b) = (first.path().display(), second.path().display());
        for named in [0, 1] {
            let open = begin(first, second);
            let Open { store, id, .. } = &open[named];
            let script = format!("cat {a}/file; echo {named} > {a}/file; echo {named} > {b}/file");
            store
                .call(["exec", id, "--", "sh", "-ec", &script])
                .expect(0);
            assert!(!hold([first, second], &format!("{named}\n")), "it is open");
            let both = [format!("{a}/file"), format!("{b}/file")];
            let names = store.call(["diff", id, "--name-only"]).expect(0).text();
            assert_eq!(names, both.join("\n") + "\n");
            let only = store.call(["diff", id, "--name-status", "--", &both[1]]);
            assert_eq!(only.expect(0).text(), format!("M {}\n", both[1]));
            let patch = store.call(["diff", id]).expect(0).text();
            assert_eq!(patch.matches("# store ").count(), 2, "{patch}");
            for words in [
                &["diff", id][..],
                &["diff", id, "--stat"],
                &["diff", id, "--name-only"],
                &["status", id],
            ] {
                let stores = &json(store, words)["stores"];
                for (place, one) in open.iter().enumerate() {
                    let shown = &stores[place];
                    assert_eq!(shown["store"], one.store.path().to_str().expect("text"));
                    assert_eq!(shown["transaction"].to_string(), one.id);
                    assert_eq!(shown["changes"][0]["path"], "file", "{shown}");
                }
            }
            let linked = open[0].status()["linked"].clone();
            assert_eq!(linked, open[1].status()["linked"]);
            assert_eq!(linked.as_array().map(Vec::len), Some(2));
            let free = json(store, &["conflicts", id]);
            assert_eq!(free["stores"][1]["conflicts"], Value::Array(Vec::new()));
            for refused in [&["--", "file"][..], &["--take-mine", "all"], &["--so-far"]] {
                let words = ["commit", id].into_iter().chain(refused.iter().copied());
                store.call(words).expect(USAGE);
            }
            store.call(["fork", id]).expect(USAGE);
            store.call(["commit", id]).expect(0);
            assert!(hold([first, second], &format!("{named}\n")));
            // Either may be unchanged.
            for changed in [0, 1] {
                let open = begin(first, second);
                open[changed].write("one");
                store.call(["commit", &open[named].id]).expect(0);
                let read = fs::read(open[changed].store.path().join("file"));
                assert_eq!(read.expect("it is there"), b"one");
            }
            let open = begin(first, second);
            store.call(["commit", &open[named].id]).expect(0);
            for words in [&["abort"][..], &["abort", "--wait"], &["abort", "--all"]] {
                let open = begin(first, second);
                open.iter().for_each(|one| one.write("never"));
                let mut words = words.to_vec();
                if words != ["abort", "--all"] {
                    words.push(&open[named].id);
                }
                open[named].store.call(words).expect(0);
                assert_eq!(open[1 - named].status(), Value::Null);
            }
        }
        first.assert_at_rest();
        second.assert_at_rest();
    });
}

/// No request of a client commits one of them.
#[test]
fn one_of_several_does_not_commit_by_itself() {
    let fixture = Fixture::new("linked-stores-alone", "echo old > file");
    let (first, second) = (&fixture.store, &fixture.beside());
    let open = begin(first, second);
    for one in &open {
        one.write("new");
    }
    for round in 0..2 {
        for one in &open {
            let mut connection = one.connect();
            let refused = connection.commit(one.number(), &mut |_| {});
            assert!(refused.is_err(), "a plain commit");
            let refused = connection.commit_coordinator(one.number(), &mut |_| {});
            assert!(refused.is_err(), "a commit without votes");
            assert!(connection.give_up(one.number()).is_err(), "{round}");
        }
        first.kill_service();
        second.kill_service();
        first.call(["list"]).expect(0);
        second.call(["list"]).expect(0);
    }
    // Someone else commits first in one store: neither commits, and both stay open.
    second.run("echo theirs > file").expect(0);
    first.call(["commit", &open[0].id]).expect(CONFLICT);
    assert!(hold([first, first], "old\n") && hold([second, second], "theirs\n"));
    for one in &open {
        assert_eq!(one.status()["in_doubt"], Value::Null);
        let frozen = fs::write(one.view.join("other"), "1");
        frozen.expect("it is as open as before");
    }
    let listed = json(second, &["conflicts", &open[1].id]);
    assert_eq!(listed["stores"][1]["conflicts"][0]["path"], "file");
    second.call(["abort", &open[1].id, "--", "file"]).expect(0);
    second.call(["commit", &open[1].id]).expect(0);
    assert!(hold([first, first], "new") && hold([second, second], "theirs\n"));
    first.assert_at_rest();
    second.assert_at_rest();
}

/// How far the client of a commit comes before it dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dies {
    Coordinating,
    AfterVote,
    AfterDecision,
}

fn die(open: &[Open<'_>; 2], dies: Dies) {
    let [first, second] = open;
    let mut connection = first.connect();
    let coordinates = connection.coordinate(first.number(), Others::Refuse, &mut |_| {});
    assert!(coordinates.expect("nobody is in the way"));
    if dies == Dies::Coordinating {
        return;
    }
    let coordinator = connection.introduce(first.number()).expect("it is open");
    let mut to_second = second.connect();
    let voted = to_second.vote(second.number(), &coordinator, Others::Refuse, &mut |_| {});
    assert!(voted.expect("nobody is in the way"));
    if dies == Dies::AfterDecision {
        let committed = connection.commit_coordinator(first.number(), &mut |_| {});
        committed.expect("nobody is in the way");
    }
}

/// The client dies between any two steps of the commit, and so do the services. Then the services bring
/// both stores to the same end, or the next commit does.
#[test]
fn a_commit_that_dies_between_its_steps_is_whole_in_the_end() {
    let fixture = Fixture::new("linked-stores-killed", "echo old > file");
    let (first, second) = (&fixture.store, &fixture.beside());
    let all = [Dies::Coordinating, Dies::AfterVote, Dies::AfterDecision];
    let cases = all
        .into_iter()
        .flat_map(|dies| (0..4).map(move |kills| (dies, kills)));
    for (place, (dies, kills)) in cases.enumerate() {
        for ends_by_itself in [false, true] {
            for store in [first, second] {
                shell(store.path(), "echo old > file");
            }
            let contents = format!("{dies:?} {kills} {ends_by_itself}");
            println!("{contents}");
            let open = begin(first, second);
            open.iter().for_each(|one| one.write(&contents));
            die(&open, dies);
            for (bit, store) in [(1, first), (2, second)] {
                if kills & bit != 0 {
                    store.kill_service();
                    store.call(["list"]).expect(0);
                }
            }
            if ends_by_itself {
                wait_until("no vote is left", || {
                    let status = open[1].status();
                    status == Value::Null || status["in_doubt"] == Value::Null
                });
                let is_open = open.iter().map(|one| one.status() != Value::Null);
                let is_open: Vec<bool> = is_open.collect();
                assert_eq!(is_open, [dies != Dies::AfterDecision; 2]);
                if is_open[0] {
                    assert!(hold([first, second], "old\n"));
                    fs::write(open[1].view.join("more"), "1").expect("it is writable again");
                }
            }
            // The second one is open unless the commit has ended by itself.
            if !(ends_by_itself && dies == Dies::AfterDecision) {
                let verb = if place % 2 == 1 && dies != Dies::AfterDecision {
                    "abort"
                } else {
                    "commit"
                };
                second.call([verb, "--wait", &open[1].id]).expect(0);
                let expected = if verb == "abort" { "old\n" } else { &contents };
                assert!(hold([first, second], expected), "{contents}");
            } else {
                assert!(hold([first, second], &contents), "{contents}");
            }
            assert!(open.iter().all(|one| one.status() == Value::Null));
        }
    }
    first.assert_at_rest();
    second.assert_at_rest();
}

/// One of them is aborted because of its age, or its store is gone: the other one cannot commit any more.
#[test]
fn without_its_partner_none_commits() {
    let fixture = Fixture::new("linked-stores-gone", "echo old > file");
    let (first, second) = (&fixture.store, &fixture.beside());
    for named in [0, 1] {
        let open = begin(first, second);
        open.iter().for_each(|one| one.write("new"));
        let [gone, left] = [&open[named], &open[1 - named]];
        let age = Duration::from_millis(1);
        let aborts = gone.connect().abort_after(gone.number(), age);
        aborts.expect("it is open");
        wait_until("it has ended", || gone.status() == Value::Null);
        left.store.call(["commit", &left.id]).expect(NO_SUCH);
        left.store
            .call(["exec", &left.id, "--", "true"])
            .expect(NO_SUCH);
        assert!(!hold([left.store; 2], "new"));
        left.store.call(["abort", &left.id]).expect(0);
    }
    let open = begin(first, second);
    open.iter().for_each(|one| one.write("new"));
    second.kill_service();
    let away = second.path().with_file_name("away");
    fs::rename(second.path(), &away).expect("it is moved");
    let committed = first.call(["commit", &open[0].id]);
    assert_ne!(committed.code, 0, "{committed:?}");
    assert!(hold([first; 2], "old\n"));
    first.call(["abort", &open[0].id]).expect(0);
    fs::rename(&away, second.path()).expect("it is moved back");
    second.call(["commit", &open[1].id]).expect(NO_SUCH);
    second.call(["abort", &open[1].id]).expect(0);
    first.assert_at_rest();
    second.assert_at_rest();
}

#[test]
fn what_run_keeps_of_several_stores_is_linked() {
    let fixture = Fixture::new("linked-stores-kept", "echo old > file");
    let (first, second) = (&fixture.store, &fixture.beside());
    let (a, b) = (first.path().display(), second.path().display());
    let other = second.path().to_str().expect("it is text");
    let script = format!("echo new > {a}/file; echo new > {b}/file; exit 3");
    let words = [
        "-C",
        other,
        "run",
        "--on-error",
        "keep",
        "--",
        "sh",
        "-ec",
        &script,
    ];
    first.call(words).expect(3);
    let kept = json(second, &["list"])["transactions"][0]["transaction"].to_string();
    second.call(["commit", &kept]).expect(0);
    assert!(hold([first, second], "new\n"));
    first.assert_at_rest();
    second.assert_at_rest();
}
