//! Broken surroundings. The exit code must be the design's, the message must name the
//! path and what to do, and the base must be unchanged.

use std::fs;
use std::path::Path;
use std::process::Command;

use atomdir_testing::exit_code::{
    CANNOT_CREATE, CONFIGURATION, INPUT_OUTPUT, NO_SUCH, NOT_PERMITTED,
};
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{
    Fixture, Scratch, Store, User, atomdir, binary, capture_output, copy_tree, shell, skip,
    tools_present, users_can_mount, wait_until,
};

fn text(path: &Path) -> &str {
    path.to_str().expect("a test's path is text")
}

#[test]
fn read_only_file_systems_are_refused() {
    let fixture = Fixture::new("read-only", "echo old > file");
    let store = &fixture.store;
    store.run("echo new > file").expect(0);
    store.call(["service", "stop", "--abort"]).expect(0);
    let point = fixture.scratch.join("mounted");
    fs::create_dir(&point).expect("made");
    shell(
        fixture.scratch.path(),
        "mount --bind base mounted; mount -o remount,bind,ro mounted",
    );
    let read_only = Store::existing(&point, store.user());
    let outcome = read_only.run("echo newer > file");
    outcome
        .expect_one_of(&[CANNOT_CREATE, INPUT_OUTPUT, NOT_PERMITTED, CONFIGURATION])
        .says(&["read-only"]);
    let fresh = fixture.scratch.join("fresh");
    fs::create_dir(&fresh).expect("made");
    shell(
        fixture.scratch.path(),
        "mount --bind fresh fresh; mount -o remount,bind,ro fresh",
    );
    atomdir(&fixture.scratch, ["init", text(&fresh)])
        .expect(CANNOT_CREATE)
        .says(&[text(&fresh), "read-only"]);
    shell(fixture.scratch.path(), "umount mounted fresh");
    store.run("test $(cat file) = new").expect(0);
    store.assert_at_rest();
}

/// A small file system in a file.
fn small_file_system(scratch: &Scratch, name: &str) -> std::path::PathBuf {
    let point = scratch.join(name);
    fs::create_dir(&point).expect("made");
    shell(
        scratch.path(),
        &format!(
            "truncate -s 24M image; mkfs.ext4 -q -m 0 image; mount -o loop image {name}; mkdir {name}/base"
        ),
    );
    point.join("base")
}

#[test]
fn full_file_system_while_writing_keeps_the_transaction_open() {
    if !tools_present(
        "full_file_system_while_writing_keeps_the_transaction_open",
        &["mkfs.ext4"],
    ) {
        return;
    }
    let scratch = Scratch::new("full-write");
    let base = small_file_system(&scratch, "small");
    shell(&base, "head -c 1000000 /dev/urandom > file");
    let store = Store::init(&base, &User::root(scratch.path()));
    let before = atomdir_testing::look(&base);
    let view = store.begin();
    let filled = store.exec(
        &view,
        "echo small > small; head -c 60000000 /dev/urandom > huge",
    );
    assert_ne!(filled.code, 0, "{filled}");
    filled.says(&["no space left"]);
    let unchanged = CompareOptions::untouched();
    assert_equal(
        "before and after",
        &before,
        &atomdir_testing::look(&base),
        &unchanged,
    );
    // The transaction stays open. With less in it, it commits.
    store
        .exec(&view, "test $(cat small) = small; rm huge")
        .expect(0);
    store.commit(&view).expect(0);
    assert_eq!(
        fs::read_to_string(base.join("small")).expect("read"),
        "small\n"
    );
    let view = store.begin();
    store
        .exec(&view, "head -c 60000000 /dev/urandom > huge || true")
        .expect(0);
    store.abort(&view).expect(0);
    // All of it is free again.
    store.run("head -c 8000000 /dev/urandom > large").expect(0);
    store.call(["check"]).expect(0);
    store.assert_at_rest();
}

