//! Git repositories in stores, as docs/git.md shows them: undo, several agents at once, and stores
//! below a repository's root. `programs/git.rs` compares what git does in views and outside.

use std::fs;

use atomdir::{CommitError, Door, StoreOptions};
use atomdir_testing::documents::code_blocks;
use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::{Fixture, Store, binary, for_each_owner, tools_present};

const REPOSITORY: &str = "
git init -q . -b main && git config user.email a@example.org && git config user.name a
echo old > page && echo old > other && git add . && git commit -qm first
";

/// A repository that has become a store, for each owner. Git refuses repositories of others, so the
/// owner makes it.
fn for_each_repository(test: &str, check: impl Fn(&Fixture)) {
    if !tools_present(test, &["git"]) {
        return;
    }
    for_each_owner(test, |owner| {
        let fixture = Fixture::owned_by(test, owner, "true");
        fixture.store.outside(REPOSITORY);
        // The second `init` finds a repository, as the first does for most users.
        fixture.store.call(["service", "stop"]).expect(0);
        fs::remove_dir_all(fixture.store.control()).expect("removed");
        let root = fixture.store.path().to_owned();
        fixture
            .store
            .call(["init".as_ref(), root.as_os_str()])
            .expect(0)
            .says(&["core.checkStat"]);
        check(&fixture);
        fixture.store.assert_at_rest();
    });
}

#[test]
fn the_page_on_git_holds() {
    for_each_repository("git-page", |fixture| {
        let (store, bin) = (&fixture.store, fixture.scratch.join("bin"));
        let link = format!(
            "mkdir {0}; ln -s {1} {0}/atomdir",
            bin.display(),
            binary().display()
        );
        atomdir_testing::shell(
            fixture.scratch.path(),
            &format!("{link}; chmod 755 {}", bin.display()),
        );
        let blocks = code_blocks(include_str!("../../../docs/git.md"));
        let run = |block: &str| {
            let root = store.path().to_str().expect("text");
            let script = block.replace("/srv/site", root);
            store.outside(&format!("PATH={}:$PATH\n{script}", bin.display()))
        };
        let done = run(&blocks[0]);
        assert!(done.text().contains("a new line\n"), "{done}");
        let undone = run(&blocks[1]);
        assert!(undone.text().ends_with("first\n"), "{undone}");
        assert!(!undone.text().contains(" M "), "{undone}");
        run(&blocks[2]);
        store.outside(
            "printf '#!/bin/sh\necho x >> page; git commit -qam x' > agent; chmod +x agent",
        );
        run(&blocks[3]);

        let view = store.begin();
        store
            .exec(&view, "echo mine > other; git commit -qam mine")
            .expect(0);
        run(&blocks[3]);
        store.commit(&view).expect(CONFLICT);
        run(&blocks[4].replace("12", &view.id));
        let subjects = store.outside("git log --format=%s; git status --short; git fsck --strict");
        assert!(
            subjects
                .text()
                .starts_with("the same change again\nx\nx\nfirst\n"),
            "{subjects}"
        );
        assert_eq!(store.outside("cat other").text(), "mine\n");
    });
}

/// In a hook of git's, the environment names another repository.
#[test]
fn init_changes_the_settings_of_no_other_repository() {
    for_each_repository("git-hook", |fixture| {
        let store = &fixture.store;
        let script = format!(
            "git init -q $HOME/other; git init -q $HOME/mine; cd $HOME/mine
             GIT_DIR=$HOME/other/.git {} init 2> $HOME/said; ! grep -q trustctime $HOME/other/.git/config
             grep -q trustctime $HOME/mine/.git/config; {0} service stop",
            binary().display()
        );
        store.outside(&script);
    });
}

#[test]
fn git_finds_nothing_changed_after_a_commit_and_its_undo_works() {
    for_each_repository("git-undo", |fixture| {
        let store = &fixture.store;
        for view in ["exact", "auto"] {
            // Git notes whole seconds only.
            let script = "git checkout -q -b new; echo new > page; git commit -qam new; sleep 1.1";
            store.run_with(&["--view", view], script).expect(0);
            store.outside("git diff-index --quiet HEAD; git status; git diff --quiet");
            let log = store.call(["--json", "log", "-n", "1"]).expect(0).text();
            let log: serde_json::Value = serde_json::from_str(&log).expect("JSON");
            let commit = log["commits"][0]["commit"].to_string();
            store.call(["undo", &commit]).expect(0);
            let script = "git diff-index --quiet HEAD; git branch --show-current; cat page; git status --short";
            assert_eq!(store.outside(script).text(), "main\nold\n");
        }
    });
}

/// Git's own settings note inode numbers and change times, so git writes the index again.
#[test]
fn an_index_that_git_has_written_again_keeps_nobody_from_an_undo() {
    for_each_repository("git-index", |fixture| {
        let store = &fixture.store;
        store.outside("git config --unset core.checkStat; git config --unset core.trustctime");
        let script =
            "echo new > page; echo x > added; git rm -q other; git add .; git commit -qm new";
        store.run_with(&["--view", "exact"], script).expect(0);
        let rewritten = "before=$(stat -c %i .git/index); sleep 1.1; git status > /dev/null
                         test $before != $(stat -c %i .git/index)";
        store.outside(rewritten);
        store.call(["undo", "1"]).expect(0);
        let script = "git status --short; git log --format=%s; cat page other; git fsck --strict";
        assert_eq!(store.outside(script).text(), "first\nold\nold\n");

        // What somebody has staged since is not lost.
        store.call(["undo", "2"]).expect(0);
        store.outside("echo staged > more; git add more");
        store
            .call(["undo", "3"])
            .expect(CONFLICT)
            .says(&[".git/index"]);
        store.outside("git rm -q -f more");
        store.call(["undo", "3"]).expect(0);
        assert_eq!(
            store.outside("cat page; git status --short").text(),
            "old\n"
        );
    });
}

