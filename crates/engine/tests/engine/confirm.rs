//! Commits that take themselves back unless somebody confirms them, on a clock that the test sets.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::model::caller;
use crate::support::{EVERYTHING, Scratch, SetClock, begin, create, open, open_timed, options};
use atomdir_disk::LinuxDisk;
use atomdir_engine::{
    CommitError, ConfirmError, Credentials, HistoryLimits, LockMode, LockRequest, LockScope,
    NewNode, NodeId, NotConfirmed, Patience, Portion, Sequence, Store, TakenBackOr, Terms,
    TermsError, Transaction,
};

const MINUTE: u64 = 60_000;

struct Timed {
    scratch: Scratch,
    clock: Arc<SetClock>,
    store: Option<Store<LinuxDisk>>,
}

impl Timed {
    fn new() -> Timed {
        let (scratch, clock) = (Scratch::new(), Arc::<SetClock>::default());
        create(&scratch.0);
        let store = Some(open_timed(clock.clone(), &scratch.0, EVERYTHING));
        let timed = Timed {
            scratch,
            clock,
            store,
        };
        timed.set(1000);
        timed
    }

    fn set(&self, seconds: i64) {
        self.clock.0.store(seconds, Ordering::Relaxed);
    }

    fn store(&self) -> &Store<LinuxDisk> {
        self.store.as_ref().expect("it is open")
    }

    /// As if the process had died.
    fn open_again(&mut self) {
        self.store = None;
        self.store = Some(open_timed(self.clock.clone(), &self.scratch.0, EVERYTHING));
    }

    fn commit(&self, name: &str, text: &str, confirm_ms: Option<u64>) -> Sequence {
        let transaction = begin(self.store());
        write(&transaction, name, text);
        transaction.set_terms(Terms {
            confirm_ms,
            ..Terms::default()
        });
        let committed = self.store().commit(&transaction);
        let committed = committed.expect("nobody is in the way");
        committed.sequence.expect("something has changed")
    }

    fn contents(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.scratch.0.join(name)).ok()
    }
}

fn write(transaction: &Transaction<LinuxDisk>, name: &str, text: &str) {
    if transaction.lookup(NodeId::ROOT, name.as_bytes()).is_ok() {
        let removed = transaction.unlink(NodeId::ROOT, name.as_bytes());
        removed.expect("it is there");
    }
    let made = transaction.create(
        NodeId::ROOT,
        name.as_bytes(),
        NewNode::File,
        0o644,
        0,
        caller(),
    );
    let file = made.expect("the name is free").node;
    let written = transaction.write(file, 0, text.as_bytes(), false);
    written.expect("it is written");
}

fn taken_back(commit: Sequence, by: u64) -> NotConfirmed {
    NotConfirmed {
        commit,
        outcome: TakenBackOr::TakenBack(Some(Sequence(by))),
    }
}

#[test]
fn commit_is_taken_back_when_due_and_stays_when_confirmed() {
    let one = Timed::new();
    one.commit("name", "old", None);
    let confirmed = one.commit("name", "confirmed", Some(MINUTE));
    assert!(one.store().awaits_confirmation());
    one.store().confirm_commit(confirmed).expect("it waits");
    let commit = one.commit("name", "new", Some(MINUTE));
    one.set(1059);
    assert_eq!(one.store().take_back_due(), []);
    assert_eq!(one.contents("name").as_deref(), Some("new"));
    one.set(1060);
    assert_eq!(one.store().take_back_due(), [taken_back(commit, 4)]);
    assert_eq!(one.contents("name").as_deref(), Some("confirmed"));
    assert!(!one.store().awaits_confirmation());
    for commit in [confirmed, Sequence(1)] {
        let late = one.store().confirm_commit(commit);
        assert!(matches!(late, Err(ConfirmError::NotWaiting(of)) if of == commit));
    }
    let late = one.store().confirm_commit(commit);
    assert!(
        matches!(late, Err(ConfirmError::TakenBack { commit: of, by: Sequence(4) }) if of == commit)
    );
    let none = one.store().confirm_commit(Sequence(9));
    assert!(matches!(none, Err(ConfirmError::NoSuchCommit(Sequence(9)))));
    assert_eq!(one.store().take_back_due(), []);
}

