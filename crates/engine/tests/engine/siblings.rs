//! Several transactions nested in one at the same time, compared with a model. Each begins with
//! the outer one's tree and works by itself. A commit either joins its changes with those that
//! others have committed to the outer one since, or it has a conflict, as the model says.
//! `ATOMDIR_SEED=n` replays one run.

use std::collections::BTreeMap;
use std::sync::Arc;

use atomdir_disk::{Errno, Kind, LinuxDisk, RenameMode};
use atomdir_engine::{
    BeginError, BeginOptions, CommitError, Isolation, NewNode, NodeId, SetAttributes, Store,
    Transaction,
};
use atomdir_testing::pick;

use crate::support::cache::Cache;
use crate::support::model::{Model, caller};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{Random, Scratch, begin, begin_nested, create, open, options, seeds};

type Open = Arc<Transaction<LinuxDisk>>;

/// A transaction with those that are nested in it.
struct Family {
    open: Open,
    model: Model,
    /// The outer tree when it began.
    fork: Model,
    savepoints: Vec<(Vec<u8>, Model)>,
    nested: Vec<Family>,
    cache: Cache,
}

struct World<'a> {
    store: &'a Store<LinuxDisk>,
    random: Random,
    /// The number of the first object of the next transaction.
    next: usize,
    joined: usize,
    conflicts: usize,
}

impl Family {
    /// The kernel forgets every node but the root.
    fn forget_all(&mut self) {
        self.cache.drop_nodes(&self.open);
        forget_all(&self.open);
    }
}

fn forget_all(open: &Open) {
    for id in NodeId::ROOT.0 + 1..4000 {
        open.forget(NodeId(id), u64::MAX);
    }
}

impl World<'_> {
    fn family(&mut self, open: Open, tree: &Model) -> Family {
        self.next += 1_000_000;
        Family {
            open,
            model: tree.forked(self.next),
            fork: tree.clone(),
            savepoints: Vec::new(),
            nested: Vec::new(),
            cache: Cache::default(),
        }
    }

    fn step(&mut self, family: &mut Family, depth: usize) {
        if !family.nested.is_empty() && self.random.below(8) > 0 {
            let place = self.random.below(family.nested.len());
            return match self.random.below(6) {
                0 => self.end(family, place),
                _ => self.step(&mut family.nested[place], depth + 1),
            };
        }
        if self.random.below(4) == 0 {
            family.forget_all();
        }
        match self.random.below(8) {
            0..3 if depth < 3 && family.nested.len() < 4 => {
                let open = begin_nested(self.store, &family.open);
                assert_eq!(tree_of_view(&open), family.model.tree());
                let nested = self.family(open, &family.model);
                family.nested.push(nested);
                let ids = family.nested.iter().map(|one| one.open.id());
                assert_eq!(family.open.nested_in_it(), ids.collect::<Vec<_>>());
            }
            _ if !family.nested.is_empty() => {
                family.model.step_in_place(&mut self.random, &family.open);
                family.cache.clear();
            }
            3 => {
                let name = vec![b'x' + self.random.below(3) as u8];
                family.open.set_savepoint(&name).expect("one can be set");
                family.savepoints.retain(|(known, _)| *known != name);
                family.savepoints.push((name, family.model.clone()));
            }
            4 if !family.savepoints.is_empty() => {
                let place = self.random.below(family.savepoints.len());
                family.savepoints.truncate(place + 1);
                let (name, saved) = &family.savepoints[place];
                let outdated = family.open.roll_back(name).expect("it is there");
                family.cache.forget(&outdated);
                family.model.back_to(saved);
            }
            _ => {
                for _ in 0..1 + self.random.below(8) {
                    family.model.step(&mut self.random, &family.open);
                }
                family.cache.clear();
                if self.random.below(3) == 0 {
                    family.cache.drop_nodes(&family.open);
                }
            }
        }
        check(family);
    }

    fn end(&mut self, outer: &mut Family, place: usize) {
        while !outer.nested[place].nested.is_empty() {
            self.end(&mut outer.nested[place], 0);
        }
        let mut nested = outer.nested.remove(place);
        if self.random.below(2) == 0 {
            outer.forget_all();
            nested.forget_all();
        }
        if self.random.below(4) == 0 {
            assert!(self.store.abort(&nested.open));
            return check(outer);
        }
        let joined = outer.model.join(&nested.fork, &nested.model);
        match (self.store.commit(&nested.open), joined) {
            (Ok(committed), Ok(joined)) => {
                outer.model = joined;
                outer.cache.forget(&committed.outdated);
                self.joined += 1;
            }
            (Err(CommitError::Conflict(conflicts)), Err(_)) => {
                assert!(!conflicts.is_empty());
                assert!(nested.open.is_open());
                assert_eq!(tree_of_view(&nested.open), nested.model.tree());
                self.store.abort(&nested.open);
                self.conflicts += 1;
            }
            (committed, joined) => panic!("{committed:?}, but the model: {joined:?}"),
        }
        check(outer);
        for other in &outer.nested {
            assert_eq!(tree_of_view(&other.open), other.model.tree(), "untouched");
        }
    }
}

