//! Attacks on transactions that begin before the commits they show are in the base.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::script::{commit_lazily, inside, open_scripted};
use crate::support::{self, Random, Scratch, begin_with, create, open, open_with, seeds};
use atomdir_disk::{Errno, LinuxDisk};
use atomdir_engine::{
    CommitError, Credentials, Durability, LockError, LockMode, LockRequest, LockScope, NewNode,
    NodeId, Patience, SetAttributes, Store, Transaction,
};

type View = Transaction<FailingDisk>;

/// Runs it in a thread of its own, and fails if it does not end.
fn in_time<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = sender.send(act());
    });
    let ended = receiver.recv_timeout(Duration::from_secs(600));
    ended.unwrap_or_else(|_| panic!("{what} hangs"))
}

/// Paths, each with its new text.
type Changes = Vec<(String, String)>;

/// Once a commit could not be applied, the store is poisoned and nothing is in the queue.
#[test]
fn reads_end_after_any_failure_of_an_apply() {
    for fails_at in 0..60 {
        let scratch = Scratch::new();
        create(&scratch.0);
        fs::create_dir(scratch.0.join("d")).expect("made");
        fs::write(scratch.0.join("d/old"), "old").expect("written");
        let disk = FailingDisk::new(Errno::IO, false);
        let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
        commit_lazily(
            &store,
            &[
                &["append", "d/old", "new"],
                &["put", "new", "new"],
                &["put", "d/new", "new"],
                &["chmod", "d", "700"],
            ],
        );
        let reader = begin_with(&store, Durability::Lazy);
        disk.fail_after(fails_at);
        let first = reader.resolve(b"d/new").map(|found| found.is_some());
        let is_poisoned = store.status().poisoned.is_some();
        for path in [&b"d/new"[..], b"new"] {
            let reader = reader.clone();
            let again = in_time(
                &format!("a read after change {fails_at} has failed"),
                move || reader.resolve(path).map(|found| found.is_some()),
            );
            match first {
                Ok(_) => assert_eq!(again, Ok(true), "{fails_at}"),
                Err(_) => assert!(
                    is_poisoned && again == Err(Errno::IO),
                    "{fails_at}: {again:?}"
                ),
            }
        }
        if !disk.has_failed() {
            break;
        }
    }
}

/// Also if the failure comes while a commit is cancelled.
#[test]
fn reads_end_after_any_failure_of_a_cancel() {
    for fails_at in 0..12 {
        let scratch = Scratch::new();
        create(&scratch.0);
        fs::write(scratch.0.join("old"), "old").expect("written");
        let disk = FailingDisk::new(Errno::IO, false);
        let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
        commit_lazily(&store, &[&["append", "old", "new"]]);
        let reader = begin_with(&store, Durability::Lazy);
        fs::write(scratch.0.join("old"), "outside").expect("written");
        disk.fail_after(fails_at);
        let first = reader.resolve(b"old").map(|found| found.is_some());
        let again = in_time(
            &format!("a read after change {fails_at} has failed"),
            move || reader.resolve(b"old").map(|found| found.is_some()),
        );
        assert_eq!(again, first, "{fails_at}");
        if !disk.has_failed() {
            break;
        }
    }
}

/// A file goes on under a name that the commit does not mention.
#[test]
fn links_of_a_survivor_of_a_removed_directory() {
    let scratch = Scratch::new();
    create(&scratch.0);
    fs::create_dir(scratch.0.join("d")).expect("made");
    fs::write(scratch.0.join("b"), "text").expect("written");
    fs::hard_link(scratch.0.join("b"), scratch.0.join("d/a")).expect("linked");
    let store = open_scripted(&scratch);
    commit_lazily(&store, &[&["rm-r", "d"]]);
    let reader = begin_with(&store, Durability::Lazy);
    let found = reader.lookup(NodeId::ROOT, b"b").expect("it is there");
    let before = found.attributes.links;
    store.sync().expect("nothing is in the way");
    assert_eq!(fs::metadata(scratch.0.join("b")).expect("there").nlink(), 1);
    assert_eq!(before, 1);
    inside(&reader, &["append", "b", "more"]);
    store.commit(&reader).expect("nobody is in the way");
    store.sync().expect("nothing is in the way");
    assert_eq!(fs::read(scratch.0.join("b")).expect("there"), b"textmore");
}

