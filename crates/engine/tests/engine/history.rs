//! The history of commits is shortened. If the process dies meanwhile, at most the
//! summaries that were to be dropped are lost.

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::{Scratch, begin, create, open, open_history, open_keeping, open_with};
use atomdir_disk::{Disk, Errno};
use atomdir_engine::{
    ChangedBy, CommitError, HistoryLimits, NewNode, NodeId, Sequence, SpaceWatch, Store,
    Transaction,
};
use std::os::unix::fs::MetadataExt;

const COMMITS: u64 = 40;
const BYTES_MAX: u64 = 2048;
/// How many commits can be undone.
const KEPT: u64 = 6;

#[test]
fn shortened_history_keeps_the_newest_commits() {
    for number in 0.. {
        let scratch = Scratch::new();
        create(&scratch.0);
        let disk = FailingDisk::new(Errno::IO, true);
        let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
        for commit in 1..=COMMITS {
            let transaction = begin(&store);
            make_directory(&transaction, &format!("directory{commit}"));
            store.commit(&transaction).expect("nobody is in the way");
        }
        store.checkpoint().expect("nothing is in the way");
        disk.fail_after(number);
        let shortened = store.shorten_history(BYTES_MAX);
        let has_died = disk.has_failed();
        drop(store);

        let store = open(&scratch.0);
        assert_eq!(store.check().problems, Vec::<String>::new());
        let sequences = || -> Vec<u64> {
            let commits = store.commits().expect("the history is read");
            commits
                .iter()
                .map(|commit| commit.summary.sequence.0)
                .collect()
        };
        let kept = sequences();
        assert!(kept.ends_with(&[COMMITS - 1, COMMITS]), "{kept:?}");
        let is_shorter = kept.len() < COMMITS as usize;
        assert!(is_shorter || has_died);
        let transaction = begin(&store);
        transaction
            .remove_directory(NodeId::ROOT, b"directory1")
            .expect("it is empty");
        store.commit(&transaction).expect("nobody is in the way");
        store.checkpoint().expect("nothing is in the way");
        assert_eq!(sequences(), [&kept[..], &[COMMITS + 1]].concat());
        if !has_died {
            shortened.expect("nothing is in the way");
            break;
        }
    }
}

/// A checkpoint on a full disk frees what it can and leaves no half-written history. It shortens
/// the history itself if it has freed enough space for that; otherwise the next checkpoint does.
#[test]
fn checkpoint_on_a_full_disk_frees_what_it_can() {
    let (late, steps) = checkpoints_without_space(&FailingDisk::filling);
    assert!(late >= 2, "{late} of {steps}");
    let fails_once = || FailingDisk::new(Errno::NOSPC, false);
    assert_eq!(checkpoints_without_space(&fails_once).0, 0);
}

/// Checkpoints that meet a full disk at each of their steps. Returns how many of them left the
/// history longer than it should be, and the number of steps.
fn checkpoints_without_space(disk: &dyn Fn() -> FailingDisk) -> (u32, i64) {
    let limits = HistoryLimits {
        age_seconds_max: u64::MAX,
        bytes_max: BYTES_MAX / 4,
        free_bytes_min: 0,
    };
    let (mut shortened_late, mut number) = (0, 0);
    loop {
        let scratch = Scratch::new();
        create(&scratch.0);
        let disk = disk().flushing_nothing();
        let store = open_keeping(disk.clone(), &scratch.0, Some(limits)).expect("it opens");
        for commit in 1..=COMMITS / 4 {
            let transaction = begin(&store);
            make_directory(&transaction, &format!("directory{commit}"));
            store.commit(&transaction).expect("nobody is in the way");
        }
        let kept = || store.status().history.expect("it is kept").commits;
        let before = kept();
        disk.take_changes();
        disk.fail_after(number);
        let made = store.checkpoint();
        let has_failed = disk.has_failed();
        disk.fail_after(i64::MAX);
        let control = scratch.0.join(".atomdir");
        if made.is_ok() {
            assert_eq!(
                std::fs::read_dir(control.join("stage"))
                    .expect("listed")
                    .count(),
                0
            );
            assert!(!control.join("past.new").exists() && !control.join("history.new").exists());
            if kept() == before {
                shortened_late += 1;
                // Gives the next checkpoint something to do.
                let transaction = begin(&store);
                make_directory(&transaction, "more");
                store.commit(&transaction).expect("nobody is in the way");
                store.checkpoint().expect("there is space again");
            }
            assert!(kept() < before, "{number}");
            assert_eq!(store.check().problems, Vec::<String>::new());
        }
        if !has_failed {
            break;
        }
        number += 1;
    }
    (shortened_late, number)
}

