//! Copies of a store: from a backup, an archive, a clone. Nothing of a control directory counts in a
//! copy before it is adopted, and then its history is there as far as it matches the files.

use std::fs;
use std::path::Path;
use std::process::Command;

use atomdir_testing::exit_code::{CONFIGURATION, CONFLICT};
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{Fixture, Outcome, Store, User, capture_output, shell, tools_present};

/// Commits of each kind, and how to see that the first of them was undone.
const COMMITS: [(&str, &str); 9] = [
    ("echo new > replaced", "grep -q old replaced"),
    (
        "printf X | dd of=pages bs=1 seek=100000 conv=notrunc status=none",
        "! grep -q X pages",
    ),
    ("rm removed", "grep -q old removed"),
    ("rm -r tree", "grep -q deep tree/a/b/c"),
    (
        "mkdir -p fresh/x/y; echo f > fresh/x/y/z; echo g > fresh/g",
        "[ ! -e fresh ]",
    ),
    (
        "mv dir moved; echo more >> moved/f",
        "[ $(cat dir/f) = old ] && [ ! -e moved ]",
    ),
    (
        "chmod 600 mode; ln linked linked2",
        "[ $(stat -c %a mode) = 644 ] && [ ! -e linked2 ]",
    ),
    (
        "ln -sfn nowhere symlink",
        "[ $(readlink symlink) = replaced ]",
    ),
    (
        "rm several/one; echo x >> several/two",
        "[ several/one -ef several/two ]",
    ),
];

const PREPARE: &str = "for f in replaced removed linked mode; do echo old > $f; done
    seq 60000 > pages; mkdir -p tree/a/b dir several; echo deep > tree/a/b/c; echo old > dir/f
    chmod 644 mode; ln -s replaced symlink; echo s > several/one; ln several/one several/two";

/// Ways to copy the directory `base` to `copy`. rsync compares the times of directories by whole
/// seconds, so those changed in the second of the copy would not keep theirs.
const WAYS: [(&str, &str, &[&str]); 3] = [
    ("cp", "cp -a base copy", &[]),
    (
        "tar",
        "mkdir copy; tar -C base -c --acls --xattrs . | tar -C copy -xp --acls --xattrs",
        &[],
    ),
    (
        "rsync",
        "sleep 1; rsync -aHAX --exclude socket base/ copy/",
        &["rsync"],
    ),
];

struct Copied {
    fixture: Fixture,
    copy: Store,
}

/// Makes a store with these commits, and a copy of it that nobody has adopted.
fn copied(name: &str, commits: &[&str], way: &str) -> Copied {
    let fixture = Fixture::new(name, PREPARE);
    for commit in commits {
        fixture.store.run(commit).expect(0);
    }
    fixture.store.call(["service", "stop"]).expect(0);
    shell(fixture.scratch.path(), way);
    let path = fixture.scratch.join("copy");
    let copy = Store::existing(&path, fixture.store.user());
    Copied { fixture, copy }
}

#[track_caller]
fn expect_refused(outcome: Outcome, root: &Path) {
    let root = root.to_str().expect("UTF-8");
    outcome
        .expect(CONFIGURATION)
        .says(&[root, "copy of a store", "init --adopt"]);
}

#[test]
fn every_verb_refuses_a_copy_and_changes_nothing() {
    let Copied { fixture, copy } = copied("refused-copy", &["echo new > replaced"], WAYS[0].1);
    let path = fixture.scratch.join("copy");
    let before = atomdir_testing::look(&path);
    for verb in [
        &["run", "--", "touch", "new"][..],
        &["run", "--dry-run", "--", "touch", "new"],
        &["begin"],
        &["shell"],
        &["status"],
        &["list"],
        &["log"],
        &["show", "1"],
        &["undo", "1"],
        &["restore", "0", "--", "replaced"],
        &["at", "0", "--", "true"],
        &["diff", "0..1"],
        &["check"],
        &["recover"],
        &["recover", "--dry-run"],
        &["prune"],
        &["sync"],
        &["config"],
        &["config", "view", "exact"],
        &["service", "start"],
        &["service", "status"],
        &["init"],
    ] {
        expect_refused(copy.call(verb), &path);
    }
    let options = CompareOptions::untouched();
    assert_equal("the copy", &before, &atomdir_testing::look(&path), &options);
    fixture.store.run("[ $(cat replaced) = new ]").expect(0);
}

