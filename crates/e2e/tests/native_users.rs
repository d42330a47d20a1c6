//! Native views of ordinary users, whose overlays can do less. What works must give the
//! right result, and what does not work must fail.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::MetadataExt;

use atomdir_testing::exit_code::CONFIGURATION;
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{Fixture, Scenario, User, binary, tools_present, users_can_mount};

const TREE: &str = "
mkdir -p d/e f g gone/deep/er
echo a > a; echo b > d/b; echo c > d/e/c; echo x > g/x; chmod 640 g/x
echo 1 > gone/one; echo 2 > gone/deep/two
seq 100000 > big
ln -s a link; ln -s b link2; mkfifo pipe; mkfifo pipe2; chmod 600 pipe2
setfattr -n user.colour -v blue big; setfattr -n user.overlay.redirect -v /a gone/deep
setfacl -m u:65534:r d/b
truncate -s 3M holes; echo end >> holes
find . -exec touch -h -d '2001-02-03 04:05:06.123456789' {} +
";

const CHANGES: [(&str, &str); 8] = [
    (
        "directories moved by mv, with changes inside",
        "mv d dd; mv dd/b moved; echo more >> dd/e/c; mkdir dd/new; mv f dd/new/",
    ),
    (
        "a directory removed and made again",
        "rm -r g; mkdir g; touch g/y",
    ),
    (
        "names swapped, of files, links and pipes",
        "mv a t; mv big a; mv t big; mv link t; mv link2 link; mv t link2
         mv pipe t; mv pipe2 pipe; mv t pipe2",
    ),
    (
        "a tree removed but for what was moved out of it",
        "mv gone/deep/er kept; mv gone/deep/two kept/; rm -r gone",
    ),
    (
        "attributes alone",
        "chmod 600 big; setfattr -x user.colour big; setfattr -n user.new -v 1 a
         touch -h -d '2010-01-01' link; touch -d '2010-01-01' pipe d; setfacl -b d/b; chmod 711 .",
    ),
    (
        "new names of old files",
        "ln big big2; ln big d/big3; echo more >> big2; ln a d/a2; rm a; ln link d/link3; mv pipe g/
         ln g/x g/aa; ln g/x zz",
    ),
    (
        "old things in new directories",
        "mkdir -p n/m; mv big n/big; echo more >> d/b; mv d/b n/m/; mv link n/m; mv pipe n/
         ln a n/a4; mv g n/m/g; echo middle | dd of=holes bs=1 seek=1500000 conv=notrunc",
    ),
    (
        "new files with several names, and what cancels out",
        "mkdir -p n/m o; echo 1 > n/m/one; ln n/m/one n/two; ln n/m/one three; ln n/m/one d/four
         echo > t; rm t; mv a t; mv t a; mkdir t; rmdir t; : >> big; mknod n/p p",
    ),
];

#[test]
fn native_views_of_users_commit_every_kind_of_change() {
    let test = "native_views_of_users_commit_every_kind_of_change";
    if !users_can_mount(test) || !tools_present(test, &["setfattr", "setfacl"]) {
        return;
    }
    for (name, script) in CHANGES {
        Scenario::shell(name, script)
            .prepare(TREE)
            .holes()
            .as_ordinary_user()
            .in_views(&["native", "exclusive"])
            .check();
    }
}

