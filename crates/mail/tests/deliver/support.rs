//! A store with mailboxes, and functions that deliver to them and read them.

use atomdir_testing::{Fixture, Outcome, User, cached, capture_output, skip, users_can_mount};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_atomdir-deliver");

/// A store of the user `nobody`.
pub fn fixture(test: &str, prepare: &str) -> Option<Fixture> {
    users_can_mount(test).then(|| Fixture::owned_by(test, User::ordinary, prepare))
}

/// Whether root can make namespaces here. Reports the test as skipped if not.
pub fn has_namespaces(test: &str) -> bool {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--mount", "--fork", "true"]);
    let is_possible = capture_output(&mut command).code == 0;
    if !is_possible {
        skip(test, "no process and mount namespaces here");
    }
    is_possible
}

/// A package of Debian's, as tests/install-tools.sh unpacks it, which has this file. Reports the test
/// as skipped if the package is missing, or cannot run in namespaces of its own.
pub fn package(test: &str, name: &str, file: &str) -> Option<PathBuf> {
    cached(test, &format!("{name}/{file}"))?;
    has_namespaces(test).then(|| cached(test, name)).flatten()
}

/// A message with this id, and about `size` bytes of text. Each line has the id, so that a torn
/// message is noticed, and looks like the start of another message in an mbox.
pub fn message(id: usize, size: usize) -> String {
    let body = format!("From line {id}\n").repeat(size / 12 + 1);
    format!("Received: by mail id {id}\nMessage-ID: <{id}@test>\nSubject: {id}\n\n{body}end {id}\n")
}

/// A command that delivers to a mailbox in this store, as the store's owner.
pub fn deliver(fixture: &Fixture, mailbox: &str) -> Command {
    deliver_as(fixture, fixture.store.user(), mailbox)
}

pub fn deliver_as(fixture: &Fixture, user: &User, mailbox: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    user.dress(&mut command);
    let mailbox = format!("{}/{mailbox}", fixture.base.display());
    command.args(["-d", "nobody", "-f", "a@test", "-m", &mailbox]);
    command
}

/// Starts the command, and writes the whole message to its input.
pub fn start(command: &mut Command, message: &str) -> Child {
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    // The command may end without reading, which makes the write fail.
    let _ = child
        .stdin
        .take()
        .expect("piped")
        .write_all(message.as_bytes());
    child
}

pub fn run(command: &mut Command, message: &str) -> Outcome {
    let text = format!("{command:?}");
    let output = start(command, message).wait_with_output().expect("ended");
    Outcome::from_output(text, output)
}

/// Waits for the delivery. Returns true after exit code 0, false if the mail server would try again:
/// after 75 or a kill. Any other end fails the test.
pub fn is_delivered(child: Child) -> bool {
    let output = child.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(
        matches!(status.code(), Some(0 | 75)) || status.signal() == Some(9),
        "{status}: {said}"
    );
    status.success()
}

/// The messages in an mbox, without their `From ` lines.
pub fn read_mbox(path: &Path) -> Vec<String> {
    parse_mbox(&std::fs::read_to_string(path).unwrap_or_default())
}

pub fn parse_mbox(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let text = format!("\n{text}");
    let mut parts = text.split("\nFrom ");
    assert_eq!(parts.next(), Some(""), "{text:?}");
    parts
        .map(|part| {
            let message = part.split_once('\n').expect("a first line").1;
            message.replace("\n>From ", "\nFrom ").trim_end().to_owned() + "\n"
        })
        .collect()
}

pub fn read_maildir(path: &Path) -> Vec<String> {
    let in_directory = |name: &str| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path.join(name)).into_iter().flatten();
        entries.map(|entry| entry.expect("listed").path()).collect()
    };
    assert_eq!(in_directory("tmp"), Vec::<PathBuf>::new());
    let read = |path: &PathBuf| std::fs::read_to_string(path).expect("read");
    in_directory("new").iter().map(read).collect()
}

/// The ids of the messages. Fails if one of them is not complete.
pub fn ids(messages: &[String], size: usize) -> Vec<usize> {
    let mut ids: Vec<usize> = messages
        .iter()
        .map(|text| {
            let id = text.lines().next().and_then(|line| line.rsplit(' ').next());
            let id = id.and_then(|id| id.parse().ok()).expect("an id");
            let whole = message(id, size);
            let [length, expected] = [text.len(), whole.len()];
            assert!(
                *text == whole,
                "message {id} is not whole: {length} bytes instead of {expected}"
            );
            id
        })
        .collect();
    ids.sort_unstable();
    ids
}

/// The ids of the messages in the index.
pub fn indexed(path: &Path) -> Vec<usize> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let id = |line: &str| {
        let id = line.rsplit(' ').next()?.strip_prefix('<')?;
        id.strip_suffix("@test>")?.parse().ok()
    };
    let mut ids: Vec<usize> = text.lines().map(|line| id(line).expect("an id")).collect();
    ids.sort_unstable();
    ids
}