/// A store that keeps `KEPT` commits, on a file system that then seems full.
fn full_store(scratch: &Scratch, disk: &FailingDisk, free_bytes_min: u64) -> Store<FailingDisk> {
    let limits = HistoryLimits {
        age_seconds_max: u64::MAX,
        bytes_max: u64::MAX,
        free_bytes_min,
    };
    create(&scratch.0);
    let store = open_keeping(disk.clone(), &scratch.0, Some(limits)).expect("it opens");
    for commit in 1..=KEPT {
        let transaction = begin(&store);
        make_directory(&transaction, &format!("directory{commit}"));
        store.commit(&transaction).expect("nobody is in the way");
    }
    store.checkpoint().expect("nothing is in the way");
    disk.seem_full(true);
    store
}

fn kept(store: &Store<FailingDisk>) -> u64 {
    store.status().history.expect("it is kept").commits
}

#[test]
fn a_begin_on_a_full_disk_forgets_a_part_of_the_history() {
    for (free_bytes_min, forgets) in [(0, false), (1, true)] {
        let scratch = Scratch::new();
        let disk = FailingDisk::without_flushes();
        let store = full_store(&scratch, &disk, free_bytes_min);
        assert_eq!(kept(&store), KEPT);
        store.abort(&begin(&store));
        assert_eq!(kept(&store) < KEPT, forgets);
        assert_eq!(store.check().problems, Vec::<String>::new());
    }
}

#[test]
fn history_is_shortened_when_the_file_system_runs_out_of_space() {
    for (free_bytes_min, is_open) in [(0, false), (0, true), (1, false), (1, true)] {
        let scratch = Scratch::new();
        let disk = FailingDisk::without_flushes();
        let store = full_store(&scratch, &disk, free_bytes_min);
        disk.seem_full(false);
        let open = is_open.then(|| begin(&store));
        assert_eq!(store.watch_space(), SpaceWatch::Needed);
        disk.seem_full(true);
        assert_eq!(kept(&store), KEPT);
        let mut rounds = 0;
        while store.watch_space() == SpaceWatch::Needed && rounds < KEPT {
            rounds += 1;
        }
        let (left, then) = match free_bytes_min {
            0 => (KEPT, SpaceWatch::Needed),
            _ => (0, SpaceWatch::Needless),
        };
        assert_eq!(kept(&store), left, "{rounds} rounds");
        assert_eq!(store.watch_space(), then);
        let transaction = open.unwrap_or_else(|| begin(&store));
        make_directory(&transaction, "new");
        store.commit(&transaction).expect("nobody is in the way");
        assert_eq!(store.check().problems, Vec::<String>::new());
    }
}

/// The history that an open transaction needs is dropped only once the transaction has ended.
#[test]
fn space_is_watched_while_a_transaction_holds_the_history() {
    let scratch = Scratch::new();
    let disk = FailingDisk::without_flushes();
    let store = full_store(&scratch, &disk, 1);
    disk.seem_full(false);
    let holds = begin(&store);
    let survives = store.survive(&holds, Vec::new());
    survives.expect("it can survive");
    for number in 1..=2 {
        let transaction = begin(&store);
        make_directory(&transaction, &format!("later{number}"));
        store.commit(&transaction).expect("nobody is in the way");
    }
    store.checkpoint().expect("nothing is in the way");
    disk.seem_full(true);
    while store.watch_space() == SpaceWatch::Needed {}
    assert_eq!(store.watch_space(), SpaceWatch::InVain);
    assert_eq!(kept(&store), 2);
    store.abort(&holds);
    while store.watch_space() == SpaceWatch::Needed {}
    assert_eq!(store.watch_space(), SpaceWatch::Needless);
    assert_eq!(kept(&store), 0);
}

/// In round n the n-th call finds no space. With `free_bytes_min` the history is then shortened.
#[test]
fn a_commit_on_a_full_disk_succeeds_with_the_space_of_the_history() {
    let (mut refused, mut forgot) = (0, 0);
    for number in 0.. {
        let mut has_failed = false;
        for free_bytes_min in [0, 1] {
            let scratch = Scratch::new();
            let disk = FailingDisk::new(Errno::NOSPC, false).flushing_nothing();
            let store = full_store(&scratch, &disk, free_bytes_min);
            disk.seem_full(false);
            let transaction = begin(&store);
            make_directory(&transaction, "new");
            disk.seem_full(true);
            disk.fail_after(number);
            let committed = store.commit(&transaction);
            has_failed |= disk.has_failed();
            if matches!(committed, Err(CommitError::NoSpace { .. })) {
                assert_eq!(free_bytes_min, 0, "{number}");
                assert!(transaction.is_open());
                refused += 1;
            } else if committed.is_ok() && kept(&store) <= KEPT && free_bytes_min > 0 {
                forgot += 1;
            }
        }
        if !has_failed {
            break;
        }
    }
    assert!(refused > 0 && forgot == refused, "{refused}, {forgot}");
}