/// What an ordinary user's overlay cannot change. The program's call fails, and if the command goes
/// on all the same, its partial result is not committed.
#[test]
fn refused_changes_are_not_committed_in_part() {
    let test = "refused_changes_are_not_committed_in_part";
    if !users_can_mount(test) || !tools_present(test, &["setfattr", "setcap", "perl"]) {
        return;
    }
    let fixture = Fixture::owned_by(
        "native-user-limits",
        User::ordinary,
        "echo a > linked; ln linked linked2; ln linked linked3; mkdir d given; echo b > foreign
        touch marked given/in able; setfattr -n user.overlay.origin marked; ln linked d/linked
        ln -s x link; ln link link2; mkfifo pipe; ln pipe pipe2; chmod 664 foreign",
    );
    let base = &fixture.base;
    for name in ["foreign", "given"] {
        let given = std::os::unix::fs::chown(base.join(name), None, Some(60));
        given.expect("given away");
    }
    atomdir_testing::shell(base, "setcap cap_chown+p able");
    let before = fixture.look();
    let rename = "perl -e 'rename(\"d\", \"dd\") or die \"$!\"'";
    let exchange = format!(
        "mkdir empty; perl -e 'my ($a, $b) = (\"d\", \"empty\"); syscall({}, -100, $a, -100, $b, 2) == 0 or die \"$!\"'",
        libc::SYS_renameat2
    );
    for (call, error, path) in [
        ("echo b >> linked", "not permitted", "linked"),
        ("chmod 600 linked2", "not permitted", "linked"),
        ("ln linked linked4", "not permitted", "linked"),
        ("mv linked other", "not permitted", "linked"),
        ("echo > marked", "not permitted", "marked"),
        ("touch foreign", "not permitted", "foreign"),
        ("echo > foreign", "not permitted", "foreign"),
        ("touch given/new", "not permitted", "given"),
        ("rm given/in", "not permitted", "given"),
        ("echo > able", "not permitted", "able"),
        ("chmod 600 pipe", "No data available", "pipe"),
        ("mv link elsewhere", "No data available", "link"),
        (rename, "cross-device link", "d"),
        (exchange.as_str(), "cross-device link", "d"),
    ] {
        let run = |script: &str| fixture.store.run_with(&["--view", "native"], script);
        let failed = run(&format!("echo new > new; {call}"));
        let text = failed.error_text();
        assert_ne!(failed.code, 0, "{call}: {failed}");
        assert!(text.contains(error), "{call}: {failed}");
        let held = run(&format!("echo new > new; {call} || true")).expect(CONFIGURATION);
        let held = held.says(&["refused to change", path, "--view exact", "is still open"]);
        let options = CompareOptions::untouched();
        assert_equal(call, &before, &fixture.look(), &options);
        drop(held);
        fixture.store.call(["abort", "--all"]).expect(0);
    }
    // Most commands fail for other reasons, and `-q` leaves the hint out.
    let outcome = fixture
        .store
        .run_with(&["-q", "--view", "native"], "exit 1");
    assert!(!outcome.error_text().contains("--view"), "{outcome}");
    // Reading them works, and so does removing names.
    let script =
        "ls -l > /dev/null; cat linked linked2 foreign; rm linked; rm foreign; echo new > linked
        cat given/in able; getfattr -d marked linked2";
    let outcome = fixture.store.run_with(&["--view", "native"], script);
    assert_eq!(outcome.expect(0).text(), "a\na\nb\n");
    let read = |name| fs::read_to_string(fixture.base.join(name)).expect("read");
    assert_eq!(
        (read("linked"), read("linked2")),
        ("new\n".into(), "a\n".into())
    );
    assert!(!base.join("foreign").exists());
    fixture.store.assert_at_rest();
}

/// overlayfs would use root's rights in a layer that strangers have written.
#[test]
fn a_stranger_has_no_native_view_of_roots_store() {
    if !users_can_mount("a_stranger_has_no_native_view_of_roots_store") {
        return;
    }
    let fixture = Fixture::new("native-stranger", "mkdir -m 777 open");
    fixture.store.call(["config", "allow", "games"]).expect(0);
    fixture.store.call(["service", "start"]).expect(0);
    let stranger = User::stranger(fixture.scratch.path());
    for (kind, code) in [("native", CONFIGURATION), ("auto", 0)] {
        let options = ["run", "--view", kind, "--", "touch", "open/file"];
        fixture.store.call_as(&stranger, options).expect(code);
        assert_eq!(fixture.base.join("open/file").exists(), code == 0);
    }
    fixture.store.assert_at_rest();
}

/// A nested commit that overlayfs would refuse half-way changes nothing, and the outer transaction
/// goes on.
#[test]
fn nested_commits_that_overlayfs_would_refuse_change_nothing() {
    let test = "nested_commits_that_overlayfs_would_refuse_change_nothing";
    if !users_can_mount(test) {
        return;
    }
    let fixture = Fixture::owned_by(
        "native-user-nested",
        User::ordinary,
        "mkdir -p moved/deep foreign; echo a > moved/deep/foreign; echo b > foreign/file; mkdir d
        ln -s d link",
    );
    for name in ["moved/deep/foreign", "foreign", "link"] {
        let path = fixture.base.join(name);
        std::os::unix::fs::lchown(path, None, Some(60)).expect("given away");
    }
    let refused = [
        "echo 1 > new; mv moved elsewhere",
        "echo 1 > new; echo x > foreign/new",
        "echo 1 > new; rm foreign/file",
        "echo 1 > new; mv link d/link",
        "echo 1 > new; touch -d 2001-01-01 foreign",
    ];
    for nested in refused {
        let outcome = fixture.store.run_with(
            &["--view", "native"],
            &format!(
                "A={}; echo outer > outer
                $A run -q -- sh -ec '{nested}' && exit 1
                test $? = 78
                test ! -e new && test -d moved && test -e foreign/file && test -L link",
                binary().display()
            ),
        );
        outcome.expect(0);
        assert!(fixture.base.join("outer").exists(), "{nested}");
        assert!(!fixture.base.join("new").exists(), "{nested}");
        fs::remove_file(fixture.base.join("outer")).expect("removed");
    }
}

