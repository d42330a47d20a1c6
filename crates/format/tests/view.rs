//! Records of view logs: whatever is encoded decodes to the same value, and nothing else decodes.

use atomdir_disk::{Attachment, Identity, Kind, Name, NodeAttributes, Owner, Timestamp};
use atomdir_format::frame::Record;
use atomdir_format::view::{
    EntryDifference, ObjectPlace, ViewBegin, ViewBody, ViewChange, ViewNode, ViewObject, ViewOwn,
    ViewRecord, ViewStaged, ViewStamp,
};
use atomdir_types::{Partner, TransactionId};
use proptest::collection::vec;
use proptest::prelude::*;

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).expect("a valid name")
}

fn identity(inode: u64) -> Identity {
    Identity {
        inode,
        birth: u64::MAX - inode,
    }
}

fn time(seconds: i64) -> Timestamp {
    Timestamp {
        seconds,
        nanoseconds: 7,
    }
}

fn begin(all: bool) -> ViewChange {
    ViewChange::Begin(Box::new(ViewBegin {
        transaction: 300,
        at: 4,
        began: time(-1),
        began_change_time: time(5),
        user: 6,
        is_lazy: all,
        has_early_conflicts: all,
        first_try: all.then_some(8),
        label: b"label".to_vec(),
        past: all.then_some(3),
        attachment: all.then_some(Attachment {
            boot: [9; 16],
            disk: 10,
        }),
        coordinator: all.then(|| Partner {
            store: [11; 16],
            root: b"/srv/a".to_vec(),
            transaction: TransactionId(12),
        }),
    }))
}

fn bodies() -> Vec<ViewBody> {
    let file = |pages| ViewBody::File {
        base_limit: 5000,
        pages,
    };
    let directory = |is_touched, is_removed| ViewBody::Directory {
        is_touched,
        is_removed,
    };
    vec![
        ViewBody::Unchanged,
        file(None),
        file(Some(Vec::new())),
        file(Some(vec![(0, 1), (3, u64::MAX)])),
        directory(false, false),
        directory(true, true),
        ViewBody::Symlink(b"target".to_vec()),
        ViewBody::Special,
    ]
}

fn stamp() -> ViewStamp {
    ViewStamp {
        identity: identity(10),
        length: 11,
        modified: time(12),
        changed: time(13),
    }
}

fn node(body: ViewBody, all: bool) -> ViewChange {
    let owner = Owner { user: 1, group: 2 };
    let own = ViewOwn {
        attributes: NodeAttributes {
            inode: 1 << 52,
            kind: Kind::File,
            mode: 0o4755,
            links: 3,
            owner,
            device_number: 4,
            length: 5,
            blocks: 6,
            accessed: time(7),
            modified: time(8),
            changed: time(9),
        },
        touched: if all { 15 } else { 0 },
        stamp: all.then(stamp),
        xattrs: vec![(b"user.a".to_vec(), all.then(|| b"value".to_vec()))],
        body,
        staged: Some(ViewStaged {
            parent: all.then_some(14),
            name: name("15"),
            identity: all.then(|| identity(16)),
        }),
        dress: if all { 2 } else { 0 },
    };
    ViewChange::Node(Box::new(ViewNode {
        node: 17,
        kind: Kind::File,
        object: all.then_some(18),
        parent: 1,
        name: all.then(|| name("name")),
        reported: all.then_some((0o644, owner)),
        own: Some(own),
    }))
}

/// Every kind of change, with and without all that is optional.
fn changes() -> Vec<ViewChange> {
    let object = |place| {
        ViewChange::Object(ViewObject {
            number: 1,
            identity: identity(2),
            kind: Kind::Directory,
            place,
        })
    };
    let entry = |difference| ViewChange::Entry {
        directory: 1,
        name: name("entry"),
        difference,
    };
    let mut changes = vec![
        begin(false),
        begin(true),
        ViewChange::Note(b"note".to_vec()),
        object(ObjectPlace::Root),
        object(ObjectPlace::Limbo),
        object(ObjectPlace::Entry {
            directory: 0,
            name: name("place"),
        }),
        ViewChange::Gone { node: 3 },
        ViewChange::Pages {
            node: 4,
            start: 5,
            end: 6,
        },
        ViewChange::Dying { object: 7 },
        ViewChange::Restored { object: 8 },
        ViewChange::Succession {
            before: 7,
            after: 8,
        },
        ViewChange::Brought {
            object: 9,
            stamp: stamp(),
        },
        ViewChange::Flushed,
        ViewChange::Ended,
        entry(None),
    ];
    for (before, now) in [
        (None, None),
        (Some(1), None),
        (None, Some(2)),
        (Some(1), Some(2)),
    ] {
        changes.push(entry(Some(EntryDifference { before, now })));
    }
    for all in [false, true] {
        changes.extend(bodies().into_iter().map(|body| node(body, all)));
    }
    changes
}

#[test]
fn every_change_round_trips_and_is_refused_if_cut() {
    for change in changes() {
        let changes = vec![change];
        let record = ViewRecord {
            sequence: 1,
            changes,
        };
        let payload = record.encode_payload();
        assert_eq!(ViewRecord::decode_payload(1, &payload), Ok(record.clone()));
        for length in 0..payload.len() {
            let cut = ViewRecord::decode_payload(1, &payload[..length]);
            assert!(cut.is_err(), "{length} bytes of {record:?}");
        }
    }
}

proptest! {
    #[test]
    fn mutated_changes_are_refused_or_canonical(
        places in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let record = ViewRecord { sequence: 1, changes: changes() };
        let mut payload = record.encode_payload();
        for (place, value) in places {
            let place = place.index(payload.len());
            payload[place] = value;
        }
        if let Ok(record) = ViewRecord::decode_payload(1, &payload) {
            prop_assert_eq!(record.encode_payload(), payload);
        }
    }
}
