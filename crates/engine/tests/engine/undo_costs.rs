//! An undo takes as many calls of the disk as there are changes: counted, and not measured in time.

use crate::support::failing::FailingDisk;
use crate::support::model::CALLER;
use crate::support::{EVERYTHING, Scratch, begin, create, open_keeping, options};
use atomdir_disk::RenameMode;
use atomdir_engine::{NewNode, NodeId, Sequence, Store, Transaction};

/// Files are in directories of this many.
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
    let made = view.create(parent, name, what, 0o755, 0, CALLER);
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

/// The calls of an undo of a commit that does this to so many files, and of the undo's commit.
fn calls(step: Step, files: u64) -> u64 {
    let scratch = Scratch::new();
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let store = open_keeping(disk.clone(), &scratch.0, Some(EVERYTHING)).expect("it opens");
    commit(&store, |view| {
        for number in 0..files {
            let file = make(view, directory(view, number), &name(number), NewNode::File);
            view.write(file, 0, b"old", false).expect("written");
        }
    });
    let changed = commit(&store, |view| {
        (0..files).for_each(|number| change(view, number, step));
    });
    store.checkpoint().expect("nothing is in the way");
    let before = disk.calls();
    let undone = store.undo(&[changed], &[], options());
    let undone = undone.unwrap_or_else(|error| panic!("{error}"));
    store.commit(&undone).expect("nobody is in the way");
    disk.calls() - before
}

#[test]
fn an_undo_of_four_times_as_many_files_takes_four_times_as_many_calls() {
    for step in [Step::Write, Step::Remove, Step::Rename] {
        let (few, many) = (calls(step, 200), calls(step, 800));
        println!("{step:?}: {few} calls, {many} calls");
        assert!(few > 200, "{step:?}: each file is looked at: {few}");
        assert!(many <= few * 4 + few / 4, "{step:?}: {few}, {many}");
    }
}