/// `mv` copies a directory that overlayfs refuses to move, and says nothing.
#[test]
fn a_move_that_only_copied_is_committed_only_on_request() {
    let test = "a_move_that_only_copied_is_committed_only_on_request";
    if !users_can_mount(test) {
        return;
    }
    let fixture = Fixture::owned_by(
        "native-user-moves",
        User::ordinary,
        "mkdir -p linked/sub foreign own elsewhere
         echo a > linked/sub/f; ln linked/sub/f elsewhere/g
         echo b > foreign/f; echo c > own/f; ln own/f own/g; ln -s f own/to",
    );
    let (store, base) = (&fixture.store, &fixture.base);
    std::os::unix::fs::chown(base.join("foreign/f"), None, Some(60)).expect("given away");
    let before = fixture.look();
    let native = ["--view", "native"];
    for (script, copy, lacks) in [
        ("mv linked moved", "moved/sub/f", "other names"),
        ("mv foreign moved", "moved/f", "owner"),
        ("mv linked moved; echo > moved/more", "moved/sub/f", "names"),
    ] {
        let outcome = store.run_with(&native, script).expect(CONFIGURATION);
        outcome.says(&[copy, lacks, "--view exact", "atomdir commit"]);
        let options = CompareOptions::untouched();
        assert_equal(script, &before, &fixture.look(), &options);
        let aborted = store.call(["abort", "--all"]).expect(0);
        assert_eq!(aborted.text(), "aborted 1 transaction\n");
    }
    // Nothing is lost by this move, but that is not known.
    let held = store.run_with(&native, "mv own moved");
    held.expect(CONFIGURATION)
        .says(&["refused to change", "own"]);
    store.call(["commit"]).expect(0);
    // A program may give a name a file of its own.
    let script = "cp -p elsewhere/g new; mv new elsewhere/g; rm -r foreign";
    store.run_with(&native, script).expect(0);
    let inode = |path: &str| fs::metadata(base.join(path)).expect("it exists").ino();
    assert_eq!(inode("moved/f"), inode("moved/g"));
    assert_ne!(inode("linked/sub/f"), inode("elsewhere/g"));
    // The user may want the copies.
    store.run("ln elsewhere/g linked/g").expect(0);
    let refused = store.run_with(&native, "mv linked copied");
    refused.expect(CONFIGURATION).says(&["copied/g"]);
    store.call(["commit"]).expect(0);
    assert_ne!(inode("copied/g"), inode("elsewhere/g"));
    store.assert_at_rest();
}

/// Without an index, overlayfs shows a new link of an old file as another file.
#[test]
fn new_link_that_the_view_showed_as_another_file_is_reported_and_committed() {
    let test = "new_link_that_the_view_showed_as_another_file_is_reported_and_committed";
    if !users_can_mount(test) {
        return;
    }
    let fixture = Fixture::owned_by(
        "native-user-links",
        User::ordinary,
        "echo a > old; echo d > lone",
    );
    let (store, base) = (&fixture.store, &fixture.base);
    let native = ["--view", "native"];
    let outcome = store.run_with(&native, "ln old new; echo b > fresh; ln fresh also");
    outcome
        .expect(0)
        .says(&["new is", "two files", "--view exact"]);
    let inode = |path: &str| fs::metadata(base.join(path)).expect("it exists").ino();
    assert_eq!(inode("old"), inode("new"));
    assert_eq!(inode("fresh"), inode("also"));
    let outcome = store.run_with(
        &native,
        "echo c > single; setfattr -n user.overlay.of-mine -v 1 single",
    );
    outcome
        .expect(CONFIGURATION)
        .says(&["single got", "attribute", "lost"]);
    store.call(["abort", "--all"]).expect(0);
    let silent = store.run_with(&native, "mv lone moved; echo c >> moved; ls -l old");
    assert!(!silent.expect(0).error_text().contains("two files"));
    store.assert_at_rest();
}