fn check(family: &mut Family) {
    let wanted = family.model.tree();
    assert_eq!(tree_of_view(&family.open), wanted, "the view");
    assert_eq!(family.cache.tree(&family.open), wanted, "through the cache");
    check_links(&family.open);
}

/// Each object has a number of its own, and as many links as the tree shows.
fn check_links(open: &Open) {
    let mut found = BTreeMap::from([(0, (Kind::Directory, 2, links(open, NodeId::ROOT)))]);
    walk(open, NodeId::ROOT, 0, &mut found);
    for (inode, (kind, seen, links)) in found {
        assert_eq!(links, seen, "links of {kind:?} {inode}");
    }
}

fn links(open: &Open, node: NodeId) -> u32 {
    open.attributes(node).expect("it is there").links
}

fn walk(open: &Open, node: NodeId, above: u64, found: &mut BTreeMap<u64, (Kind, u32, u32)>) {
    for entry in open.list(node).expect("a directory is listed") {
        let child = open.lookup(node, entry.name.as_bytes()).expect("there");
        let (inode, links) = (child.attributes.inode, child.attributes.links);
        match entry.kind {
            Kind::Directory => {
                let known = found.insert(inode, (entry.kind, 2, links));
                assert!(known.is_none(), "two directories with one number");
                found.entry(above).and_modify(|one| one.1 += 1);
                walk(open, child.node, inode, found);
            }
            _ => {
                let one = found.entry(inode).or_insert((entry.kind, 0, links));
                assert_eq!(one.0, entry.kind);
                one.1 += 1;
            }
        }
        open.forget(child.node, 1);
    }
}

#[test]
fn concurrent_nested_transactions_match_the_model() {
    let (mut joined, mut conflicts) = (0, 0);
    let seeds = seeds(pick(50, 2000));
    for seed in &seeds {
        println!("ATOMDIR_SEED={seed}");
        let scratch = Scratch::new();
        create(&scratch.0);
        let store = open(&scratch.0);
        let mut world = World {
            store: &store,
            random: Random::new(*seed),
            next: 0,
            joined: 0,
            conflicts: 0,
        };
        let mut committed = Model::new();
        for _ in 0..3 {
            let mut outermost = world.family(begin(&store), &committed);
            for _ in 0..40 {
                world.step(&mut outermost, 0);
            }
            while !outermost.nested.is_empty() {
                let place = world.random.below(outermost.nested.len());
                world.end(&mut outermost, place);
            }
            assert_eq!(tree_of_base(&scratch.0), committed.tree());
            store.commit(&outermost.open).expect("nobody is in the way");
            committed = outermost.model.committed();
            assert_eq!(tree_of_base(&scratch.0), committed.tree());
        }
        joined += world.joined;
        conflicts += world.conflicts;
        drop(store);
        let store = open(&scratch.0);
        assert_eq!(tree_of_base(&scratch.0), committed.tree());
        assert_eq!(store.check().problems, Vec::<String>::new());
    }
    println!("{joined} joined, {conflicts} conflicts");
    assert!(seeds.len() == 1 || conflicts > seeds.len() && joined > seeds.len());
}

