//! Histories made by hand: the checker must report each anomaly and nothing that is
//! allowed.

use super::{Anomaly, History, Key, Level, Operation, Outcome, Transaction, check};

const X: Key = Key::Register(0);
const Y: Key = Key::Register(1);
const LIST: Key = Key::List(0);
const SET: Key = Key::Set(0);

fn read(key: Key, values: &[u64]) -> Operation {
    Operation::Read(key, values.to_vec())
}

fn write(key: Key, value: u64) -> Operation {
    Operation::Write(key, value)
}

/// Transactions a, b, c and so on, each with the moments of its begin and end.
fn history(transactions: &[(u64, u64, &[Operation])], last: &[(Key, &[u64])]) -> History {
    let named = transactions.iter().zip('a'..);
    let transactions = named.map(|((began, ended, operations), name)| Transaction {
        name: name.to_string(),
        operations: operations.to_vec(),
        outcome: Outcome::Committed,
        began: *began,
        ended: *ended,
    });
    History {
        transactions: transactions.collect(),
        last: last
            .iter()
            .map(|(key, values)| (*key, values.to_vec()))
            .collect(),
    }
}

/// Expects what each level finds: the edges of a cycle, named by their ends, or nothing.
#[track_caller]
fn expect(history: &History, snapshot: &[&str], serializable: &[&str]) {
    for (level, expected) in [
        (Level::Snapshot, snapshot),
        (Level::Serializable, serializable),
    ] {
        let mut found: Vec<String> = match check(history, level) {
            Ok(_) => Vec::new(),
            Err(Anomaly::Cycle(edges)) => edges
                .iter()
                .map(|edge| edge.from.clone() + &edge.to)
                .collect(),
            Err(other) => panic!("{other}"),
        };
        found.sort();
        assert_eq!(found, expected, "{level:?}");
    }
}

#[test]
fn serial_history_is_accepted() {
    let history = history(
        &[
            (
                1,
                2,
                &[read(X, &[]), write(X, 1), write(LIST, 1), write(SET, 1)],
            ),
            (
                3,
                4,
                &[
                    read(X, &[1]),
                    write(X, 2),
                    read(LIST, &[1]),
                    write(LIST, 2),
                    read(LIST, &[1, 2]),
                ],
            ),
            (5, 6, &[read(SET, &[1]), write(SET, 3), read(SET, &[3, 1])]),
            (
                7,
                8,
                &[
                    read(X, &[2]),
                    read(LIST, &[1, 2]),
                    read(SET, &[1, 3]),
                    read(Y, &[]),
                ],
            ),
        ],
        &[(X, &[2]), (LIST, &[1, 2]), (SET, &[1, 3])],
    );
    expect(&history, &[], &[]);
}

#[test]
fn write_skew_is_allowed_under_snapshot_only() {
    let registers = history(
        &[
            (1, 3, &[read(X, &[]), read(Y, &[]), write(X, 1)]),
            (2, 4, &[read(X, &[]), read(Y, &[]), write(Y, 2)]),
        ],
        &[(X, &[1]), (Y, &[2])],
    );
    expect(&registers, &[], &["ab", "ba"]);
    let phantoms = history(
        &[
            (1, 3, &[read(SET, &[]), write(SET, 1)]),
            (2, 4, &[read(SET, &[]), write(SET, 2)]),
        ],
        &[(SET, &[1, 2])],
    );
    expect(&phantoms, &[], &["ab", "ba"]);
}

/// Fekete, O'Neil, O'Neil: "A read-only transaction anomaly under snapshot
/// isolation" (2004).
#[test]
fn read_only_anomaly_is_allowed_under_snapshot_only() {
    let history = history(
        &[
            (1, 6, &[read(X, &[]), read(Y, &[]), write(X, 1)]),
            (2, 3, &[read(Y, &[]), write(Y, 2)]),
            (4, 5, &[read(X, &[]), read(Y, &[2])]),
        ],
        &[(X, &[1]), (Y, &[2])],
    );
    expect(&history, &[], &["ab", "bc", "ca"]);
}

