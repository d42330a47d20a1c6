//! Older views are read between any two calls of a commit that is being applied. A reader that
//! waited for the commit would never end here, since it runs in the thread that applies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atomdir_disk::{Disk, Kind};
use atomdir_engine::{HistoryLimits, NodeId, Privileges, Transaction};

use crate::support::failing::FailingDisk;
use crate::support::model::{Model, Tree};
use crate::support::trees::tree_of_view;
use crate::support::{EVERYTHING, Random, Scratch, begin, create, open_caching, seeds};

/// Every object of the view, so that the engine knows them.
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

/// Reads again before every change that the disk is asked for.
fn read_before_changes(disk: FailingDisk, read: Arc<dyn Fn() + Send + Sync>) {
    read();
    let next = disk.clone();
    disk.intrude_before(0, move || read_before_changes(next, read));
}

fn check(seed: u64, history: Option<HistoryLimits>) {
    let (mut random, mut model) = (Random::new(seed), Model::new());
    let scratch = Scratch::new();
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let privileges = Privileges {
        user: 0,
        groups: vec![0],
        all: true,
    };
    let store = open_caching(1, disk.clone(), &scratch.0, privileges, history);
    let store = store.expect("the store opens");
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
fn older_views_are_read_at_every_moment_of_an_apply() {
    for seed in seeds(40) {
        check(seed, None);
        check(seed, Some(EVERYTHING));
    }
}