#[test]
fn root_attributes_of_a_commit_on_the_way() {
    let scratch = Scratch::new();
    create(&scratch.0);
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o755)).expect("set");
    let store = open_scripted(&scratch);
    let first = begin_with(&store, Durability::Lazy);
    inside(&first, &["chmod", ".", "2711"]);
    first
        .set_xattr(NodeId::ROOT, b"user.k", b"one", 0, false)
        .expect("set");
    store.commit(&first).expect("nobody is in the way");
    // The first thing it does is to change the root.
    let second = begin_with(&store, Durability::Lazy);
    second
        .set_xattr(NodeId::ROOT, b"user.l", b"two", 0, false)
        .expect("set");
    assert_eq!(second.attributes(NodeId::ROOT).expect("there").mode, 0o2711);
    assert_eq!(second.xattr(NodeId::ROOT, b"user.k"), Ok(b"one".to_vec()));
    store.commit(&second).expect("nobody is in the way");
    let third = begin_with(&store, Durability::Lazy);
    inside(&third, &["touch", ".", "77"]);
    store.commit(&third).expect("nobody is in the way");
    let fourth = begin_with(&store, Durability::Lazy);
    assert_eq!(
        fourth.xattr_names(NodeId::ROOT).expect("there").len(),
        2,
        "names"
    );
    store.commit(&fourth).expect("nothing");
    store.sync().expect("nothing is in the way");
    let meta = fs::metadata(&scratch.0).expect("there");
    assert_eq!((meta.mode() & 0o7777, meta.mtime()), (0o2711, 77));
}

/// A commit may reach the base only after the begin of a transaction that survives. The next process
/// would take that for the change of an outside writer, if the transaction's log did not say what
/// the commit has left.
#[test]
fn survivors_know_what_commits_bring_into_the_base_after_their_begin() {
    for (begin, writes_outside) in [0, 1, 2]
        .into_iter()
        .flat_map(|one| [(one, false), (one, true)])
    {
        let scratch = Scratch::new();
        create(&scratch.0);
        let in_base = |name: &str| scratch.0.join(name);
        for name in ["old", "later", "whole"] {
            fs::write(in_base(name), name).expect("written");
        }
        let store = open(&scratch.0);
        let write = |view: &Transaction<LinuxDisk>, name: &str, at: u64, text: &[u8]| {
            let node = view.resolve(name.as_bytes()).expect("there");
            let node = node.expect("there");
            view.write(node, at, text, false).expect("written");
        };
        let first = begin_with(&store, Durability::Lazy);
        let made = first.create(NodeId::ROOT, b"new", NewNode::File, 0o644, 0, caller());
        let made = made.expect("free").node;
        first.write(made, 0, b"new", false).expect("written");
        for name in ["old", "later"] {
            write(&first, name, 0, &name.to_uppercase().into_bytes());
        }
        let whole = first.resolve(b"whole").expect("there").expect("there");
        let empty = SetAttributes {
            length: Some(0),
            ..SetAttributes::default()
        };
        let emptied = first.set_attributes(whole, empty, caller());
        emptied.expect("cut");
        write(&first, "whole", 0, b"WHOLE");
        store.commit(&first).expect("nobody is in the way");
        let begun = match begin {
            0 => store.begin_in_base(support::options()),
            1 => store.begin_published(support::options()),
            _ => store.begin(support::options()),
        };
        let survivor = begun.expect("it begins");
        let id = survivor.id();
        write(&survivor, "new", 3, b"more");
        write(&survivor, "old", 3, b"more");
        store.survive(&survivor, Vec::new()).expect("it survives");
        drop((first, survivor, store));
        // Once more: the next process has only the log's word.
        drop(open(&scratch.0));
        if writes_outside {
            fs::write(in_base("later"), "outside").expect("written");
        }
        let store = open(&scratch.0);
        let survivor = store.transaction(id);
        let survivor = survivor.unwrap_or_else(|| panic!("{:?}", store.stranded()));
        for name in ["later", "whole"] {
            write(&survivor, name, 5, b"more");
        }
        let committed = store.commit(&survivor);
        assert_eq!(committed.is_ok(), !writes_outside, "{begin}: {committed:?}");
        if !writes_outside {
            let names = ["new", "old", "later", "whole"];
            let all = names.map(|name| fs::read_to_string(in_base(name)).expect("there"));
            assert_eq!(all, ["newmore", "OLDmore", "LATERmore", "WHOLEmore"]);
        }
    }
}

