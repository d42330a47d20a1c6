//! A transaction stays open while others commit. It goes on reading its snapshot, and the
//! memory and space for that grow with the objects changed, not with the commits. What the store
//! keeps of the commits stays within its limits meanwhile.

#[path = "engine/support/mod.rs"]
mod support;

use atomdir_disk::{Disk, LinuxDisk, RenameMode};
use atomdir_engine::{BeginOptions, Durability, HistoryLimits, NewNode, NodeId, Store};
use support::model::caller;
use support::{Random, Scratch, begin, create, open_keeping, options};

const SMALL: &[u8] = b"small";
const LARGE: &[u8] = b"large";
const LARGE_LENGTH: usize = 2 << 20;

/// Memory and space are measured only in runs of at least this many commits. After a quarter of
/// them all tables have reached their size.
const MEASURED_FROM: usize = 100_000;
/// How much the control directory may grow. Beyond 32 MiB the history is shortened to half.
const HISTORY_KIB_MAX: u64 = 33 << 10;

/// The index drops removed objects before it grows. A few are in it at any time.
const KNOWN_OBJECTS_MAX: usize = 256;

/// What the store keeps so that commits can be undone.
const LIMITS: HistoryLimits = HistoryLimits {
    age_seconds_max: 1 << 30,
    bytes_max: 128 << 10,
    free_bytes_min: 0,
};

/// How many commits to make, and how many from one checkpoint to the next.
fn commits_count(full: usize) -> (usize, usize) {
    match std::env::var("ATOMDIR_TIER").as_deref() {
        Ok("full") => (full, 20_000),
        _ => (600, 100),
    }
}

/// Makes one small commit: it rewrites a file, writes a page of a large one, makes a file
/// and removes the previous one, or renames an object back or forth.
fn commit_something<D: Disk>(store: &Store<D>, random: &mut Random, turn: usize) {
    let lazy = BeginOptions {
        durability: Durability::Lazy,
        ..options()
    };
    let transaction = store.begin(lazy).expect("a transaction begins");
    let node = |name: &[u8]| {
        let found = transaction.resolve(name).expect("the path is good");
        found.expect("the file is there")
    };
    let root = NodeId::ROOT;
    match turn % 4 {
        0 => {
            let text = format!("{turn:08}");
            transaction.write(node(SMALL), 0, text.as_bytes(), false)
        }
        1 => {
            let page = random.below(LARGE_LENGTH / 4096) as u64;
            transaction.write(node(LARGE), page * 4096, &[turn as u8; 100], false)
        }
        2 => {
            let made = transaction.create(root, b"passing", NewNode::File, 0o644, 0, caller());
            made.map(|_| false)
        }
        _ => {
            let (name, new_name) = match turn / 4 % 2 {
                0 => (&b"here"[..], &b"there"[..]),
                _ => (&b"there"[..], &b"here"[..]),
            };
            let renamed = transaction.rename(root, name, root, new_name, RenameMode::NoReplace);
            renamed
                .and_then(|()| transaction.unlink(root, b"passing"))
                .map(|()| false)
        }
    }
    .expect("it is done");
    store.commit(&transaction).expect("nobody else writes that");
}

/// The process's memory, and the control directory's space, in KiB.
fn sizes(scratch: &Scratch) -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is /proc");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|rest| rest.split_whitespace().next());
    let control = scratch.0.join(".atomdir");
    let used = std::process::Command::new("du")
        .arg("-sk")
        .arg(control)
        .output();
    let used = String::from_utf8(used.expect("du runs").stdout).expect("it is text");
    let number = |text: Option<&str>| text.and_then(|text| text.parse().ok()).expect("a number");
    (number(resident), number(used.split_whitespace().next()))
}

/// One after the other, because the memory that is measured is the whole process's.
#[test]
fn snapshot_costs_grow_with_objects_not_commits() {
    commit_many(commits_count(200_000), None);
    commit_many(commits_count(1_000_000), Some(LIMITS));
}

fn commit_many((commits, between): (usize, usize), history: Option<HistoryLimits>) {
    let scratch = Scratch::new();
    create(&scratch.0);
    let path = |name: &[u8]| {
        scratch
            .0
            .join(std::str::from_utf8(name).expect("it is text"))
    };
    let large: Vec<u8> = (0..LARGE_LENGTH).map(|at| (at / 4096) as u8).collect();
    std::fs::write(path(SMALL), "snapshot").expect("written");
    std::fs::write(path(LARGE), &large).expect("written");
    std::fs::write(path(b"here"), "stays").expect("written");
    let store = open_keeping(LinuxDisk::new(), &scratch.0, history).expect("the store opens");
    let reader = begin(&store);
    let mut random = Random::new(1);
    let limbo = || {
        let limbo = std::fs::read_dir(scratch.0.join(".atomdir/limbo"));
        limbo.expect("it is there").count()
    };
    let mut after_some = None;
    let mut sizes_after_some = None;
    for turn in 0..commits {
        commit_something(&store, &mut random, turn);
        if (turn + 1) % between == 0 {
            store.maintain().expect("it is maintained");
            store.checkpoint().expect("it is durable");
            let status = store.status();
            let kept = match &status.history {
                None => (limbo(), status.retained_objects),
                Some(history) => {
                    assert!(history.commits > 0, "{status:?}");
                    // Each commit keeps one object at most, and snapshots a few.
                    let in_limbo = limbo() as u64;
                    assert!(in_limbo <= history.commits + 10, "{in_limbo}: {status:?}");
                    assert!(history.bytes <= LIMITS.bytes_max, "{status:?}");
                    (0, status.retained_objects)
                }
            };
            let (limbo, objects) = *after_some.get_or_insert(kept);
            assert_eq!(limbo, kept.0, "after {turn} commits");
            // Versions are dropped when they have doubled.
            assert!(kept.1 <= 3 * objects + 128, "{kept:?} after {turn} commits");
            let status = store.status();
            assert_eq!(status.log_bytes, 0);
            assert!(status.known_objects < KNOWN_OBJECTS_MAX, "{status:?}");
        }
        if commits >= MEASURED_FROM && turn == commits / 4 {
            sizes_after_some = Some(sizes(&scratch));
        }
    }
    if let Some((memory, space)) = sizes_after_some {
        let (memory_now, space_now) = sizes(&scratch);
        println!(
            "memory {memory} KiB, then {memory_now}; control directory {space} KiB, then {space_now}"
        );
        assert!(memory_now < memory + memory / 10);
        assert!(space_now < space + HISTORY_KIB_MAX);
    }
    let read = |name: &[u8]| {
        let node = reader.resolve(name).expect("the path is good")?;
        let mut bytes = vec![0; LARGE_LENGTH];
        let count = reader
            .read(node, 0, &mut bytes, caller())
            .expect("it is read");
        bytes.truncate(count);
        Some(bytes)
    };
    assert_eq!(read(SMALL).as_deref(), Some(&b"snapshot"[..]));
    assert_eq!(read(LARGE), Some(large));
    assert_eq!(read(b"here").as_deref(), Some(&b"stays"[..]));
    assert_eq!((read(b"there"), read(b"passing")), (None, None));
    store.abort(&reader);
    store.checkpoint().expect("it is durable");
    assert_eq!(store.status().retained_objects, 0);
    let kept = store.status().history.map_or(0, |history| history.commits);
    assert!(limbo() as u64 <= kept, "{} objects", limbo());
}
