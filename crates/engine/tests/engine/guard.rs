//! Calls of programs outside transactions that go through a guard: they and commits take turns, and
//! snapshots stay as they were.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use atomdir_disk::{Disk, FileUsers, Identity, LinuxDisk, Name};
use atomdir_engine::{
    CommitError, Guard, Guarding, Leaving, Located, NameNow, NodeId, Sequence, Store, Touched,
    Transaction,
};
use atomdir_testing::wait_until;

use crate::support::{Scratch, begin, create, open, options};

type LinuxGuard = Guard<LinuxDisk>;

/// Stands for the kernel.
#[derive(Default)]
struct Kernel {
    forgotten: Mutex<Vec<HashSet<(Identity, Name)>>>,
    applied: Mutex<Vec<bool>>,
    /// A program opens files for writing after so many questions about their users.
    opens_after: Mutex<Option<u32>>,
    /// What a program reads when the kernel has just forgotten something for the first time.
    reads: Mutex<Option<(Arc<LinuxGuard>, Identity)>>,
}

impl Guarding for Kernel {
    fn users(&self, _: &[u8], _: Identity) -> FileUsers {
        let mut opens_after = self.opens_after.lock().expect("unlocked");
        let is_in_use = *opens_after == Some(0);
        *opens_after = opens_after.map(|left| left.saturating_sub(1));
        FileUsers {
            is_in_use,
            part_lock: None,
        }
    }

    fn forget(&self, touched: &Touched) {
        let entries = touched.entries.clone();
        self.forgotten.lock().expect("unlocked").push(entries);
        let reads = self.reads.lock().expect("unlocked").take();
        if let Some((guard, object)) = reads {
            assert!(touched.objects.contains(&object));
            assert!(!guard.enter(Some(object)).may_be_cached);
        }
    }

    fn changed(&self, applied: bool) {
        self.applied.lock().expect("unlocked").push(applied);
    }
}

fn store_with(
    scratch: &Scratch,
    files: &[&str],
) -> (Store<LinuxDisk>, Arc<Kernel>, Arc<LinuxGuard>) {
    create(&scratch.0);
    for file in files {
        fs::write(scratch.0.join(file), "old").expect("written");
    }
    let store = open(&scratch.0);
    let kernel = Arc::new(Kernel::default());
    let guard = store.guard(kernel.clone()).expect("it has none");
    (store, kernel, Arc::new(guard))
}

fn identity(path: &Path) -> Identity {
    let (above, name) = (
        path.parent().expect("above"),
        path.file_name().expect("a name"),
    );
    let directory = LinuxDisk::open_root(above).expect("opened");
    let name = Name::new(name.as_encoded_bytes()).expect("a name");
    let stat = LinuxDisk::new().stat_at(&directory, &name);
    stat.expect("it is there").identity
}

fn write(transaction: &Transaction<LinuxDisk>, name: &str, text: &[u8]) {
    let file = transaction.lookup(NodeId::ROOT, name.as_bytes());
    let file = file.expect("it is there").node;
    transaction.write(file, 0, text, false).expect("written");
}

fn read(transaction: &Transaction<LinuxDisk>, name: &str) -> Vec<u8> {
    let file = transaction.lookup(NodeId::ROOT, name.as_bytes());
    let file = file.expect("it is there").node;
    let mut text = [0; 16];
    let caller = crate::support::model::caller();
    let count = transaction.read(file, 0, &mut text, caller).expect("read");
    text[..count].to_vec()
}

/// A program overwrites a file through the guard.
fn overwrite(guard: &LinuxGuard, root: &Path, name: &str, text: &str) {
    let path = || Some(name.as_bytes().to_vec());
    let located = Located {
        identity: identity(&root.join(name)),
        path: &path,
    };
    let _inside = guard.enter(None);
    let end = text.len() as u64;
    guard.keep_contents(&located, 0, end).expect("kept");
    fs::write(root.join(name), text).expect("written");
}

#[test]
fn a_commit_waits_for_guarded_calls_and_makes_the_kernel_forget_before_it_changes_the_base() {
    let scratch = Scratch::new();
    let (store, kernel, guard) = store_with(&scratch, &["a"]);
    assert!(store.guard(kernel.clone()).is_none(), "it has one");
    let file = scratch.0.join("a");
    let one = begin(&store);
    write(&one, "a", b"new");
    let inside = guard.enter(None);
    assert!(inside.may_be_cached);
    let committing = thread::spawn({
        let store = store.clone();
        move || store.commit(&one)
    });
    wait_until("the gate to close", || !guard.enter(None).may_be_cached);
    assert!(kernel.forgotten.lock().expect("unlocked").is_empty());
    assert_eq!(fs::read(&file).expect("read"), b"old");
    drop(inside);
    committing.join().expect("no panic").expect("committed");
    assert_eq!(fs::read(&file).expect("read"), b"new");
    let forgotten = kernel.forgotten.lock().expect("unlocked");
    let name = Name::new(b"a").expect("a name");
    assert!(forgotten[0].iter().any(|(_, of)| *of == name));
    assert_eq!(*kernel.applied.lock().expect("unlocked"), [true]);
    assert!(guard.enter(None).may_be_cached);
}

