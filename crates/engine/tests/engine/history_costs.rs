//! Counts how many disk calls the history adds to a commit, and how many an undo takes.

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::{EVERYTHING, Scratch, begin, create, open_keeping, options};
use atomdir_disk::RenameMode;
use atomdir_engine::{HistoryLimits, NewNode, NodeId, Sequence, Store, Transaction};

/// How many files each directory holds.
const FILES_IN_DIRECTORY: u64 = 50;

type View = Transaction<FailingDisk>;

fn directory(view: &View, number: u64) -> NodeId {
    let name = format!("d{}", number / FILES_IN_DIRECTORY);
    let found = view.lookup(NodeId::ROOT, name.as_bytes());
    match found {
        Ok(found) => found.node,
        Err(_) => make(view, NodeId::ROOT, name.as_bytes(), NewNode::Directory),
    }
}

fn make(view: &View, parent: NodeId, name: &[u8], what: NewNode) -> NodeId {
    let made = view.create(parent, name, what, 0o755, 0, caller());
    made.expect("the name is free").node
}

fn name(number: u64) -> Vec<u8> {
    format!("f{number}").into_bytes()
}

fn commit(store: &Store<FailingDisk>, change: impl FnOnce(&View)) -> Sequence {
    let view = begin(store);
    change(&view);
    let committed = store.commit(&view).expect("nobody is in the way");
    committed.sequence.expect("something has changed")
}

/// What a commit does to each file.
#[derive(Debug, Clone, Copy)]
enum Step {
    Write,
    Replace,
    Remove,
    Rename,
}

fn change(view: &View, number: u64, step: Step) {
    let (directory, name) = (directory(view, number), name(number));
    let done = match step {
        Step::Write => {
            let file = view.lookup(directory, &name).expect("it is there").node;
            view.write(file, 0, b"new", false).map(drop)
        }
        Step::Replace => {
            let new = make(view, directory, b"new", NewNode::File);
            view.write(new, 0, b"new", false).expect("written");
            view.rename(directory, b"new", directory, &name, RenameMode::Replace)
                .map(drop)
        }
        Step::Remove => view.unlink(directory, &name).map(drop),
        Step::Rename => {
            let new = [&name[..], b"-new"].concat();
            let mode = RenameMode::NoReplace;
            view.rename(directory, &name, directory, &new, mode)
                .map(drop)
        }
    };
    done.expect("nothing is in the way");
}

/// A store in which a commit has done one step to each of many files.
struct Changed {
    disk: FailingDisk,
    store: Store<FailingDisk>,
    changed: Sequence,
    /// How many disk calls the commit took, without those of its view.
    calls: u64,
    _scratch: Scratch,
}

impl Changed {
    fn new(step: Step, files: u64, history: Option<HistoryLimits>) -> Changed {
        let scratch = Scratch::new();
        create(&scratch.0);
        let disk = FailingDisk::without_flushes();
        let store = open_keeping(disk.clone(), &scratch.0, history).expect("it opens");
        commit(&store, |view| {
            for number in 0..files {
                let file = make(view, directory(view, number), &name(number), NewNode::File);
                view.write(file, 0, b"old", false).expect("written");
            }
        });
        store.checkpoint().expect("nothing is in the way");
        let mut before = 0;
        let changed = commit(&store, |view| {
            (0..files).for_each(|number| change(view, number, step));
            before = disk.calls();
        });
        Changed {
            calls: disk.calls() - before,
            disk,
            store,
            changed,
            _scratch: scratch,
        }
    }
}

#[test]
fn history_costs_a_removed_file_one_call_and_a_replaced_one_two() {
    // Beside the calls for each file there are some for the commit and for each directory.
    const FILES: u64 = 200;
    let most = [
        (Step::Replace, 2),
        (Step::Remove, 1),
        (Step::Rename, 1),
        (Step::Write, 2),
    ];
    for (step, for_each) in most {
        let without = Changed::new(step, FILES, None).calls;
        let with = Changed::new(step, FILES, Some(EVERYTHING)).calls;
        println!("{step:?} of {FILES} files: {without} calls, with history {with}");
        assert!(with <= without + FILES * for_each + FILES / 10, "{step:?}");
    }
}

/// How many disk calls it takes to undo a commit that did `step` to `files` files, and to commit
/// the undo.
fn calls_of_undo(step: Step, files: u64) -> u64 {
    let done = Changed::new(step, files, Some(EVERYTHING));
    let store = &done.store;
    store.checkpoint().expect("nothing is in the way");
    let before = done.disk.calls();
    let undone = store.undo(&[done.changed], &[], options());
    let undone = undone.unwrap_or_else(|error| panic!("{error}"));
    store.commit(&undone).expect("nobody is in the way");
    done.disk.calls() - before
}

#[test]
fn an_undo_of_four_times_as_many_files_takes_four_times_as_many_calls() {
    for step in [Step::Write, Step::Replace, Step::Remove, Step::Rename] {
        let (few, many) = (calls_of_undo(step, 200), calls_of_undo(step, 800));
        println!("{step:?}: {few} calls, {many} calls");
        assert!(few > 200, "{step:?}: each file is looked at: {few}");
        assert!(many <= few * 4 + few / 4, "{step:?}: {few}, {many}");
    }
}
