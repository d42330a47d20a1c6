#![cfg(test)]

//! Commands that commit what has changed so far, and go on.

use atomdir_testing::exit_code::{CONFLICT, NOT_PERMITTED, USAGE};
use atomdir_testing::{Fixture, script, tools_present};

/// What was written through a descriptor or a mapping before the commit is in it, and what is written
/// later is not. Files that were made, moved and removed show the same in the session all the time.
#[test]
fn each_turn_of_a_session_is_a_commit() {
    let test = "each_turn_of_a_session_is_a_commit";
    if !tools_present(test, &["python3"]) {
        return;
    }
    let prepare = "mkdir dir; echo one > page; echo old > dir/old; echo log > log";
    Fixture::for_each_owner("turns", prepare, |one| {
        let session = script(
            r#"
            turn() { $A commit -q --so-far -m "$1"; }
            exec 5>> log 6> made
            echo two >> page; echo 1 >&5; echo 1 >&6; number=$(stat -c %i made)
            turn first
            test "$(cat page log made | tr '\n' ' ')" = "one two log 1 1 "
            turn nothing
            echo 2 >&5; echo 2 >&6; rm dir/old; mv dir moved; echo new > moved/new
            turn second
            test "$(cat log made | tr '\n' ' ')" = "log 1 2 1 2 "
            test $(stat -c %i made) = $number && test $(ls moved) = new
            cat > map.py << END
import mmap, subprocess
file = open("page", "r+b")
pages = mmap.mmap(file.fileno(), 0)
pages[:3] = b"ONE"
subprocess.run(["$A", "commit", "-q", "--so-far", "-m", "third"], check=True)
assert pages[:3] == b"ONE" and open("page").read(3) == "ONE"
pages[:3] = b"TWO"
END
            python3 map.py
            rm map.py; echo 3 >&5
            "#,
        );
        let run = [
            "run",
            "-q",
            "--commit-within",
            "-m",
            "session",
            "--",
            "sh",
            "-ec",
        ];
        let run: Vec<&str> = run.into_iter().chain([session.as_str()]).collect();
        one.store.call(&run).expect(0);
        let log = one.store.call(["log", "--oneline"]).expect(0).text();
        let labels: Vec<&str> = log
            .lines()
            .filter_map(|line| line.split_whitespace().last())
            .collect();
        assert_eq!(labels, ["session", "third", "second", "first"], "{log}");
        let shown = "cat page log made; ls; ls moved";
        let text = |words: &str| one.store.outside(words).expect(0).text();
        let after = "TWO\ntwo\nlog\n1\n2\n3\n1\n2\nlog\nmade\nmoved\npage\nnew\n";
        assert_eq!(text(shown), after);
        for (number, name, contents) in [
            ("4", "page", "ONE\ntwo\n"),
            ("3", "page", "one\ntwo\n"),
            ("2", "dir/old", "old\n"),
            ("1", "page", "one\n"),
        ] {
            one.store.call(["undo", number]).expect(0);
            assert_eq!(
                text(&format!("cat {name}")),
                contents,
                "after undo {number}"
            );
        }
        assert_eq!(text("cat log; ls"), "log\ndir\nlog\npage\n");
        one.store.assert_at_rest();
    });
}

#[test]
fn only_a_session_that_may_commits_within() {
    Fixture::for_each_owner("turns-refused", "true", |one| {
        let refused = script("echo 1 > made; $A commit --so-far; exit $?");
        for options in [&["--view", "exact"][..], &["--view", "native"]] {
            let outcome = one.store.run_with(options, &refused);
            assert_ne!(outcome.code, 0, "{outcome}");
        }
        let sealed = script("$A commit --so-far; exit $?");
        let run = [
            "run",
            "--sealed",
            "--commit-within",
            "--",
            "sh",
            "-ec",
            &sealed,
        ];
        assert_ne!(one.store.call(run).code, 0);
        for wrong in ["--ask", "--dry-run", "--retry=1", "--view=native"] {
            let run = ["run", wrong, "--commit-within", "--", "true"];
            one.store.call(run).expect(USAGE);
        }
        let serializable = ["--isolation", "serializable", "--commit-within"];
        let run = ["run"].iter().chain(&serializable).chain(&["--", "true"]);
        one.store.call(run).expect(USAGE).says(&["serializable"]);
        let nested = script("$A run --commit-within -- true; exit $?");
        let outcome = one.store.run_with(&["--view", "exact"], &nested);
        outcome.expect(USAGE).says(&["nested", "--in none"]);
        // What landed stays when the rest is dropped.
        let session = script("echo 1 > landed; $A commit -q --so-far; echo 2 > dropped; exit 3");
        let run = ["run", "-q", "--commit-within", "--", "sh", "-ec", &session];
        one.store.call(run).expect(3);
        assert_eq!(one.store.outside("ls").expect(0).text(), "landed\n");
        one.store.assert_at_rest();
    });
}

#[test]
fn a_turn_in_conflict_stays_in_the_session() {
    Fixture::for_each_owner("turns-conflict", "echo 1 > page", |one| {
        let session = script(
            r#"
            echo mine > page; echo mine > other
            $A run -q --in none -- sh -c 'echo theirs > page'
            $A commit -q --so-far && exit 9 || test $? = 75
            $A commit -q -- other
            test $(cat page) = mine
            "#,
        );
        let run = [
            "run",
            "-q",
            "--commit-within",
            "--on-conflict",
            "abort",
            "--",
            "sh",
            "-ec",
        ];
        let run: Vec<&str> = run.into_iter().chain([session.as_str()]).collect();
        one.store.call(&run).expect(CONFLICT).says(&["page"]);
        let found = one.store.outside("cat page other").expect(0);
        assert_eq!(found.text(), "theirs\nmine\n");
        one.store.assert_at_rest();
    });
}

/// Another user cannot.
#[test]
fn nobody_else_commits_a_turn() {
    let fixture = Fixture::new("turns-others", "true");
    let stranger = atomdir_testing::User::stranger(fixture.scratch.path());
    fixture.store.call(["config", "allow", "games"]).expect(0);
    let session = script(
        "echo 1 > made; echo $ATOMDIR_TX > ../id; while test ! -e ../go; do sleep 0.01; done",
    );
    let run = ["run", "-q", "--commit-within", "--", "sh", "-ec", &session];
    std::thread::scope(|scope| {
        let running = scope.spawn(|| fixture.store.call(run));
        let id = fixture.scratch.join("id");
        while !std::fs::read_to_string(&id).is_ok_and(|id| id.ends_with('\n')) {
            std::thread::yield_now();
        }
        let id = std::fs::read_to_string(id).expect("read");
        let refused = fixture
            .store
            .call_as(&stranger, ["commit", id.trim(), "--so-far"]);
        std::fs::write(fixture.scratch.join("go"), "").expect("written");
        running.join().expect("ended").expect(0);
        assert!(
            [NOT_PERMITTED, atomdir_testing::exit_code::NO_SUCH].contains(&refused.code),
            "{refused}"
        );
    });
}