#[test]
fn commit_that_became_due_while_the_store_was_closed_is_taken_back_when_it_is_opened() {
    for checkpoints in [false, true] {
        let mut one = Timed::new();
        one.commit("name", "old", None);
        let commit = one.commit("name", "new", Some(MINUTE));
        one.commit("other", "stays", None);
        if checkpoints {
            one.store().checkpoint().expect("nothing is in the way");
        }
        one.open_again();
        assert!(one.store().awaits_confirmation());
        assert_eq!(one.store().take_back_due(), [], "not due");
        one.set(2000);
        one.open_again();
        assert_eq!(one.store().take_back_due(), [taken_back(commit, 4)]);
        assert_eq!(one.contents("name").as_deref(), Some("old"));
        assert_eq!(one.contents("other").as_deref(), Some("stays"));
        one.open_again();
        assert_eq!(one.store().take_back_due(), []);
    }
}

#[test]
fn commit_whose_files_others_have_changed_stays_and_can_be_confirmed() {
    let mut one = Timed::new();
    one.commit("name", "old", None);
    let commit = one.commit("name", "new", Some(MINUTE));
    one.commit("name", "newer", None);
    one.set(2000);
    let refused = NotConfirmed {
        commit,
        outcome: TakenBackOr::Refused(1),
    };
    assert_eq!(one.store().take_back_due(), [refused]);
    assert_eq!(one.contents("name").as_deref(), Some("newer"));
    one.open_again();
    let unconfirmed = one.store().unconfirmed();
    assert_eq!(unconfirmed.len(), 1);
    assert_eq!(unconfirmed[0].1.refused, Some(1));
    assert!(!one.store().awaits_confirmation(), "nothing more happens");
    one.store()
        .confirm_commit(commit)
        .expect("it is still unconfirmed");
    assert_eq!(one.store().unconfirmed(), []);
}

#[test]
fn unconfirmed_commits_on_top_of_one_another_are_all_taken_back() {
    let one = Timed::new();
    one.commit("name", "old", None);
    let first = one.commit("name", "first", Some(MINUTE));
    let second = one.commit("name", "second", Some(5 * MINUTE));
    one.set(1060);
    let refused = NotConfirmed {
        commit: first,
        outcome: TakenBackOr::Refused(1),
    };
    assert_eq!(one.store().take_back_due(), [refused]);
    one.set(1300);
    let both = one.store().take_back_due();
    assert_eq!(both, [taken_back(second, 4), taken_back(first, 5)]);
    assert_eq!(one.contents("name").as_deref(), Some("old"));
}

#[test]
fn commit_waits_no_longer_than_it_was_given_after_the_clock_was_set_back() {
    let one = Timed::new();
    one.set(1_000_000);
    let commit = one.commit("name", "new", Some(MINUTE));
    one.set(1000);
    assert_eq!(one.store().take_back_due(), []);
    one.set(1060);
    assert_eq!(one.store().take_back_due(), [taken_back(commit, 2)]);
}

#[test]
fn history_keeps_unconfirmed_and_pinned_commits() {
    let mut one = Timed::new();
    one.commit("pinned", "old", None);
    let pinned = one.commit("pinned", "new", None);
    one.commit("name", "old", None);
    one.commit("name", "middle", None);
    let commit = one.commit("name", "new", Some(MINUTE));
    one.commit("other", "text", None);
    let forgotten = one.commit("other", "changed", None);
    one.store().pin(pinned, true).expect("it is kept");
    let nothing = HistoryLimits {
        age_seconds_max: 0,
        bytes_max: 0,
        free_bytes_min: 0,
    };
    one.set(1001);
    let kept = one.store().prune(&nothing).expect("nothing is in the way");
    assert_eq!(kept.commits, 2);
    assert!(one.store().undo(&[forgotten], &[], options()).is_err());
    one.open_again();
    assert_eq!(one.store().check().problems, Vec::<String>::new());
    one.set(2000);
    assert_eq!(one.store().take_back_due(), [taken_back(commit, 8)]);
    assert_eq!(one.contents("name").as_deref(), Some("middle"));
    let undo = one.store().undo(&[pinned], &[], options());
    let undo = undo.expect("it is kept");
    one.store().commit(&undo).expect("nobody is in the way");
    assert_eq!(one.contents("pinned").as_deref(), Some("old"));
    // Unpinned, it goes like others.
    one.store().pin(pinned, false).expect("it exists");
    let kept = one.store().prune(&nothing).expect("nothing is in the way");
    assert_eq!(kept.commits, 0);
    let limbo = std::fs::read_dir(one.scratch.0.join(".atomdir/limbo"));
    assert_eq!(limbo.expect("limbo is listed").count(), 0);
    assert!(one.store().pin(pinned, true).is_err(), "it is forgotten");
}

