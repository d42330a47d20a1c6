//! Files that change whole, when the program closes them, because a profile says so.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{
    Fixture, Guard, Random, User, capture_output, look, shell, shell_as, tools_present, wait_until,
};

const OLD: &str = "echo old > old.txt; echo plain > plain; mkdir sub; chmod 777 . sub";

/// A store with this profile, for a guard.
fn store(prepare: &str, profile: &[&str]) -> Fixture {
    let fixture = Fixture::new("sessions", prepare);
    let add = [&["profile", "add"], profile].concat();
    fixture.store.call(add).expect(0);
    fixture
}

/// A script that runs in the store, and waits where it calls `pause`.
struct Running<'a> {
    fixture: &'a Fixture,
    child: Child,
}

const PAUSE: &str =
    "pause() { : > ../ready; until test -e ../go; do sleep 0.02; done; rm ../go; }\n";

impl<'a> Running<'a> {
    fn new(fixture: &'a Fixture, script: &str) -> Running<'a> {
        let mut command = Command::new("/bin/sh");
        fixture.store.user().dress(&mut command);
        command.current_dir(&fixture.base).stdin(Stdio::null());
        command.args(["-ec", &format!("{PAUSE}{script}")]);
        let running = Running {
            fixture,
            child: command.spawn().expect("started"),
        };
        running.until_paused();
        running
    }

    fn until_paused(&self) {
        let ready = self.fixture.scratch.join("ready");
        wait_until("the next pause", || ready.exists());
        fs::remove_file(ready).expect("removed");
    }

    fn go_on(&self) {
        fs::write(self.fixture.scratch.join("go"), "").expect("written");
    }

    fn end(mut self) {
        self.go_on();
        assert!(self.child.wait().expect("ended").success());
    }

    fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(fixture: &Fixture, name: &str) -> String {
    fs::read_to_string(fixture.base.join(name)).unwrap_or_default()
}

#[track_caller]
fn assert_commits(fixture: &Fixture, expected: usize) {
    let log = fixture.store.call(["log"]).expect(0).text();
    assert_eq!(log.lines().count(), expected, "{log}");
}

#[test]
fn others_see_a_file_change_when_its_writer_closes_it() {
    let one = store(OLD, &["*", "files-whole=*.txt", "message=whole"]);
    let Some(_guard) = Guard::mount("sessions-close", &one) else {
        return;
    };
    for name in ["old.txt", "sub/new.txt"] {
        let before = read(&one, name);
        let script = format!(
            "exec 3> {name}; pause; echo half >&3; pause; echo rest >&3; pause; exec 3>&-; pause"
        );
        let running = Running::new(&one, &script);
        for _ in 0..2 {
            assert_eq!(read(&one, name), before);
            running.go_on();
            running.until_paused();
        }
        assert_eq!(read(&one, name), before);
        assert_eq!(one.base.join(name).exists(), !before.is_empty());
        running.go_on();
        running.until_paused();
        // It still runs.
        assert_eq!(read(&one, name), "half\nrest\n");
        running.end();
    }
    assert_commits(&one, 2);
    assert!(one.store.call(["log"]).text().contains("whole"));
    one.store.call(["undo"]).expect(0);
    assert!(!one.base.join("sub/new.txt").exists());
    // A file without a profile changes at once.
    let running = Running::new(&one, "exec 3> plain; echo half >&3; pause");
    assert_eq!(read(&one, "plain"), "half\n");
    running.end();
}

#[test]
fn a_program_that_is_killed_has_not_changed_the_file() {
    let one = store(OLD, &["*", "files-whole=*.txt"]);
    let Some(_guard) = Guard::mount("sessions-kill", &one) else {
        return;
    };
    let before = look(&one.base);
    for name in ["old.txt", "sub/new.txt"] {
        for script in [
            "exec 3> NAME",
            "exec 3> NAME; echo half >&3",
            "exec 3<> NAME; echo half >&3",
        ] {
            let script = script.replace("NAME", name);
            Running::new(&one, &format!("{script}; pause")).kill();
            // By a signal of its own, and with a child that has the file open as well.
            let died = shell_as_it_dies(
                &one,
                &format!("{script}; (sleep 0.1; : > ../done) & kill -9 $$"),
            );
            assert_eq!(died, 128 + 9, "{script}");
            let done = one.scratch.join("done");
            wait_until("the end of the child", || done.exists());
            fs::remove_file(done).expect("removed");
            let died = shell_as_it_dies(&one, &format!("{script}; kill -TERM $$"));
            assert_eq!(died, 128 + 15, "{script}");
        }
    }
    assert_equal(
        "killed",
        &before,
        &look(&one.base),
        &CompareOptions::alike(),
    );
    assert_commits(&one, 0);
    // A program that only ends badly has closed its files.
    let ended = shell_as_it_dies(&one, "exec 3> old.txt; echo new >&3; exit 3");
    assert_eq!((ended, &*read(&one, "old.txt")), (3, "new\n"));
}

fn shell_as_it_dies(fixture: &Fixture, script: &str) -> i32 {
    let mut command = Command::new("/bin/sh");
    fixture.store.user().dress(&mut command);
    command.current_dir(&fixture.base).args(["-c", script]);
    capture_output(&mut command).code
}

/// At any moment, while another program reads.
#[test]
fn cp_that_is_killed_leaves_the_old_file_or_the_new_one() {
    let one = store("seq 1000000 > big.txt", &["cp", "files-whole=**"]);
    let Some(_guard) = Guard::mount("sessions-cp", &one) else {
        return;
    };
    shell(one.scratch.path(), "seq 2000000 3000000 > new");
    let old = read(&one, "big.txt");
    let new = fs::read_to_string(one.scratch.join("new")).expect("read");
    let mut random = Random::from_seed(7);
    let (mut killed, mut done) = (0, 0);
    for round in 0..40 {
        let name = ["big.txt", "other"][round % 2];
        let mut copying = Command::new("cp");
        copying.current_dir(&one.base).args(["../new", name]);
        let mut copying = copying.spawn().expect("started");
        std::thread::sleep(std::time::Duration::from_micros(random.below(40_000) as u64));
        let _ = copying.kill();
        copying.wait().expect("ended");
        let found = read(&one, name);
        match (found == new, found == old, found.is_empty()) {
            (true, ..) => done += 1,
            (_, true, false) if name == "big.txt" => killed += 1,
            (_, _, true) if name == "other" => killed += 1,
            _ => panic!("{name} has {} bytes", found.len()),
        }
        if name == "other" {
            shell(&one.base, "rm -f other");
        } else if found == new {
            fs::write(one.base.join(name), &old).expect("written");
        }
    }
    eprintln!("{killed} killed, {done} done");
}

/// The session is that of the process that has opened the file, whoever else has it open.
#[test]
fn what_a_group_of_programs_writes_to_one_file_lands_together() {
    let one = store(OLD, &["*", "files-whole=*.txt"]);
    let Some(_guard) = Guard::mount("sessions-group", &one) else {
        return;
    };
    let running = Running::new(&one, "{ echo a; /bin/echo b; pause; echo c; } > old.txt");
    assert_eq!(read(&one, "old.txt"), "old\n");
    running.end();
    assert_eq!(read(&one, "old.txt"), "a\nb\nc\n");
    let running = Running::new(&one, "exec 3> old.txt 4>&3; echo a >&3; exec 3>&-; pause");
    assert_eq!(read(&one, "old.txt"), "a\nb\nc\n");
    running.end();
    assert_eq!(read(&one, "old.txt"), "a\n");
    assert_commits(&one, 2);
    // One of the group is killed, and the opener goes on.
    shell(
        &one.base,
        "{ echo a; sh -c 'echo b; kill -9 $$' || echo c; } > old.txt",
    );
    assert_eq!(read(&one, "old.txt"), "a\nb\nc\n");
}

/// A log: each line is there when it was written, and others write to it as well.
#[test]
fn what_is_appended_is_seen_at_once() {
    let one = store(OLD, &["*", "files-whole=*.txt"]);
    let Some(_guard) = Guard::mount("sessions-append", &one) else {
        return;
    };
    let running = Running::new(
        &one,
        "exec 3>> old.txt; echo one >&3; pause; echo three >&3",
    );
    assert_eq!(read(&one, "old.txt"), "old\none\n");
    shell(&one.base, "echo two >> old.txt");
    running.end();
    assert_eq!(read(&one, "old.txt"), "old\none\ntwo\nthree\n");
}

#[test]
fn a_file_is_created_exclusively_by_one_program() {
    let one = store(OLD, &["*", "files-whole=*.txt"]);
    let Some(_guard) = Guard::mount("sessions-exclusive", &one) else {
        return;
    };
    let lock = || shell_as_it_dies(&one, "set -C; : > lock.txt");
    let running = Running::new(&one, "set -C; exec 3> lock.txt; pause");
    assert_ne!(lock(), 0);
    running.kill();
    assert_eq!(lock(), 0);
    assert_ne!(lock(), 0);
}

/// As editors save: by a temporary file that gets the name while it is open, by a write in place, and
/// by moving the old file aside.
#[test]
fn files_are_moved_and_removed_while_they_are_written() {
    let one = store(OLD, &["*", "files-whole=*.txt"]);
    let Some(_guard) = Guard::mount("sessions-names", &one) else {
        return;
    };
    let script = "set -e; exec 3> tmp.txt; echo new >&3; mv tmp.txt old.txt; exec 3>&-";
    // `mv` is another process, for which there is no such file yet.
    assert_ne!(shell_as_it_dies(&one, script), 0);
    shell(&one.base, "rm tmp.txt");
    if !tools_present("sessions-names", &["perl"]) {
        return;
    }
    let perl = |script: &str| {
        let words = ["-e", script];
        let mut command = Command::new("perl");
        capture_output(command.current_dir(&one.base).args(words)).code
    };
    let save = "open(F, '>', 'tmp.txt') or die; print F \"new\\n\"; F->flush; \
                rename('tmp.txt', 'old.txt') or die; ";
    assert_eq!(perl(&format!("{save} kill 9, $$;")), 128 + 9);
    assert_eq!(read(&one, "old.txt"), "old\n");
    assert_eq!(
        perl(&format!("{save} -e 'old.txt' or die; close F or die;")),
        0
    );
    assert_eq!(read(&one, "old.txt"), "new\n");
    assert!(!one.base.join("tmp.txt").exists());
    assert_eq!(
        perl("open(F, '>', 'gone.txt') or die; print F 1; unlink('gone.txt') or die; close F"),
        0
    );
    assert!(!one.base.join("gone.txt").exists());
    // The old file was moved: what is written goes with it.
    assert_eq!(
        perl(
            "open(F, '>', 'old.txt') or die; print F 'x'; rename('old.txt', 'old~.txt') or die; close F"
        ),
        0
    );
    assert_eq!(
        (&*read(&one, "old~.txt"), &*read(&one, "old.txt")),
        ("x", "")
    );
}

#[test]
fn attributes_are_kept_and_rights_are_those_of_the_user() {
    let one = store(OLD, &["*", "files-whole=*.txt"]);
    let Some(_guard) = Guard::mount("sessions-rights", &one) else {
        return;
    };
    shell(one.scratch.path(), "chmod a+x .");
    let user = User::ordinary(one.scratch.path());
    let prepare = format!(
        "echo theirs > theirs.txt; chown {}:{} theirs.txt; chmod 640 theirs.txt; \
         setfattr -n user.a -v b theirs.txt; touch -d '2001-01-01' theirs.txt",
        user.uid, user.gid
    );
    shell(&one.base, &prepare);
    let stat = || fs::metadata(one.base.join("theirs.txt")).expect("there");
    let before = stat();
    shell_as(
        &user,
        &one.base,
        "echo more > theirs.txt; echo mine > mine.txt",
    );
    let after = stat();
    assert_eq!(
        (after.mode(), after.uid(), after.gid()),
        (before.mode(), user.uid, user.gid)
    );
    assert_ne!(after.mtime(), before.mtime());
    let found = shell(
        &one.base,
        "getfattr --only-values -n user.a theirs.txt; stat -c %u mine.txt",
    );
    assert_eq!(found.text(), format!("b{}\n", user.uid));
    // Times and modes that the program sets.
    shell(
        &one.base,
        "touch -d '2002-02-02' from; chmod 604 from; cp -p from to.txt",
    );
    let copied = fs::metadata(one.base.join("to.txt")).expect("there");
    assert_eq!(
        (copied.mode() & 0o777, copied.mtime()),
        (0o604, 1_012_608_000)
    );
    let refused = "echo x > old.txt || echo refused";
    assert_eq!(shell_as(&user, &one.base, refused).text(), "refused\n");
    assert_eq!(read(&one, "old.txt"), "old\n");
}

/// The landing is a commit, and close(2) says if there is none.
#[test]
fn a_transaction_conflicts_with_what_lands_and_its_lock_keeps_it_off() {
    let one = store(OLD, &["*", "files-whole=*.txt"]);
    let Some(_guard) = Guard::mount("sessions-transactions", &one) else {
        return;
    };
    let view = one.store.begin();
    one.store.exec(&view, "echo ours > old.txt").expect(0);
    shell(&one.base, "echo landed > old.txt");
    one.store.call(["commit", &view.id]).expect(75);
    one.store.call(["abort", &view.id]).expect(0);
    let view = one.store.begin();
    one.store.call(["lock", &view.id, "old.txt"]).expect(0);
    let close = "open(F, '>', 'old.txt') or die; print F 1; close F or exit 5";
    if tools_present("sessions-transactions", &["perl"]) {
        let mut command = Command::new("perl");
        let code = capture_output(command.current_dir(&one.base).args(["-e", close])).code;
        assert_eq!(code, 5);
    }
    one.store.call(["abort", &view.id]).expect(0);
    assert_eq!(read(&one, "old.txt"), "landed\n");
}

/// What was not closed is not there, and what was closed is.
#[test]
fn the_service_is_killed_while_files_are_open() {
    let one = store(OLD, &["*", "files-whole=*.txt"]);
    let Some(_guard) = Guard::mount("sessions-service", &one) else {
        return;
    };
    let script =
        "exec 3> old.txt 4> sub/new.txt; echo half >&3; echo half >&4; echo x > whole.txt; pause";
    let running = Running::new(&one, script);
    for process in one.store.service_processes() {
        rustix::process::kill_process(process, rustix::process::Signal::KILL).expect("killed");
    }
    running.kill();
    one.store.call(["umount"]).expect(0);
    assert_eq!(read(&one, "old.txt"), "old\n");
    assert_eq!(read(&one, "whole.txt"), "x\n");
    assert!(!one.base.join("sub/new.txt").exists());
    one.store.call(["recover"]).expect(0);
    assert_commits(&one, 1);
}

#[test]
fn with_the_history_of_outside_changes_a_file_is_in_it_once() {
    let one = store(OLD, &["*", "files-whole=*.txt", "message=whole"]);
    one.store.call(["config", "guard-history", "on"]).expect(0);
    let Some(_guard) = Guard::mount("sessions-history", &one) else {
        return;
    };
    shell(
        &one.base,
        "echo new > old.txt; echo new > new.txt; echo new > plain",
    );
    let log = one.store.call(["log"]).expect(0).text();
    assert_eq!(log.matches("whole").count(), 2, "{log}");
    assert_eq!(log.matches("outside").count(), 1, "{log}");
    let numbers = log
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    one.store
        .call(["undo"].into_iter().chain(numbers))
        .expect(0);
    assert_eq!(
        (&*read(&one, "old.txt"), &*read(&one, "plain")),
        ("old\n", "plain\n")
    );
}
