//! Snapshots of open transactions do not show what programs change through a guard.

use std::fs;

use atomdir_testing::tree::{CompareOptions, Tree, assert_equal};
use atomdir_testing::{Random, View, look, pick};

use super::Guarded;
use super::operation::Operation;

fn options() -> CompareOptions {
    CompareOptions {
        root: false,
        ..CompareOptions::copied()
    }
}

#[track_caller]
fn check(what: &str, snapshot: &Tree, view: &View) {
    let what = format!("snapshot (left) and view (right) {what}");
    assert_equal(&what, snapshot, &look(&view.path), &options());
}

/// None of it was looked at before in the transactions.
#[test]
fn snapshots_stay_as_they_were_whatever_is_changed_through_a_guard() {
    let test = "snapshots_stay_as_they_were_whatever_is_changed_through_a_guard";
    let prepare = "mkdir -p d/e/g many empty; echo old > a; echo old > d/f; echo old > d/e/h; ln a b
        head -c 300000 /dev/urandom > long; ln -s a link; mkfifo d/pipe; echo x > gone; echo y > moved
        for i in 1 2 3 4 5; do echo $i > many/$i; done; echo z > over; cp long cut; cp long holes";
    let Some(guarded) = Guarded::new(test, prepare) else {
        return;
    };
    let store = &guarded.fixture.store;
    let changes = [
        "echo new > a",
        "rm gone",
        "mv moved d/e/g",
        "rm -r d",
        "printf XYZ | dd of=long conv=notrunc bs=1 seek=100000 status=none",
        "printf XYZ | dd of=long conv=notrunc bs=1 seek=100002 status=none; echo end >> long",
        "rm link; ln -s b link; rm b",
        "mv many other; rm other/3; echo 6 > other/6; mv other/1 other/2",
        "echo w > temporary; mv temporary over",
        "chmod 600 a; touch -d 2001-01-01 a; setfattr -n user.x -v y a 2>/dev/null || true",
        "truncate -s 5 cut; fallocate -p -o 4096 -l 8192 holes",
        "rmdir empty; echo file > empty; mkdir d; echo new > d/f",
        "rm long a",
    ];
    let mut open: Vec<(View, Tree)> = Vec::new();
    for change in changes {
        open.push((store.begin(), look(guarded.base())));
        store.outside(change);
        for (number, (view, snapshot)) in open.iter().enumerate() {
            check(&format!("{number} after {change}"), snapshot, view);
        }
        // Commits take their places between.
        store.run("date > unrelated || echo > unrelated").expect(0);
    }
    for (number, (view, snapshot)) in open.iter().enumerate() {
        check(&format!("{number} at the end"), snapshot, view);
        store.abort(view).expect(0);
    }
    let base = look(guarded.base());
    store.call(["umount"]).expect(0);
    assert_equal("base", &base, &look(guarded.base()), &options());
    store.assert_at_rest();
}

#[test]
fn random_calls_through_a_guard_change_no_snapshot() {
    let test = "random_calls_through_a_guard_change_no_snapshot";
    let Some(guarded) = Guarded::new(test, "mkdir w x") else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    let mut random = Random::for_test(test);
    let mut open: Vec<(View, Tree)> = Vec::new();
    let mut trace: Vec<String> = Vec::new();
    for round in 0..pick(40, 400) {
        for _ in 0..random.below(30) {
            let operation = Operation::random(&mut random, "w");
            let done = operation.apply(base);
            if done.is_ok() {
                trace.push(format!("{operation:?}"));
            }
        }
        for (view, snapshot) in &open {
            check(
                &format!("{} after {}", view.id, trace.join("\n")),
                snapshot,
                view,
            );
        }
        match random.below(4) {
            0 if !open.is_empty() => {
                let (view, _) = open.swap_remove(random.below(open.len()));
                trace.push(format!("abort {}", view.id));
                store.abort(&view).expect(0);
            }
            1 => {
                trace.push("commit".to_owned());
                store.run(&format!("echo {round} > x/{round}")).expect(0);
            }
            _ if open.len() < 4 => {
                let view = store.begin();
                trace.push(format!("begin {}", view.id));
                open.push((view, look(base)));
            }
            _ => {}
        }
    }
    for (view, _) in open {
        store.abort(&view).expect(0);
    }
    fs::write(base.join("x/end"), "").expect("the guard serves");
    store.call(["check"]).expect(0);
    store.call(["umount"]).expect(0);
    store.assert_at_rest();
}

/// What a transaction writes that programs have changed since is still a conflict.
#[test]
fn a_frozen_snapshot_hides_no_conflict() {
    let test = "a_frozen_snapshot_hides_no_conflict";
    let Some(guarded) = Guarded::new(test, "echo old > a; echo old > b; mkdir d") else {
        return;
    };
    let store = &guarded.fixture.store;
    // Another snapshot, for which the old state is kept anyway.
    let other = store.begin();
    for (outside, inside) in [
        (
            "echo outside > a",
            "test \"$(cat a)\" = old && echo inside > a",
        ),
        ("rm b", "test \"$(cat b)\" = old && echo inside > b"),
        ("rmdir d", "echo inside > d/f"),
    ] {
        let view = store.begin();
        store.outside(outside);
        store.exec(&view, inside).expect(0);
        store.commit(&view).expect(super::CONFLICT);
        store.abort(&view).expect(0);
        // One that begins now shows the change, and does not conflict.
        let view = store.begin();
        store
            .exec(&view, "echo later > a; test ! -e b || cat b")
            .expect(0);
        store.commit(&view).expect(0);
        store.outside("echo old > a");
    }
    store.abort(&other).expect(0);
    store.call(["umount"]).expect(0);
    store.assert_at_rest();
}