#[test]
fn marks_say_what_became_of_commits() {
    let one = Timed::new();
    let made = one.commit("name", "old", None);
    let changed = one.commit("name", "new", None);
    let undo = |commits: &[Sequence]| {
        let undo = one
            .store()
            .undo(commits, &[], options())
            .expect("it is kept");
        let committed = one.store().commit(&undo).expect("nobody is in the way");
        committed.sequence.expect("it changes something")
    };
    let marked = || {
        let mut marks = one.store().marks();
        let mut commits = Vec::new();
        let listed = one.store().for_each_commit(|commit| {
            marks.note(&commit.summary);
            commits.push(commit.summary);
        });
        listed.expect("the log is read");
        let undone = commits.iter().map(|commit| marks.of(commit).undone_by);
        let undone: Vec<Option<u64>> = undone.map(|by| by.map(|by| by.0)).collect();
        let forgotten = commits.iter().filter(|commit| marks.of(commit).forgotten);
        (undone, forgotten.count())
    };
    let first = undo(&[changed]);
    assert_eq!(marked(), (vec![None, Some(3), None], 0));
    undo(&[first]);
    assert_eq!(marked(), (vec![None, None, Some(4), None], 0));
    one.store().checkpoint().expect("nothing is in the way");
    assert_eq!(marked(), (vec![None, None, Some(4), None], 0));
    undo(&[made, changed]);
    let undone = vec![Some(5), Some(5), Some(4), None, None];
    assert_eq!(marked(), (undone.clone(), 0));
    one.set(1010);
    let young = HistoryLimits {
        age_seconds_max: 0,
        ..EVERYTHING
    };
    one.store().prune(&young).expect("nothing is in the way");
    assert_eq!(marked(), (undone, 5));
    let history = one.store().status().history.expect("it is kept");
    let early = history.early.expect("their age would have kept them");
    assert_eq!((early.commits, early.newest), (5, Sequence(5)));
}

#[test]
fn label_can_be_changed_at_and_after_the_commit() {
    let mut one = Timed::new();
    let transaction = begin(one.store());
    write(&transaction, "name", "text");
    transaction.set_terms(Terms {
        label: Some(b"at the commit".to_vec()),
        ..Terms::default()
    });
    one.store()
        .commit(&transaction)
        .expect("nobody is in the way");
    let label = |one: &Timed| {
        let commits = one.store().commits().expect("the log is read");
        String::from_utf8(commits[0].summary.label.clone()).expect("it is text")
    };
    assert_eq!(label(&one), "at the commit");
    let relabelled = one.store().relabel(Sequence(1), b"later".to_vec());
    relabelled.expect("it is listed");
    one.open_again();
    assert_eq!(label(&one), "later");
    assert!(one.store().relabel(Sequence(2), Vec::new()).is_err());
}

#[test]
fn commit_of_a_part_dates_no_file_of_the_rest() {
    let one = Timed::new();
    let transaction = begin(one.store());
    transaction.set_terms(Terms {
        times_at_commit: Some(true),
        ..Terms::default()
    });
    write(&transaction, "part", "text");
    write(&transaction, "rest", "text");
    let modified = |name: &str| {
        let node = transaction.lookup(NodeId::ROOT, name.as_bytes());
        let node = node.expect("it is there").node;
        transaction.attributes(node).expect("read").modified
    };
    let before = modified("rest");
    let part = [b"part".to_vec()];
    let landed = one
        .store()
        .commit_portion(&transaction, Portion::part(&part), &mut |_| {});
    landed.expect("nobody is in the way");
    assert_eq!(modified("part").seconds, 1000);
    assert_eq!(modified("rest"), before);
}

/// Also if that commit is refused, or changes nothing.
#[test]
fn label_of_a_part_is_that_of_its_commit_alone() {
    let one = Timed::new();
    let store = one.store();
    let session = begin(store);
    session.set_terms(Terms {
        label: Some(b"session".to_vec()),
        ..Terms::default()
    });
    let land = |path: &str, label: &str| {
        let part = Portion::Part {
            paths: &[path.as_bytes().to_vec()],
            label: Some(label.as_bytes()),
        };
        store.commit_portion(&session, part, &mut |_| {})
    };
    write(&session, "taken", "text");
    let other = begin(store);
    write(&other, "taken", "another text");
    store.commit(&other).expect("nobody is in the way");
    let refused = land("taken", "refused");
    assert!(matches!(refused, Err(CommitError::Conflict(_))));
    let dropped = session.drop_part(&[b"taken".to_vec()]);
    dropped.expect("it has changed");
    write(&session, "first", "text");
    land("first", "turn").expect("nobody is in the way");
    let empty = land("", "empty").expect("nobody is in the way");
    assert_eq!(empty.sequence, None);
    write(&session, "rest", "text");
    store.commit(&session).expect("nobody is in the way");
    let commits = store.commits().expect("the log is read");
    let mut labels: Vec<_> = commits.iter().map(|one| &*one.summary.label).collect();
    labels.sort_unstable();
    assert_eq!(labels, [&b"session"[..], b"test", b"turn"]);
}