#[test]
fn each_commit_can_be_undone_in_an_adopted_copy() {
    let name = "each_commit_can_be_undone_in_an_adopted_copy";
    let commits: Vec<&str> = COMMITS.iter().map(|(commit, _)| *commit).collect();
    for (way, copying, tools) in WAYS {
        if !tools_present(name, tools) {
            continue;
        }
        let Copied { fixture, copy } = copied(&format!("adopted-{way}"), &commits, copying);
        let log = fixture.store.call(["log"]).expect(0).stdout.clone();
        copy.call(["init", "--adopt"]).expect(0);
        let again = copy.call(["init", "--adopt"]).expect(0).text();
        assert!(again.contains("was a store already"), "{again}");
        assert_eq!(copy.call(["log"]).expect(0).stdout, log, "{way}");
        copy.call(["check"]).expect(0);
        for (number, (_, undone)) in COMMITS.iter().enumerate() {
            let number = (number + 1).to_string();
            copy.call(["undo", &number]).expect(0);
            shell(&fixture.scratch.join("copy"), undone);
        }
        copy.call([
            "restore",
            &COMMITS.len().to_string(),
            "--",
            "replaced",
            "moved",
        ])
        .expect(0);
        shell(
            &fixture.scratch.join("copy"),
            "grep -q new replaced; grep -q more moved/f",
        );
        copy.call(["check"]).expect(0);
        copy.assert_at_rest();
        // The original knows nothing of it.
        fixture.store.call(["undo", "1"]).expect(0);
        fixture.store.call(["check"]).expect(0);
        fixture.store.assert_at_rest();
    }
}

/// What was changed between the commit and the copy is an outside writer's change, as in the original.
#[test]
fn undo_in_an_adopted_copy_overwrites_no_later_change() {
    let later = [
        (
            "echo new > replaced",
            "echo outside > replaced",
            "grep -q outside replaced",
        ),
        (
            "printf X | dd of=pages bs=1 seek=100000 conv=notrunc status=none",
            "printf Y | dd of=pages bs=1 seek=100001 conv=notrunc status=none",
            "grep -q Y pages",
        ),
        (
            "mkdir fresh; echo f > fresh/f",
            "echo outside > fresh/g",
            "grep -q outside fresh/g",
        ),
        (
            "mkdir fresh; echo f > fresh/f",
            "echo outside > fresh/f",
            "grep -q outside fresh/f",
        ),
        (
            "rm removed",
            "echo outside > removed",
            "grep -q outside removed",
        ),
        (
            "mv dir moved",
            "mkdir dir; echo outside > dir/f",
            "grep -q outside dir/f",
        ),
        (
            "chmod 600 mode",
            "chmod 640 mode",
            "[ $(stat -c %a mode) = 640 ]",
        ),
    ];
    for (commit, outside, kept) in later {
        for before_the_copy in [true, false] {
            let way = match before_the_copy {
                true => format!("(cd base; {outside}); cp -a base copy"),
                false => "cp -a base copy".to_owned(),
            };
            let Copied { fixture, copy } = copied("outside-copy", &[commit], &way);
            let path = fixture.scratch.join("copy");
            copy.call(["init", "--adopt"]).expect(0);
            if !before_the_copy {
                shell(&path, outside);
            }
            let undone = copy.call(["undo", "1"]);
            assert_eq!(undone.code, CONFLICT, "{commit}; {outside}\n{undone}");
            shell(&path, kept);
            copy.assert_at_rest();
        }
    }
}

fn shell_as(user: &User, script: &str) {
    let mut command = Command::new("sh");
    user.dress(&mut command);
    capture_output(command.args(["-ec", script])).expect(0);
}

/// A clone has the files of the control directory as somebody has committed them, with other times
/// and modes, and it lies in a store of the user's.
#[test]
fn a_clone_with_a_control_directory_belongs_to_the_store_around_it() {
    let name = "a_clone_with_a_control_directory_belongs_to_the_store_around_it";
    if !tools_present(name, &["git"]) {
        return;
    }
    Fixture::for_each_owner("planted-clone", "echo mine > important", |one| {
        let planted = one.scratch.join("planted");
        fs::create_dir(&planted).expect("made");
        let user = one.store.user();
        shell(&planted, &format!("chown {}:{} .", user.uid, user.gid));
        let planted = Store::existing(&planted, user);
        planted.call(["init"]).expect(0);
        planted.call(["service", "stop"]).expect(0);
        let clone = format!(
            "cd {0}; rm .atomdir/.gitignore; echo x > f; git init -q .; git add -Af .;
             git -c user.name=m -c user.email=m@x commit -qm x; git clone -q . {1}/clone",
            planted.path().display(),
            one.base.display()
        );
        shell_as(user, &clone);
        let inner = Store::existing(&one.base.join("clone"), user);
        inner
            .call([
                "run",
                "--dry-run",
                "--",
                "sh",
                "-c",
                "echo hacked > ../important",
            ])
            .expect(0);
        shell(&one.base, "grep -q mine important");
        inner.call(["init"]).says(&["lies inside the store"]);
        inner
            .call(["init", "--adopt"])
            .says(&["lies inside the store"]);
        shell(&one.base, "rm -rf clone/.atomdir");
    });
}
