//! Random histories: a restore brings paths back as they were after a commit and changes nothing
//! else. Its undo brings everything back. `ATOMDIR_SEED=n` replays one run.

use std::collections::BTreeMap;

use crate::support::model::{Model, Tree};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{Random, Scratch, begin, create, open_history, options, seeds};
use crate::undo_conflicts::{commit, make, node, put, unlink};
use atomdir_disk::LinuxDisk;
use atomdir_engine::{NewNode, Portion, Sequence, Store, UndoError};

fn commit_random(
    store: &Store<LinuxDisk>,
    random: &mut Random,
    (model, trees): (&mut Model, &mut Vec<Tree>),
) {
    let transaction = begin(store);
    for _ in 0..1 + random.below(12) {
        model.step(random, &transaction);
    }
    let committed = store.commit(&transaction).expect("nobody is in the way");
    if committed.sequence.is_some() {
        trees.push(model.tree());
    }
}

/// A file's description without its other names.
fn alone(description: &str) -> &str {
    description
        .split(" linked to ")
        .next()
        .unwrap_or(description)
}

/// How many names each file of a tree has, by its first name.
fn names(tree: &Tree) -> BTreeMap<&str, u32> {
    let mut names = BTreeMap::new();
    for description in tree.values() {
        if let Some((_, first)) = description.split_once(" linked to ") {
            *names.entry(first).or_default() += 1;
        }
    }
    names
}

fn is_within(path: &[u8], above: &[u8]) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| above.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
}

/// Compares what is at and below `path` with `then`, and everything else with `before`, the tree
/// before the restore.
fn assert_restored(found: &Tree, path: &[u8], (then, before): (&Tree, &Tree), context: &str) {
    if path.is_empty() {
        assert_eq!(found, then, "{context}");
        return;
    }
    let has_one_name = |tree: &Tree, description: &str| {
        let first = description.split_once(" linked to ");
        first.is_none_or(|(_, first)| names(tree).get(first) == Some(&1))
    };
    let inside = |tree: &Tree| -> BTreeMap<Vec<u8>, String> {
        let inside = tree.iter().filter(|(at, _)| is_within(at, path));
        inside
            .map(|(at, what)| (at.clone(), alone(what).to_owned()))
            .collect()
    };
    assert_eq!(inside(found), inside(then), "{context}");
    for (at, what) in before.iter().filter(|(at, _)| !is_within(at, path)) {
        let after = found.get(at).unwrap_or_else(|| panic!("{context}: {at:?}"));
        // All names of a file show the restored file, so only files with one name are compared.
        if has_one_name(before, what) {
            assert_eq!(alone(after), alone(what), "{context}: {at:?}");
        }
    }
    let more = found.keys().filter(|at| !before.contains_key(*at));
    for at in more.filter(|at| !is_within(at, path)) {
        assert!(is_within(path, at), "{context}: {at:?} is new");
    }
}

#[test]
fn restored_paths_match_the_old_tree_and_nothing_else_changes() {
    for seed in seeds(25) {
        println!("ATOMDIR_SEED={seed}");
        let scratch = Scratch::new();
        create(&scratch.0);
        let mut store = open_history(&scratch.0);
        let mut random = Random::new(seed);
        let mut model = Model::new();
        let mut trees = vec![model.tree()];
        for _ in 0..12 {
            commit_random(&store, &mut random, (&mut model, &mut trees));
            let commit = random.below(trees.len());
            let then = trees[commit].clone();
            let before = trees[trees.len() - 1].clone();
            let paths: Vec<Vec<u8>> = then.keys().chain(before.keys()).cloned().collect();
            let path = match random.below(4) {
                0 => Vec::new(),
                _ if paths.is_empty() => continue,
                _ => paths[random.below(paths.len())].clone(),
            };
            let context = format!(
                "ATOMDIR_SEED={seed}: {} as after {commit}",
                path.escape_ascii()
            );
            let commit = Sequence(commit as u64);
            let restored = store.restore(commit, std::slice::from_ref(&path), options());
            let restored = match restored {
                // A directory above it is a file now.
                Err(UndoError::Io { .. }) => continue,
                restored => restored.unwrap_or_else(|error| panic!("{context}: {error}")),
            };
            let wanted = tree_of_view(&restored);
            assert_restored(&wanted, &path, (&then, &before), &context);
            let committed = store.commit(&restored).expect("nobody is in the way");
            assert_eq!(tree_of_base(&scratch.0), wanted, "{context}");
            if let Some(Sequence(sequence)) = committed.sequence {
                trees.push(wanted);
                let undone = store.undo(&[Sequence(sequence)], &[], options());
                let undone = undone.unwrap_or_else(|error| panic!("{context}: {error}"));
                store.commit(&undone).expect("nobody is in the way");
                assert_eq!(tree_of_base(&scratch.0), before, "{context}: undone");
                trees.push(before);
            }
            if random.below(4) == 0 {
                drop(store);
                store = open_history(&scratch.0);
            }
        }
        assert_eq!(store.check().problems, Vec::<String>::new(), "{seed}");
    }
}