/// Whenever a program opens the file: before the check, or between the check and the apply.
#[test]
fn a_file_that_a_program_has_open_through_a_guard_keeps_its_inode() {
    for opens_after in [0, 1] {
        let scratch = Scratch::new();
        let (store, kernel, _guard) = store_with(&scratch, &["a"]);
        let before = identity(&scratch.0.join("a"));
        *kernel.opens_after.lock().expect("unlocked") = Some(opens_after);
        let one = begin(&store);
        write(&one, "a", b"new");
        store.commit(&one).expect("nobody is in the way");
        assert_eq!(fs::read(scratch.0.join("a")).expect("read"), b"new");
        assert_eq!(identity(&scratch.0.join("a")), before);
        let cancelled = vec![false; opens_after as usize];
        let applied = [&cancelled[..], &[true]].concat();
        assert_eq!(*kernel.applied.lock().expect("unlocked"), applied);
    }
}

#[test]
fn what_is_read_while_the_kernel_forgets_is_forgotten_once_more() {
    let scratch = Scratch::new();
    let (store, kernel, guard) = store_with(&scratch, &["a"]);
    let one = begin(&store);
    write(&one, "a", b"new");
    let read = (guard.clone(), identity(&scratch.0.join("a")));
    *kernel.reads.lock().expect("unlocked") = Some(read);
    store.commit(&one).expect("committed");
    assert_eq!(kernel.forgotten.lock().expect("unlocked").len(), 2);
}

/// The moment between the last check and the change of the base is closed: a guarded call comes
/// before the check, and then is a conflict, or after the change.
#[test]
fn a_guarded_call_before_the_last_check_cancels_the_commit() {
    let scratch = Scratch::new();
    let (store, kernel, guard) = store_with(&scratch, &["a"]);
    let one = begin(&store);
    write(&one, "a", b"new");
    let inside = guard.enter(None);
    let committing = thread::spawn({
        let (store, one) = (store.clone(), one.clone());
        move || store.commit(&one)
    });
    // It has been validated and logged.
    wait_until("the gate to close", || !guard.enter(None).may_be_cached);
    fs::write(scratch.0.join("a"), "outside").expect("written");
    drop(inside);
    let refused = committing.join().expect("no panic");
    assert!(
        matches!(refused, Err(CommitError::Conflict(_))),
        "{refused:?}"
    );
    assert_eq!(fs::read(scratch.0.join("a")).expect("read"), b"outside");
    assert_eq!(*kernel.applied.lock().expect("unlocked"), [false]);
    assert!(one.is_open());
}

#[test]
fn snapshots_on_both_sides_of_guarded_calls_and_commits_stay_apart() {
    let scratch = Scratch::new();
    let (store, _, guard) = store_with(&scratch, &["a", "b", "c"]);
    let texts =
        |transaction: &Transaction<LinuxDisk>| ["a", "b"].map(|name| read(transaction, name));
    let mut open = Vec::new();
    for round in 0..4 {
        let text = format!("outside {round}");
        open.push(begin(&store));
        overwrite(&guard, &scratch.0, "a", &text);
        open.push(begin(&store));
        // A commit between calls, and right after one.
        if round % 2 == 0 {
            let other = begin(&store);
            write(&other, "b", format!("commit {round}").as_bytes());
            store.commit(&other).expect("committed");
        }
        overwrite(&guard, &scratch.0, "a", &text);
    }
    let of = |outside: &str, commit: &str| [outside, commit].map(|text| text.as_bytes().to_vec());
    let expected = [
        of("old", "old"),
        of("outside 0", "old"),
        of("outside 0", "commit 0"),
        of("outside 1", "commit 0"),
        of("outside 1", "commit 0"),
        of("outside 2", "commit 0"),
        of("outside 2", "commit 2"),
        of("outside 3", "commit 2"),
    ];
    for (number, (transaction, expected)) in open.iter().zip(expected).enumerate() {
        assert_eq!(texts(transaction), expected, "snapshot {number}");
    }
    // Who began before a call conflicts with it, who began after the last one does not.
    write(&open[6], "a", b"inside");
    let refused = store.commit(&open[6]);
    assert!(
        matches!(refused, Err(CommitError::Conflict(_))),
        "{refused:?}"
    );
    write(&open[7], "c", b"inside");
    store.commit(&open[7]).expect("committed");
    for transaction in &open {
        store.abort(transaction);
    }
    store.checkpoint().expect("nothing is in the way");
    let limbo = fs::read_dir(scratch.0.join(".atomdir/limbo")).expect("listed");
    assert_eq!(limbo.count(), 0, "nothing is kept without a snapshot");
}