/// Lazy commits and outside writers append to few files. Whatever was committed and is not set
/// aside is there in the end, and so is all that outside writers did.
#[test]
fn no_update_is_lost_to_outside_writers() {
    for seed in seeds(200) {
        let scratch = Scratch::new();
        create(&scratch.0);
        let names = ["a", "b", "c"];
        for name in names {
            fs::write(scratch.0.join(name), "").expect("written");
        }
        let store = open_scripted(&scratch);
        let mut random = Random::new(seed);
        let mut expected: Vec<(String, String, Option<atomdir_engine::TransactionId>)> = Vec::new();
        let mut log = Vec::new();
        let mut open_ones: Vec<(Arc<View>, Changes)> = Vec::new();
        for number in 0..60 {
            let name = names[random.below(names.len())];
            let text = format!("<{number}>");
            match random.below(10) {
                0 => {
                    let mut all = fs::read(scratch.0.join(name)).expect("there");
                    all.extend(text.as_bytes());
                    match random.below(2) {
                        0 => fs::write(scratch.0.join(name), all).expect("written"),
                        _ => {
                            fs::write(scratch.0.join("tmp"), all).expect("written");
                            fs::rename(scratch.0.join("tmp"), scratch.0.join(name)).expect("moved");
                        }
                    }
                    log.push(format!("outside {name} {text}"));
                    expected.push((name.to_owned(), text, None));
                }
                1 if random.below(4) == 0 => store.sync().expect("well"),
                2..=4 if open_ones.len() < 3 => {
                    let durability = [Durability::Lazy, Durability::Deferred, Durability::Durable]
                        [random.below(3)];
                    let view = begin_with(&store, durability);
                    log.push(format!("begin {} {durability:?}", view.id()));
                    open_ones.push((view, Vec::new()));
                }
                5 | 6 if !open_ones.is_empty() => {
                    let place = random.below(open_ones.len());
                    let (view, texts) = open_ones.swap_remove(place);
                    let committed = store.commit(&view);
                    log.push(format!("commit {} {}", view.id(), committed.is_ok()));
                    match committed {
                        Ok(_) => expected.extend(
                            texts
                                .into_iter()
                                .map(|(name, text)| (name, text, Some(view.id()))),
                        ),
                        Err(CommitError::Conflict(_)) => _ = store.abort(&view),
                        Err(error) => panic!("{error}"),
                    }
                }
                _ if !open_ones.is_empty() => {
                    let place = random.below(open_ones.len());
                    let (view, texts) = &mut open_ones[place];
                    log.push(format!("{} appends {name} {text}", view.id()));
                    inside(view, &["append", name, &text]);
                    texts.push((name.to_owned(), text));
                }
                _ => {}
            }
        }
        for (view, _) in open_ones {
            store.abort(&view);
        }
        store.sync().expect("well");
        let aside: Vec<_> = store
            .set_aside()
            .iter()
            .map(|one| one.transaction)
            .collect();
        let mut counted: BTreeMap<String, usize> = BTreeMap::new();
        for (name, text, by) in expected {
            if by.is_some_and(|by| aside.contains(&by)) {
                continue;
            }
            let all = fs::read_to_string(scratch.0.join(&name)).expect("text");
            assert_eq!(
                all.matches(&text).count(),
                1,
                "{name} {text} {by:?} in {all}, ATOMDIR_SEED={seed}\n{}",
                log.join("\n")
            );
            *counted.entry(name).or_default() += text.len();
        }
        for name in names {
            let length = fs::read(scratch.0.join(name)).expect("there").len();
            assert_eq!(
                length,
                counted.get(name).copied().unwrap_or(0),
                "{name}, ATOMDIR_SEED={seed}\n{}",
                log.join("\n")
            );
        }
    }
}

/// A transaction that shows a commit on the way locks what that has changed, and an older one cannot.
#[test]
fn locks_over_commits_on_the_way() {
    let scratch = Scratch::new();
    create(&scratch.0);
    fs::write(scratch.0.join("f"), "f").expect("written");
    let store = open_scripted(&scratch);
    let older = begin_with(&store, Durability::Durable);
    commit_lazily(&store, &[&["append", "f", "1"]]);
    let newer = begin_with(&store, Durability::Durable);
    assert!(locks_f(&store, &older).is_err());
    locks_f(&store, &newer).expect("it shows the commit");
    inside(&newer, &["append", "f", "2"]);
    store.commit(&newer).expect("nobody is in the way");
    assert_eq!(fs::read(scratch.0.join("f")).expect("there"), b"f12");
}

fn locks_f(store: &Store<FailingDisk>, view: &View) -> Result<(), LockError> {
    let request = LockRequest {
        paths: vec![b"f".to_vec()],
        mode: LockMode::Exclusive,
        scope: LockScope::Object,
    };
    let root = Credentials {
        user: 0,
        groups: vec![0],
    };
    let mut patience = Patience {
        wake: Arc::new(|| {}),
        wait: &mut || false,
    };
    store.lock(view, &request, &root, &mut patience)
}
