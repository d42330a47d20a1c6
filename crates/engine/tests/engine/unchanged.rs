//! What a transaction without changes leaves in its staging directory is removed by the maintenance, if the
//! caller has asked for that.

use atomdir_engine::{NewNode, NodeId};

use crate::support::model::caller;
use crate::support::{Scratch, begin, create, open};

#[test]
fn maintenance_removes_what_a_transaction_without_changes_leaves() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let staged = || {
        let checked = store.check();
        assert_eq!(checked.problems, Vec::<String>::new());
        checked.report.staging_directories
    };
    let end_one = || {
        let one = begin(&store);
        one.become_lower().expect("there is room");
        one.take_over_upper().expect("it can be read");
        store.commit(&one).expect("it has changed nothing");
    };
    end_one();
    assert_eq!((staged(), store.needs_maintenance()), (0, false));

    store.tend_stages();
    end_one();
    assert_eq!((staged(), store.needs_maintenance()), (1, true));
    store.maintain().expect("maintained");
    assert_eq!((staged(), store.needs_maintenance()), (0, false));

    // The space is free when the abort returns.
    let one = begin(&store);
    let file = one.create(NodeId::ROOT, b"file", NewNode::File, 0o644, 0, caller());
    let file = file.expect("created").node;
    one.write(file, 0, b"contents", false).expect("written");
    assert!(store.abort(&one));
    assert_eq!((staged(), store.needs_maintenance()), (0, false));

    end_one();
    store.close().expect("closed");
    let stage = scratch.0.join(".atomdir/stage");
    assert_eq!(std::fs::read_dir(stage).expect("listed").count(), 0);
}
