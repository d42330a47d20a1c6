//! What users whom root has admitted to a store may undo: their own commits, and nothing that they
//! could not write or did not own.

#![cfg(test)]

use std::fs;

use atomdir_testing::exit_code::{CONFLICT, NOT_PERMITTED};
use atomdir_testing::{Fixture, Outcome, User, shell};

struct Admitted {
    one: Fixture,
    user: User,
    other: User,
}

impl Admitted {
    fn new(test: &str) -> Admitted {
        let one = Fixture::new(test, "mkdir own shared root; echo root > root/file");
        let user = User::ordinary(one.scratch.path());
        let other = User::stranger(one.scratch.path());
        let of_user = format!("chown {}:{} own; chmod 1777 shared", user.uid, user.gid);
        shell(&one.base, &of_user);
        let allowed = format!("{},{}", user.uid, other.uid);
        one.store.call(["config", "allow", &allowed]).expect(0);
        one.store.call(["service", "stop"]).expect(0);
        one.store.call(["service", "start"]).expect(0);
        Admitted { one, user, other }
    }

    fn call(&self, user: &User, words: &[&str]) -> Outcome {
        self.one.store.call_as(user, words)
    }

    fn run(&self, user: &User, script: &str) {
        self.call(
            user,
            &["run", "--view", "exact", "--", "/bin/sh", "-ec", script],
        )
        .expect(0);
    }

    fn undo(&self, words: &[&str]) -> Outcome {
        self.call(&self.user, &[&["undo"], words].concat())
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.one.base.join(path)).unwrap_or_default()
    }
}

#[test]
fn admitted_users_undo_their_own_commits_and_no_others() {
    let at = Admitted::new("admitted-own");
    at.run(
        &at.user,
        "echo 1 > own/f; mkdir -p own/d; echo 1 > own/d/f; echo 1 > shared/f",
    );
    at.run(
        &at.user,
        "echo 2 > own/f; echo 2 >> own/d/f; rm shared/f; chmod 600 own/d/f",
    );
    at.run(&at.other, "echo theirs > shared/theirs");
    at.one.store.run_exact("echo more >> root/file").expect(0);
    for commit in ["3", "4", "1..4", "last", "2.."] {
        at.undo(&[commit])
            .expect(NOT_PERMITTED)
            .says(&["which is another user's", "only root"]);
    }
    at.call(&at.other, &["undo", "1"]).expect(NOT_PERMITTED);
    at.undo(&["2"]).expect(0);
    assert_eq!(
        (at.read("own/f"), at.read("own/d/f")),
        ("1\n".into(), "1\n".into())
    );
    assert_eq!(at.read("shared/f"), "1\n");
    at.undo(&["1..2", "5"]).expect(0);
    assert!(!at.one.base.join("own/d").exists() && !at.one.base.join("shared/f").exists());
    at.undo(&["last"]).expect(0);
    assert_eq!(at.read("own/d/f"), "1\n");
    at.one.store.assert_at_rest();
}

#[test]
fn sides_need_the_same_permissions_as_writing_there() {
    let at = Admitted::new("admitted-sides");
    at.run(
        &at.user,
        "echo 1 > own/f; echo 1 > own/g; echo 1 > shared/f",
    );
    shell(
        &at.one.base,
        "echo root >> own/f; rm shared/f; echo root > shared/f",
    );
    at.undo(&["1"])
        .expect(CONFLICT)
        .says(&["own/f: ", "shared/f: "]);
    // The directory is sticky, and the file there is root's.
    at.undo(&["1", "--take-mine"]).expect(NOT_PERMITTED);
    assert_eq!(at.read("shared/f"), "root\n");
    at.undo(&["1", "--take-mine=own", "--take-theirs=shared"])
        .expect(0);
    assert!(!at.one.base.join("own/f").exists() && !at.one.base.join("own/g").exists());
    assert_eq!(at.read("shared/f"), "root\n");
    at.one.store.assert_at_rest();
}

#[test]
fn what_is_not_theirs_any_more_stays() {
    let at = Admitted::new("admitted-taken");
    at.run(
        &at.user,
        "echo 1 > own/f; echo 1 > own/g; mkdir own/d; echo 1 > own/d/x",
    );
    at.run(&at.user, "echo 2 > own/f; echo 2 >> own/g; rm -r own/d");
    // Root takes the directory away.
    shell(&at.one.base, "chown 0:0 own; chmod 755 own");
    for words in [
        &["2"][..],
        &["1..2"],
        &["2", "--take-mine"],
        &["2", "--", "own/d"],
    ] {
        at.undo(words).expect(NOT_PERMITTED);
    }
    assert_eq!(
        (at.read("own/f"), at.read("own/g")),
        ("2\n".into(), "1\n2\n".into())
    );
    assert!(!at.one.base.join("own/d").exists());
    at.one.store.assert_at_rest();
}

/// Others' objects do not come back by their undo, nor do rights that they could not give.
#[test]
fn objects_of_others_do_not_come_back() {
    let at = Admitted::new("admitted-others");
    shell(
        &at.one.base,
        "cp /bin/true own/tool; chmod 4755 own/tool; mkdir own/d; echo s > own/d/s",
    );
    shell(&at.one.base, "chmod 777 own/d");
    at.run(&at.user, "rm own/tool; echo kept > own/kept");
    at.run(&at.user, "rm -r own/d");
    for words in [&["1"][..], &["2"], &["1..2", "--keep"], &["1", "--dry-run"]] {
        at.undo(words)
            .expect(NOT_PERMITTED)
            .says(&["not this user's own"]);
    }
    at.undo(&["1", "--skip", "own/tool"]).expect(0);
    assert!(!at.one.base.join("own/tool").exists() && !at.one.base.join("own/kept").exists());
    at.one.store.assert_at_rest();
}

/// What was in a file of another user's may be what they are not allowed to read any more.
#[test]
fn files_of_others_do_not_get_old_contents() {
    let at = Admitted::new("admitted-contents");
    shell(
        &at.one.base,
        "seq 300000 > own/secret; chmod 666 own/secret; echo s > own/small; chmod 666 own/small",
    );
    at.run(
        &at.user,
        "printf x | dd of=own/secret bs=1 seek=99000 conv=notrunc status=none",
    );
    at.run(
        &at.user,
        "printf x | dd of=own/small bs=1 conv=notrunc status=none",
    );
    let before = at.read("own/secret");
    for words in [
        &["1"][..],
        &["2"],
        &["1", "--keep"],
        &["1..2", "--take-mine"],
    ] {
        at.undo(words).expect(NOT_PERMITTED);
    }
    assert!(at.read("own/secret") == before && at.read("own/small").starts_with('x'));
    at.one.store.assert_at_rest();
}

/// What others put where the user cannot look is not named.
#[test]
fn refusals_name_no_paths_that_the_user_cannot_see() {
    let at = Admitted::new("admitted-paths");
    at.run(&at.user, "mkdir -p own/d/e; echo 1 > own/d/e/f");
    shell(
        &at.one.base,
        "chown 0:0 own/d/e; chmod 700 own/d/e; echo 2 > own/d/e/secret; echo x > plan; mv plan own/d/e/",
    );
    for words in [
        &["1"][..],
        &["1", "--take-mine"],
        &["1", "--take-theirs", "--skip", "own/d/e"],
    ] {
        let refused = at.undo(words);
        assert_ne!(refused.code, 0, "{refused}");
        let text = refused.error_text() + &refused.text();
        assert!(
            !text.contains("secret") && !text.contains("plan"),
            "{refused}"
        );
    }
    assert_eq!(at.read("own/d/e/secret"), "2\n");
}
