//! Postfix, with the settings that `docs/mail.md` shows.

mod server;

use crate::support::{self, PROGRAM, fixture, ids, indexed, message, read_maildir};
use atomdir::{Door, StoreOptions};
use atomdir_testing::{
    Fixture, Random, Scratch, Store, User, as_user, pick, shell, users_can_mount, wait_until,
};
use rustix::process::{Signal, kill_process};
use server::Postfix;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

/// More than a pipe's buffer and more than a page.
const SIZE: usize = 100_000;

fn package(test: &str) -> Option<PathBuf> {
    support::package(test, "postfix", "usr/lib/postfix/sbin/master")
}

/// The settings in docs/mail.md from this line up to the next empty line.
fn documented(first_line: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mail.md");
    let document = fs::read_to_string(path).expect("read");
    let start = document.find(first_line).expect("in the document");
    let lines = document[start..]
        .lines()
        .map(|line| match line.strip_prefix("    ") {
            Some(code) => format!("{code}\n"),
            None => String::new(),
        });
    lines.take_while(|line| !line.is_empty()).collect()
}

/// A Postfix for the users of `vmail`, whose mailboxes are in this store.
fn with_virtual_users(fixture: &Fixture, package: &Path) -> Postfix {
    let scratch = fixture.scratch.path();
    let list = scratch.join("mailboxes");
    fs::write(&list, "ann@example.org x\nbob@example.org x\n").expect("written");
    let main = documented("    # Postfix, main.cf\n").replace(
        "hash:/etc/postfix/mailboxes",
        &format!("texthash:{}", list.display()),
    );
    let master = documented("    # Postfix, master.cf\n")
        .replace("/usr/local/bin/atomdir-deliver", PROGRAM)
        .replace("/srv/mail", &fixture.base.display().to_string());
    Postfix::start(package, scratch, &main, &master)
}

/// A Postfix for `ann`, who has an account, and the store in her home directory.
fn with_accounts(scratch: &Scratch, package: &Path) -> (Postfix, Store) {
    let scratch = scratch.path();
    let ann = User::stranger(scratch);
    shell(
        scratch,
        "mkdir -p home-games/Mail; chown -R 5:60 home-games",
    );
    let store = Store::init(&ann.home().join("Mail"), &ann);
    let main = documented("    # Postfix, main.cf, for accounts\n")
        .replace("/usr/local/bin/atomdir-deliver", PROGRAM);
    (Postfix::start(package, scratch, &main, ""), store)
}

/// The messages of a Maildir, without the lines that Postfix has added at their beginning.
fn received(mailbox: &Path) -> Vec<String> {
    let cut = |text: String| {
        assert!(text.starts_with("Return-Path: "), "{text}");
        let start = text.find("Received: by mail id").expect("our message");
        text[start..].to_owned()
    };
    read_maildir(mailbox).into_iter().map(cut).collect()
}

#[track_caller]
fn assert_received(mailbox: &Path, expected: &[usize]) {
    assert_eq!(ids(&received(mailbox), SIZE), expected, "{mailbox:?}");
    assert_eq!(
        indexed(&mailbox.join("deliveries")),
        expected,
        "{mailbox:?}"
    );
}

#[test]
fn postfix_delivers_to_virtual_users() {
    let Some(package) = package("postfix_delivers_to_virtual_users") else {
        return;
    };
    let Some(fixture) = fixture("postfix-virtual", "") else {
        return;
    };
    let postfix = with_virtual_users(&fixture, &package);
    let [ann, bob] = ["ann", "bob"].map(|user| fixture.base.join(user));
    let send =
        |sender, recipients: &[&str], id| postfix.send(sender, recipients, &message(id, SIZE));
    let both = ["ann@example.org", "bob@example.org"];
    let sent = [
        send("a@example.net", &both, 1),
        // A bounce has no sender.
        send("", &["Ann@example.org"], 2),
        send("\"a b\"@example.net", &["ann@example.org"], 3),
    ];
    for id in sent {
        postfix.wait_until_done(&id.expect("taken"));
    }
    assert_received(&ann, &[1, 2, 3]);
    assert_received(&bob, &[1]);
    let refused = send("a@example.net", &["zoe@example.org"], 4).expect_err("no such user");
    assert!(refused.starts_with("550 "), "{refused}");

    // For local programs, Postfix does not check that the recipient exists.
    let arguments = ["-f", "a@example.net", "zoe@example.org"];
    postfix.call(&package, "sendmail", &arguments, &message(4, SIZE));
    let index = fixture.base.join("zoe/deliveries");
    wait_until("the message from sendmail", || indexed(&index) == [4]);

    // Postfix tries again after an error that an administrator can mend: the mailbox is a symbolic link.
    let aside = fixture.scratch.join("aside");
    fs::rename(&bob, &aside).expect("moved");
    symlink(&ann, &bob).expect("linked");
    let id = send("a@example.net", &both[1..], 5).expect("taken");
    postfix.wait_until_deferred(&id);
    fs::remove_file(&bob).expect("removed");
    fs::rename(&aside, &bob).expect("moved back");
    postfix.call(&package, "postqueue", &["-f"], "");
    postfix.wait_until_done(&id);
    assert_received(&bob, &[1, 5]);
    assert_received(&ann, &[1, 2, 3]);

    // The same if another program has the store open in its own process.
    fixture.store.kill_service();
    let (opened, is_open) = channel();
    let (deferred, is_deferred) = channel::<()>();
    let id = std::thread::scope(|scope| {
        let uid = fixture.store.user().uid;
        let hold = move || {
            let held = StoreOptions::new().door(Door::Embedded).open(&fixture.base);
            let held = held.expect("opened");
            opened.send(()).expect("awaited");
            // Returns when the sender is dropped, also by a panic.
            let _ = is_deferred.recv();
            drop(held);
        };
        scope.spawn(move || as_user(uid, hold));
        is_open.recv().expect("opened");
        let id = send("a@example.net", &both, 6).expect("taken");
        postfix.wait_until_deferred(&id);
        drop(deferred);
        id
    });
    postfix.call(&package, "postqueue", &["-f"], "");
    postfix.wait_until_done(&id);
    assert_received(&bob, &[1, 5, 6]);
    assert_received(&ann, &[1, 2, 3, 6]);

    let log = postfix.log();
    assert!(!log.contains("status=bounced"), "{log}");
    drop(postfix);
    fixture.store.assert_at_rest();
}

