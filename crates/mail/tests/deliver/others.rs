//! Several deliveries at the same time, and mail programs that do not use Atomdir.

use crate::support::{
    deliver, fixture, ids, indexed, is_delivered, message, parse_mbox, read_maildir, read_mbox,
    run, start,
};
use atomdir_testing::wait_until;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const SIZE: usize = 5000;
const EACH: usize = 15;

#[test]
fn concurrent_deliveries_and_a_mail_reader_lose_and_duplicate_nothing() {
    let Some(fixture) = fixture("mail-others", "") else {
        return;
    };
    let is_done = AtomicBool::new(false);
    let path = fixture.base.join("ann");
    let removed = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut removed = Vec::new();
            while !is_done.load(Ordering::Acquire) {
                removed.extend(remove_first(&path));
            }
            removed
        });
        let send = |first: usize| {
            for id in first..first + EACH {
                for mailbox in ["ann", "bob/"] {
                    wait_until("a delivery", || {
                        is_delivered(start(&mut deliver(&fixture, mailbox), &message(id, SIZE)))
                    });
                }
            }
        };
        let senders: Vec<_> = (0..4)
            .map(|one| scope.spawn(move || send(one * EACH)))
            .collect();
        let failed = senders.into_iter().map(|sender| sender.join().is_err());
        let failed = failed.filter(|failed| *failed).count();
        is_done.store(true, Ordering::Release);
        assert_eq!(failed, 0);
        reader.join().expect("read")
    });
    let all: Vec<usize> = (0..4 * EACH).collect();
    let messages = [removed, read_mbox(&path)].concat();
    assert_eq!(ids(&messages, SIZE), all);
    assert_eq!(indexed(&fixture.base.join(".ann.deliveries")), all);
    assert_eq!(ids(&read_maildir(&fixture.base.join("bob")), SIZE), all);
    fixture.store.assert_at_rest();
}

/// Removes the first message of an mbox as mail readers do, and returns it.
fn remove_first(path: &Path) -> Option<String> {
    let mut file = File::options().read(true).write(true).open(path).ok()?;
    lock(&file);
    // While we waited for the lock, a delivery may have replaced the file.
    use std::os::unix::fs::MetadataExt;
    if std::fs::metadata(path).ok()?.ino() != file.metadata().ok()?.ino() {
        return None;
    }
    // Read from this descriptor: closing a second one of the file would release the lock.
    let mut text = String::new();
    file.read_to_string(&mut text).expect("read");
    let first = parse_mbox(&text).first()?.clone();
    let rest = text.find("\n\nFrom ").map_or("", |end| &text[end + 2..]);
    file.seek(SeekFrom::Start(0)).expect("moved");
    file.write_all(rest.as_bytes()).expect("written");
    file.set_len(rest.len() as u64).expect("cut");
    Some(first)
}

/// Locks the whole file by fcntl(2), until it is closed.
fn lock(file: &File) {
    // SAFETY: zeros are valid for its numbers, and the kernel only reads them.
    let locked = unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = libc::F_WRLCK as libc::c_short;
        libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &lock)
    };
    assert_eq!(locked, 0);
}

#[test]
fn message_begins_on_a_line_of_its_own_after_a_torn_one() {
    let Some(fixture) = fixture("mail-torn", "printf 'From a b\\n\\nhalf a mess' > ann") else {
        return;
    };
    run(&mut deliver(&fixture, "ann"), &message(1, 10)).expect(0);
    let messages = read_mbox(&fixture.base.join("ann"));
    assert_eq!(messages[0], "\nhalf a mess\n");
    assert_eq!(ids(&messages[1..], 10), [1]);
}

/// All eight deliveries start at once; one of them starts the service, and the others find it while
/// it is mounting the views.
#[test]
fn deliveries_succeed_while_the_service_starts() {
    let Some(fixture) = fixture("mail-start", "") else {
        return;
    };
    for round in 0..15 {
        let mailboxes: Vec<String> = (0..8).map(|one| format!("{one}/")).collect();
        let start = |mailbox: &String| start(&mut deliver(&fixture, mailbox), &message(round, 10));
        let children: Vec<_> = mailboxes.iter().map(start).collect();
        for child in children {
            assert!(is_delivered(child), "round {round}");
        }
        fixture.store.call(["service", "stop"]).expect(0);
    }
}
