//! Views of the past show the tree that a model had after each commit, while commits land and are
//! undone and redone, and the store is opened again. `ATOMDIR_SEED=n` replays one run.

use std::sync::Arc;

use crate::support::model::{Model, Tree, caller};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{
    EVERYTHING, Random, Scratch, begin, create, open_history, open_keeping, options, seeds,
    seeds_and,
};
use atomdir_disk::{Errno, LinuxDisk};
use atomdir_engine::{
    CommitError, HistoryLimits, NodeId, Portion, Sequence, Store, Transaction, UndoError,
};
use atomdir_testing::pick;

type View = Transaction<LinuxDisk>;

fn past(store: &Store<LinuxDisk>, commit: u64) -> Arc<View> {
    let past = store.past(Sequence(commit), options());
    let past = past.unwrap_or_else(|error| panic!("after commit {commit}: {error}"));
    assert_eq!(past.not_as_then, [], "nobody else writes here");
    past.transaction
}

/// Commits a few random changes.
fn commit_random(store: &Store<LinuxDisk>, random: &mut Random, model: &mut Model) -> bool {
    let transaction = begin(store);
    for _ in 0..1 + random.below(12) {
        model.step(random, &transaction);
    }
    let committed = store.commit(&transaction).expect("nobody is in the way");
    committed.sequence.is_some()
}

fn land_undo(store: &Store<LinuxDisk>, commits: impl Iterator<Item = u64>) -> bool {
    let commits: Vec<Sequence> = commits.map(Sequence).collect();
    let undone = store.undo(&commits, &[], options());
    let undone = undone.unwrap_or_else(|error| panic!("{commits:?}: {error}"));
    let committed = store.commit(&undone).expect("nobody is in the way");
    committed.sequence.is_some()
}

/// Undoes the newest commits, then undoes the undo.
fn undo_and_back(store: &Store<LinuxDisk>, random: &mut Random, trees: &mut Vec<Tree>) {
    let newest = trees.len() as u64 - 1;
    let first = newest - random.below(newest.min(4) as usize) as u64;
    if land_undo(store, first..=newest) {
        trees.push(trees[first as usize - 1].clone());
        assert!(land_undo(store, [newest + 1].into_iter()));
        trees.push(trees[newest as usize].clone());
    }
}

#[test]
fn views_of_the_past_show_what_every_commit_left() {
    for seed in seeds_and(12, &[94]) {
        let context = format!("ATOMDIR_SEED={seed}");
        println!("{context}");
        let scratch = Scratch::new();
        create(&scratch.0);
        let mut store = open_history(&scratch.0);
        let mut random = Random::new(seed);
        let mut trees = vec![Model::new().tree()];
        let mut model = Model::new();
        for _ in 0..3 {
            let mut open: Vec<(Arc<View>, Tree)> = Vec::new();
            for _ in 0..3 {
                if commit_random(&store, &mut random, &mut model) {
                    trees.push(model.tree());
                }
                let commit = random.below(trees.len());
                open.push((past(&store, commit as u64), trees[commit].clone()));
                if trees.len() > 1 && random.below(3) == 0 {
                    undo_and_back(&store, &mut random, &mut trees);
                }
            }
            for (commit, tree) in trees.iter().enumerate() {
                let view = past(&store, commit as u64);
                assert_eq!(tree_of_view(&view), *tree, "after {commit}, {context}");
                store.abort(&view);
            }
            if random.below(2) == 0 {
                store.checkpoint().expect("a checkpoint works at any time");
            }
            for (view, tree) in open {
                assert_eq!(tree_of_view(&view), tree, "an open view, {context}");
                store.abort(&view);
            }
            assert_eq!(tree_of_base(&scratch.0), model.tree(), "{context}");
            if random.below(2) == 0 {
                store.close().expect("the store closes");
            }
            drop(store);
            store = open_history(&scratch.0);
        }
        assert_eq!(store.check().problems, Vec::<String>::new(), "{context}");
    }
}

fn put(view: &View, name: &[u8], contents: &[u8]) {
    let known = view.resolve(name).expect("paths resolve");
    let file = known.unwrap_or_else(|| {
        let file = atomdir_engine::NewNode::File;
        let made = view.create(NodeId::ROOT, name, file, 0o644, 0, caller());
        made.expect("the name is free").node
    });
    view.write(file, 0, contents, false).expect("it is written");
}

