//! Which users can deliver to which mailboxes, and the exit codes when they cannot.

use crate::support::{
    PROGRAM, deliver, deliver_as, fixture, has_namespaces, ids, indexed, is_delivered, message,
    read_maildir, read_mbox, run,
};
use atomdir_testing::{Fixture, Outcome, User, WAIT_UNTIL, shell, wait_until};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

fn plain(user: &User, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(PROGRAM);
    user.dress(&mut command);
    run(command.args(arguments), "Subject: x\n\nx\n")
}

#[test]
fn delivery_beyond_the_recipients_rights_is_refused() {
    const PREPARE: &str = "mkdir open; chmod 1777 open; touch mine; ln mine linked; mkfifo pipe
        ln -s mine symlink; mkdir shut";
    let Some(fixture) = fixture("mail-rights", PREPARE) else {
        return;
    };
    let scratch = fixture.scratch.path();
    let (root, stranger) = (User::root(scratch), User::stranger(scratch));
    shell(
        &fixture.base,
        "chown root shut; chmod 700 shut; touch open/foreign open/.ann.deliveries",
    );
    let before = fixture.look();
    for user in [&root, fixture.store.user()] {
        for mailbox in [
            "mine",
            "linked",
            "pipe",
            "symlink",
            "shut/ann",
            "shut/x/",
            "open/foreign",
            "open/ann",
            "mine/x/",
        ] {
            let outcome = run(&mut deliver_as(&fixture, user, mailbox), &message(1, 10));
            outcome.expect(75).says(&[mailbox.trim_end_matches('/')]);
        }
    }
    atomdir_testing::tree::assert_equal(
        "before (left), after (right)",
        &before,
        &fixture.look(),
        &atomdir_testing::tree::CompareOptions::untouched(),
    );
    // Root takes the recipient's rights.
    run(&mut deliver_as(&fixture, &root, "%u"), &message(2, 10)).expect(0);
    let made = std::fs::metadata(fixture.base.join("nobody")).expect("made");
    assert_eq!(
        (made.uid(), made.gid(), made.mode() & 0o777),
        (65534, 65534, 0o600)
    );
    run(&mut deliver_as(&fixture, &stranger, "%u"), &message(3, 10)).expect(75);

    plain(&root, &["-d", "root"]).expect(77).says(&["alias"]);
    plain(&stranger, &["-d", "nobody"]).expect(77);
    plain(&root, &["-d", "no-such-user"]).expect(67);
    plain(&root, &["-d", "no-such-user", "-m", "/tmp/%u"]).expect(67);
    plain(&stranger, &["-d", "../x", "-m", "/tmp/%u"]).expect(67);
    plain(&stranger, &["-m", "relative"]).expect(64);
    plain(&stranger, &["-m", "/%x"]).expect(64);
    plain(&stranger, &["--what"]).expect(64);
    // 75 and not a permanent error: the directory may be made a store later.
    plain(&stranger, &["-m", "/proc/ann"]).expect(75);
}

/// A mail server returns the message to its sender if it does not know the exit code.
#[test]
fn exit_code_is_the_same_if_stderr_is_full() {
    let full = File::options().write(true).open("/dev/full");
    let mut deliver = Command::new(PROGRAM);
    deliver.args(["-d", "no-such-user"]).stdin(Stdio::null());
    deliver.stderr(full.expect("the device that is always full"));
    let status = deliver.status().expect("started");
    assert_eq!(status.code(), Some(67), "{status}");
}

/// The store of a user who has run `atomdir init ~/Maildir`.
#[test]
fn a_maildir_can_be_a_store() {
    let Some(fixture) = fixture("mail-store", "") else {
        return;
    };
    for id in [1, 2, 2] {
        run(&mut deliver(&fixture, ""), &message(id, 10)).expect(0);
    }
    assert_eq!(ids(&read_maildir(&fixture.base), 10), [1, 2]);
    assert_eq!(indexed(&fixture.base.join("deliveries")), [1, 2]);
    fixture.store.assert_at_rest();
}

/// Anybody can send from such an address. It must not be taken for an option.
#[test]
fn a_sender_can_begin_with_a_dash() {
    let Some(fixture) = fixture("mail-dash", "") else {
        return;
    };
    let path = fixture.base.join("ann");
    let mailbox = path.to_str().expect("UTF-8");
    let arguments = ["-f", "-x@test", "-q", "-1", "-m", mailbox];
    plain(fixture.store.user(), &arguments).expect(0);
    let text = std::fs::read_to_string(&path).expect("read");
    assert!(text.starts_with("From -x@test "), "{text}");
}

#[test]
fn equal_messages_without_a_mail_server_are_all_delivered() {
    let Some(fixture) = fixture("mail-repeat", "") else {
        return;
    };
    let report = "Subject: nightly\n\nall well\n";
    for id in ["1", "2", "2"] {
        run(&mut deliver(&fixture, "ann"), report).expect(0);
        run(deliver(&fixture, "bob").args(["-q", id]), report).expect(0);
    }
    assert_eq!(read_mbox(&fixture.base.join("ann")).len(), 3);
    assert_eq!(read_mbox(&fixture.base.join("bob")).len(), 2);
}