#[test]
fn commit_to_be_confirmed_is_refused_without_history() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let transaction = begin(&store);
    write(&transaction, "name", "text");
    transaction.set_terms(Terms {
        confirm_ms: Some(MINUTE),
        ..Terms::default()
    });
    let refused = store.commit(&transaction);
    assert!(matches!(refused, Err(CommitError::NoHistory)));
    assert!(!Path::new(&scratch.0.join("name")).exists());
    transaction.set_terms(Terms {
        confirm_ms: Some(0),
        ..Terms::default()
    });
    store
        .commit(&transaction)
        .expect("it need not be confirmed");
}

/// A history that has been turned off still holds what is pinned, but takes no further commits.
#[test]
fn commit_to_be_confirmed_is_refused_early_though_pinned_commits_are_kept() {
    let one = Timed::new();
    let pinned = one.commit("name", "old", None);
    one.store().pin(pinned, true).expect("it is kept");
    let waits = Terms {
        confirm_ms: Some(MINUTE),
        ..Terms::default()
    };
    let transaction = begin(one.store());
    assert_eq!(one.store().check_terms(&transaction, &waits), Ok(()));
    one.store().set_history(None).expect("nothing is pending");
    assert!(one.store().status().history.is_some());
    let early = one.store().check_terms(&transaction, &waits);
    assert_eq!(early, Err(TermsError::NoHistory));
    let off = Terms {
        confirm_ms: Some(0),
        ..Terms::default()
    };
    assert_eq!(one.store().check_terms(&transaction, &off), Ok(()));
    transaction.set_terms(waits.clone());
    write(&transaction, "name", "new");
    let refused = one.store().commit(&transaction);
    assert!(matches!(refused, Err(CommitError::NoHistory)));
    one.store().set_history(Some(EVERYTHING)).expect("likewise");
    let inner = one.store().begin_nested(&transaction, options());
    let inner = inner.expect("the outer one is open");
    let nested = one.store().check_terms(&inner, &waits);
    assert_eq!(nested, Err(TermsError::Nested));
}

#[test]
fn lock_of_others_puts_off_the_taking_back_and_does_not_refuse_it() {
    let one = Timed::new();
    one.commit("name", "old", None);
    let commit = one.commit("name", "new", Some(MINUTE));
    let other = begin(one.store());
    let request = LockRequest {
        mode: LockMode::Exclusive,
        scope: LockScope::Object,
        paths: vec![b"name".to_vec()],
    };
    let root = Credentials {
        user: 0,
        groups: vec![0],
    };
    let mut patience = Patience {
        wake: Arc::new(|| ()),
        wait: &mut || false,
    };
    let locked = one.store().lock(&other, &request, &root, &mut patience);
    locked.expect("it is free");
    one.set(2000);
    let results = one.store().take_back_due();
    assert!(
        matches!(
            &results[..],
            [NotConfirmed {
                outcome: TakenBackOr::NotYet(_),
                ..
            }]
        ),
        "{results:?}"
    );
    assert!(one.store().awaits_confirmation());
    one.store().abort(&other);
    assert_eq!(one.store().take_back_due(), [taken_back(commit, 3)]);
}

/// The process dies after it has noted that a commit waits, and before the commit is logged.
#[test]
fn note_of_a_commit_that_was_not_logged_concerns_no_later_commit() {
    let mut one = Timed::new();
    one.commit("name", "old", None);
    let commit = one.commit("name", "lost", Some(MINUTE));
    let annotations = one.scratch.0.join(".atomdir/annotations");
    let note = std::fs::read(&annotations).expect("it is noted");
    one.store().confirm_commit(commit).expect("it waits");
    let undo = one
        .store()
        .undo(&[commit], &[], options())
        .expect("it is kept");
    one.store().commit(&undo).expect("nobody is in the way");
    // As if this note, of a commit that is yet to come, were one of the future.
    let later = one.commit("name", "later", None);
    assert!(later > commit);
    std::fs::write(&annotations, &note).expect("it is written");
    one.open_again();
    one.set(2000);
    // The commit of that sequence has been undone by hand: there is nothing to take back.
    let undone = one.store().take_back_due();
    assert_eq!(undone, [taken_back(commit, 3)]);
    assert_eq!(one.contents("name").as_deref(), Some("later"));
    assert!(!one.store().awaits_confirmation());
}
