//! Commits that take themselves back unless they are confirmed, pins and labels, through the library:
//! alike in the program's own process and through the service.

use atomdir::{
    CommitError, CommitMarks, Door, Receipt, Sequence, SharedTransaction, Store, StoreOptions,
    Transaction, UndoError,
};
use atomdir_testing::{
    Fixture, User, as_user, call_here, for_each_user_of_a_store, shell, this_program, wait_until,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(50);
/// Longer than the library's thread needs to look for the first time, and shorter than until it looks
/// again.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
/// The store in which a program is to make a commit and die.
const DIE_IN: &str = "LIBRARY_ANNOTATING_DIE_IN";

type Seen = Vec<String>;

fn open(base: &Path, door: Door) -> Store {
    let opened = StoreOptions::new().door(door).open(base);
    opened.expect("the store opens")
}

fn begin(store: &Store, text: &str) -> Transaction {
    let tx = store.begin().expect("begun");
    tx.write("file", text).expect("written");
    tx
}

fn number(receipt: Receipt) -> Sequence {
    receipt.sequence().expect("something has changed")
}

fn commit(store: &Store, text: &str, wait: Option<Duration>) -> Sequence {
    let tx = begin(store, text);
    tx.confirm_within(wait).expect("it may wait");
    number(tx.commit().expect("nobody is in the way"))
}

fn marks(store: &Store, commit: Sequence) -> CommitMarks {
    store.show(commit).expect("it is listed").summary.marks
}

fn waits(store: &Store, commit: Sequence) -> bool {
    marks(store, commit).unconfirmed.is_some()
}

fn read(store: &Store) -> String {
    let tx = store.begin().expect("begun");
    tx.read_to_string("file").expect("it is text")
}

fn wait_until_taken_back(store: &Store, commit: Sequence) {
    wait_until("the commit to take itself back", || {
        let marks = marks(store, commit);
        marks.undone_by.is_some() && marks.unconfirmed.is_none()
    });
}

fn wait_until_due(store: &Store, commit: Sequence) {
    if let Some(unconfirmed) = marks(store, commit).unconfirmed {
        let due: SystemTime = unconfirmed.due.into();
        wait_until("the time", || SystemTime::now() > due);
    }
}

fn refused(done: Result<(), UndoError>) -> String {
    match done.expect_err("it is refused") {
        UndoError::NotKept(why) => format!("not kept: {why}"),
        UndoError::Refused(why) => format!("refused: {why}"),
        error => panic!("{error:?}"),
    }
}

/// The same steps in a store of its own each way.
fn for_both_doors(test: &str, steps: impl Fn(&Store) -> Seen) {
    for_each_user_of_a_store(test, |one| {
        let both = [Door::Embedded, Door::Service].map(|door| {
            let base = one.path().join(format!("{door:?}"));
            std::fs::create_dir(&base).expect("made");
            atomdir::init(&base, None).expect("a store");
            if door == Door::Service {
                call_here(&base, &["service", "start"]).expect(0);
            }
            let store = open(&base, door);
            let seen = steps(&store);
            store.close().expect("closed");
            if door == Door::Service {
                call_here(&base, &["service", "stop"]).expect(0);
            }
            seen
        });
        assert_eq!(both[0], both[1]);
    });
}

fn of_every_kind(store: &Store) -> Seen {
    let mut seen = Seen::new();
    let first = commit(store, "first", None);
    assert!(!waits(store, first));

    let confirmed = commit(store, "confirmed", Some(LONG));
    assert!(waits(store, confirmed));
    store.confirm(confirmed).expect("it waits");
    assert!(!waits(store, confirmed));
    seen.push(refused(store.confirm(confirmed)));
    seen.push(refused(store.confirm(Sequence(99))));

    let lost = commit(store, "lost", Some(SHORT));
    wait_until_taken_back(store, lost);
    assert_eq!(read(store), "confirmed");
    seen.push(refused(store.confirm(lost)));

    let undo = store.undo(&[confirmed], &[]).expect("begun");
    undo.confirm_within(Some(SHORT)).expect("it may wait");
    wait_until_taken_back(store, number(undo.commit().expect("committed")));
    assert_eq!(read(store), "confirmed");
    let restore = store.restore(first, &["file".as_ref()]).expect("begun");
    restore.confirm_within(Some(SHORT)).expect("it may wait");
    wait_until_taken_back(store, number(restore.commit().expect("committed")));
    assert_eq!(read(store), "confirmed");

    let newest = || store.log(1).expect("listed")[0].sequence;
    let done = store.run(|tx| {
        tx.confirm_within(Some(LONG))?;
        Ok(tx.write("file", "run")?)
    });
    done.expect("nobody is in the way");
    assert!(waits(store, newest()));
    store.confirm(newest()).expect("it waits");

    let shared = SharedTransaction::from(begin(store, "shared"));
    shared.clone().confirm_within(Some(LONG)).expect("it may");
    shared.commit().expect("nobody is in the way");
    assert!(waits(store, newest()));
    store.confirm(newest()).expect("it waits");
    let late = shared.confirm_within(Some(LONG));
    assert!(matches!(late, Err(CommitError::Ended)), "{late:?}");

    // The wish holds for parts, and after a commit that has failed, until it is taken back.
    let tx = begin(store, "mine");
    tx.write("part", b"1").expect("written");
    tx.confirm_within(Some(LONG)).expect("it may wait");
    commit(store, "theirs", None);
    let failed = tx.try_commit().expect_err("both have changed it");
    let tx = failed.transaction;
    let part = tx.commit_part(&["part".as_ref()]).expect("committed");
    assert!(waits(store, number(part.receipt)));
    tx.conflicts().expect("listed");
    tx.confirm_within(None).expect("it is off");
    let done = tx.commit_with_sides(&[atomdir::Take::Mine]);
    assert!(!waits(store, number(done.expect("committed"))));
    seen
}

#[test]
fn commits_of_every_kind_take_themselves_back_unless_confirmed() {
    let name = "commits_of_every_kind_take_themselves_back_unless_confirmed";
    for_both_doors(name, of_every_kind);
}

fn cannot_wait(store: &Store) -> Seen {
    let mut seen = Seen::new();
    let mut refuse = |done: Result<(), CommitError>| match done {
        Err(CommitError::Refused(why)) => seen.push(why),
        done => panic!("{done:?}"),
    };
    let pinned = commit(store, "pinned", None);
    let mut tx = begin(store, "new");
    refuse(tx.confirm_within(Some(Duration::ZERO)));
    let nested = tx.nest().expect("begun");
    refuse(nested.confirm_within(Some(LONG)));
    nested.confirm_within(None).expect("that changes nothing");
    drop(nested);
    tx.confirm_within(Some(LONG)).expect("it may wait");
    // Without a history, what is pinned can still be undone.
    store.pin(pinned).expect("it is kept");
    store.set_setting("history-age", "off").expect("set");
    let failed = tx.try_commit().expect_err("there is no history any more");
    assert!(matches!(failed.error, CommitError::Refused(_)), "{failed}");
    let tx = failed.transaction;
    refuse(tx.confirm_within(Some(LONG)));
    assert_eq!(read(store), "pinned");
    tx.confirm_within(None).expect("it is off");
    tx.commit().expect("nobody is in the way");
    store
        .undo(&[pinned], &[])
        .expect_err("it was changed since");
    store.set_setting("history-age", "").expect("set");
    let waiting = commit(store, "waiting", Some(LONG));
    store.confirm(waiting).expect("it waits");
    seen
}

#[test]
fn commit_that_could_not_be_taken_back_is_refused_early() {
    let name = "commit_that_could_not_be_taken_back_is_refused_early";
    for_both_doors(name, cannot_wait);
}

fn pins_and_labels(store: &Store) -> Seen {
    let mut seen = Seen::new();
    let old = commit(store, "old", None);
    let pinned = commit(store, "pinned", None);
    store.pin(pinned).expect("it is kept");
    store.pin(pinned).expect("again is harmless");
    store.prune(Some(Duration::ZERO)).expect("pruned");
    assert!(marks(store, pinned).pinned && !marks(store, pinned).forgotten);
    assert!(marks(store, old).forgotten);
    seen.push(refused(store.pin(old)));
    seen.push(refused(store.pin(Sequence(99))));
    seen.push(refused(store.unpin(Sequence(99))));
    store.unpin(old).expect("it was not pinned");
    drop(store.undo(&[pinned], &[]).expect("it is kept"));
    store.unpin(pinned).expect("it is pinned");
    store.prune(Some(Duration::ZERO)).expect("pruned");
    assert!(marks(store, pinned).forgotten);
    seen.push(refused(store.pin(pinned)));

    store.relabel(old, "another label").expect("it is listed");
    seen.push(refused(store.relabel(Sequence(99), "none")));
    store.relabel(pinned, [b'x'; 9999]).expect("it is cut");
    for one in store.log(2).expect("listed") {
        seen.push(String::from_utf8(one.label).expect("it is text"));
    }
    assert_eq!(seen[seen.len() - 1], "another label");
    seen
}

#[test]
fn pinned_commits_are_kept_and_labels_can_be_changed() {
    let name = "pinned_commits_are_kept_and_labels_can_be_changed";
    for_both_doors(name, pins_and_labels);
}

/// The library's thread has not looked yet when such a program ends.
#[test]
fn next_to_open_the_store_takes_back_what_is_due_before_anything_else() {
    let name = "next_to_open_the_store_takes_back_what_is_due_before_anything_else";
    if let Some(base) = std::env::var_os(DIE_IN) {
        let store = open(Path::new(&base), Door::Embedded);
        commit(&store, "dead program's", Some(BETWEEN_LOOKS));
        std::process::abort();
    }
    for_each_user_of_a_store(name, |one| {
        let base = one.path();
        atomdir::init(base, None).expect("a store");
        let store = open(base, Door::Embedded);
        commit(&store, "old", None);
        let lost = commit(&store, "lost", Some(BETWEEN_LOOKS));
        store.close().expect("closed");
        let store = open(base, Door::Embedded);
        wait_until_due(&store, lost);
        store.close().expect("closed");
        let base_file = || std::fs::read_to_string(base.join("file")).expect("it is text");
        assert_eq!(base_file(), "old", "the program that ends takes it back");

        let dies = || {
            let mut dying = this_program(name);
            let status = dying.env(DIE_IN, base).status().expect("it runs");
            assert_eq!(status.code(), None, "it is killed: {status}");
            assert_eq!(base_file(), "dead program's");
            std::thread::sleep(BETWEEN_LOOKS);
        };
        dies();
        let store = open(base, Door::Embedded);
        assert_eq!(read(&store), "old");
        store.close().expect("closed");
        dies();
        call_here(base, &["service", "start"]).expect(0);
        wait_until("the service to take it back", || base_file() == "old");

        let store = open(base, Door::Service);
        let kept = begin(&store, "service's").keep().expect("kept");
        let tx = store.attach(kept).expect("it is open");
        tx.confirm_within(Some(BETWEEN_LOOKS)).expect("it may wait");
        let lost = number(tx.commit().expect("nobody is in the way"));
        wait_until_due(&store, lost);
        one.kill_service();
        drop(store);
        let store = open(base, Door::Embedded);
        assert_eq!(read(&store), "old");
        store.close().expect("closed");
        // The next service removes the mount of the one that was killed.
        call_here(base, &["service", "start"]).expect(0);
        call_here(base, &["service", "stop"]).expect(0);
    });
}

fn is_not_permitted(done: Result<(), UndoError>) {
    let why = refused(done);
    assert!(why.contains("only root may"), "{why}");
}

/// Their rights are those that they have at the command line.
#[test]
fn admitted_users_relabel_their_own_commits_and_do_nothing_else() {
    let one = Fixture::new("library-admitted", "mkdir own; echo root > file");
    if !one.store.user().is_root() {
        return;
    }
    let user = User::ordinary(one.scratch.path());
    shell(&one.base, &format!("chown {0}:{0} own", user.uid));
    let allowed = user.uid.to_string();
    one.store.call(["config", "allow", &allowed]).expect(0);
    one.store.run_exact("echo more >> file").expect(0);
    one.store.call(["service", "stop"]).expect(0);
    one.store.call(["service", "start"]).expect(0);
    let base: PathBuf = one.base.clone();
    as_user(user.uid, || {
        let store = open(&base, Door::Service);
        let tx = store.begin().expect("begun");
        tx.write("own/file", b"1").expect("written");
        let wish = tx.confirm_within(Some(LONG));
        assert!(
            matches!(&wish, Err(CommitError::Refused(why)) if why.contains("only root may")),
            "{wish:?}"
        );
        let own = number(tx.commit().expect("nobody is in the way"));
        assert!(!waits(&store, own));
        is_not_permitted(store.pin(own));
        is_not_permitted(store.unpin(own));
        is_not_permitted(store.confirm(own));
        is_not_permitted(store.relabel(Sequence(1), "root's"));
        store.relabel(own, "own").expect("it is their own");
        assert_eq!(store.log(1).expect("listed")[0].label, b"own");
    });
    one.store.assert_at_rest();
}