/// The history gives up what commits have replaced, so that programs can write: in a transaction,
/// while nothing is open, and if the disk is full before a checkpoint has come.
#[test]
fn history_makes_room_on_a_file_system_that_gets_full() {
    let test = "history_makes_room_on_a_file_system_that_gets_full";
    if !tools_present(test, &["mkfs.ext4"]) {
        return;
    }
    let commits = 9;
    for (is_open, is_quiet) in [(true, true), (false, true), (false, false)] {
        let scratch = Scratch::new("full-history");
        let base = small_file_system(&scratch, "small");
        let store = Store::init(&base, &User::root(scratch.path()));
        store.call(["config", "history-space", "50%"]).expect(0);
        store.call(["service", "start"]).expect(0);
        for _ in 0..commits {
            let script = "head -c 500000 /dev/urandom > new; mv new file";
            store.run(script).expect(0);
        }
        let status = |what: fn(&serde_json::Value) -> &serde_json::Value| {
            let status = store.call(["--json", "service", "status"]).expect(0).text();
            let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
            what(&status).as_u64().expect("a number")
        };
        let kept = || status(|status| &status["history"]["commits"]);
        if is_quiet {
            wait_until("a checkpoint", || {
                status(|status| &status["log_bytes"]) == 0
            });
        }
        assert_eq!(kept(), commits);
        let open = is_open.then(|| store.begin());
        let ballast = base.with_file_name("ballast");
        // Only the free space: a fill without a limit would also take what the history gives up.
        let fill = format!(
            "kib=$(df --output=avail -k . | tail -n 1); head -c \"${{kib}}k\" /dev/zero > '{}' || true",
            ballast.display()
        );
        shell(&base, &fill);
        if is_quiet {
            wait_until("the history is shorter", || kept() < commits);
        }
        let write = "head -c 1500000 /dev/zero > made";
        wait_until("there is room", || match &open {
            Some(view) => store.exec(view, write).code == 0,
            None => store.run(write).code == 0,
        });
        if let Some(view) = &open {
            store.commit(view).expect(0);
        }
        let made = fs::metadata(base.join("made")).expect("it has landed");
        assert_eq!(made.len(), 1_500_000);
        assert!(
            kept() <= commits,
            "the history must have given up old commits"
        );
        store.call(["check"]).expect(0);
        fs::remove_file(&ballast).expect("removed");
        store.assert_at_rest();
    }
}

#[test]
fn full_file_system_at_commit_changes_nothing() {
    if !tools_present("full_file_system_at_commit_changes_nothing", &["mkfs.ext4"]) {
        return;
    }
    let scratch = Scratch::new("full-commit");
    let base = small_file_system(&scratch, "small");
    shell(
        &base,
        "mkdir dir; head -c 4000000 /dev/urandom > pages; echo old > file",
    );
    let store = Store::init(&base, &User::root(scratch.path()));
    let view = store.begin();
    // Overwrite every page, so that the commit must log something large. Also make many
    // names, which take storage only in the base.
    let script = "echo new > file; i=0; while [ $i -lt 900 ]; do
        printf x | dd of=pages bs=1 seek=$((i*4096)) conv=notrunc status=none
        : > dir/a-rather-long-name-that-fills-directory-blocks-$i; i=$((i+1)); done";
    store.exec(&view, script).expect(0);
    let before = atomdir_testing::look(&base);
    // An outside program takes all free space.
    let ballast = base.with_file_name("ballast");
    let fill = format!(
        "cat /dev/zero > '{0}' || true; cat /dev/zero >> '{0}' || true",
        ballast.display()
    );
    shell(Path::new("/"), &fill);
    let outcome = store.commit(&view);
    if outcome.code == 0 {
        // The commit had reserved what it needs, which is better still. All of it must be there.
        assert_eq!(fs::read_dir(base.join("dir")).expect("listed").count(), 900);
    } else {
        outcome.expect(INPUT_OUTPUT).says(&["space"]);
        let unchanged = CompareOptions::untouched();
        assert_equal(
            "before and after",
            &before,
            &atomdir_testing::look(&base),
            &unchanged,
        );
        store.call(["status", &view.id]).expect(0);
        store.exec(&view, "test $(cat file) = new").expect(0);
        fs::remove_file(&ballast).expect("removed");
        store.commit(&view).expect(0);
    }
    assert_eq!(
        fs::read_to_string(base.join("file")).expect("read"),
        "new\n"
    );
    assert_eq!(fs::read_dir(base.join("dir")).expect("listed").count(), 900);
    let _ = fs::remove_file(&ballast);
    store.call(["check"]).expect(0);
    store.assert_at_rest();
}

