//! Native views. Every kind of change must be read correctly from overlayfs's upper layer,
//! and nothing may write to the layer once it has been read.

#![cfg(test)]

use std::fs;

use atomdir_testing::exit_code::CONFIGURATION;
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{
    Fixture, Outcome, Scenario, Scratch, Store, WAIT_UNTIL, binary, for_each_owner, look,
    native_views_possible, shell, tools_present, wait_until,
};

const TREE: &str = "
mkdir -p d/e f g gone/deep/er
echo a > a; ln a a2; ln a d/a3
echo b > d/b; echo c > d/e/c; echo x > g/x; chmod 640 g/x
echo 1 > gone/one; echo 2 > gone/deep/two
seq 100000 > big
ln -s a link; mkfifo pipe
setfattr -n user.colour -v blue big
setfacl -m u:games:r d/b
find . -exec touch -h -d '2001-02-03 04:05:06.123456789' {} +
";

const CHANGES: [(&str, &str); 10] = [
    (
        "directories renamed, with changes inside",
        "mv d dd; mv dd/b moved; echo more >> dd/e/c; mkdir dd/new; mv f dd/new/",
    ),
    (
        "a directory removed and made again",
        "rm -r g; mkdir g; touch g/y",
    ),
    (
        "names swapped",
        "mv d t; mv g d; mv t g; mv a t; mv big a; mv t big",
    ),
    (
        "a tree removed but for what was moved out of it",
        "mv gone/deep/er kept; mv gone/deep/two kept/; rm -r gone",
    ),
    (
        "attributes alone, which copy no contents",
        "chmod 600 big; setfattr -x user.colour big; setfattr -n user.new -v 1 a
         chown 1:2 d; touch -d '2010-01-01' link pipe d; setfacl -b d/b; chmod 711 .",
    ),
    (
        "a file with several names, changed by one, which goes",
        "echo new >> a; rm a",
    ),
    (
        "several names that all go, and new ones that come",
        "ln big big2; ln big d/big3; rm big; rm a a2 d/a3; ln link link2; mv pipe g/",
    ),
    (
        "old things in new directories",
        "mkdir -p n/m; mv big n/big; echo more >> d/b; mv d/b n/m/; mv link n/m; mv pipe n/
         ln a n/a4; mv g n/m/g",
    ),
    (
        "new files with several names",
        "mkdir -p n/m o; echo 1 > n/m/one; ln n/m/one n/two; ln n/m/one three; ln n/m/one d/four
         echo 2 > five; ln five o/six; ln five o/seven; touch -d '2011-01-01' o n/m",
    ),
    (
        "things that cancel out",
        "echo > t; rm t; mv a t; mv t a; mkdir t; rmdir t; mv d t; mv t d; : >> big",
    ),
];

/// Whether native views are possible here. If not, this reports the test as skipped.
fn is_possible(test: &str) -> bool {
    native_views_possible(test) && tools_present(test, &["setfattr", "setfacl"])
}

fn native(store: &Store, script: &str) {
    store.run_with(&["--view", "native"], script).expect(0);
}

#[test]
fn native_views_commit_every_kind_of_change() {
    if !is_possible("native_views_commit_every_kind_of_change") {
        return;
    }
    for (name, script) in CHANGES {
        Scenario::shell(name, script)
            .prepare(TREE)
            .holes()
            .in_views(&["native", "exclusive"])
            .check();
    }
}

/// overlayfs uses such devices as whiteouts.
#[test]
fn a_device_of_number_0_is_neither_made_nor_lost() {
    let test = "a_device_of_number_0_is_neither_made_nor_lost";
    if !is_possible(test) {
        return;
    }
    for_each_owner(test, |owner| {
        let fixture = Fixture::owned_by(test, owner, "mkdir d; mknod d/old c 0 0; echo x > d/x");
        let native = |script| fixture.store.run_with(&["--view", "native"], script);
        for (script, error) in [
            ("mknod new c 0 0", "Operation not permitted"),
            ("mkdir n; mknod n/new c 0 0", "Operation not permitted"),
            ("stat d/old", "Operation not supported"),
            ("rm d/x; rmdir d", "Directory not empty"),
            ("rm -rf d", "d/old"),
        ] {
            let outcome = native(script);
            assert_ne!(outcome.code, 0, "{outcome}");
            assert!(outcome.error_text().contains(error), "{outcome}");
        }
        assert_eq!(native("ls d").expect(0).text(), "old\nx\n");
        let exact = fixture
            .store
            .run_with(&["--view", "exact"], "mknod new c 0 0; rm d/old");
        exact.expect(0);
        let new = fs::metadata(fixture.base.join("new")).expect("made");
        let device = std::os::unix::fs::MetadataExt::rdev(&new);
        assert_eq!(device, 0);
        assert!(!fixture.base.join("d/old").exists());
        fixture.store.assert_at_rest();
    });
}