fn commit(store: &Store<LinuxDisk>, change: impl FnOnce(&View)) -> u64 {
    let transaction = begin(store);
    change(&transaction);
    let committed = store.commit(&transaction).expect("nobody is in the way");
    committed.sequence.expect("something has changed").0
}

fn contents(view: &View, name: &[u8]) -> Vec<u8> {
    let file = view.resolve(name).expect("paths resolve");
    let mut bytes = vec![0; 100];
    let read = view.read(file.expect("it is there"), 0, &mut bytes, caller());
    bytes.truncate(read.expect("a file is read"));
    bytes
}

#[test]
fn a_view_of_the_past_is_read_only_and_cannot_be_committed() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open_history(&scratch.0);
    let first = commit(&store, |view| put(view, b"file", b"one"));
    commit(&store, |view| put(view, b"file", b"two"));
    let view = past(&store, first);
    assert_eq!(view.past(), Some(Sequence(first)));
    view.thaw();
    let file = view.resolve(b"file").expect("resolved").expect("there");
    assert_eq!(view.write(file, 0, b"x", false), Err(Errno::ROFS));
    assert_eq!(view.unlink(NodeId::ROOT, b"file"), Err(Errno::ROFS));
    assert!(store.begin_nested(&view, options()).is_err());
    for error in [
        store.commit(&view).err(),
        store
            .commit_portion(&view, Portion::part(&[b"file".to_vec()]), &mut |_| {})
            .err(),
        store.list_conflicts(&view).err(),
    ] {
        assert!(matches!(error, Some(CommitError::Past { .. })), "{error:?}");
    }
    assert_eq!(contents(&view, b"file"), b"one");
    store.abort(&view);
    let error = store.past(Sequence(99), options()).err();
    assert!(matches!(error, Some(UndoError::NotYet(_))), "{error:?}");
}

#[test]
fn an_open_view_keeps_what_is_forgotten_meanwhile() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open_history(&scratch.0);
    let first = commit(&store, |view| put(view, b"file", b"one"));
    commit(&store, |view| {
        view.unlink(NodeId::ROOT, b"file").expect("it is there");
    });
    let view = past(&store, first);
    let nothing = HistoryLimits {
        age_seconds_max: 0,
        bytes_max: 0,
        free_bytes_min: 0,
    };
    let in_limbo = || {
        let limbo = std::fs::read_dir(scratch.0.join(".atomdir/limbo"));
        limbo.expect("limbo is listed").count()
    };
    assert_eq!(store.prune(&nothing).expect("it is forgotten").commits, 0);
    assert_eq!(contents(&view, b"file"), b"one");
    assert!(in_limbo() > 0);
    let error = store.past(Sequence(first), options()).err();
    assert!(matches!(error, Some(UndoError::NotKept(_))), "{error:?}");
    store.abort(&view);
    store.checkpoint().expect("a checkpoint works at any time");
    assert_eq!(in_limbo(), 0);
}

/// No record lists the names in a directory that was removed whole.
#[test]
fn a_file_that_has_its_last_name_in_a_removed_directory_is_found() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open_history(&scratch.0);
    commit(&store, |view| {
        let directory = atomdir_engine::NewNode::Directory;
        let made = view.create(NodeId::ROOT, b"data", directory, 0o755, 0, caller());
        put(view, b"file", b"one");
        let file = view.resolve(b"file").expect("resolved").expect("there");
        let data = made.expect("the name is free").node;
        view.link(file, data, b"link").expect("the name is free");
    });
    let first = tree_of_base(&scratch.0);
    commit(&store, |view| {
        view.unlink(NodeId::ROOT, b"file").expect("it is there");
        put(view, b"file", b"two");
    });
    let second = tree_of_base(&scratch.0);
    commit(&store, |view| {
        let data = view.resolve(b"data").expect("resolved").expect("there");
        view.unlink(data, b"link").expect("it is there");
        view.remove_directory(NodeId::ROOT, b"data")
            .expect("it is empty");
    });
    for (commit, tree) in [(1, &first), (2, &second)] {
        let view = past(&store, commit);
        assert_eq!(tree_of_view(&view), *tree, "after {commit}");
        store.abort(&view);
    }
    assert!(land_undo(&store, 2..=2));
    assert!(land_undo(&store, 3..=3));
    assert_eq!(tree_of_base(&scratch.0), first);
    assert_eq!(store.check().problems, Vec::<String>::new());
}