/// A mount namespace in which `/dev` holds nothing but what a shell needs. It has processes of its
/// own, since root's service works in the mount namespace of the first one.
#[test]
fn run_without_fuse_device_explains_the_remedy() {
    let test = "run_without_fuse_device_explains_the_remedy";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "only root may make a process namespace");
    }
    let fixture = Fixture::new("no-fuse", "echo old > file");
    let store = &fixture.store;
    store.run("echo new > file").expect(0);
    store.call(["service", "stop", "--abort"]).expect(0);
    let script = format!(
        "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/urandom c 1 9
         for words in begin 'run -- true'; do
             \"$0\" -C \"$1\" $words && exit 9
             test $? = {CONFIGURATION}
         done
         for words in list log check recover sync 'service status'; do
             \"$0\" -C \"$1\" $words > /dev/null
         done
         \"$0\" -C \"$1\" service stop --abort"
    );
    let mut command = Command::new("unshare");
    store.user().dress(&mut command);
    let apart = ["-m", "--pid", "--fork", "--kill-child", "--mount-proc"];
    command.args(apart).args(["sh", "-ec", &script]);
    command.arg(binary()).arg(store.path());
    capture_output(&mut command).expect(0).says(&["/dev/fuse"]);
    store.run("test $(cat file) = new").expect(0);
    store.assert_at_rest();
}

#[test]
fn run_without_fusermount_explains_the_remedy() {
    let test = "run_without_fusermount_explains_the_remedy";
    if !users_can_mount(test) {
        return;
    }
    let fixture = Fixture::owned_by("no-helper", User::ordinary, "echo old > file");
    let mut command = fixture.store.command(["run", "--", "/bin/true"]);
    let outcome = capture_output(command.env("PATH", "/nonexistent"));
    // A helper may be found at its usual place without a search path.
    if outcome.code != 0 {
        outcome
            .expect(CONFIGURATION)
            .says(&["fusermount3", "install"]);
    }
    fixture.store.call(["service", "stop", "--abort"]).expect(0);
}

#[test]
fn store_moved_while_closed_works() {
    let mut fixture = Fixture::new("moved", "echo old > file; mkdir dir");
    fixture.store.run("echo new > file").expect(0);
    fixture.store.call(["service", "stop", "--abort"]).expect(0);
    let moved = fixture.scratch.join("moved");
    fs::rename(&fixture.base, &moved).expect("renamed");
    fixture.store = Store::existing(&moved, &User::root(fixture.scratch.path()));
    fixture
        .store
        .run("test $(cat file) = new; echo newer > file; mv dir d")
        .expect(0);
    // Its log is not empty, and the owner of its lock is dead.
    fixture.store.run("echo newest > file").expect(0);
    fixture.store.kill_service();
    let again = fixture.scratch.join("again");
    fs::rename(&moved, &again).expect("renamed");
    fixture.store = Store::existing(&again, &User::root(fixture.scratch.path()));
    fixture
        .store
        .run("test $(cat file) = newest; test -d d")
        .expect(0);
    fixture.store.assert_at_rest();
}

#[test]
fn store_copied_while_closed_is_independent() {
    let fixture = Fixture::new("copied", "echo old > file; mkdir dir; echo in > dir/in");
    let original = &fixture.store;
    original.run("echo new > file; mv dir d").expect(0);
    original.call(["service", "stop", "--abort"]).expect(0);
    let path = fixture.scratch.join("copy");
    copy_tree(&fixture.base, &path);
    let before = fixture.look();
    let copy = Store::existing(&path, original.user());
    copy.call(["init", "--adopt"]).expect(0);
    copy.run("test $(cat file) = new; echo copied > file; rm d/in")
        .expect(0);
    copy.call(["check"]).expect(0);
    // Both stores work at once, independently.
    let (here, there) = (original.begin(), copy.begin());
    assert_ne!(here.path, there.path);
    original
        .exec(&here, "test $(cat file) = new; test -e d/in")
        .expect(0);
    original.commit(&here).expect(0);
    copy.abort(&there).expect(0);
    copy.assert_at_rest();
    original.assert_at_rest();
    assert_equal(
        "original before and after",
        &before,
        &fixture.look(),
        &CompareOptions::untouched(),
    );
}

#[test]
fn log_of_a_copied_store_is_not_applied_to_other_objects() {
    let fixture = Fixture::new("copied-crash", "echo old > file; seq 10000 > pages");
    let original = &fixture.store;
    original
        .run("echo new > file; printf X | dd of=pages conv=notrunc status=none")
        .expect(0);
    original.kill_service();
    let path = fixture.scratch.join("copy");
    copy_tree(&fixture.base, &path);
    let copied = atomdir_testing::look(&path);
    let copy = Store::existing(&path, original.user());
    // The log names the original's objects. In the copy it must not be applied to other objects.
    let outcome = copy.call(["recover"]);
    outcome.expect(CONFIGURATION).says(&["copy of a store"]);
    let outcome = copy.call(["init", "--adopt"]);
    outcome
        .expect(CANNOT_CREATE)
        .says(&["commits were still to be recovered"]);
    let _ = copy.call(["service", "stop", "--abort"]);
    assert_equal(
        "the copy before and after",
        &copied,
        &atomdir_testing::look(&path),
        &CompareOptions::alike(),
    );
    original.run("test $(cat file) = new").expect(0);
    original.assert_at_rest();
}