#[test]
fn value_outside_any_snapshot_is_detected() {
    let long_fork = history(
        &[
            (1, 9, &[read(X, &[]), write(X, 1)]),
            (1, 9, &[read(Y, &[]), write(Y, 2)]),
            (1, 9, &[read(X, &[1]), read(Y, &[])]),
            (1, 9, &[read(X, &[]), read(Y, &[2])]),
        ],
        &[(X, &[1]), (Y, &[2])],
    );
    let cycle = ["ac", "bd", "cb", "da"];
    expect(&long_fork, &cycle, &cycle);
    let torn = history(
        &[
            (1, 9, &[read(X, &[]), write(X, 1), write(LIST, 1)]),
            (1, 9, &[read(X, &[1]), read(LIST, &[])]),
        ],
        &[(X, &[1]), (LIST, &[1])],
    );
    expect(&torn, &["ab", "ba"], &["ab", "ba"]);
    let changed_while_reading = history(
        &[
            (1, 9, &[write(LIST, 1)]),
            (1, 9, &[read(LIST, &[]), read(LIST, &[1])]),
        ],
        &[(LIST, &[1])],
    );
    expect(&changed_while_reading, &["ab", "ba"], &["ab", "ba"]);
    let circle = history(
        &[
            (1, 9, &[write(LIST, 1), read(SET, &[2])]),
            (1, 9, &[write(SET, 2), read(LIST, &[1])]),
        ],
        &[(LIST, &[1]), (SET, &[2])],
    );
    expect(&circle, &["ab", "ba"], &["ab", "ba"]);
}

#[test]
fn outdated_snapshot_is_detected_by_real_time() {
    let operations: [&[Operation]; 3] = [&[write(LIST, 1)], &[write(LIST, 2)], &[read(LIST, &[1])]];
    let last: &[(Key, &[u64])] = &[(LIST, &[1, 2])];
    let [first, second, reader] = operations;
    let at_once = history(&[(1, 2, first), (3, 6, second), (5, 8, reader)], last);
    expect(&at_once, &[], &[]);
    let stale = history(&[(1, 2, first), (3, 4, second), (5, 8, reader)], last);
    expect(&stale, &["bc", "cb"], &["bc", "cb"]);
}

#[test]
fn lost_and_dirty_values_are_detected() {
    let all = |history: &History| {
        let found = [Level::Snapshot, Level::Serializable].map(|level| check(history, level));
        assert_eq!(found[0], found[1]);
        found[0].clone().expect_err("there is an anomaly")
    };
    let both: [&[Operation]; 2] = [&[read(X, &[]), write(X, 1)], &[read(X, &[]), write(X, 2)]];
    let lost_update = history(&[(1, 3, both[0]), (2, 4, both[1])], &[(X, &[2])]);
    assert!(matches!(all(&lost_update), Anomaly::LostUpdate { .. }));
    let mut unfinished = lost_update.clone();
    unfinished.transactions[0].outcome = Outcome::Unknown;
    assert_eq!(
        check(&unfinished, Level::Serializable),
        Ok(2),
        "it did not happen"
    );
    unfinished.transactions[1].outcome = Outcome::Aborted;
    assert!(matches!(
        all(&unfinished),
        Anomaly::DirtyRead { value: 2, .. }
    ));

    let lost = history(&[(1, 2, &[write(LIST, 1)])], &[(LIST, &[])]);
    assert!(matches!(all(&lost), Anomaly::LostWrite { value: 1, .. }));
    let half = history(
        &[(1, 2, &[write(LIST, 1), write(SET, 1)])],
        &[(LIST, &[1]), (SET, &[])],
    );
    let mut half_of_unknown = half.clone();
    half_of_unknown.transactions[0].outcome = Outcome::Unknown;
    assert!(matches!(
        all(&half_of_unknown),
        Anomaly::LostWrite { value: 1, .. }
    ));

    let mut dirty = history(
        &[(1, 9, &[write(SET, 1)]), (1, 9, &[read(SET, &[1])])],
        &[(SET, &[])],
    );
    dirty.transactions[0].outcome = Outcome::Aborted;
    assert!(matches!(all(&dirty), Anomaly::DirtyRead { value: 1, .. }));
    for (writes, seen, last) in [
        (&[write(LIST, 1), write(LIST, 2)][..], &[1][..], &[1, 2][..]),
        (&[write(LIST, 1), write(LIST, 2)], &[2], &[1, 2]),
        (&[write(LIST, 1), write(LIST, 2)], &[2, 1], &[1, 2]),
    ] {
        let partly = history(
            &[(1, 9, writes), (1, 9, &[read(LIST, seen)])],
            &[(LIST, last)],
        );
        assert!(
            matches!(all(&partly), Anomaly::ImpossibleRead { .. }),
            "{seen:?}"
        );
    }
    let part_of_set = history(
        &[
            (1, 9, &[write(SET, 1), write(SET, 2)]),
            (1, 9, &[read(SET, &[2])]),
        ],
        &[(SET, &[1, 2])],
    );
    assert!(matches!(all(&part_of_set), Anomaly::ImpossibleRead { .. }));
    let intermediate = history(
        &[
            (1, 9, &[read(X, &[]), write(X, 1), write(X, 2)]),
            (1, 9, &[read(X, &[1])]),
        ],
        &[(X, &[2])],
    );
    assert!(matches!(all(&intermediate), Anomaly::ImpossibleRead { .. }));
}