#[test]
fn postfix_delivers_to_users_with_accounts() {
    const TEST: &str = "postfix_delivers_to_users_with_accounts";
    let Some(package) = package(TEST).filter(|_| users_can_mount(TEST)) else {
        return;
    };
    let scratch = Scratch::new("postfix-accounts");
    let (postfix, store) = with_accounts(&scratch, &package);
    let inbox = store.path().join("Inbox");
    let send = |recipient, id| postfix.send("a@example.net", &[recipient], &message(id, SIZE));
    postfix.wait_until_done(&send("Ann@mail.test", 1).expect("taken"));
    assert_received(&inbox, &[1]);
    let refused = send("zoe@mail.test", 2).expect_err("no such user");
    assert!(refused.starts_with("550 "), "{refused}");

    let (control, aside) = (store.control(), scratch.join("aside"));
    store.kill_service();
    fs::rename(&control, &aside).expect("moved");
    let id = send("ann@mail.test", 3).expect("taken");
    postfix.wait_until_deferred(&id);
    fs::rename(&aside, &control).expect("moved back");
    postfix.call(&package, "postqueue", &["-f"], "");
    postfix.wait_until_done(&id);
    assert_received(&inbox, &[1, 3]);

    let log = postfix.log();
    assert!(!log.contains("status=bounced"), "{log}");
    drop(postfix);
    store.assert_at_rest();
}

/// Sends messages and kills deliveries, the Postfix processes that started them, and services.
fn kill_and_check(test: &str, postfix: &Postfix, store: &Store, to: &[(String, PathBuf)]) {
    let mut random = Random::for_test(test);
    let (kills_wanted, mut kills) = (pick(30, 300), 0);
    // Some deliveries end before they are killed.
    let messages_max = kills_wanted * 20;
    let mut queued: Vec<String> = Vec::new();
    while kills < kills_wanted {
        let id = queued.len();
        assert!(id < messages_max, "{kills} kills with {id} messages");
        let (address, _) = &to[id % to.len()];
        let sent = postfix.send("a@example.net", &[address], &message(id, SIZE));
        let sent = sent.expect("taken");
        wait_until("a delivery or its end", || {
            !postfix.running(PROGRAM).is_empty() || postfix.is_done(&sent)
        });
        queued.push(sent);
        std::thread::sleep(Duration::from_micros(random.below(20_000) as u64));
        let running = postfix.running(PROGRAM);
        if running.is_empty() {
            continue;
        }
        let victim = random.choose(&running);
        // The kill fails if the process has ended by now.
        let is_killed = match (random.below(4), victim.parent) {
            (0, Some(agent)) => kill_process(agent, Signal::KILL).is_ok(),
            (1, _) => store.kill_service(),
            _ => kill_process(victim.id, Signal::KILL).is_ok(),
        };
        kills += usize::from(is_killed);
    }
    queued.iter().for_each(|id| postfix.wait_until_done(id));
    let (count, log) = (queued.len(), postfix.log());
    assert!(!log.contains("status=bounced"), "{log}");
    for (number, (_, mailbox)) in to.iter().enumerate() {
        let expected: Vec<usize> = (number..count).step_by(to.len()).collect();
        assert_received(mailbox, &expected);
    }
    let died = log.matches("Command died with signal 9").count();
    println!("{count} messages, {kills} kills; Postfix saw {died} deliveries die");
    assert!(died > 0, "no delivery was killed");
}

#[test]
fn postfix_delivers_once_to_virtual_users_despite_kills() {
    const TEST: &str = "postfix_delivers_once_to_virtual_users_despite_kills";
    let Some(package) = package(TEST) else {
        return;
    };
    let Some(fixture) = fixture("postfix-virtual-kill", "") else {
        return;
    };
    let postfix = with_virtual_users(&fixture, &package);
    let to = ["ann", "bob"].map(|user| (format!("{user}@example.org"), fixture.base.join(user)));
    kill_and_check(TEST, &postfix, &fixture.store, &to);
    drop(postfix);
    fixture.store.assert_at_rest();
}

#[test]
fn postfix_delivers_once_to_accounts_despite_kills() {
    const TEST: &str = "postfix_delivers_once_to_accounts_despite_kills";
    let Some(package) = package(TEST).filter(|_| users_can_mount(TEST)) else {
        return;
    };
    let scratch = Scratch::new("postfix-accounts-kill");
    let (postfix, store) = with_accounts(&scratch, &package);
    let to = [("ann@mail.test".to_owned(), store.path().join("Inbox"))];
    kill_and_check(TEST, &postfix, &store, &to);
    drop(postfix);
    store.assert_at_rest();
}