/// The mail server is killed after it has sent a part of the message.
#[test]
fn message_cut_off_by_a_killed_mail_server_is_not_delivered() {
    let Some(fixture) = fixture("mail-parent", "") else {
        return;
    };
    run(&mut deliver(&fixture, "ann"), &message(1, 10)).expect(0);
    let line = format!("{:?} & exec sleep 1000", deliver(&fixture, "ann"));
    // This shell is the mail server. The delivery is its child and reads the shell's input.
    let mut server = Command::new("/bin/sh");
    fixture.store.user().dress(&mut server);
    let script = format!("exec 3<&0; {}", line.replacen(" &", " <&3 &", 1));
    let mut server = server
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut input = server.stdin.take().expect("piped");
    input
        .write_all(&message(2, 10).as_bytes()[..50])
        .expect("written");
    let errors = server.stderr.take().expect("piped");
    // The delivery has started once it has read all bytes from the pipe.
    wait_until("the reader", || bytes_waiting(&input) == 0);
    server.kill().expect("killed");
    server.wait().expect("ended");
    drop(input);
    let said = std::io::read_to_string(errors).expect("read");
    assert!(said.contains("the mail server died"), "{said}");
    assert_eq!(read_mbox(&fixture.base.join("ann")).len(), 1);
    assert!(is_delivered(crate::support::start(
        &mut deliver(&fixture, "ann"),
        &message(2, 10)
    )));
}

/// The mail server is killed before the program asks for its parent process.
#[test]
fn mail_server_killed_before_the_delivery_starts_is_noticed() {
    let fixture = fixture("mail-orphan", "");
    let is_possible =
        |_: &Fixture| has_namespaces("mail_server_killed_before_the_delivery_starts_is_noticed");
    let Some(fixture) = fixture.filter(is_possible) else {
        return;
    };
    // The outer shell is process 1 of a namespace. The second shell is the mail server, and ends at
    // once. Its child, in a session of its own, waits until process 1 has inherited it, and then
    // starts the delivery.
    let script = r#"exec 3<&0
        sh -c 'setsid sh -c "for i in \$(seq 30000); do [ ! -e gone ] || break; sleep 0.01; done
                exec \"\$@\"" sh "$@" <&3 &
            echo $! > orphan' sh "$@"
        exec 3<&-; : > gone
        wait_until is_gone $(cat orphan)"#;
    let script = format!("{WAIT_UNTIL} is_gone() {{ ! kill -0 $1 2> /dev/null; }}\n{script}");
    let mailbox = fixture.base.join("ann");
    let mut command = Command::new("unshare");
    command
        .args([
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-ec",
            &script,
            "sh",
        ])
        .args([PROGRAM, "-d", "nobody", "-m"])
        .arg(&mailbox)
        .current_dir(fixture.scratch.path());
    run(&mut command, &message(1, 10)[..50])
        .expect(0)
        .says(&["the mail server died"]);
    assert_eq!(read_mbox(&mailbox).len(), 0);
}

fn bytes_waiting(pipe: &std::process::ChildStdin) -> i32 {
    use std::os::fd::AsRawFd;
    let mut count = 0;
    // SAFETY: the kernel writes one number.
    assert_eq!(
        unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &mut count) },
        0
    );
    count
}

/// Whoever may read a mailbox can lock it, and need not give the lock back.
#[test]
fn no_delivery_waits_for_ever_for_a_lock() {
    let Some(fixture) = fixture(
        "mail-locked",
        "mkdir -m 755 Inbox; touch ann; chmod 644 ann",
    ) else {
        return;
    };
    let lock = |name: &str| {
        let path = fixture.base.join(name);
        let mut holder = Command::new("python3");
        holder.args([
            "-c",
            "import fcntl, os, sys, time
held = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(held, fcntl.LOCK_SH) if os.path.isdir(sys.argv[1]) else fcntl.lockf(held, fcntl.LOCK_SH)
print('locked', flush=True)
time.sleep(1000)",
        ]);
        let mut holder = holder
            .arg(path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut line = String::new();
        let output = holder.stdout.take().expect("piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("read");
        holder
    };
    let mut holder = lock("Inbox");
    run(&mut deliver(&fixture, "Inbox/"), &message(1, 10)).expect(0);
    holder.kill().expect("killed");
    holder.wait().expect("ended");
    let mut holder = lock("ann");
    run(&mut deliver(&fixture, "ann"), &message(2, 10)).expect(75);
    holder.kill().expect("killed");
    holder.wait().expect("ended");
    run(&mut deliver(&fixture, "ann"), &message(2, 10)).expect(0);
    assert_eq!(ids(&read_maildir(&fixture.base.join("Inbox")), 10), [1]);
}

/// The recipient chooses the path, by links of theirs.
#[test]
fn root_starts_no_service_that_the_recipient_could_not_use() {
    let scratch = atomdir_testing::Scratch::new("mail-roots");
    let prepare = "mkdir -m 777 open; mkdir -m 700 closed";
    let fixture = Fixture::new("mail-roots-store", prepare);
    let store = &fixture.store;
    store.call(["service", "stop", "--abort"]);
    let link = scratch.join("link");
    std::os::unix::fs::symlink(fixture.base.join("open"), &link).expect("made");
    let mailbox = format!("{}/ann", link.display());
    let mut command = Command::new(PROGRAM);
    User::root(scratch.path()).dress(&mut command);
    command.args(["-d", "nobody", "-m", &mailbox]);
    run(&mut command, "Subject: x\n\nx\n").expect(75);
    assert!(store.service_processes().is_empty());
    store.call(["config", "allow", "nobody"]).expect(0);
    store.call(["service", "stop", "--abort"]);
    let mut command = Command::new(PROGRAM);
    User::root(scratch.path()).dress(&mut command);
    command.args(["-d", "nobody", "-m", &mailbox]);
    run(&mut command, "Subject: x\n\nx\n").expect(0);
}
