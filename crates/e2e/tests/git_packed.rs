//! What git does by itself in a repository after a commit keeps nobody from taking the commit back.

use atomdir::{Door, Sequence, StoreOptions};
use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::{Fixture, shell_as, tools_present, wait_until};

const REPOSITORY: &str = "
git init -q . -b main && git config user.email a@example.org && git config user.name a
echo old > page && echo old > other && echo old > third && git add . && git commit -qm first
git commit -q --allow-empty -m second
";

/// New, changed and equal objects; references that move, that are made and that are made deeper.
const WORK: &str = "
echo new >> page; echo x > added; cp other same; git add added same; git commit -qam new
git branch feature/x; git checkout -q -b side; echo 1 >> other; git commit -qam side
";

/// What a repository is to its users. A graph of commits may say more than is there: git makes it
/// again with the next `gc`.
const STATE: &str = "
git for-each-ref; git symbolic-ref HEAD; git reflog --all; git status --short; git log --all --format=%s
cat page other; ls; git -c core.commitGraph=false fsck --strict --no-dangling 2>&1
";

/// What git does by itself, or is asked to do now and then.
const BY_ITSELF: [&str; 6] = [
    "sleep 1.1; git status",
    "git gc --prune=now",
    "git gc",
    "git repack -ad; git prune-packed; touch third; git status",
    "git pack-refs --all; git reflog expire --all",
    "git gc; git status; git gc --aggressive",
];

/// For each owner, a repository without packs and one with everything in a pack.
fn for_each_repository(test: &str, check: impl Fn(&Fixture)) {
    if !tools_present(test, &["git"]) {
        return;
    }
    for packed in ["true", "git gc -q"] {
        Fixture::for_each_owner(test, "true", |fixture| {
            fixture.store.outside(&format!("{REPOSITORY}{packed}"));
            check(fixture);
        });
    }
}

#[test]
fn an_undo_works_after_anything_that_git_does_by_itself() {
    for_each_repository("git-packed", |fixture| {
        let store = &fixture.store;
        let before = store.outside(STATE).text();
        for (number, script) in BY_ITSELF.iter().enumerate() {
            let view = ["exact", "auto"][number % 2];
            // Git may make the same commit twice in a second, and the pack has the first one.
            let work = WORK.replace("-qam ", &format!("-qam {number}"));
            store.run_with(&["--view", view], &work).expect(0);
            let done = store.outside(STATE).text();
            assert!(done.contains("refs/heads/feature/x"), "{done}");
            store.outside(script);
            let said = store.call(["undo", "last"]).expect(0);
            assert!(!said.text().contains(".git"), "{said}");
            assert_eq!(store.outside(STATE).text(), before, "after {script}");
        }
    });
}

/// Several commits at once, in a repository below the store's root.
#[test]
fn commits_of_a_repository_deeper_in_the_tree_are_undone_together() {
    if !tools_present("git-packed-deep", &["git"]) {
        return;
    }
    Fixture::for_each_owner("git-packed-deep", "mkdir -p a/b", |fixture| {
        let (store, deep) = (&fixture.store, fixture.store.path().join("a/b"));
        shell_as(store.user(), &deep, REPOSITORY);
        let before = shell_as(store.user(), &deep, STATE).text();
        store.run(&format!("cd a/b; {WORK}")).expect(0);
        store
            .run("cd a/b; echo 2 >> other; git commit -qam later")
            .expect(0);
        shell_as(store.user(), &deep, "git gc; git status");
        store.call(["undo", "1.."]).expect(0);
        assert_eq!(shell_as(store.user(), &deep, STATE).text(), before);
    });
}

#[test]
fn what_others_have_done_since_is_no_work_of_gits() {
    for_each_repository("git-packed-others", |fixture| {
        let store = &fixture.store;
        for (number, script, path) in [
            (
                "git branch -f feature/x main~1; git gc",
                ".git/refs/heads/feature",
            ),
            (
                "git commit -q --allow-empty -m more; git gc",
                ".git/refs/heads/side",
            ),
            (
                "git reset -q --soft main; git pack-refs --all",
                ".git/refs/heads/side",
            ),
            (
                "git pack-refs --all; git branch -q -D feature/x",
                ".git/refs/heads/feature",
            ),
            (
                "echo more > .git/COMMIT_EDITMSG; git gc",
                ".git/COMMIT_EDITMSG",
            ),
            ("echo theirs > added; git pack-refs --all", "added"),
        ]
        .iter()
        .enumerate()
        .map(|(number, (script, path))| (number, *script, *path))
        {
            let work = WORK.replace("-qam ", &format!("-qam {number}"));
            store.run(&work).expect(0);
            store.outside(script);
            let before = store.outside(STATE).text();
            store
                .call(["undo", "last", "--all"])
                .expect(CONFLICT)
                .says(&[path]);
            assert_eq!(store.outside(STATE).text(), before, "after {script}");
            // For the next one.
            store.outside(
                "git checkout -q -f main; git reset -q --hard HEAD~1; rm -f added same
                 for branch in side feature/x; do git branch -D $branch || true; done",
            );
        }
    });
}

/// A commit that nobody confirms is taken back although git has packed everything meanwhile.
#[test]
fn an_unconfirmed_commit_is_taken_back_after_git_has_packed() {
    for_each_repository("git-packed-unconfirmed", |fixture| {
        let store = &fixture.store;
        let before = store.outside(STATE).text();
        store.run_with(&["--confirm", "2s"], WORK).expect(0);
        // Nobody takes it back before the next service begins.
        store.call(["service", "stop"]).expect(0);
        store.outside("git gc --prune=now; touch third; git status");
        wait_until("the commit is taken back", || {
            let log = store.call(["log", "--oneline"]).expect(0).text();
            log.contains("nobody has confirmed it")
        });
        assert_eq!(store.outside(STATE).text(), before);
        store
            .call(["undo", "1"])
            .expect(64)
            .says(&["has been undone already, by commit 2"]);
    });
}

/// A program that opens the store by itself knows the same.
#[test]
fn a_program_undoes_in_its_own_process_after_git_has_packed() {
    const TEST: &str = "git-packed-embedded";
    if !tools_present(TEST, &["git"]) {
        return;
    }
    let fixture = Fixture::new(TEST, REPOSITORY);
    let store = &fixture.store;
    let before = store.outside(STATE).text();
    store.run(WORK).expect(0);
    store.call(["service", "stop"]).expect(0);
    store.outside("git gc --prune=now; touch third; git status");
    let opened = StoreOptions::new()
        .door(Door::Embedded)
        .open(store.path())
        .expect("nobody has it open");
    let undo = opened.undo(&[Sequence(1)], &[]);
    let undo = undo.expect("nothing is in the way");
    undo.commit().expect("it lands");
    opened.close().expect("closed");
    assert_eq!(store.outside(STATE).text(), before);
}
