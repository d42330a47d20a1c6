//! The guard: a file system over the store's own path, for programs outside transactions.

mod frozen;
mod killed;
#[path = "../model/operation.rs"]
mod operation;
mod remembered;
mod returning;
mod sessions;
mod synced;
mod waits;
mod whole;
mod writers;

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use atomdir_testing::exit_code::{CONFLICT, INPUT_OUTPUT, NOT_PERMITTED, USAGE};
use atomdir_testing::tree::{CompareOptions, Times, assert_equal};
use atomdir_testing::{
    Fixture, Guard, Random, User, WAIT_UNTIL, binary, capture_output, look, moment_now, pick,
    shell, shell_as, skip, unmount, users_can_mount, wait_until,
};
use operation::Operation;

/// A store with a guard over it. The guard is unmounted even if the test fails.
struct Guarded {
    fixture: Fixture,
}

impl Guarded {
    fn new(test: &str, prepare: &str) -> Option<Guarded> {
        if !rustix::process::geteuid().is_root() {
            skip(test, "only root can mount a guard");
            return None;
        }
        let guarded = Guarded {
            // A long name would make the path of the service's socket too long.
            fixture: Fixture::new("guard", prepare),
        };
        guarded.fixture.store.call(["mount"]).expect(0);
        Some(guarded)
    }

    fn base(&self) -> &Path {
        &self.fixture.base
    }

    /// The scratch directories above it are closed to others.
    fn open_to_others(&self) {
        let scratch = self.fixture.scratch.path();
        let above = self.base().ancestors().skip(1);
        for directory in above.take_while(|one| one.starts_with(scratch)) {
            shell(directory, "chmod a+x .");
        }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.base().join(name)).expect("it can be read")
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if Guard::is_over(&self.fixture) {
            unmount(&self.fixture.base);
        }
    }
}

/// Ends threads, also if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn calls_through_a_guard_do_the_same_as_in_a_plain_directory() {
    let test = "calls_through_a_guard_do_the_same_as_in_a_plain_directory";
    let Some(guarded) = Guarded::new(test, "mkdir w") else {
        return;
    };
    let mut random = Random::for_test(test);
    let mirror = guarded.fixture.scratch.join("mirror");
    fs::create_dir_all(mirror.join("w")).expect("made");
    let start = moment_now(guarded.fixture.scratch.path());
    let times = Times::Since {
        left: start,
        right: start,
    };
    let options = CompareOptions {
        file_times: times,
        directory_times: times,
        root: false,
        ..CompareOptions::alike()
    };
    let mut trace = Vec::new();
    for _ in 0..pick(1_500, 30_000) {
        let operation = Operation::random(&mut random, "w");
        let plain = operation.apply(&mirror);
        let through = operation.apply(guarded.base());
        trace.push(format!("{operation:?}: {plain:?}"));
        assert_eq!(plain, through, "{}", trace.join("\n"));
        if random.chance(50) {
            assert_equal(
                "plain (left) and guarded (right)",
                &look(&mirror.join("w")),
                &look(&guarded.base().join("w")),
                &options,
            );
        }
    }
    assert_equal(
        "plain (left) and guarded (right)",
        &look(&mirror.join("w")),
        &look(&guarded.base().join("w")),
        &options,
    );
    guarded.fixture.store.call(["umount"]).expect(0);
    assert_equal(
        "plain (left) and guarded (right)",
        &look(&mirror.join("w")),
        &look(&guarded.base().join("w")),
        &options,
    );
    guarded.fixture.store.assert_at_rest();
}