#[test]
fn epochs_in_the_log_are_no_commits_after_a_recovery() {
    let scratch = Scratch::new();
    let (store, _, guard) = store_with(&scratch, &["a", "b"]);
    let older = begin(&store);
    overwrite(&guard, &scratch.0, "a", "outside");
    let one = begin(&store);
    write(&one, "b", b"inside");
    let committed = store.commit(&one).expect("committed");
    assert_eq!(
        committed.sequence,
        Some(Sequence(2)),
        "the epoch is the first"
    );
    overwrite(&guard, &scratch.0, "a", "later");
    // The transaction outlives the store, so no later commit may have its sequence.
    let last = store.begin_in_base(options()).expect("begun");
    store.survive(&last, Vec::new()).expect("it can survive");
    drop((last, older));
    drop(guard);
    drop(store);
    let store = open(&scratch.0);
    assert_eq!(store.status().sequence, Sequence(3));
    let commits = store.commits().expect("listed");
    assert_eq!(commits.len(), 1, "epochs are no commits");
    let survivor = store.transactions().pop().expect("it has survived");
    let two = begin(&store);
    write(&two, "b", b"again");
    let committed = store.commit(&two).expect("committed");
    assert_eq!(committed.sequence, Some(Sequence(4)));
    store.abort(&survivor);
    let read = |name: &str| fs::read(scratch.0.join(name)).expect("read");
    assert_eq!(
        (read("a"), read("b")),
        (b"later".to_vec(), b"againe".to_vec())
    );
    store.close().expect("closed");
    drop(open(&scratch.0));
}

/// Otherwise the view would go on to show what the call replaced, and the commit would not notice.
#[test]
fn a_refresh_shows_what_guarded_calls_have_written() {
    let scratch = Scratch::new();
    let (store, _, guard) = store_with(&scratch, &["a", "b"]);
    let one = store.begin_in_base(options()).expect("begun");
    write(&one, "b", b"inside");
    let mut last = Sequence(0);
    for (text, survives) in [("first", false), ("second", true), ("third", true)] {
        if survives {
            store.survive(&one, Vec::new()).expect("it can survive");
        }
        overwrite(&guard, &scratch.0, "a", text);
        let refreshed = store.refresh(&one).expect("it has not changed the file");
        assert_eq!(read(&one, "a"), text.as_bytes());
        last = refreshed.to;
    }
    assert_eq!(last, Sequence(3), "each call was an epoch");
    drop((one, guard, store));
    let store = open(&scratch.0);
    let survivor = store.transactions().pop().expect("it has survived");
    assert!(store.status().sequence >= last, "no commit may take it");
    assert_eq!(read(&survivor, "b"), b"inside");
    store.commit(&survivor).expect("nobody is in the way");
    assert_eq!(fs::read(scratch.0.join("a")).expect("read"), b"third");
}

#[test]
fn directories_and_names_are_kept_for_snapshots() {
    let scratch = Scratch::new();
    let (store, _, guard) = store_with(&scratch, &["a"]);
    fs::create_dir(scratch.0.join("d")).expect("made");
    let older = begin(&store);
    let root = || Some(Vec::new());
    let root = Located {
        identity: identity(&scratch.0),
        path: &root,
    };
    let name = |text: &str| Name::new(text.as_bytes()).expect("a name");
    let inside = guard.enter(None);
    let loses = Leaving::Loses { directory: true };
    let gone = guard.keep_name(&root, &name("d"), loses).expect("kept");
    assert_eq!(gone, NameNow::IsGone);
    let loses = Leaving::Loses { directory: false };
    let stays = guard.keep_name(&root, &name("a"), loses).expect("kept");
    assert_eq!(stays, NameNow::Stays);
    fs::remove_file(scratch.0.join("a")).expect("removed");
    drop(inside);
    let names = |transaction: &Transaction<LinuxDisk>| {
        let list = transaction.list(NodeId::ROOT).expect("listed").into_iter();
        let mut names: Vec<_> = list.map(|entry| entry.name.as_bytes().to_vec()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&older), [b"a".to_vec(), b"d".to_vec()]);
    assert_eq!(read(&older, "a"), b"old");
    let directory = older.lookup(NodeId::ROOT, b"d").expect("there").node;
    assert!(older.list(directory).expect("listed").is_empty());
    assert!(names(&begin(&store)).is_empty());
}
