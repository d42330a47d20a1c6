//! Whatever is encoded decodes to the same value. Bytes that decode at all are exactly
//! those that encoding would produce. Nothing panics.

use atomdir_disk::{Attributes, Extent, Identity, Kind, Name, NewNode, Owner, Times, Timestamp};
use atomdir_format::Problem;
use atomdir_format::annotations::Annotations;
use atomdir_format::frame::Record;
use atomdir_format::past::{PastRecord, SettledBy};
use atomdir_format::privileges::PrivilegesNote;
use atomdir_format::record::{
    AttributesChange, Before, CommitRecord, ContentChange, DirectoryReference, EntryChange, Former,
    FormerPages, Locator, LogRecord, Made, ObjectReference, Run, Source, Succession, Update,
};
use atomdir_format::summary::SummaryRecord;
use atomdir_types::{Change, ChangeLine, TreePath};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn name() -> impl Strategy<Value = Name> {
    vec(any::<u8>(), 1..=Name::LENGTH_MAX)
        .prop_filter_map("a valid name", |bytes| Name::new(&bytes).ok())
}

fn identity() -> impl Strategy<Value = Identity> {
    any::<(u64, u64)>().prop_map(|(inode, birth)| Identity { inode, birth })
}

fn time() -> impl Strategy<Value = Timestamp> {
    any::<(i64, u32)>().prop_map(|(seconds, nanoseconds)| Timestamp {
        seconds,
        nanoseconds,
    })
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::File),
        Just(Kind::Directory),
        Just(Kind::Symlink),
        Just(Kind::Fifo),
        Just(Kind::Socket),
        Just(Kind::CharacterDevice),
        Just(Kind::BlockDevice),
    ]
}

/// The index of the directory may be out of range. `in_range` corrects it.
fn locator() -> impl Strategy<Value = Locator> {
    prop_oneof![
        Just(Locator::Root),
        (any::<u32>(), name()).prop_map(|(directory, name)| Locator::Entry { directory, name }),
        any::<u64>().prop_map(|slot| Locator::Staged { slot }),
    ]
}

fn content() -> impl Strategy<Value = ContentChange> {
    let extent = any::<(u64, u64)>().prop_map(|(offset, length)| Extent {
        offset: offset >> 1,
        length: length >> 1,
    });
    let cut = any::<(Option<u64>, u64, bool)>();
    let found = option::of(time());
    (cut, found, vec(extent, 0..4), source()).prop_map(
        |((keep, length, is_whole), found_modified, extents, source)| ContentChange {
            keep,
            length,
            extents,
            is_whole,
            found_modified,
            source,
        },
    )
}

fn source() -> impl Strategy<Value = Source> {
    let run = (any::<u64>(), vec(any::<u8>(), 0..40)).prop_map(|(offset, bytes)| Run {
        offset: offset >> 1,
        bytes,
    });
    prop_oneof![
        any::<u64>().prop_map(|slot| Source::Staged { slot }),
        vec(run, 0..3).prop_map(|runs| Source::Carried { runs }),
    ]
}

fn made() -> impl Strategy<Value = Made> {
    let node = prop_oneof![
        Just(NewNode::File),
        vec(any::<u8>(), 0..40).prop_map(NewNode::Symlink),
        Just(NewNode::Fifo),
        Just(NewNode::Socket),
        any::<u64>().prop_map(NewNode::CharacterDevice),
        any::<u64>().prop_map(NewNode::BlockDevice),
    ];
    (node, update()).prop_map(|(node, update)| Made { node, update })
}

fn attributes() -> impl Strategy<Value = AttributesChange> {
    let (accessed, modified) = (option::of(time()), option::of(time()));
    (
        any::<(Option<u32>, Option<u32>, Option<u32>)>(),
        accessed,
        modified,
    )
        .prop_map(
            |((mode, user, group), accessed, modified)| AttributesChange {
                mode,
                user,
                group,
                accessed,
                modified,
            },
        )
}

