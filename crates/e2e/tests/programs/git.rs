//! Git makes a repository, fills it, changes it and packs it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use atomdir_testing::exit_code::CONFIGURATION;
use atomdir_testing::{
    Fixture, Random, Scenario, atomdir, full_tier, pick, shell, tools_present, wait_for,
};

/// Fixed authors, dates and one thread make two runs write the same objects.
const ENVIRONMENT: &str = r#"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_AUTHOR_DATE='1700000000 +0000'
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org GIT_COMMITTER_DATE='1700000000 +0000'
export GIT_CONFIG_COUNT=4
export GIT_CONFIG_KEY_0=pack.threads GIT_CONFIG_VALUE_0=1
export GIT_CONFIG_KEY_1=gc.auto GIT_CONFIG_VALUE_1=0
export GIT_CONFIG_KEY_2=init.defaultBranch GIT_CONFIG_VALUE_2=main
export GIT_CONFIG_KEY_3=core.untrackedCache GIT_CONFIG_VALUE_3=false
"#;

/// A script that makes files which all differ, a hundred in each directory.
fn fill(files: usize) -> String {
    format!(
        r#"awk 'BEGIN {{ for (i = 0; i < {files}; i++) {{
            d = "dir" int(i / 1000) "/sub" int(i / 100) % 10
            if (!(d in made)) {{ system("mkdir -p " d); made[d] = 1 }}
            f = d "/file" i ".txt"
            for (l = 0; l < i % 30 + 1; l++) print "file", i, "line", l > f
            close(f)
        }} }}'
"#
    )
}