#[test]
fn kept_native_transaction_continues_in_an_exact_view() {
    if !is_possible("kept_native_transaction_continues_in_an_exact_view") {
        return;
    }
    let more = "echo on > added; mkdir -p n/k; chmod 750 n; setfattr -n user.x -v y n
        echo 1 >> n/big; for name in n/m/one n/two; do [ ! -e $name ] || echo 2 >> $name; done
        rm -f o/six; mv n nn";
    for (name, script) in CHANGES {
        let plain = Scratch::new("native-plain");
        for part in [TREE, script, more] {
            shell(plain.path(), part).expect(0);
        }
        let kept = Fixture::new("native-kept", TREE);
        let options = ["--view", "native", "--on-success", "keep"];
        kept.store.run_with(&options, script).expect(0);
        kept.store
            .call(["exec", "1", "--", "sh", "-ec", more])
            .expect(0);
        kept.store.call(["commit", "1"]).expect(0);
        assert_equal(
            &format!("{name}: run plainly (left) and kept, changed, and committed (right)"),
            &look(plain.path()),
            &kept.look(),
            &CompareOptions {
                root: false,
                ..CompareOptions::alike()
            },
        );
        kept.store.assert_at_rest();
    }
}

/// Each kind of change by a nested transaction, after none or some by the outer one. A nested
/// transaction that is aborted leaves no trace.
#[test]
fn nested_changes_come_out_as_in_a_plain_directory() {
    let test = "nested_changes_come_out_as_in_a_plain_directory";
    if !is_possible(test) {
        return;
    }
    let atomdir = binary();
    let atomdir = atomdir.display();
    for (number, (name, change)) in CHANGES.iter().enumerate() {
        let (_, other) = CHANGES[(number + 1) % CHANGES.len()];
        let before = "mkdir -p own/x; echo 1 > own/x/y; echo 2 >> big; mv d/e own/";
        for (outer, nested) in [
            ("true", *change),
            (before, "mv own now; echo 3 >> now/e/c; ln now/x/y z"),
        ] {
            let plain = Scratch::new("nested-plain");
            for part in [TREE, outer, nested] {
                shell(plain.path(), part).expect(0);
            }
            let store = Fixture::new("nested-native", TREE);
            native(
                &store.store,
                &format!(
                    "{outer}
                    ! {atomdir} run -q -- sh -c \"$LOST\"
                    {atomdir} run -q -- sh -ec \"$NESTED\""
                )
                .replace(
                    "$LOST",
                    &quoted(&format!("({other}) > /dev/null 2>&1; exit 1")),
                )
                .replace("$NESTED", &quoted(nested)),
            );
            assert_equal(
                &format!("{name}: run plainly (left) and nested (right)"),
                &look(plain.path()),
                &store.look(),
                &CompareOptions {
                    root: false,
                    ..CompareOptions::alike()
                },
            );
            store.store.assert_at_rest();
        }
    }
}

/// For a shell, between double quotes.
fn quoted(script: &str) -> String {
    script
        .replace('\\', "\\\\")
        .replace('$', "\\$")
        .replace('"', "\\\"")
}

#[test]
fn background_processes_cannot_write_to_the_base() {
    if !is_possible("background_processes_cannot_write_to_the_base") {
        return;
    }
    let fixture = Fixture::new("native-left", "mkdir d; echo old > d/file");
    let left = fixture.scratch.join("left");
    let script = format!(
        "exec 3>> d/file; echo new >&3
        (trap '' TERM; while :; do echo late >&3; sleep 0.01; done) > /dev/null 2>&1 &
        echo $! >> {0}
        (while :; do touch d/late; sleep 0.01; done) > /dev/null 2>&1 &
        echo $! >> {0}
        {WAIT_UNTIL}
        wait_until test -e d/late; wait_until grep -q late d/file; rm -f d/late",
        left.display()
    );
    native(&fixture.store, &script);
    let committed = fixture.look();
    // The processes may still try to write until they have ended.
    let left = fs::read_to_string(&left).expect("the script has started them");
    assert_eq!(left.lines().count(), 2);
    left.lines().for_each(wait_until_ended);
    assert_equal(
        "the base at the commit (left) and later (right)",
        &committed,
        &fixture.look(),
        &CompareOptions::untouched(),
    );
    fixture.store.assert_at_rest();
}

