use super::Writers;
use super::noted_writes::{Author, Busy, NotedWrites};
use crate::base::{Base, Place};
use crate::ids::TransactionId;
use crate::locks::{Extent, Target};
use atomdir_disk::{Identity, Kind, Name};
use std::sync::Arc;

fn early(number: u64) -> Author {
    Author {
        transaction: TransactionId(number),
        age: TransactionId(number),
        is_early: true,
        label: Vec::new(),
    }
}

fn late(number: u64) -> Author {
    Author {
        is_early: false,
        ..early(number)
    }
}

fn file() -> Arc<Base> {
    let identity = Identity { inode: 1, birth: 1 };
    Base::new(0, Kind::File, identity, Place::Root)
}

fn part(base: &Arc<Base>, extent: Extent) -> Vec<Target> {
    let base = base.clone();
    vec![Target { base, extent }]
}

#[test]
fn younger_writer_of_the_same_part_conflicts() {
    let file = file();
    let pages = |start, end| part(&file, Extent::Pages(start, end));
    let mut noted = NotedWrites::default();
    assert_eq!(noted.announce(&early(5), &pages(0, 2)), Ok(()));
    // Writing another part is no conflict. If both write the same part, the younger one conflicts.
    assert_eq!(noted.announce(&early(6), &pages(2, 4)), Ok(()));
    assert_eq!(noted.announce(&early(6), &pages(1, 3)), Err(Busy));
    assert_eq!(noted.met_by(TransactionId(6)).len(), 1);
    assert_eq!(
        noted.announce(&early(6), &pages(9, 10)),
        Err(Busy),
        "for good"
    );
    // An older transaction may write over both.
    let first_try_was_older = Author {
        age: TransactionId(1),
        ..early(7)
    };
    assert_eq!(noted.announce(&first_try_was_older, &pages(0, 9)), Ok(()));
    assert_eq!(noted.announce(&early(5), &pages(20, 21)), Err(Busy));
    assert!(!noted.enter_commit(TransactionId(5)).is_empty());
    assert!(noted.enter_commit(TransactionId(7)).is_empty());
}

#[test]
fn transaction_without_early_conflicts_is_refused_at_commit() {
    let file = file();
    let attributes = || part(&file, Extent::Attributes);
    let mut noted = NotedWrites::default();
    noted.announce(&early(5), &attributes()).unwrap();
    assert_eq!(noted.announce(&late(6), &attributes()), Ok(()));
    assert_eq!(noted.enter_commit(TransactionId(6)).len(), 1);
    noted.remove(TransactionId(5));
    assert!(noted.enter_commit(TransactionId(6)).is_empty());
    // Transaction 6 has entered its commit, so even an older one is too late.
    assert_eq!(noted.announce(&early(2), &attributes()), Err(Busy));
}

#[test]
fn older_transaction_wins_without_early_conflicts() {
    let file = file();
    let name = |text: &[u8]| part(&file, Extent::Entry(Name::new(text).unwrap()));
    let mut noted = NotedWrites::default();
    noted.announce(&late(3), &name(b"a")).unwrap();
    assert_eq!(noted.announce(&early(5), &name(b"a")), Err(Busy));
    noted.announce(&early(4), &name(b"b")).unwrap();
    noted.announce(&late(3), &name(b"b")).unwrap();
    assert!(!noted.met_by(TransactionId(4)).is_empty());
    assert!(noted.enter_commit(TransactionId(3)).is_empty());
    // A removal conflicts with transactions that have written any part of the object.
    assert_eq!(
        noted.announce(&early(9), &part(&file, Extent::Object)),
        Err(Busy)
    );
}

/// A writer checks whether notes are needed. Then the last transaction that needs them ends.
#[test]
fn note_of_a_late_write_ends_with_its_transaction() {
    let file = file();
    let attributes = || part(&file, Extent::Attributes);
    let writers = Writers::default();
    writers.begin(TransactionId(1));
    assert!(writers.is_needed());
    writers.ended(TransactionId(1));
    let announced = writers.announce(&late(2), &attributes(), Vec::new());
    assert_eq!(announced, Ok(()));
    writers.note(&late(3), &attributes());
    writers.landed(&late(4), &attributes());
    assert!(writers.enter_commit(&late(5), &attributes()).is_empty());
    for ended in [2, 3, 4, 5] {
        writers.ended(TransactionId(ended));
    }
    writers.begin(TransactionId(6));
    let announced = writers.announce(&early(6), &attributes(), Vec::new());
    assert_eq!(announced, Ok(()));
}