/// The index holds inode numbers and change times, so it differs; what git
/// reads from it is printed instead.
#[test]
fn add_commit_and_collect_garbage() {
    if !tools_present("git", &["git", "awk"]) {
        return;
    }
    let script = format!(
        r#"{ENVIRONMENT}
git init -q .
git add .
git commit -q -m first
git rm -q -r dir0/sub3
echo changed | tee -a dir0/sub1/*.txt > /dev/null
git mv dir0/sub2 dir1/moved
git add . && git commit -q -m second
git checkout -q -b other HEAD~1
echo other >> dir0/sub4/file400.txt
git commit -q -a -m other
git checkout -q main
git merge -q -m merged other
git tag v1
git stash list
git gc -q --prune=now --no-detach 2>/dev/null || git gc -q --prune=now
git fsck --full --strict
git count-objects
git ls-files -s | sha256sum
git log --format='%H %s' --stat | sha256sum
git status --porcelain
"#
    );
    Scenario::shell("git", &script)
        .prepare(&fill(pick(1_200, 20_000)))
        .same_output()
        .runs_long()
        .without(".git/index")
        .afterwards("git status --porcelain && git fsck --full --strict")
        .check_for_each_owner();
}

/// Works in a repository that existed before: packs objects, makes the hard links of a
/// local clone, takes a work tree apart and puts it back. In an ordinary user's view git copies the
/// files, so there it does so outside, too.
#[test]
fn clone_rebase_and_reset() {
    if !tools_present("git", &["git", "awk"]) {
        return;
    }
    let prepare = format!(
        "{ENVIRONMENT}mkdir origin && cd origin\n{}\ngit init -q . && git add . && git commit -q -m base\n\
         for n in 1 2 3 4 5; do echo $n >> dir0/sub0/file${{n}}0.txt; git commit -q -a -m change$n; done\n",
        fill(pick(200, 600))
    );
    let script = format!(
        r#"{ENVIRONMENT}
export GIT_CONFIG_COUNT=5 GIT_CONFIG_KEY_4=safe.directory GIT_CONFIG_VALUE_4='*'
[ $(id -u) = 0 ] && links=--local || links=--no-hardlinks
git clone -q $links origin copy
cd copy
git checkout -q -b topic HEAD~3
echo topic > topic.txt && git add topic.txt && git commit -q -m topic
git rebase -q main
git reset -q --hard HEAD~4
git clean -qfd
git worktree add -q -b second ../second topic
cd ../second && git log --format='%H %s' && git status --porcelain
cd ../origin && git fetch -q ../copy topic:topic && git gc -q --prune=now
git fsck --full
"#
    );
    Scenario::shell("git-clone", &script)
        .prepare(&prepare)
        .same_output()
        .runs_long()
        .without("origin/.git/index")
        .without("copy/.git/index")
        .without("copy/.git/worktrees/second/index")
        .check_for_each_owner();
}

/// When `git add` is killed.
#[derive(Clone, Copy)]
enum Moment {
    Never,
    /// After so many looks at the tree.
    After(usize),
    /// When the tree shows a part of the changes.
    WhileApplied,
}

/// `git add` in a transaction.
fn added_by_run(fixture: &Fixture) -> Command {
    let script = format!("{ENVIRONMENT}git add .");
    let words = ["run", "--", "/bin/sh", "-ec", &script];
    fixture.store.command(words)
}

/// `git add` without a transaction, in a plain directory.
fn added_plainly(tree: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-ec", &format!("{ENVIRONMENT}git add .")]);
    command.current_dir(tree);
    command
}

/// Kills a command with all its processes.
fn kill_all_of(group: Pid) {
    kill_process_group(group, Signal::KILL).expect("it has not been waited for");
}

/// Runs the command and calls `kill` at the moment. Returns how often the tree was looked at, and
/// whether the command succeeded.
fn run_until(
    mut command: Command,
    tree: &Path,
    moment: Moment,
    kill: impl Fn(Pid),
) -> (usize, bool) {
    command.process_group(0).stderr(Stdio::null());
    let look = || shell(tree, "ls .git .git/objects").stdout;
    let before = look();
    let mut child = command.spawn().expect("it starts");
    let group = Pid::from_child(&child);
    let mut looks = 0;
    wait_for("the moment or the end", || {
        looks += 1;
        let seen = look();
        if let Some(status) = child.try_wait().expect("it is our child") {
            assert!(status.success());
            return Some((looks, true));
        }
        let is_time = match moment {
            Moment::Never => false,
            Moment::After(count) => looks >= count,
            Moment::WhileApplied => seen != before,
        };
        is_time.then(|| {
            kill(group);
            (looks, child.wait().expect("it is our child").success())
        })
    })
}

/// TxFS (USENIX ATC 2018) has a crash in `git add` of 20 000 files as an example: it damages the
/// index. Even a kill of git alone leaves a lock that keeps the next git from working, as the same
/// kills without a transaction show.
#[test]
fn killed_git_add_leaves_the_old_or_the_new_index() {
    const TEST: &str = "git-add-kill";
    if !tools_present(TEST, &["git", "awk"]) {
        return;
    }
    let mut random = Random::for_test(TEST);
    let files = pick(400, 20_000);
    let prepare = format!(
        "git init -q .; echo old > old; git add old; git commit -qm old\n{}",
        fill(files)
    );
    let fixture = Fixture::new(TEST, &format!("{ENVIRONMENT}{prepare}"));
    let plain = fixture.scratch.join("plain");
    fs::create_dir(&plain).expect("the scratch directory takes it");
    shell(&plain, &format!("{ENVIRONMENT}{prepare}"));
    let git_in = |tree: &Path, script: &str| shell(tree, &format!("{ENVIRONMENT}{script}")).text();
    let git = |script: &str| git_in(&fixture.base, script);
    let (looks, _) = run_until(
        added_by_run(&fixture),
        &fixture.base,
        Moment::Never,
        kill_all_of,
    );
    let (plain_looks, _) = run_until(added_plainly(&plain), &plain, Moment::Never, kill_all_of);
    let (mut killed_within, mut killed, mut left) = (0, 0, [0; 3]);
    for round in 0..pick(6, 12) {
        git_in(&plain, "rm -f .git/index.lock; git reset -q; git prune");
        git("git reset -q; git prune");
        let moment = match round % 2 {
            0 => Moment::After(1 + random.below(looks)),
            _ => Moment::WhileApplied,
        };
        let kills_service = round % 6 >= 4;
        let kill = |group| match kills_service {
            true => _ = fixture.store.kill_service(),
            false => kill_all_of(group),
        };
        let (_, ended) = run_until(added_by_run(&fixture), &fixture.base, moment, kill);
        killed_within += usize::from(!ended);
        fixture.store.call(["recover"]).expect(0);
        git("git fsck --full --strict");
        let found: usize = git("git ls-files | wc -l")
            .trim()
            .parse()
            .expect("a number");
        let is_new = ended || matches!(moment, Moment::WhileApplied);
        assert!(found == files + 1 || found == 1 && !is_new, "{found} files");
        assert_eq!(git("find .git -name '*.lock' -o -name 'tmp_*'"), "");

        let moment = match round % 2 {
            0 => Moment::After(1 + random.below(plain_looks)),
            _ => Moment::WhileApplied,
        };
        if !run_until(added_plainly(&plain), &plain, moment, kill_all_of).1 {
            killed += 1;
            let remains = "find .git -name '*.lock' -print -quit; echo :; find .git -name 'tmp_*' \
                -print -quit; echo :; git add . 2> /dev/null || echo refused";
            let remains = git_in(&plain, remains);
            for (count, what) in left.iter_mut().zip(remains.split(':')) {
                *count += usize::from(!what.trim().is_empty());
            }
        }
    }
    let [locks, temporary, refused] = left;
    println!(
        "{files} files. In a transaction, {killed_within} kills left the old or the new index, and nothing \
         else. Without one, {killed} kills left a lock {locks} times and temporary files {temporary} \
         times, and the next git add failed {refused} times."
    );
    // Some kills come too late, when git is about to end.
    assert!(
        killed < 3 || refused > 0,
        "without a transaction a kill leaves git's lock"
    );
    // In the full tier the history names 20 000 files for each commit, more than is allowed at rest.
    if !full_tier() {
        fixture.store.assert_at_rest();
    }
}

/// Git runs outside of transactions, on a work tree that is a store.
#[test]
fn git_leaves_the_control_directory_alone() {
    if !tools_present("git_leaves_the_control_directory_alone", &["git"]) {
        return;
    }
    let fixture = Fixture::new("git-control", "echo old > file; git init -q .");
    let git = |script: &str| shell(&fixture.base, &format!("{ENVIRONMENT}{script}")).text();
    git("git add --all; git commit -q -m first");
    assert_eq!(git("git ls-files"), "file\n");
    assert_eq!(git("git status --porcelain"), "");
    git("git clean -q -f -d; echo changed > file; git stash -q --include-untracked");
    fixture.store.run("echo new > made").expect(0);
    // `stash --all` removes the control directory. After `stash pop` a store that was at rest is
    // complete again, as a copy of itself.
    fixture.store.assert_at_rest();
    git("git stash -q --all; [ ! -e .atomdir ]; git stash pop -q");
    assert!(!fixture.store.control().join("stage").exists());
    let refused = fixture.store.run("true").expect(CONFIGURATION);
    refused.says(&["copy of a store", "init --adopt"]);
    fixture.store.call(["init", "--adopt"]).expect(0);
    fixture
        .store
        .run("echo again > made; mkdir d; mv file d")
        .expect(0);
    fixture.store.call(["check"]).expect(0);
    fixture.store.assert_at_rest();
}

#[test]
fn init_in_a_work_tree_lists_what_git_would_add() {
    let test = "init_in_a_work_tree_lists_what_git_would_add";
    if !tools_present(test, &["git"]) {
        return;
    }
    let fixture = Fixture::new("git-pointer", "true");
    let tree = fixture.scratch.join("tree");
    let control = fixture.scratch.join("control");
    shell(fixture.scratch.path(), "mkdir tree; git init -q tree");
    let (tree, control) = (tree.to_string_lossy(), control.to_string_lossy());
    let initialized = atomdir(&fixture.scratch, ["init", "--control", &control, &tree]);
    initialized.expect(0).says(&[".git/info/exclude"]);
}

#[test]
fn missing_stage_directory_is_reported_if_the_log_may_need_it() {
    let fixture = Fixture::new("lost-stage", "echo old > file");
    let view = fixture.store.begin();
    fixture.store.run("echo new > file").expect(0);
    fixture.store.kill_service();
    shell(&fixture.store.control(), "rm -r stage");
    fixture
        .store
        .run("true")
        .expect_one_of(&[74, 78])
        .says(&[".atomdir/stage", "missing"]);
    shell(&fixture.store.control(), "mkdir -m 700 stage");
    fixture.store.run("test $(cat file) = new").expect(0);
    fixture.store.abort(&view).expect_one_of(&[66]);
    fixture.store.assert_at_rest();
}