#[test]
fn transactions_conflict_with_writers_through_a_guard() {
    let test = "transactions_conflict_with_writers_through_a_guard";
    let prepare = "echo old > a; echo old > b; echo old > c; mkdir d";
    let Some(guarded) = Guarded::new(test, prepare) else {
        return;
    };
    let store = &guarded.fixture.store;
    // What the programs outside do, what the transaction does, and whether they conflict.
    for (outside, inside, conflicts) in [
        ("echo outside > a", "echo inside > a", true),
        ("echo outside >> a", "rm a", true),
        ("rm b", "echo inside > b", true),
        ("mv c d/c", "mv c e", true),
        ("echo outside > new", "echo inside > new", true),
        ("chmod 600 a", "chmod 640 a", true),
        ("echo outside > a", "echo inside > other", false),
        ("echo outside > d/one", "echo inside > d/two", false),
        // As if another transaction had moved it: it stays one file.
        ("mv d/c d/moved", "echo inside > d/c", false),
    ] {
        let view = store.begin();
        store.exec(&view, inside).expect(0);
        store.outside(outside);
        let expected = if conflicts { CONFLICT } else { 0 };
        store.commit(&view).expect(expected);
        if conflicts {
            store.abort(&view).expect(0);
        }
    }
    assert_eq!(guarded.read("a"), "outside\n");
    assert_eq!(guarded.read("other"), "inside\n");
    assert_eq!(guarded.read("d/moved"), "inside\n");
    store.call(["umount"]).expect(0);
    store.assert_at_rest();
}

/// The kernel must not show what it has cached from before a commit.
#[test]
fn what_programs_have_cached_follows_commits() {
    let test = "what_programs_have_cached_follows_commits";
    let prepare =
        "echo old > a; mkdir d; echo old > d/f; ln -s a link; truncate -s 2M long; : > gone";
    let Some(guarded) = Guarded::new(test, prepare) else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    let all = "cat a d/f link; ls . d; stat -c '%n %s %a %h' a d/f long gone 2>&1 || true; ls missing 2>&1 || true";
    // Whatever can be cached is, before the commit and between its parts.
    let before = [shell(base, all).text(), shell(base, all).text()];
    assert_eq!(before[0], before[1]);
    let mut open = fs::File::open(base.join("long")).expect("opened");
    let mut mapped = [1; 4];
    open.read_exact(&mut mapped).expect("read");
    assert_eq!(mapped, [0; 4]);
    let script = "echo newer > a; chmod 600 d/f; rm gone; : > missing; ln a second
        printf long | dd of=long conv=notrunc bs=4 status=none; mv d e; ln -sfn e/f link";
    // In a native view the whole file would count as written, and get another inode.
    store.run_exact(script).expect(0);
    assert_eq!(guarded.read("a"), "newer\n");
    assert_eq!(guarded.read("link"), "old\n");
    assert!(!base.join("d").exists() && !base.join("gone").exists());
    assert!(base.join("missing").exists());
    let found = fs::metadata(base.join("e/f")).expect("it was moved");
    assert_eq!(found.mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(base.join("a")).expect("there").nlink(), 2);
    open.seek(SeekFrom::Start(0)).expect("sought");
    open.read_exact(&mut mapped).expect("read");
    assert_eq!(
        &mapped, b"long",
        "a file that keeps its inode, open since before"
    );
    store.call(["umount"]).expect(0);
}

/// Neither what is appended through the guard is lost, nor what transactions append, to a file that
/// keeps its inode.
#[test]
fn what_programs_and_transactions_append_is_all_there() {
    let test = "what_programs_and_transactions_append_is_all_there";
    let Some(guarded) = Guarded::new(test, ": > log; ln log second") else {
        return;
    };
    let (store, log) = (&guarded.fixture.store, guarded.base().join("log"));
    let is_over = AtomicBool::new(false);
    let (mut outside, mut inside) = (0, 0);
    std::thread::scope(|scope| {
        let appender = scope.spawn(|| {
            let file = fs::File::options().append(true).open(&log);
            let (mut file, mut count) = (file.expect("opened"), 0);
            while !is_over.load(Ordering::Relaxed) {
                // Most transactions would conflict without a pause.
                if count % 3 == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(25));
                }
                // One call, so that no transaction comes in between.
                let line = format!("outside {count}\n");
                file.write_all(line.as_bytes()).expect("appended");
                count += 1;
            }
            count
        });
        let ends = Ends(&is_over);
        for number in 0..pick(20, 200) {
            let script = format!("echo inside {number} >> log");
            let ran = store.run_with(&["--view", "exact", "--retry", "1000"], &script);
            ran.expect(0);
            inside += 1;
        }
        drop(ends);
        outside = appender.join().expect("it does not panic");
    });
    let text = guarded.read("log");
    for number in 0..inside {
        let line = format!("inside {number}");
        assert!(text.lines().any(|one| one == line), "no '{line}' in {text}");
    }
    let count = |of: &str| text.lines().filter(|line| line.starts_with(of)).count();
    assert_eq!((count("outside"), count("inside")), (outside, inside));
    assert_eq!(text.lines().count(), outside + inside, "{text}");
    store.call(["umount"]).expect(0);
    assert_eq!(
        guarded.read("log"),
        text,
        "what the kernel has cached is true"
    );
    store.assert_at_rest();
}