fn act(view: &Open, line: &str) -> Result<(), Errno> {
    let words: Vec<&str> = line.split(' ').collect();
    let (parent, name) = place(view, words[1])?;
    match words[0] {
        "mkdir" => {
            let made = view.create(parent, name, NewNode::Directory, 0o755, 0, caller())?;
            view.forget(made.node, 1);
            Ok(())
        }
        "write" => {
            let node = match view.lookup(parent, name) {
                Ok(found) => found.node,
                Err(_) => {
                    view.create(parent, name, NewNode::File, 0o644, 0, caller())?
                        .node
                }
            };
            view.write(node, 0, words[2].as_bytes(), false).map(drop)
        }
        "chmod" => {
            let mode = u32::from_str_radix(words[2], 8).expect("a mode");
            let change = SetAttributes {
                mode: Some(mode),
                ..SetAttributes::default()
            };
            let node = view.lookup(parent, name)?.node;
            view.set_attributes(node, change, caller()).map(drop)
        }
        "mv" => {
            let (to, new) = place(view, words[2])?;
            view.rename(parent, name, to, new, RenameMode::Replace)
        }
        "rm" => view.unlink(parent, name),
        "rmdir" => view.remove_directory(parent, name),
        "save" => {
            view.set_savepoint(name).expect("a savepoint is set");
            Ok(())
        }
        "back" => {
            view.roll_back(name).expect("a savepoint is there");
            Ok(())
        }
        other => panic!("{other}"),
    }
}

fn place<'a>(view: &Open, path: &'a str) -> Result<(NodeId, &'a [u8]), Errno> {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = view.resolve(above.as_bytes())?.ok_or(Errno::NOENT)?;
    Ok((parent, name.as_bytes()))
}

fn act_all(view: &Open, lines: &str) {
    for line in lines.split("; ").filter(|line| !line.is_empty()) {
        act(view, line).unwrap_or_else(|errno| panic!("{line}: {errno}"));
        forget_all(view);
    }
}

/// Each row has the outer transaction's changes, those of two nested ones, and either the path of
/// the second one's conflict, or what the outer one can do after both have committed.
const MEETINGS: &[(&str, &str, &str, Result<&str, &str>)] = &[
    ("", "mv a b/a", "mv b a/b", Err("")),
    ("", "rmdir a", "write a/new 2", Err("a")),
    ("", "write a/new 1", "rmdir a", Err("a")),
    ("", "rmdir a", "chmod a 700", Err("a")),
    ("", "rm f", "write f 2", Err("f")),
    ("", "write f 1", "rm f", Err("f")),
    ("", "rm f", "rm f", Err("f")),
    ("write new 0", "rm new", "write new 2", Err("new")),
    ("", "write new 1", "write new 2", Err("new")),
    ("", "chmod b 700", "chmod b 711", Err("b")),
    ("", "mv a b/a", "mv a c", Err("a")),
    ("", "mv f g", "write f 2", Err("g")),
    (
        "",
        "write a/new 1",
        "mv a b/moved; write b/moved/other 2",
        Ok("rm b/moved/new; rm b/moved/other"),
    ),
    (
        "",
        "chmod a 700; write a/x 1",
        "write a/y 2; mkdir a/z",
        Ok("rmdir a/z"),
    ),
    // A directory that a rollback brings back is the same one, also if the outer one made it.
    (
        "mkdir d",
        "write d/x 1",
        "save s; rmdir d; back s; write d/y 2",
        Ok("rm d/x; rm d/y; rmdir d"),
    ),
    (
        "",
        "write a/x 1",
        "save s; rmdir a; back s; write a/y 2",
        Ok("rm a/x; rm a/y; rmdir a"),
    ),
    // A directory that was moved into another and back again is not below the other.
    ("mv a b/a", "write other 1", "mv b/a a", Ok("mv b a/b")),
];