/// Waits for a process by its number. It may stay a zombie until its parent reaps it.
fn wait_until_ended(process: &str) {
    let stat = format!("/proc/{process}/stat");
    wait_until("the end of a process", || {
        fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
    });
}

fn run_and_meanwhile(
    fixture: &Fixture,
    options: &[&str],
    first: &str,
    meanwhile: impl Fn(),
) -> Outcome {
    let options = [&["--view", "native"], options].concat();
    fixture.run_and_meanwhile(&options, first, meanwhile)
}

#[test]
fn conflict_of_a_native_view_keeps_the_transaction_open() {
    if !is_possible("conflict_of_a_native_view_keeps_the_transaction_open") {
        return;
    }
    let fixture = Fixture::new("native-conflict", "echo old > file");
    let store = &fixture.store;
    let file = store.path().join("file");
    let first = "echo mine > file; mkdir new; echo 1 > new/one";
    let keep = ["--on-error", "keep", "--on-conflict", "keep"];
    let outcome = run_and_meanwhile(&fixture, &keep, first, || {
        fs::write(&file, "other\n").expect("written");
    });
    outcome.expect(75);
    let status = store.call(["status", "1"]).expect(0).text();
    assert!(status.contains("M file"), "{status}");
    assert!(status.contains("A new/one"), "{status}");
    let diff = store.call(["diff", "1"]).expect(0).text();
    assert!(diff.contains("+mine"), "{diff}");
    store.call(["abort", "1"]).expect(0);
    assert_eq!(fs::read_to_string(&file).expect("read"), "other\n");
    store.assert_at_rest();
}

#[test]
fn the_control_directorys_name_cannot_be_taken() {
    if !is_possible("the_control_directorys_name_cannot_be_taken") {
        return;
    }
    let fixture = Fixture::new("native-hidden", "echo old > file");
    let outcome = fixture
        .store
        .run_with(&["--view", "native"], "mkdir .atomdir; echo new > file");
    assert_ne!(outcome.code, 0, "{outcome}");
    assert_eq!(
        fs::read_to_string(fixture.store.path().join("file")).expect("read"),
        "old\n"
    );
}

/// A program without privileges may set the attributes with which overlayfs marks objects in an
/// ordinary user's overlay. In root's view they mean nothing.
#[test]
fn user_set_overlay_attributes_are_ignored() {
    if !is_possible("user_set_overlay_attributes_are_ignored") {
        return;
    }
    let fixture = Fixture::new(
        "native-forged",
        "echo private > secret; chmod 600 secret; mkdir old; touch old/file; mkdir -m 777 open",
    );
    let script = "cd open; setpriv --reuid 65534 --regid 65534 --clear-groups sh -ec '
        touch copy; setfattr -n user.overlay.metacopy copy
        setfattr -n user.overlay.redirect -v /secret copy
        setfattr -n user.overlay.origin copy
        mkdir moved; setfattr -n user.overlay.redirect -v /old moved'";
    native(&fixture.store, script);
    let looked = shell(
        &fixture.base,
        "stat -c '%n %U %a %s' secret open/copy; find old open | sort
         getfattr -n user.overlay.redirect --only-values open/copy open/moved",
    );
    let expected = "secret root 600 8\nopen/copy nobody 644 0\n\
        old\nold/file\nopen\nopen/copy\nopen/moved\n/secret/old";
    assert_eq!(looked.expect(0).text(), expected);
    fixture.store.assert_at_rest();
}