/// A process in a mount namespace without the guard is served as before.
#[test]
fn a_mount_namespace_from_before_the_guard_goes_on_as_outside_writer() {
    let test = "a_mount_namespace_from_before_the_guard_goes_on_as_outside_writer";
    let Some(guarded) = Guarded::new(test, "echo old > a") else {
        return;
    };
    let store = &guarded.fixture.store;
    store.call(["umount"]).expect(0);
    let (ready, go) = (
        guarded.fixture.scratch.join("ready"),
        guarded.fixture.scratch.join("go"),
    );
    let script = format!(
        "{WAIT_UNTIL}: > {ready}; wait_until test -e {go}
        grep -c $PWD /proc/self/mountinfo; cat a
        {atomdir} run --quiet -- sh -c 'echo inside > a'; cat a; echo outside > a",
        ready = ready.display(),
        go = go.display(),
        atomdir = binary().display(),
    );
    std::thread::scope(|scope| {
        let old = scope.spawn(|| {
            let mut command = std::process::Command::new("unshare");
            store.user().dress(&mut command);
            let command =
                command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
            capture_output(command.current_dir(guarded.base()))
        });
        wait_until("the namespace", || ready.exists() || old.is_finished());
        store.call(["mount"]).expect(0);
        fs::write(&go, "").expect("written");
        let text = old.join().expect("it does not panic").text();
        assert_eq!(text, "0\nold\ninside\n", "{script}");
    });
    store.call(["umount"]).expect(0);
}

/// A program that has a file open goes on to read it, and learns that its writes would be lost.
#[test]
fn what_programs_write_to_open_files_is_kept_or_fails() {
    let test = "what_programs_write_to_open_files_is_kept_or_fails";
    let prepare = "for f in a b c d; do echo old > $f; done";
    let Some(guarded) = Guarded::new(test, prepare) else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    let open = |name: &str| {
        let options = fs::File::options()
            .read(true)
            .write(true)
            .open(base.join(name));
        options.expect("opened")
    };
    let mut files = ["a", "b", "c", "d"].map(open);
    let script = "echo newer > a; rm b; chmod 600 c; echo other > e; mv e d";
    store.run(script).expect(0);
    let texts = files.each_mut().map(|file| {
        let mut text = String::new();
        file.read_to_string(&mut text).expect("read");
        text
    });
    assert_eq!(texts, ["newer\n", "old\n", "old\n", "old\n"]);
    let written = files.each_mut().map(|file| {
        file.seek(SeekFrom::Start(0)).expect("sought");
        file.write_all(b"kept")
            .map_err(|error| error.raw_os_error())
    });
    // The transaction itself has removed these.
    let stale = Err(Some(rustix::io::Errno::STALE.raw_os_error()));
    assert_eq!(written, [Ok(()), stale, Ok(()), stale]);
    assert_eq!(guarded.read("a"), "keptr\n");
    assert_eq!(guarded.read("c"), "kept");
    assert_eq!(guarded.read("d"), "other\n");
    // An undo brings what was removed back, and then it can be written again.
    store.call(["undo", "1"]).expect_one_of(&[0, CONFLICT]);
    store.call(["umount"]).expect(0);
}