#[test]
fn changes_of_two_nested_transactions_merge_or_conflict() {
    for (before, first, second, expected) in MEETINGS {
        for is_committed_before in [false, true] {
            println!("{before} | {first} | {second}");
            let scratch = Scratch::new();
            create(&scratch.0);
            let store = open(&scratch.0);
            let mut outer = begin(&store);
            act_all(&outer, "mkdir a; mkdir b; write f 0");
            if is_committed_before {
                store.commit(&outer).expect("nobody is in the way");
                outer = begin(&store);
            }
            act_all(&outer, before);
            let nested = [begin_nested(&store, &outer), begin_nested(&store, &outer)];
            act_all(&nested[0], first);
            act_all(&nested[1], second);
            store.commit(&nested[0]).expect("it is the first one");
            forget_all(&outer);
            match (store.commit(&nested[1]), expected) {
                (Ok(_), Ok(last)) => act_all(&outer, last),
                (Err(CommitError::Conflict(conflicts)), Err(path)) => {
                    let paths = conflicts.iter().map(|one| one.path.as_slice());
                    let paths: Vec<&[u8]> = paths.collect();
                    assert!(
                        path.is_empty() || paths.contains(&path.as_bytes()),
                        "{paths:?}"
                    );
                    store.abort(&nested[1]);
                }
                (committed, expected) => panic!("{committed:?}, not {expected:?}"),
            }
            let wanted = tree_of_view(&outer);
            store.commit(&outer).expect("nobody is in the way");
            assert_eq!(tree_of_base(&scratch.0), wanted);
        }
    }
}

/// How many objects are staged.
fn staged(scratch: &Scratch, outer: &Open) -> usize {
    let stage = scratch
        .0
        .join(".atomdir/stage")
        .join(outer.id().to_string());
    std::fs::read_dir(stage).map_or(0, Iterator::count)
}

#[test]
fn staged_files_are_removed_with_the_last_state_that_needs_them() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let outer = begin(&store);
    act_all(&outer, "write kept 0");
    let pair = || [begin_nested(&store, &outer), begin_nested(&store, &outer)];
    let [one, two] = pair();
    act_all(&one, "write kept 1; write one 1");
    act_all(&two, "write kept 2; write two 2");
    assert_eq!(staged(&scratch, &outer), 5);
    store.abort(&one);
    assert_eq!(staged(&scratch, &outer), 3);
    store.commit(&two).expect("the other one was aborted");
    assert_eq!(staged(&scratch, &outer), 2);

    let [one, two] = pair();
    act_all(&one, "write kept 1; rm two");
    store.commit(&one).expect("it is the first one");
    assert_eq!(
        staged(&scratch, &outer),
        3,
        "the other one needs two of them"
    );
    assert_eq!(two.lookup(NodeId::ROOT, b"two").map(drop), Ok(()));
    store.abort(&two);
    assert_eq!(staged(&scratch, &outer), 1);
    store.commit(&outer).expect("nobody is in the way");
    assert_eq!(std::fs::read(scratch.0.join("kept")).expect("there"), b"1");
}

#[test]
fn only_one_at_a_time_is_nested_in_a_serializable_transaction() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let serializable = BeginOptions {
        isolation: Isolation::Serializable,
        ..options()
    };
    let outer = store.begin(serializable).expect("it begins");
    let nested = begin_nested(&store, &outer);
    let second = store.begin_nested(&outer, options());
    assert!(matches!(second, Err(BeginError::Nested { .. })));
    store.commit(&nested).expect("nobody is in the way");
    begin_nested(&store, &outer);
}
