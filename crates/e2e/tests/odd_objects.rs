//! What a command may leave behind that is hard to read, copy or move: its commit lands all of it, as
//! in a plain directory, or `run` refuses with the path, and the transaction stays open.

#![cfg(test)]

use std::fs;

use atomdir_testing::exit_code::{CONFIGURATION, INPUT_OUTPUT};
use atomdir_testing::{Fixture, Scenario, Scratch, Store, User, shell, tools_present, wait_until};

const TREE: &str = "mkdir -p old/sub; echo f > old/f; echo s > old/sub/s";

const LANDED: &[(&str, &str)] = &[
    (
        "names of 255 bytes",
        "n=$(printf 'n%.0s' $(seq 255)); touch $n old/$n; mkdir d; touch d/$n; mv old/f d/$n",
    ),
    (
        "a long path",
        "for i in $(seq 140); do mkdir dddddddddddddddddddd; cd dddddddddddddddddddd; done; echo x > end",
    ),
    (
        "fifos and links to nowhere",
        "mkfifo p old/p; ln -s $(head -c 4000 /dev/zero | tr '\\0' s) long; ln -s x old/s",
    ),
    (
        "files without permissions",
        "echo x > none; chmod 0 none; echo y > old/f; chmod 0 old/f",
    ),
    (
        "directories without permissions",
        "mkdir -p d/in; echo z > d/in/f; chmod 0 d/in d; touch old/sub/new; chmod 0 old/sub old",
    ),
    (
        "files without names",
        "exec 3> u 4> old/v; rm u old/v; echo x >&3; echo y >&4; touch new",
    ),
    (
        "times far away",
        "touch -d 2400-01-01 future; touch -d 1960-01-01 past old/f; mkdir d; touch -d 1900-01-01 d",
    ),
    (
        "many names",
        "touch n; mkdir d; for i in $(seq 300); do ln n d/$i; done",
    ),
    (
        "names that overlayfs uses",
        "mkdir work index upper '#1'; touch .wh.f .wh..wh..opq work/incompat",
    ),
    (
        "names without letters",
        "touch 'a\nb' \"$(printf '\\377\\376')\" ' ' ./-",
    ),
    ("everything is removed", "rm -rf old; touch new"),
    (
        "kinds that change",
        "rm -r old/sub; echo file > old/sub; rm old/f; mkdir old/f; touch old/f/x",
    ),
    (
        "control directories below the root",
        "mkdir -p a/.atomdir/log old/.atomdir; touch a/.atomdir/header old/.atomdir/x",
    ),
    (
        "attributes of a page",
        "v=$(head -c 3000 /dev/zero | tr '\\0' v); setfattr -n user.a -v $v old/f; touch n; setfattr -n user.b -v $v n",
    ),
    (
        "access lists",
        "setfacl -d -m u::rwx,g::rx,o::0 old; mkdir old/d; touch old/d/f; setfacl -k old/sub",
    ),
    (
        "an open program",
        "cp $(command -v sleep) s; ./s 1 & touch new",
    ),
    (
        "a directory that is gone",
        "mkdir d; cd d; rmdir ../d; sleep 1 & cd ..; touch new",
    ),
];

const REFUSED: &[(&str, &str)] = &[
    (
        "immutable and append-only",
        "touch i a; chattr +i i; chattr +a a",
    ),
    (
        "overlayfs's own attributes",
        "for n in user trusted; do setfattr -n $n.overlay.opaque -v y old/sub; done",
    ),
    (
        "a mark of ours",
        "setfattr -n trusted.atomdir.unchangeable -v y old/f",
    ),
    ("devices", "mknod c c 0 0; mknod d c 1 3; mknod old/b b 7 0"),
    ("a file that is too long", "truncate -s 8E big"),
    (
        "a lease",
        "python3 -c 'import fcntl, os, time; fcntl.fcntl(os.open(\"old/f\", 0), 1024, 0); os.fork() or time.sleep(1)'",
    ),
    ("a mount", "mount -t tmpfs none old/sub; touch old/sub/new"),
    ("a project", "touch p; chattr -p 77 p; chattr +P old/sub"),
];