/// overlayfs keeps flags and `trusted.overlay.*` attributes in attributes of its own, which a
/// commit does not copy to the base.
#[test]
fn flags_and_overlay_attributes_are_committed_only_on_request() {
    let test = "flags_and_overlay_attributes_are_committed_only_on_request";
    if !is_possible(test) {
        return;
    }
    let fixture = Fixture::new("native-flags", "mkdir d; echo a > d/f");
    let store = &fixture.store;
    let native = ["--view", "native"];
    for (script, path, lost) in [
        ("touch new; chattr +i new", "new was", "immutable"),
        ("touch d/new; chattr +a d/new", "d/new was", "append-only"),
        ("mkdir made; chattr +i made", "made was", "immutable"),
        (
            "mkdir in; touch in/new; chattr +i in/new",
            "in/new was",
            "immutable",
        ),
        (
            "mkdir of; touch of/new; setfattr -n trusted.overlay.of-mine -v 1 of/new",
            "of/new got",
            "attribute",
        ),
        (
            "setfattr -n trusted.overlay.of-mine -v 1 d/f",
            "d/f got",
            "attribute",
        ),
    ] {
        let outcome = store.run_with(&native, script).expect(CONFIGURATION);
        outcome.says(&[path, lost, "lost", "--view exact", "atomdir commit"]);
        store.call(["commit"]).expect(0);
    }
    let listed = shell(
        &fixture.base,
        "lsattr -d new d/new made in/new | cut -d' ' -f1 | tr -d e-
         getfattr -Rdm - new d made in of",
    );
    assert_eq!(listed.expect(0).text(), "\n\n\n\n");
    // An old file refuses flags, as an exact view does.
    let refused = store.run_with(&native, "chattr +i d/f");
    assert_ne!(refused.code, 0, "{refused}");
    store.assert_at_rest();
}

/// The layer of a native view is read while programs of the outer transaction remove files in it.
#[test]
fn nested_transactions_begin_and_commit_while_outer_programs_remove_files() {
    let fixture = Fixture::new(
        "nest-native-churn",
        "echo a > old; mkdir kept; echo b > kept/b",
    );
    let outcome = fixture.store.run_with(
        &["--view", "native"],
        &format!(
            r#"
            A={}
            : > going
            for i in $(seq 100000); do
                [ -e going ] || break
                mkdir -p churn/d/e kept/d
                for i in 1 2 3 4 5; do : > churn/d/e/$i; ln churn/d/e/$i kept/d/$i; done
                rm -r churn kept/d
            done &
            for i in $(seq 20); do
                $A run -q -- sh -ec "echo $i > new-$i"
                $A diff --name-only > names
            done
            rm going names; wait
            "#,
            binary().display()
        ),
    );
    outcome.expect(0);
    assert!((1..=20).all(|i| fixture.base.join(format!("new-{i}")).exists()));
    fixture.store.assert_at_rest();
}

/// The kernel holds directories of the upper layer locked while it copies a file up, and waits for
/// the lower layer's answers.
#[test]
fn nested_transactions_begin_and_commit_while_files_are_copied_up() {
    let test = "nested_transactions_begin_and_commit_while_files_are_copied_up";
    if !is_possible(test) {
        return;
    }
    let fixture = Fixture::new(
        "nest-native-copy-up",
        "mkdir one two; for i in $(seq 400); do mkdir one/$i; : > one/$i/f; ln one/$i/f two/$i; done",
    );
    let outcome = fixture.store.run_with(
        &["--view", "native"],
        &format!(
            r#"
            A={}
            {{ for i in $(seq 400); do mkdir one/$i/d; echo x >> two/$i; done; }} & copying=$!
            for i in $(seq 1000); do
                kill -0 $copying 2> /dev/null || break
                $A run -q -- sh -ec 'echo x >> new'
                $A diff --name-only > names
            done
            rm names; wait $copying
            "#,
            binary().display()
        ),
    );
    outcome.expect(0);
    let committed = fs::read_to_string(fixture.base.join("one/400/f")).expect("it was there");
    assert_eq!(committed, "x\n");
    assert!(fixture.base.join("new").exists() && fixture.base.join("one/400/d").exists());
    fixture.store.assert_at_rest();
}

/// While overlayfs copies a directory up, the kernel lets nobody move a file to another directory on
/// the file system. It waits for the snapshot meanwhile, and a commit waits for the move.
#[test]
fn commits_move_files_while_native_views_copy_directories_up() {
    const ROUNDS: usize = 6;
    let test = "commits_move_files_while_native_views_copy_directories_up";
    if !is_possible(test) {
        return;
    }
    let prepare = "mkdir a b one; echo x > a/f; for i in $(seq 300); do mkdir -p one/$i/d; done";
    let fixture = Fixture::new(test, prepare);
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| {
            for _ in 0..ROUNDS {
                let script = "for i in one/*; do touch $i/d/new; chmod 700 $i; done; exit 9";
                let outcome = fixture.store.run_with(&["--view", "native"], script);
                assert_eq!(outcome.code, 9, "{outcome}");
            }
        });
        while !copying.is_finished() {
            fixture.store.run_exact("mv a/f b/f").expect(0);
            fixture.store.run_exact("mv b/f a/f").expect(0);
        }
    });
    fixture.store.assert_at_rest();
}