#[test]
fn what_is_made_through_a_guard_belongs_to_its_maker() {
    let test = "what_is_made_through_a_guard_belongs_to_its_maker";
    let prepare = "mkdir -m 1777 open; mkdir -m 755 closed; mkdir -m 2777 shared; chgrp 1 shared
        chmod 755 .; mkdir acl; chmod 777 acl";
    let Some(guarded) = Guarded::new(test, prepare) else {
        return;
    };
    let (store, base) = (&guarded.fixture.store, guarded.base());
    guarded.open_to_others();
    let stranger = User::stranger(guarded.fixture.scratch.path());
    let script = "umask 027; echo mine > open/f; mkdir open/d; echo mine > shared/f; mkdir shared/d
        ! echo no > closed/f; ! rm -r closed; ln -s f open/l; mkfifo open/p
        stat -c '%n %u:%g %a' open/f open/d shared/f shared/d open/l open/p";
    let found = shell_as(&stranger, base, script).text();
    let (user, group) = (stranger.uid, stranger.gid);
    let expected = format!(
        "open/f {user}:{group} 640\nopen/d {user}:{group} 750\nshared/f {user}:1 640\n\
         shared/d {user}:1 2750\nopen/l {user}:{group} 777\nopen/p {user}:{group} 640\n"
    );
    assert_eq!(found, expected);
    // An ordinary user's write takes the set-user-id bit, root's does not.
    shell(
        base,
        "cp /bin/true open/tool; chmod 4777 open/tool; cp -p open/tool open/roots",
    );
    shell_as(&stranger, base, "echo >> open/tool");
    shell(base, "echo >> open/roots");
    let modes = shell(base, "stat -c %a open/tool open/roots").text();
    assert_eq!(modes, "777\n4777\n");
    store.call(["umount"]).expect(0);
}

#[test]
fn a_guard_can_be_mounted_by_root_only_over_a_store_of_roots() {
    let test = "a_guard_can_be_mounted_by_root_only_over_a_store_of_roots";
    if !rustix::process::geteuid().is_root() || !users_can_mount(test) {
        return;
    }
    let fixture = Fixture::owned_by("guard", User::ordinary, "echo old > a");
    for verb in ["mount", "umount"] {
        let refused = fixture.store.call([verb]).expect(NOT_PERMITTED);
        refused.says(&["only root can mount a guard"]);
        let root = User::root(fixture.scratch.path());
        let refused = fixture.store.call_as(&root, ["--trust", verb]);
        refused.expect(NOT_PERMITTED).says(&["ordinary user"]);
    }
    fixture.store.assert_at_rest();
}

#[test]
fn every_kind_of_transaction_works_under_a_guard() {
    let test = "every_kind_of_transaction_works_under_a_guard";
    let Some(guarded) = Guarded::new(test, "echo old > a; mkdir d") else {
        return;
    };
    let store = &guarded.fixture.store;
    let control = shell(guarded.base(), "stat -c %i .atomdir").text();
    for view in ["exact", "native"] {
        let script = "echo $0 > a; test ! -e .atomdir; mkdir -p d/e; echo x > d/e/f; rm -r d/e";
        store.run_with(&["--view", view], script).expect(0);
    }
    store
        .run_exact("atomdir run -- sh -c 'echo nested > a'")
        .expect_one_of(&[0, 127]);
    store
        .run_with(&["--exclusive"], "true")
        .expect_one_of(&[USAGE, INPUT_OUTPUT, NOT_PERMITTED, 70, 78])
        .says(&["guard"]);
    store.call(["mount"]).expect(0);
    let log = store.call(["log"]).expect(0).text();
    assert!(log.lines().count() >= 2, "{log}");
    store.call(["undo"]).expect(0);
    store.call(["check"]).expect(0);
    // Nobody reaches the stand-in for the control directory.
    assert_eq!(shell(guarded.base(), "stat -c %i .atomdir").text(), control);
    shell(
        guarded.base(),
        "! mv .atomdir elsewhere 2> /dev/null; ! rmdir .atomdir 2> /dev/null",
    );
    store.call(["umount"]).expect(0);
    store.assert_at_rest();
}
