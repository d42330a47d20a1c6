//! Files and directories that their own owner may not write or enter, in the views of
//! an ordinary user. Git's object files are an example.

#![cfg(test)]

use std::fs;

use atomdir_testing::{Fixture, Scenario, User, shell, tools_present, users_can_mount};

const TREE: &str = "
mkdir -p d/e old/deep; echo a > a; echo b > d/b; echo c > d/e/c; echo l > ro; echo 1 > old/one
echo 2 > old/deep/two; seq 100000 > big; echo p > private; setfattr -n user.x -v y ro
chmod 444 ro big d/b; chmod 400 private; chmod 555 old/deep old
find . -exec touch -h -d '2001-02-03 04:05:06.123456789' {} +
";

const CHANGES: [(&str, &str); 10] = [
    (
        "new files and directories that are closed in the end",
        "echo 1 > r; chmod 444 r; echo 2 > s; chmod 400 s; mkdir -p n/m; echo 3 > n/f
         echo 4 > n/m/g; chmod 444 n/f; chmod 400 n/m/g; chmod 555 n/m; chmod 500 n; : > e
         chmod 444 e; mkdir empty; chmod 555 empty; seq 200000 > large; chmod 444 large",
    ),
    (
        "old closed files, written and closed again",
        "chmod 644 ro; echo more >> ro; chmod 444 ro; chmod 600 private; echo q > private
         chmod 400 private; chmod 644 big; echo end >> big; chmod 444 big",
    ),
    (
        "old open files, closed",
        "echo more >> a; chmod 444 a; chmod 400 d/e/c; chmod 555 d/e; chmod 555 d",
    ),
    (
        "attributes alone of closed files",
        "chmod 400 ro; chmod 440 big; chmod 444 private; touch -d '2010-01-01' d/b
         chmod 600 ro; setfattr -x user.x ro; setfattr -n user.z -v w ro; chmod 444 ro",
    ),
    (
        "changes in an old closed directory",
        "chmod 755 old; echo 3 > old/three; rm old/one; chmod 555 old; chmod 755 old/deep
         echo more >> old/deep/two; ln old/deep/two old/deep/four; chmod 500 old/deep",
    ),
    (
        "closed files moved, linked and removed",
        "mv ro d/; mv big large; ln a linked; rm -f private; mv -f d/b a",
    ),
    (
        "old things in new closed directories",
        "mkdir -p n/m; mv ro n/m/; mv big n/; mv d/e/c n/m/; ln a n/m/a; chmod 555 n/m n",
    ),
    (
        "files of several names in closed directories",
        "mkdir -p n/m o; echo 1 > n/m/one; ln n/m/one n/two; ln n/m/one three; ln n/m/one o/four
         chmod 444 three; chmod 555 n/m o n",
    ),
    (
        "closed to reading",
        "echo 1 > f; chmod 0 f; mkdir -p n/m; echo 2 > n/m/g; chmod 200 n/m/g; chmod 0 n/m
         chmod 300 n; echo more >> a; chmod 0 a; mkdir k; mv private k/; chmod 0 k
         chmod 0 d/e/c; chmod 0 d/e; chmod 0 ro; mkdir empty; chmod 0 empty",
    ),
    (
        "closed to writing and entering",
        "mkdir -p n/m; echo 1 > n/m/f; chmod 444 n/m; mkdir k; echo 2 > k/f; chmod 444 k/f
         chmod 400 k; mkdir t; echo > t/u; chmod 555 t; chmod 755 t; rm -r t",
    ),
];

#[test]
fn commits_work_with_files_closed_to_their_owner() {
    let test = "commits_work_with_files_closed_to_their_owner";
    if !users_can_mount(test) || !tools_present(test, &["setfattr"]) {
        return;
    }
    for (name, script) in CHANGES {
        Scenario::shell(name, script)
            .prepare(TREE)
            .as_ordinary_user()
            .in_views(&["exact", "native"])
            .check();
    }
}

#[test]
fn removing_a_store_in_use_works_and_fails_the_run() {
    let test = "removing_a_store_in_use_works_and_fails_the_run";
    if !users_can_mount(test) || !tools_present(test, &["setpriv"]) {
        return;
    }
    for view in ["exact", "native"] {
        let fixture = Fixture::owned_by("closed-removed", User::ordinary, "echo 1 > file");
        let user = fixture.store.user().clone();
        let first = "mkdir new; echo 1 > new/closed; chmod 444 new/closed; chmod 400 file";
        let outcome = fixture.run_and_meanwhile(&["--view", view], first, || {
            let (user, group) = (user.uid, user.gid);
            let remove = format!(
                "setpriv --reuid {user} --regid {group} --clear-groups sh -c 'rm -rf base/* base/.??*'"
            );
            shell(fixture.scratch.path(), &remove);
        });
        let left = fs::read_dir(&fixture.base).expect("read").count();
        assert_ne!(outcome.code, 0, "{outcome}");
        assert_eq!(left, 0, "{view}: {outcome}");
    }
}

#[test]
fn a_user_commits_with_git() {
    let test = "a_user_commits_with_git";
    if !users_can_mount(test) || !tools_present(test, &["git"]) {
        return;
    }
    for view in ["exact", "native"] {
        let fixture = Fixture::owned_by("closed-git", User::ordinary, "echo 1 > file");
        let run = |script: &str| {
            let git = "git() { command git -c user.name=n -c user.email=e@x \"$@\"; }";
            let script = format!("{git}; {script}");
            fixture.store.run_with(&["--view", view], &script).expect(0);
        };
        run("git init -q .; git add file; git commit -qm first");
        run("echo 2 >> file; git commit -qam second; git gc -q; git fsck --strict");
        run(
            "git checkout -q HEAD~1; git branch old; echo 3 > other; git add other
            git commit -qm third; git repack -adq; git fsck --strict",
        );
        let packs = fixture.base.join(".git/objects/pack");
        assert_ne!(fs::read_dir(packs).expect("read").count(), 0);
        fixture.store.assert_at_rest();
    }
}