#[test]
fn an_index_that_git_has_written_again_keeps_nobody_from_a_commit() {
    for_each_repository("git-index-commit", |fixture| {
        let store = &fixture.store;
        store.outside("git config --unset core.checkStat; git config --unset core.trustctime");
        let rewrite = "touch -d 1990-01-01 other; git status > /dev/null";
        let view = store.begin();
        store
            .exec(&view, "echo new > page; git commit -qam new")
            .expect(0);
        store.outside(rewrite);
        store.commit(&view).expect(0);
        let script = "git status --short; git log --format=%s; cat page; git fsck --strict";
        assert_eq!(store.outside(script).text(), "new\nfirst\nnew\n");

        // What somebody has staged meanwhile is not lost.
        let view = store.begin();
        store
            .exec(&view, "echo newer > page; git commit -qam newer")
            .expect(0);
        store.outside("echo staged > more; git add more");
        store.commit(&view).expect(CONFLICT).says(&[".git/index"]);
        store.outside("git rm -q -f more");
        store.commit(&view).expect(0);
        assert_eq!(
            store.outside("cat page; git status --short").text(),
            "newer\n"
        );
    });
}

/// The same where a program has the store open.
#[test]
fn a_program_commits_its_index_after_git_has_written_another_one() {
    const TEST: &str = "git-index-embedded";
    if !tools_present(TEST, &["git"]) {
        return;
    }
    let fixture = Fixture::new(TEST, REPOSITORY);
    let store = &fixture.store;
    store.outside("git config --unset core.checkStat; git config --unset core.trustctime || :");
    store.outside("cp -a . ../other; cd ../other; echo new > page; git add page");
    let index = fs::read(fixture.scratch.join("other/.git/index")).expect("read");
    let opened = StoreOptions::new()
        .door(Door::Embedded)
        .open(store.path())
        .expect("nobody has it open");
    let begin = || {
        let tx = opened.begin().expect("begun");
        tx.write("page", "new\n").expect("written");
        tx.write(".git/index", &index).expect("written");
        tx
    };
    let tx = begin();
    store.outside("echo staged > more; git add more");
    let refused = tx.try_commit().expect_err("somebody has staged a file");
    assert!(matches!(refused.error, CommitError::Conflict { .. }));
    store.outside("git rm -q -f more");
    refused.transaction.commit().expect("nothing is in the way");
    assert_eq!(
        store.outside("git diff --cached --name-only").text(),
        "page\n"
    );
    opened.close().expect("closed");
}

#[test]
fn two_agents_commit_at_once() {
    for_each_repository("git-two", |fixture| {
        let store = &fixture.store;
        store.outside("mkfifo $HOME/begun $HOME/go");
        // The first try waits until the other agent has committed.
        let slow =
            "if [ ! -e $HOME/tried ]; then touch $HOME/tried; echo > $HOME/begun; cat $HOME/go; fi
                    echo slow > other; git commit -qam slow";
        let mut command =
            store.command(["run", "-q", "--retry", "3", "--", "/bin/sh", "-ec", slow]);
        let mut waiting = command.spawn().expect("started");
        store.outside("cat $HOME/begun");
        store
            .run("echo quick > page; git commit -qam quick")
            .expect(0);
        store.outside("echo > $HOME/go");
        assert!(waiting.wait().expect("ended").success());
        let script = "git log --format=%s; cat page other; git status --short; git fsck --strict";
        assert_eq!(
            store.outside(script).text(),
            "slow\nquick\nfirst\nquick\nslow\n"
        );

        // Without `--retry` the second is told what is in the way and what to do.
        let view = store.begin();
        store
            .exec(&view, "echo third > other; git commit -qam third")
            .expect(0);
        store
            .run("echo fourth > page; git commit -qam fourth")
            .expect(0);
        store
            .commit(&view)
            .expect(CONFLICT)
            .says(&[".git/", "atomdir conflicts", "abort"]);
        store.abort(&view).expect(0);
    });
}

#[test]
fn git_finds_a_repository_above_the_store() {
    const TEST: &str = "git-above";
    if !tools_present(TEST, &["git"]) {
        return;
    }
    for_each_owner(TEST, |owner| {
        let fixture = Fixture::owned_by(TEST, owner, "mkdir part; echo old > part/file");
        let store = &fixture.store;
        store.outside(REPOSITORY);
        fs::remove_dir_all(store.control()).expect("removed");
        let part = Store::init(&store.path().join("part"), store.user());
        for view in ["auto", "exact"] {
            let script = "echo new > file; git status --short; git rev-parse --show-prefix";
            let outcome = part
                .run_with(&["--view", view, "--on-success", "abort"], script)
                .expect(0);
            assert_eq!(outcome.text(), " M file\npart/\n");
        }
        // What the user has set counts.
        let mut command = part.command(["run", "--", "git", "status"]);
        command.env("GIT_DISCOVERY_ACROSS_FILESYSTEM", "0");
        let refused = command.output().expect("started");
        assert!(!refused.status.success());
        part.assert_at_rest();
    });
}