fn update() -> impl Strategy<Value = Update> {
    let bytes = || vec(any::<u8>(), 0..40);
    let xattrs = vec((bytes(), option::of(bytes())), 0..4);
    let owner = option::of(any::<(u32, u32)>());
    let content = option::of(content());
    (any::<u32>(), attributes(), owner, xattrs, content).prop_map(
        |(object, attributes, owner, xattrs, content)| Update {
            object,
            attributes,
            owner: owner.map(|(user, group)| Owner { user, group }),
            xattrs,
            content,
        },
    )
}

fn former() -> impl Strategy<Value = Former> {
    let bytes = || vec(any::<u8>(), 0..40);
    let run = (0..1u64 << 40, bytes()).prop_map(|(offset, bytes)| Run { offset, bytes });
    let extent = (0..1u64 << 40, 0..1u64 << 40);
    let pages = prop_oneof![
        Just(FormerPages::Limbo),
        vec(run, 0..3).prop_map(|runs| FormerPages::Carried { runs }),
    ];
    let xattrs = vec((bytes(), option::of(bytes())), 0..4);
    let numbers = any::<(u32, u32, u32, u32, u64)>();
    let times = (time(), time(), time());
    (numbers, times, xattrs, vec(extent, 0..3), pages).prop_map(
        |((object, mode, user, group, length), times, xattrs, extents, pages)| Former {
            object,
            attributes: Attributes {
                mode,
                owner: Owner { user, group },
                times: Times {
                    accessed: times.0,
                    modified: times.1,
                },
            },
            changed: times.2,
            length,
            xattrs,
            extents: extents
                .into_iter()
                .map(|(offset, length)| Extent { offset, length })
                .collect(),
            pages,
        },
    )
}

fn summary() -> impl Strategy<Value = Vec<ChangeLine<TreePath>>> {
    let change = prop_oneof![
        Just(Change::Added),
        Just(Change::Modified),
        Just(Change::Deleted),
        Just(Change::Renamed),
        Just(Change::TypeChanged),
    ];
    // Few letters, so that paths share names.
    let byte = || prop_oneof![any::<u8>(), b'a'..=b'c', Just(b'/')];
    let path = move || vec(byte(), 0..20).prop_map(|path| TreePath::from(&path[..]));
    let line = (change, path(), option::of(path())).prop_map(|(change, path, from)| ChangeLine {
        change,
        path,
        from,
    });
    vec(line, 0..5)
}

fn commit() -> impl Strategy<Value = CommitRecord> {
    let head = (any::<(u64, u64, u32)>(), time(), vec(any::<u8>(), 0..40));
    let directories = vec((identity(), locator()), 0..6);
    let objects = vec((identity(), kind(), locator()), 0..6);
    let entry = (
        any::<u32>(),
        name(),
        option::of(identity()),
        any::<Option<u32>>(),
        any::<bool>(),
    );
    let successions = vec((identity(), any::<u32>()), 0..3);
    let lists = (
        directories,
        objects,
        vec(entry, 0..6),
        vec(update(), 0..6),
        vec(made(), 0..4),
        summary(),
        option::of((
            any::<u64>(),
            vec(former(), 0..4),
            successions,
            vec(any::<u64>(), 0..3),
        )),
    );
    (head, lists).prop_map(|((ids, time, label), lists)| {
        let (directories, objects, entries, updates, made, summary, before) = lists;
        let directories: Vec<_> = (0..)
            .zip(directories)
            .map(|(before, (identity, locator))| DirectoryReference {
                identity,
                locator: in_range(locator, before),
            })
            .collect();
        let directory_count = directories.len() as u32;
        let objects: Vec<_> = objects
            .into_iter()
            .map(|(identity, kind, locator)| ObjectReference {
                identity,
                kind,
                locator: in_range(locator, directory_count),
            })
            .collect();
        let object_count = objects.len() as u32;
        let entries = entries.into_iter().filter(|_| directory_count > 0).map(
            |(directory, name, before, after, buries)| EntryChange {
                directory: directory % directory_count,
                name,
                before,
                after: after.and_then(|after| after.checked_rem(object_count)),
                buries: buries && before.is_some(),
            },
        );
        let in_range_of_objects = |update: Update| {
            let object = update.object.checked_rem(object_count)?;
            Some(Update { object, ..update })
        };
        let updates = updates.into_iter().filter_map(in_range_of_objects);
        let made = made.into_iter().filter_map(|made| {
            let update = in_range_of_objects(made.update)?;
            Some(Made { update, ..made })
        });
        let before = before.map(|(limbo_bytes, former, successions, takes_back)| {
            let former = former.into_iter().filter_map(|former| {
                let object = former.object.checked_rem(object_count)?;
                Some(Former { object, ..former })
            });
            let successions = successions.into_iter().filter_map(|(before, after)| {
                let after = u32::checked_rem(after, object_count)?;
                Some(Succession { before, after })
            });
            Before {
                limbo_bytes,
                objects: former.collect(),
                successions: successions.collect(),
                leaves_traces: takes_back.len() > 1,
                takes_back,
            }
        });

        CommitRecord {
            sequence: ids.0,
            transaction: ids.1.min(u64::MAX - 1),
            stage: ids.1,
            time,
            user: ids.2,
            groups: (ids.2 % 2 == 0).then(|| vec![ids.2; ids.2 as usize % 3]),
            is_outside: ids.2 % 3 == 0,
            label,
            directories,
            entries: entries.collect(),
            updates: updates.collect(),
            made: made.collect(),
            objects,
            summary,
            before,
        }
    })
}