/// A file that an outside writer has changed since is shown as it is now, not mixed with the past.
/// It is reported if a commit after the requested point has written it, too.
#[test]
fn outside_changes_are_not_mixed_with_the_past() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open_history(&scratch.0);
    let root = &scratch.0;
    let write = |name: &str, bytes: &[u8]| std::fs::write(root.join(name), bytes).expect(name);
    let first = commit(&store, |view| {
        for name in ["appended", "replaced", "removed", "untouched", "old"] {
            put(view, name.as_bytes(), &[b't'; 2 << 20]);
        }
    });
    commit(&store, |view| {
        for name in ["appended", "replaced", "removed"] {
            put(view, name.as_bytes(), b"page");
        }
        view.unlink(NodeId::ROOT, b"old").expect("it is there");
        put(view, b"new", b"new");
    });
    write("untouched", b"now");
    write("new", b"changed, but not there then");
    write("old", b"made from outside");
    let shown = |name: &str| {
        let past = store.past(Sequence(first), options()).expect("shown");
        let found = past.transaction.resolve(name.as_bytes()).expect("resolved");
        let bytes = found.map(|_| contents(&past.transaction, name.as_bytes()));
        store.abort(&past.transaction);
        let not_as_then = past.not_as_then.into_iter().map(|one| one.path);
        (bytes, not_as_then.collect::<Vec<_>>())
    };
    assert_eq!(shown("untouched"), (Some(b"now".to_vec()), vec![]));
    assert_eq!(shown("new"), (None, vec![]));
    assert_eq!(shown("old"), (Some(vec![b't'; 100]), vec![]));
    write("appended", b"NOW");
    write("swap", b"NOW");
    std::fs::rename(root.join("swap"), root.join("replaced")).expect("renamed");
    std::fs::remove_file(root.join("removed")).expect("removed");
    let names = ["appended", "removed", "replaced"];
    let reported: Vec<Vec<u8>> = names.map(|name| name.as_bytes().to_vec()).to_vec();
    assert_eq!(shown("appended"), (Some(b"NOW".to_vec()), reported.clone()));
    assert_eq!(shown("replaced"), (Some(b"NOW".to_vec()), reported.clone()));
    assert_eq!(shown("removed"), (None, reported));
    // The store knows both files, but not which of them had which name.
    std::fs::rename(root.join("new"), root.join("old")).expect("renamed");
    let error = store.past(Sequence(first), options()).err();
    assert!(matches!(error, Some(UndoError::Conflict(_))), "{error:?}");
}

/// Every checkpoint forgets old commits. What they kept is removed at once, except what an open
/// view shows.
#[test]
fn forgetting_changes_no_open_view() {
    let mut had_past = 0;
    for seed in seeds(pick(5, 300)) {
        let context = format!("ATOMDIR_SEED={seed}");
        println!("{context}");
        let scratch = Scratch::new();
        create(&scratch.0);
        let limits = HistoryLimits {
            bytes_max: 20_000,
            ..EVERYTHING
        };
        let store = open_keeping(LinuxDisk::new(), &scratch.0, Some(limits)).expect("it opens");
        let mut random = Random::new(seed);
        let mut model = Model::new();
        let mut trees = vec![model.tree()];
        let mut open: Vec<(Arc<View>, Tree)> = Vec::new();
        for _ in 0..30 {
            if commit_random(&store, &mut random, &mut model) {
                trees.push(model.tree());
            }
            match random.below(6) {
                0 | 1 => open.push((begin(&store), model.tree())),
                2 => {
                    let commit = trees.len() - 1 - random.below(trees.len().min(4));
                    if let Ok(past) = store.past(Sequence(commit as u64), options()) {
                        had_past += 1;
                        open.push((past.transaction, trees[commit].clone()));
                    }
                }
                3 | 4 if !open.is_empty() => {
                    let (view, _) = open.swap_remove(random.below(open.len()));
                    store.abort(&view);
                }
                _ => {}
            }
            store.checkpoint().expect("a checkpoint works at any time");
            for (view, tree) in &open {
                assert_eq!(tree_of_view(view), *tree, "{context}");
            }
        }
        for (view, _) in &open {
            store.abort(view);
        }
        assert_eq!(tree_of_base(&scratch.0), model.tree(), "{context}");
        assert_eq!(store.check().problems, Vec::<String>::new(), "{context}");
    }
    assert!(had_past > 2, "{had_past}");
}