#[test]
fn second_service_on_one_store_is_refused() {
    let fixture = Fixture::new("two-services", "true");
    let store = &fixture.store;
    // One that a command has started would hand the store over.
    let service = ["service", "run", "--store", text(&fixture.base)];
    let mut first = store.command(service).spawn().expect("started");
    let status = || {
        let status = store.call(["--json", "service", "status"]).expect(0).text();
        serde_json::from_str::<serde_json::Value>(&status).expect("it is JSON")
    };
    wait_until("the service", || status()["process"] == first.id());
    let view = store.begin();
    let serving = store.service_processes();
    assert_eq!(serving.len(), 1);
    let second = store.call(["service", "run", "--store", text(&fixture.base)]);
    assert_ne!(second.code, 0, "{second}");
    second.says(&["already", text(&fixture.base)]);
    assert_eq!(store.service_processes(), serving);
    store.call(["service", "start"]).expect(0);
    assert_eq!(store.service_processes(), serving);
    store.exec(&view, "echo unharmed > file").expect(0);
    store.commit(&view).expect(0);
    store.call(["service", "stop"]).expect(0);
    first.wait().expect("ended");
    store.assert_at_rest();
}

/// As in a container that shares the store's directory with the machine. The kernel then has no
/// process id for the client.
#[test]
fn a_service_in_another_process_namespace_serves_clients_outside() {
    let test = "a_service_in_another_process_namespace_serves_clients_outside";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "only root may make a process namespace");
    }
    let fixture = Fixture::new("other-processes", "true");
    let store = &fixture.store;
    let service = store.command(["service", "run", "--store", text(&fixture.base)]);
    let mut command = Command::new("unshare");
    store.user().dress(&mut command);
    command.args(["--pid", "--fork", "--kill-child"]);
    command.arg(service.get_program()).args(service.get_args());
    let mut unshared = command.spawn().expect("started");
    wait_until("the service", || {
        let status = store.call(["service", "status"]).expect(0).text();
        !status.contains("none: the next command") && store.service_processes().len() == 1
    });
    for view in ["exact", "native"] {
        let script = format!("echo {view} > {view}");
        store.run_with(&["--view", view], &script).expect(0);
        assert!(fixture.base.join(view).exists());
    }
    store.call(["service", "stop"]).expect(0);
    unshared.wait().expect("ended");
    store.assert_at_rest();
}

#[test]
fn many_clients_start_one_service() {
    let fixture = Fixture::new("race", "true");
    let store = &fixture.store;
    for round in 0..5 {
        std::thread::scope(|scope| {
            for client in 0..8 {
                let script = format!("echo {round} > file{client}");
                scope.spawn(move || store.run(&script).expect(0));
            }
        });
        assert_eq!(store.service_processes().len(), 1);
        store.call(["service", "stop", "--abort"]).expect(0);
    }
    store.assert_at_rest();
}

#[test]
fn deleted_base_is_reported_and_not_made_again() {
    let fixture = Fixture::new("deleted", "echo old > file; mkdir dir");
    let store = &fixture.store;
    let view = store.begin();
    store
        .exec(&view, "echo new > file; echo new > dir/new")
        .expect(0);
    fs::remove_dir_all(&fixture.base).expect("removed");
    let outcome = store.commit(&view);
    outcome.expect_one_of(&[NO_SUCH, INPUT_OUTPUT]);
    assert!(!fixture.base.exists(), "the base was made again");
    let outcome = store.call(["list"]);
    outcome
        .expect_one_of(&[NO_SUCH, INPUT_OUTPUT])
        .says(&[text(&fixture.base)]);
}

/// A directory's link count shows how many directories are in it.
#[test]
fn link_count_of_a_views_root_counts_what_it_shows() {
    let fixture = Fixture::new("root-links", "mkdir a b");
    let plain = fixture.scratch.join("plain");
    shell(
        fixture.scratch.path(),
        "mkdir plain plain/a plain/b plain/c",
    );
    let links = std::os::unix::fs::MetadataExt::nlink(&fs::metadata(&plain).expect("made"));
    let script = format!("mkdir c && test $(stat -c %h .) = {links}");
    let after = format!("test $(stat -c %h .) = {links}");
    for script in [&script, &after] {
        // In an overlay a directory has one link, whatever is in it.
        let exact = ["--view", "exact"];
        fixture.store.run_with(&exact, script).expect(0);
    }
}