#[test]
fn odd_objects_land_as_in_a_plain_directory() {
    let test = "odd_objects_land_as_in_a_plain_directory";
    if !tools_present(test, &["setfattr", "setfacl"]) {
        return;
    }
    for (name, script) in LANDED {
        Scenario::shell(name, script)
            .prepare(TREE)
            .in_views(&["native", "exact"])
            .check_for_each_owner();
    }
}

/// Calls that a view may refuse. If it does not, the commit lands what they have done, or is
/// refused and the transaction stays open.
#[test]
fn commit_is_never_lost_by_what_a_view_may_refuse() {
    let test = "commit_is_never_lost_by_what_a_view_may_refuse";
    if !tools_present(test, &["setfattr", "chattr", "python3"]) {
        return;
    }
    Fixture::for_each_view("odd-refused", TREE, |fixture, view| {
        for (name, script) in REFUSED {
            let script = format!("rm -f new; {{ {script}; }} 2> /dev/null || true; touch new");
            let outcome = fixture.store.run_with(&["--view", view], &script);
            if outcome.code == 0 {
                assert!(fixture.base.join("new").exists(), "{name}: {outcome}");
            } else {
                assert_eq!(outcome.code, CONFIGURATION, "{name}: {outcome}");
                outcome.says(&["is still open"]);
                fixture.store.call(["abort", "--all"]).expect(0);
            }
        }
        shell(&fixture.base, "chattr -i -a * || true");
    });
}

/// Both kinds of view refuse the name of the control directory. The rest of the command's work lands.
#[test]
fn views_refuse_the_name_of_the_control_directory() {
    let calls = [
        "mkdir .atomdir",
        "touch .atomdir",
        "mkdir d && mv -T d .atomdir",
        "ln -s x .atomdir",
        "mkfifo .atomdir",
        "ln old/f .atomdir",
        "mkdir -p .atomdir/log",
    ];
    Fixture::for_each_view("odd-control", TREE, |fixture, view| {
        for call in calls {
            let script = format!("! {{ {call}; }} || exit 9; test ! -e .atomdir; echo x >> new");
            let outcome = fixture.store.run_with(&["--view", view], &script);
            outcome.expect(0).says(&["Operation not permitted"]);
            assert!(fs::metadata(fixture.base.join("new")).is_ok(), "{call}");
            shell(&fixture.base, "rm -rf new d");
        }
        // An archive that has one.
        let archive =
            "mkdir t t/.atomdir; echo 1 > t/.atomdir/log; echo 2 > t/file; tar -C t -cf t.tar .";
        fixture.store.run(archive).expect(0);
        let outcome = fixture
            .store
            .run_with(&["--view", view], "tar -xf t.tar || true");
        outcome.expect(0);
        let unpacked = fs::read_to_string(fixture.base.join("file"));
        assert_eq!(unpacked.expect("it is unpacked"), "2\n");
    });
}

/// The objects of a native view are moved when its command has ended, which takes space as well.
#[test]
fn full_disk_keeps_the_transaction() {
    const FILES: usize = 300;
    let test = "full_disk_keeps_the_transaction";
    if !tools_present(test, &["mkfs.ext4"]) {
        return;
    }
    for view in ["native", "exact"] {
        let scratch = Scratch::new(test);
        let make = "truncate -s 64M image; mkfs.ext4 -q image; mkdir small
            mount -o loop image small; mkdir -p small/base/old; echo kept > small/ballast
            dd if=/dev/zero of=small/ballast bs=1M count=8 status=none";
        shell(scratch.path(), make);
        let base = scratch.join("small/base");
        let store = Store::init(&base, &User::root(scratch.path()));
        let script = format!(
            "n=$(printf 'n%.0s' $(seq 200)); for i in $(seq {FILES}); do echo x > old/$n$i; done
             dd if=/dev/zero of=fill bs=4k 2> /dev/null || true
             dd if=/dev/zero of=rest bs=512 2> /dev/null || true"
        );
        let outcome = store.run_with(&["--view", view], &script);
        outcome.expect(INPUT_OUTPUT).says(&["is still open"]);
        fs::remove_file(scratch.join("small/ballast")).expect("it is there");
        wait_until("the commit", || store.call(["commit", "1"]).code == 0);
        let landed = fs::read_dir(base.join("old")).expect("it is there");
        assert_eq!(landed.count(), FILES);
        store.assert_at_rest();
    }
}
