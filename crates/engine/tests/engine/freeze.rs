//! Frozen views: nothing can change one, and a commit writes exactly what it showed.

use atomdir_disk::{Errno, RenameMode};
use atomdir_engine::{BeginError, FreezeError, NewNode, NodeId, SavepointError, SetAttributes};

use crate::support::model::caller;
use crate::support::{Scratch, begin, begin_nested, create, open, options};

#[test]
fn frozen_view_is_unchangeable_and_commits_as_shown() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let one = begin(&store);
    let file = |name: &[u8]| one.create(NodeId::ROOT, name, NewNode::File, 0o644, 0, caller());
    let kept = file(b"kept").expect("created").node;
    one.write(kept, 0, b"shown", false).expect("written");
    one.set_savepoint(b"before").expect("set");
    file(b"more").expect("created");
    let before = one.changes().expect("listed");
    one.freeze().expect("frozen");
    assert!(one.is_frozen());

    assert_eq!(file(b"new").err(), Some(Errno::ROFS));
    assert_eq!(one.write(kept, 0, b"after", false).err(), Some(Errno::ROFS));
    assert_eq!(one.allocate(kept, 0, 0, 10).err(), Some(Errno::ROFS));
    let mode = SetAttributes {
        mode: Some(0o4755),
        ..SetAttributes::default()
    };
    assert_eq!(
        one.set_attributes(kept, mode, caller()).err(),
        Some(Errno::ROFS)
    );
    assert_eq!(
        one.set_xattr(kept, b"user.k", b"v", 0, false).err(),
        Some(Errno::ROFS)
    );
    assert_eq!(one.remove_xattr(kept, b"user.k").err(), Some(Errno::ROFS));
    assert_eq!(
        one.link(kept, NodeId::ROOT, b"again").err(),
        Some(Errno::ROFS)
    );
    assert_eq!(one.unlink(NodeId::ROOT, b"kept").err(), Some(Errno::ROFS));
    assert_eq!(
        one.remove_directory(NodeId::ROOT, b"kept").err(),
        Some(Errno::ROFS)
    );
    let renamed = one.rename(
        NodeId::ROOT,
        b"kept",
        NodeId::ROOT,
        b"x",
        RenameMode::Replace,
    );
    assert_eq!(renamed.err(), Some(Errno::ROFS));
    assert_eq!(
        one.create_unnamed(NodeId::ROOT, 0o600, 0, caller()).err(),
        Some(Errno::ROFS)
    );
    assert_eq!(one.roll_back(b"before").err(), Some(SavepointError::Frozen));
    let nested = store.begin_nested(&one, options());
    assert!(matches!(nested.err(), Some(BeginError::Frozen)));

    assert_eq!(one.changes().expect("listed"), before);
    store.commit(&one).expect("committed");
    let contents = std::fs::read(scratch.0.join("kept")).expect("it was committed");
    assert_eq!(contents, b"shown");
    assert!(!scratch.0.join("new").exists());
    assert_eq!(one.freeze(), Err(FreezeError::Ended));
}

#[test]
fn freeze_is_refused_with_a_nested_transaction_and_can_be_undone() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let one = begin(&store);
    let nested = begin_nested(&store, &one);
    let id = nested.id();
    assert_eq!(one.freeze(), Err(FreezeError::Nested { nested: id }));
    store.abort(&nested);
    one.freeze().expect("frozen");
    one.thaw();
    one.create(NodeId::ROOT, b"x", NewNode::File, 0o644, 0, caller())
        .expect("it can be changed again");
}
