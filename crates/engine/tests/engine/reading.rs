//! Older views are read between any two calls of a commit that is being applied. A reader that
//! waited for the commit would never end here, since it runs in the thread that applies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atomdir_disk::{Disk, Kind, RenameMode};
use atomdir_engine::{
    Credentials, HistoryLimits, NodeId, Permission, Privileges, Store, Transaction,
};

use crate::support::failing::FailingDisk;
use crate::support::model::{Model, Tree, caller};
use crate::support::trees::tree_of_view;
use crate::support::{EVERYTHING, Random, Scratch, begin, create, open_caching, seeds};

/// Looks up every object of the view, so that the engine knows all nodes.
fn nodes<D: Disk>(view: &Transaction<D>, directory: NodeId, found: &mut Vec<NodeId>) {
    found.push(directory);
    for entry in view.list(directory).expect("it is listed") {
        let object = view.lookup(directory, entry.name.as_bytes());
        let object = object.expect("what is listed is found");
        match object.attributes.kind {
            Kind::Directory => nodes(view, object.node, found),
            _ => found.push(object.node),
        }
    }
}

/// Reads now, and again before every change of the disk.
fn read_before_changes(disk: FailingDisk, read: Arc<dyn Fn() + Send + Sync>) {
    read();
    let next = disk.clone();
    disk.intrude_before(0, move || read_before_changes(next, read));
}

/// Opens a store that keeps one descriptor open, so that it must look objects up again and again.
fn open_forgetful(
    disk: &FailingDisk,
    scratch: &Scratch,
    history: Option<HistoryLimits>,
) -> Store<FailingDisk> {
    let store = open_caching(1, disk.clone(), &scratch.0, root(), history);
    store.expect("the store opens")
}

fn check(seed: u64, history: Option<HistoryLimits>) {
    let (mut random, mut model) = (Random::new(seed), Model::new());
    let scratch = Scratch::new();
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let store = open_forgetful(&disk, &scratch, history);
    let change = |model: &mut Model, random: &mut Random| {
        let writer = begin(&store);
        (0..60).for_each(|_| model.step(random, &writer));
        writer
    };
    let first = change(&mut model, &mut random);
    store.commit(&first).expect("it commits");
    let expected: Tree = model.tree();
    let (known, unknown) = (begin(&store), begin(&store));
    let mut of_known = Vec::new();
    nodes(&known, NodeId::ROOT, &mut of_known);
    let writer = change(&mut model, &mut random);
    let readings = Arc::new(AtomicU64::new(0));
    let count = readings.clone();
    let read = move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let when = format!("seed {seed}, reading {number}");
        for node in &of_known {
            let names = known.xattr_names(*node);
            names.unwrap_or_else(|errno| panic!("{when}: attributes of {node:?}: {errno}"));
        }
        assert_eq!(tree_of_view(&known), expected, "{when}");
        assert_eq!(tree_of_view(&unknown), expected, "{when}, first looks");
    };
    let (reader, read) = (disk.clone(), Arc::new(read));
    disk.intrude_at_apply(move || read_before_changes(reader, read));
    store.commit(&writer).expect("it commits");
    disk.intrude_before(0, || {});
    assert!(readings.load(Ordering::Relaxed) > 1);
}

#[test]
fn older_views_are_readable_at_every_step_of_an_apply() {
    for seed in seeds(40) {
        check(seed, None);
        check(seed, Some(EVERYTHING));
    }
}

fn moving(store: &Store<FailingDisk>, from: &str, to: &str) -> Arc<Transaction<FailingDisk>> {
    let writer = begin(store);
    let [from, to] = [from, to].map(|name| {
        let found = writer.lookup(NodeId::ROOT, name.as_bytes());
        found.expect("it is there").node
    });
    let moved = writer.rename(from, b"moved", to, b"moved", RenameMode::NoReplace);
    moved.expect("it is moved");
    writer
}