/// A file has a name in a directory that comes back whole, and other names. If `is_apart`, one
/// commit removed the other names and a later one the directory. Otherwise one commit removed all
/// of them, and the file has a name of its own in limbo.
fn names_come_back(is_apart: bool, paths: &[&[&str]]) {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open_history(&scratch.0);
    let first = commit(&store, |view| {
        make(view, "a", NewNode::Directory);
        make(view, "m", NewNode::Directory);
        make(view, "m/in", NewNode::Directory);
        put(view, "m/in/file", 0, b"one");
        let file = node(view, "m/in/file");
        for (directory, name) in [("a", &b"first"[..]), ("", b"z"), ("m", b"here")] {
            let linked = view.link(file, node(view, directory), name);
            linked.expect("the name is free");
        }
    });
    let then = tree_of_base(&scratch.0);
    let others = ["a/first", "z", "m/here"];
    if is_apart {
        commit(&store, |view| {
            others.iter().for_each(|path| unlink(view, path))
        });
    }
    commit(&store, |view| {
        let others = others.iter().filter(|_| !is_apart);
        others.for_each(|path| unlink(view, path));
        unlink(view, "m/in/file");
        for (directory, name) in [("m", &b"in"[..]), ("", b"m")] {
            let removed = view.remove_directory(node(view, directory), name);
            removed.expect("it is empty");
        }
    });
    for paths in paths {
        let before = tree_of_base(&scratch.0);
        let asked: Vec<Vec<u8>> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        let restored = store.restore(Sequence(first), &asked, options());
        let restored = restored.unwrap_or_else(|error| panic!("{paths:?}: {error}"));
        assert_eq!(tree_of_view(&restored), then, "{paths:?}");
        let links = restored.attributes(node(&restored, "z"));
        assert_eq!(links.map(|found| found.links), Ok(4), "{paths:?}");
        let committed = store.commit(&restored).expect("nobody is in the way");
        assert_eq!(tree_of_base(&scratch.0), then, "{paths:?}");
        let sequence = committed.sequence.expect("something has changed");
        let undone = store.undo(&[sequence], &[], options());
        let undone = undone.unwrap_or_else(|error| panic!("{paths:?}: {error}"));
        store.commit(&undone).expect("nobody is in the way");
        assert_eq!(tree_of_base(&scratch.0), before, "{paths:?}");
    }
    assert_eq!(store.check().problems, Vec::<String>::new());
}

#[test]
fn names_of_one_file_lead_to_one_file_again_after_a_restore() {
    let paths: [&[&str]; 4] = [&[""], &["a", "m", "z"], &["z", "m", "a"], &["m", "z", "a"]];
    names_come_back(true, &paths);
    names_come_back(false, &paths);
}

/// No other name fits beside such a name, as those of a database's logs would.
#[test]
fn files_with_the_longest_names_are_restored_undone_and_committed_alone() {
    let (scratch, store) = crate::undo_conflicts::store();
    let names: Vec<String> = (246..=255).map(|length| "n".repeat(length)).collect();
    let put_all = |view: &crate::undo_conflicts::View, bytes: &[u8]| {
        for name in &names {
            put(view, name, 0, bytes);
        }
    };
    commit(&store, |view| {
        for name in &names {
            make(view, name, NewNode::File);
        }
        put_all(view, b"old");
    });
    commit(&store, |view| put_all(view, b"new"));
    let is = |name: &str, bytes: &[u8]| {
        assert_eq!(std::fs::read(scratch.0.join(name)).expect("read"), bytes);
    };
    for name in &names {
        let path = name.as_bytes().to_vec();
        let restored = store.restore(Sequence(1), std::slice::from_ref(&path), options());
        store.commit(&restored.expect(name)).expect(name);
        is(name, b"old");
        let view = begin(&store);
        put(&view, name, 0, b"one");
        store
            .commit_portion(&view, Portion::part(&[path]), &mut |_| {})
            .expect(name);
        is(name, b"one");
        store.abort(&view);
    }
}

#[test]
fn long_undos_and_restores_report_how_far_they_have_come() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open_history(&scratch.0);
    commit(&store, |transaction| {
        for number in 0..1500 {
            put(transaction, &format!("f{number}"), 0, b"1");
        }
    });
    commit(&store, |transaction| {
        for number in 0..1500 {
            put(transaction, &format!("f{number}"), 0, b"2");
        }
    });
    let mut reports = Vec::new();
    let mut report = |progress| reports.push(progress);
    let choice = atomdir_engine::Undo {
        commits: vec![Sequence(2)],
        ..Default::default()
    };
    let undone = store.undo_reporting(&choice, None, options(), &mut report);
    store.abort(&undone.expect("nothing came later").transaction);
    let restored = store.restore_reporting(Sequence(1), &[Vec::new()], options(), &mut report);
    store.abort(&restored.expect("it is known"));
    assert!(reports.len() >= 2, "{reports:?}");
    assert!(
        reports.iter().all(|one| one.done <= one.total),
        "{reports:?}"
    );
}
