//! Changes of programs that know nothing of transactions are kept in the history, if the store says so.

use std::fs;
use std::process::Command;

use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::tree::{CompareOptions, Times, assert_equal};
use atomdir_testing::{User, capture_output, look, shell, wait_until};

use super::Guarded;

impl Guarded {
    /// A run of its own, as a line in an interactive shell is one.
    fn outside(&self, script: &str) {
        self.outside_as(&User::root(self.fixture.scratch.path()), script);
    }

    fn outside_as(&self, user: &User, script: &str) {
        let mut command = Command::new("setsid");
        user.dress(&mut command);
        command.args(["--wait", "sh", "-ec", script]);
        capture_output(command.current_dir(self.base())).expect(0);
    }

    fn log(&self) -> Vec<String> {
        let log = self.fixture.store.call(["log", "--oneline"]).expect(0);
        let text = String::from_utf8(log.stdout).expect("text");
        text.lines().map(str::to_owned).collect()
    }
}

/// Everything but the times of directories, which a change of entries sets anyway.
fn options() -> CompareOptions {
    CompareOptions {
        root: false,
        directory_times: Times::Ignored,
        ..CompareOptions::copied()
    }
}

#[test]
fn each_run_of_a_program_is_a_commit_that_can_be_undone() {
    let test = "each_run_of_a_program_is_a_commit_that_can_be_undone";
    let prepare =
        "echo one > a; echo two > b; ln b c; mkdir -p d/e many; echo x > d/e/f; ln -s a link
        head -c 300000 /dev/urandom > long; for i in 1 2 3 4 5; do echo $i > many/$i; done
        mkfifo d/pipe; chmod 750 d";
    let Some(guarded) = Guarded::new(test, prepare) else {
        return;
    };
    guarded.open_to_others();
    let store = &guarded.fixture.store;
    guarded.outside("echo unkept > unkept");
    assert_eq!(guarded.log(), [""; 0], "by default nothing is kept");
    store.call(["config", "guard-history", "on"]).expect(0);
    let is_on = || {
        guarded.outside("touch probe");
        !guarded.log().is_empty()
    };
    wait_until("the setting to be heeded", is_on);
    let first = guarded.log().len();
    let runs = [
        "sed -i s/one/ONE/ a",
        "printf XYZ | dd of=long conv=notrunc bs=1 seek=100000 status=none; echo end >> long",
        "rm -r d many/3; mv many other; echo 6 > other/6",
        "chmod 600 a; rm b; echo new > b; ln -sf b link",
        "truncate -s 7 long; mkdir -p x/y; echo z > x/y/z; mv other x/y; rm x/y/other/1",
        "head -c 400000 /dev/zero > long; rm long; : > a; rm a c",
    ];
    let mut trees = vec![look(guarded.base())];
    for script in runs {
        guarded.outside(script);
        trees.push(look(guarded.base()));
    }
    let log = guarded.log();
    assert_eq!(log.len() - first, runs.len(), "{log:#?}");
    assert!(log[0].contains("outside: sh"), "{log:#?}");
    let number = |line: &str| line.split_whitespace().next().expect("a number").to_owned();
    let patch = store
        .call(["show", "--patch", &number(&log[runs.len() - 1])])
        .expect(0);
    let patch = String::from_utf8(patch.stdout).expect("text");
    assert!(patch.contains("-one\n+ONE"), "{patch}");
    // Each undo takes back the run, and all that came after it.
    for (tree, line) in trees.iter().rev().skip(1).zip(&log) {
        let newest = number(&guarded.log()[0]);
        let range = format!("{}..{newest}", number(line));
        store.call(["undo", &range]).expect(0);
        assert_equal(
            "before the run, and undone",
            tree,
            &look(guarded.base()),
            &options(),
        );
    }
    store.call(["check"]).expect(0);
}

#[test]
fn a_user_takes_back_what_a_program_has_done_and_keeps_what_others_have() {
    let test = "a_user_takes_back_what_a_program_has_done_and_keeps_what_others_have";
    let Some(guarded) = Guarded::new(test, "mkdir -m 777 shared; echo mine > shared/mine") else {
        return;
    };
    guarded.open_to_others();
    let store = &guarded.fixture.store;
    store.call(["config", "guard-history", "on"]).expect(0);
    wait_until("the setting to be heeded", || {
        guarded.outside("touch probe");
        !guarded.log().is_empty()
    });
    let user = User::ordinary(guarded.fixture.scratch.path());
    guarded.outside_as(
        &user,
        "echo theirs > shared/theirs; mkdir shared/d; echo f > shared/d/f",
    );
    guarded.outside("echo changed > shared/mine; rm shared/theirs");
    store.run("echo inside > shared/inside").expect(0);
    let log = guarded.log();
    assert!(log[0].contains("echo inside"), "{log:#?}");
    let number = |line: &str| line.split_whitespace().next().expect("a number").to_owned();
    // The later run has removed what the earlier one has made.
    store
        .call(["undo", &number(&log[2])])
        .expect(CONFLICT)
        .says(&["shared/theirs"]);
    store.call(["undo", &number(&log[1])]).expect(0);
    assert_eq!(guarded.read("shared/mine"), "mine\n");
    assert_eq!(guarded.read("shared/theirs"), "theirs\n");
    assert_eq!(guarded.read("shared/inside"), "inside\n");
    store
        .call(["undo", &number(&log[2]), "--", "shared/d"])
        .expect(0);
    assert!(!guarded.base().join("shared/d").exists());
}

/// Logged changes survive the service. Later ones are in the files, and missing in the history.
#[test]
fn remembered_changes_are_undone_after_the_service_was_killed() {
    let test = "remembered_changes_are_undone_after_the_service_was_killed";
    let prepare = "echo old > a; mkdir d; echo f > d/f; head -c 500000 /dev/zero > long";
    let Some(guarded) = Guarded::new(test, prepare) else {
        return;
    };
    let store = &guarded.fixture.store;
    store.call(["config", "guard-history", "on"]).expect(0);
    wait_until("the setting to be heeded", || {
        guarded.outside("touch probe");
        !guarded.log().is_empty()
    });
    let before = look(guarded.base());
    guarded.outside(
        "echo new > a; rm -r d; printf XYZ | dd of=long conv=notrunc bs=300000 status=none",
    );
    guarded.outside("printf abc > long");
    let number = guarded.log().len();
    let after = look(guarded.base());
    guarded.outside("echo later > later");
    assert!(store.kill_service());
    store.call(["umount"]).expect(0);
    assert_eq!(guarded.read("later"), "later\n");
    fs::remove_file(guarded.base().join("later")).expect("removed");
    assert_equal(
        "before and after the kill",
        &after,
        &look(guarded.base()),
        &options(),
    );
    let log = guarded.log();
    assert!(log.len() >= number, "{log:#?}");
    let commits: Vec<String> = (0..2)
        .map(|place| {
            log[place]
                .split_whitespace()
                .next()
                .expect("a number")
                .to_owned()
        })
        .collect();
    store.call(["undo", &commits[0], &commits[1]]).expect(0);
    assert_equal(
        "before the runs, and undone",
        &before,
        &look(guarded.base()),
        &options(),
    );
    store.call(["check"]).expect(0);
    store.call(["service", "stop"]).expect(0);
    store.wait_until_ended();
    shell(guarded.base(), "test -z \"$(ls -A .atomdir/stage)\"");
    store.assert_at_rest();
}