/// A commit, a checkpoint and a shortening of the history happen while the history is being listed.
#[test]
fn commits_go_on_while_the_history_is_listed() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let commit = |name: &str| {
        let transaction = begin(&store);
        make_directory(&transaction, name);
        store.commit(&transaction).expect("nobody is in the way");
    };
    for number in 1..=COMMITS {
        commit(&format!("directory{number}"));
    }
    store.checkpoint().expect("nothing is in the way");
    commit("logged");
    let mut listed = Vec::new();
    let read = store.for_each_commit(|details| {
        if listed.is_empty() {
            commit("meanwhile");
            store.checkpoint().expect("nothing is in the way");
            store.shorten_history(BYTES_MAX).expect("it is shortened");
        }
        listed.push(details.summary.sequence.0);
    });
    read.expect("the history is read");
    assert_eq!(listed, (1..=COMMITS + 1).collect::<Vec<_>>());
    let left = store.commits().expect("the history is read").len() as u64;
    assert!(left < COMMITS, "{left} commits are left");
}

/// Another transaction commits while the store looks in the history for the author of a conflict.
#[test]
fn commits_go_on_while_the_author_of_a_conflict_is_looked_up() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let late = begin(&store);
    let first = begin(&store);
    make_directory(&first, "directory");
    store.commit(&first).expect("nobody is in the way");
    store.checkpoint().expect("nothing is in the way");
    make_closed_directory(&late, "directory");
    let history = std::fs::metadata(scratch.0.join(".atomdir/history")).expect("found");
    let other = store.clone();
    disk.intrude_before_read(history.ino(), move || {
        let meanwhile = begin(&other);
        make_directory(&meanwhile, "meanwhile");
        other.commit(&meanwhile).expect("nobody is in the way");
    });
    let ChangedBy::Commit { author, .. } = conflict(&store, &late) else {
        panic!("a commit is in the way");
    };
    assert_eq!(author.expect("it is kept").transaction, first.id());
    assert!(scratch.0.join("meanwhile").exists());
}

#[test]
fn conflict_with_a_forgotten_commit_names_no_transaction() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let late = begin(&store);
    for commit in 1..=COMMITS {
        let transaction = begin(&store);
        make_directory(&transaction, &format!("directory{commit}"));
        store.commit(&transaction).expect("nobody is in the way");
    }
    make_closed_directory(&late, "directory1");
    let first = |author| ChangedBy::Commit {
        sequence: Sequence(1),
        author,
    };
    assert_ne!(conflict(&store, &late), first(None));
    store.checkpoint().expect("nothing is in the way");
    store
        .shorten_history(BYTES_MAX)
        .expect("nothing is in the way");
    assert_eq!(conflict(&store, &late), first(None));
    assert_eq!(first(None).to_string(), "by commit 1");
}

fn make_directory<D: Disk>(transaction: &Transaction<D>, name: &str) {
    make_with_mode(transaction, name, 0o755);
}

/// Another directory than the one that `make_directory` makes.
fn make_closed_directory<D: Disk>(transaction: &Transaction<D>, name: &str) {
    make_with_mode(transaction, name, 0o700);
}

fn make_with_mode<D: Disk>(transaction: &Transaction<D>, name: &str, mode: u32) {
    let (name, kind) = (name.as_bytes(), NewNode::Directory);
    let made = transaction.create(NodeId::ROOT, name, kind, mode, 0, caller());
    made.expect("the name is free");
}

fn conflict<D: Disk>(store: &Store<D>, transaction: &Transaction<D>) -> ChangedBy {
    match store.commit(transaction) {
        Err(CommitError::Conflict(conflicts)) => conflicts[0].by.clone(),
        other => panic!("{other:?}"),
    }
}

/// A record carries up to 128 KiB of the old pages that its commit overwrites. More pages go to a
/// file in limbo, which needs flushes of its own.
#[test]
fn record_carries_few_old_pages() {
    const PAGE: usize = 4096;
    let scratch = Scratch::new();
    create(&scratch.0);
    std::fs::write(scratch.0.join("large"), vec![b'o'; 2 << 20]).expect("it is written");
    let store = open_history(&scratch.0);
    let overwrite = |pages: usize| {
        let transaction = begin(&store);
        let large = transaction.lookup(NodeId::ROOT, b"large");
        let large = large.expect("it is there").node;
        let written = transaction.write(large, 0, &vec![b'n'; pages * PAGE], false);
        written.expect("there is room");
        store.commit(&transaction).expect("nobody is in the way");
        let limbo = std::fs::read_dir(scratch.0.join(".atomdir/limbo"));
        limbo.expect("it can be listed").count()
    };
    assert_eq!(overwrite(32), 0);
    assert_eq!(overwrite(33), 1);
}