fn in_range(locator: Locator, directories: u32) -> Locator {
    match locator {
        Locator::Entry { .. } if directories == 0 => Locator::Root,
        Locator::Entry { directory, name } => Locator::Entry {
            directory: directory % directories,
            name,
        },
        other => other,
    }
}

/// Decoding is strict: each record has exactly one encoding.
fn assert_canonical<R: Record>(sequence: u64, payload: &[u8]) {
    if let Ok(record) = R::decode_payload(sequence, payload) {
        assert_eq!(record.encode_payload(), payload);
    }
}

proptest! {
    #[test]
    fn commit_round_trips(record in commit()) {
        let payload = record.encode_payload();
        prop_assert_eq!(CommitRecord::decode_payload(record.sequence, &payload), Ok(record.clone()));
        let logged = LogRecord::Commit(record.clone());
        prop_assert_eq!(LogRecord::decode_payload(record.sequence, &payload), Ok(logged.clone()));
        let summary = SummaryRecord::from(logged.clone());
        let lines = summary.commit.as_ref().map(|commit| &commit.lines);
        prop_assert_eq!(lines, Some(&record.summary));
        let payload = summary.encode_payload();
        prop_assert_eq!(SummaryRecord::decode_payload(record.sequence, &payload), Ok(summary));
        if let Some(mut past) = PastRecord::of(logged, record.time) {
            past.settled_by = match record.transaction % 3 {
                0 => SettledBy::Commit,
                1 => SettledBy::Recovery,
                _ => SettledBy::Adoption,
            };
            let payload = past.encode_payload();
            prop_assert_eq!(PastRecord::decode_payload(record.sequence, &payload), Ok(past));
        }
    }

    #[test]
    fn truncated_commit_is_refused(record in commit()) {
        let payload = record.encode_payload();
        // What the commit replaces is the last part, which may be absent.
        let shorter = CommitRecord { before: None, ..record.clone() }.encode_payload();
        for length in (0..payload.len()).filter(|length| *length != shorter.len()) {
            prop_assert!(CommitRecord::decode_payload(1, &payload[..length]).is_err());
        }
        let mut longer = payload;
        longer.push(0);
        let error = CommitRecord::decode_payload(1, &longer).unwrap_err();
        let problem = record.before.map_or(Problem::Truncated, |_| Problem::Trailing);
        prop_assert_eq!(error.problem, problem);
    }

    #[test]
    fn a_mutated_commit_is_refused_or_canonical(
        record in commit(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut payload = record.encode_payload();
        for (place, value) in changes {
            let place = place.index(payload.len());
            payload[place] = value;
        }
        assert_canonical::<LogRecord>(1, &payload);
        assert_canonical::<PrivilegesNote>(1, &payload);
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_canonical(bytes in vec(any::<u8>(), 0..400)) {
        assert_canonical::<LogRecord>(1, &bytes);
        assert_canonical::<PrivilegesNote>(1, &bytes);
        assert_canonical::<SummaryRecord>(1, &bytes);
        assert_canonical::<Annotations>(1, &bytes);
        assert_canonical::<PastRecord>(1, &bytes);
    }
}

fn small() -> CommitRecord {
    let name = |name: &str| Name::new(name.as_bytes()).expect("a valid name");
    let identity = |inode| Identity { inode, birth: 0 };
    CommitRecord {
        sequence: 1,
        transaction: 2,
        stage: 3,
        time: Timestamp {
            seconds: 3,
            nanoseconds: 4,
        },
        user: 5,
        groups: None,
        is_outside: false,
        label: b"label".to_vec(),
        directories: vec![
            DirectoryReference {
                identity: identity(6),
                locator: Locator::Root,
            },
            DirectoryReference {
                identity: identity(7),
                locator: Locator::Entry {
                    directory: 0,
                    name: name("below"),
                },
            },
        ],
        objects: vec![ObjectReference {
            identity: identity(8),
            kind: Kind::File,
            locator: Locator::Staged { slot: 9 },
        }],
        entries: vec![EntryChange {
            directory: 1,
            name: name("new"),
            before: None,
            after: Some(0),
            buries: false,
        }],
        updates: vec![],
        made: vec![],
        summary: vec![],
        before: None,
    }
}

#[test]
fn invalid_index_is_neither_written_nor_read() {
    let break_it: [fn(&mut CommitRecord); 5] = [
        |record| record.entries[0].after = Some(1),
        |record| record.entries[0].directory = 2,
        |record| {
            // A directory that leads to itself.
            let name = Name::new(b"below").unwrap();
            record.directories[1].locator = Locator::Entry { directory: 1, name };
        },
        |record| {
            let attributes = AttributesChange::default();
            record.updates = vec![Update {
                object: 1,
                attributes,
                owner: None,
                xattrs: vec![],
                content: None,
            }];
        },
        |record| {
            let update = Update {
                object: 0,
                attributes: AttributesChange::default(),
                owner: None,
                xattrs: vec![],
                content: None,
            };
            let node = NewNode::Directory;
            record.made = vec![Made { node, update }];
        },
    ];
    for break_it in break_it {
        let mut record = small();
        break_it(&mut record);
        assert!(std::panic::catch_unwind(|| record.encode_payload()).is_err());
    }
    // A false index is refused when it is read, too. The last bytes are "after: 0", no updates, no
    // made objects, no paths, no summary.
    let mut payload = small().encode_payload();
    let after = payload.len() - 5;
    payload[after] = 1;
    let error = CommitRecord::decode_payload(1, &payload).unwrap_err();
    assert_eq!(error.problem, Problem::Index);
}

#[test]
fn too_large_count_is_refused_without_allocating_for_it() {
    let mut payload = small().encode_payload();
    payload.truncate(payload.len() - 1);
    // The largest possible number of summary lines, and none of them present.
    payload.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    let error = CommitRecord::decode_payload(1, &payload).unwrap_err();
    assert_eq!(error.problem, Problem::Truncated);
}

/// If this fails, stores that are in use can no longer be read: the format
/// version must change.
#[test]
fn encoded_bytes_stay_the_same() {
    let expected = [
        2, // transaction
        3, // staging directory
        3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, // time
        5, // user
        0, // no groups
        5, b'l', b'a', b'b', b'e', b'l', // label
        2,    // directories
        6, 0, 0, 0, 0, 0, 0, 0, 0, 0, // the root
        7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 5, b'b', b'e', b'l', b'o', b'w', // below it
        1,    // objects
        8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 9, // a staged file
        1, // entries
        2, 1, 3, b'n', b'e', b'w', 0, // new, in the second directory
        0, // updates
        0, // made
        0, 0, // summary: paths and lines
    ];
    assert_eq!(small().encode_payload(), expected);
}