/// The reader opens the directories of a path one by one. A whole commit runs after it has opened
/// the first.
#[test]
fn older_view_is_readable_while_a_commit_moves_its_directory() {
    type Read = fn(&Transaction<FailingDisk>, [NodeId; 2]);
    let reads: [Read; 5] = [
        |view, [directory, _]| assert_eq!(view.list(directory).map(|all| all.len()), Ok(1)),
        |view, [directory, _]| assert!(view.lookup(directory, b"file").is_ok()),
        |view, [directory, _]| assert!(view.xattr_names(directory).is_ok()),
        |view, [_, file]| assert!(view.attributes(file).is_ok()),
        |view, [_, file]| assert_eq!(view.read(file, 0, &mut [0; 9], caller()), Ok(8)),
    ];
    for (number, read) in reads.into_iter().enumerate() {
        let scratch = Scratch::new();
        let others: Vec<String> = (0..20).map(|number| format!("other-{number}")).collect();
        let directories = others.iter().map(String::as_str);
        for directory in directories.chain(["one/moved", "two"]) {
            std::fs::create_dir_all(scratch.0.join(directory)).expect("it is made");
        }
        std::fs::write(scratch.0.join("one/moved/file"), "contents").expect("it is written");
        create(&scratch.0);
        let disk = FailingDisk::without_flushes();
        let store = open_forgetful(&disk, &scratch, None);
        let older = begin(&store);
        let path = [b"one".as_slice(), b"moved", b"file"];
        let mut nodes = vec![NodeId::ROOT];
        for name in path {
            let found = older.lookup(nodes[nodes.len() - 1], name);
            nodes.push(found.expect("it is there").node);
        }
        let writer = moving(&store, "one", "two");
        // Opening these evicts the directory's handle from the cache.
        for other in &others {
            let found = older.lookup(NodeId::ROOT, other.as_bytes());
            let listed = older.list(found.expect("it is there").node);
            listed.expect("it is listed");
        }
        let committer = store.clone();
        disk.intrude_after_open(b"one", move || {
            committer.commit(&writer).expect("it commits");
        });
        read(&older, [nodes[2], nodes[3]]);
        let moved = scratch.0.join("two/moved");
        assert!(moved.exists(), "read {number}: the commit came between");
    }
}

/// Counts the disk calls of a path walk and a read, so that an additional one fails. Permissions
/// are checked against the attributes that the lookup has returned.
#[test]
fn reading_a_whole_file_looks_at_each_object_once() {
    if !rustix::process::geteuid().is_root() {
        // The store would check rights that this process lacks.
        return atomdir_testing::skip(
            "reading_a_whole_file_looks_at_each_object_once",
            "root's counts are compared",
        );
    }
    let scratch = Scratch::new();
    let (directory, file) = (
        scratch.0.join("directory"),
        scratch.0.join("directory/file"),
    );
    std::fs::create_dir(&directory).expect("it is made");
    std::fs::write(&file, "contents").expect("it is written");
    // Of a file that was modified lately, the view asks who has it open for writing.
    let opened = std::fs::File::options().write(true).open(&file);
    let modified = opened.and_then(|file| file.set_modified(std::time::UNIX_EPOCH));
    modified.expect("its time is set");
    // Without group permissions, a check reads no access control list.
    for (path, mode) in [(directory, 0o705), (file, 0o604)] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("they are set");
    }
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let store = open_caching(64, disk.clone(), &scratch.0, root(), None).expect("the store opens");
    let view = begin(&store);
    let user = Credentials {
        user: 12_345,
        groups: vec![12_345],
    };
    let step = |parent: NodeId, name: &[u8], permission: Permission| {
        let found = view.lookup(parent, name).expect("it is there");
        let required = view.require(found.node, &found.attributes, &user, permission);
        required.expect("others may");
        found.node
    };
    let mut costs = Vec::new();
    for _ in 0..2 {
        let before = disk.calls();
        let directory = step(NodeId::ROOT, b"directory", Permission::Search);
        let file = step(directory, b"file", Permission::Read);
        let looks = disk.calls() - before;
        let contents = view.read_whole_unmapped(file, caller());
        assert_eq!(contents.as_deref(), Ok(b"contents".as_slice()));
        costs.push((looks, disk.calls() - before - looks));
        for node in [file, directory] {
            view.forget(node, 1);
        }
    }
    // The first time, both objects are also opened, and each open is checked. The file's attributes
    // that this check finds serve the read.
    assert_eq!(costs, [(4, 3), (2, 2)]);
}

fn root() -> Privileges {
    Privileges {
        user: 0,
        groups: vec![0],
        all: true,
    }
}
