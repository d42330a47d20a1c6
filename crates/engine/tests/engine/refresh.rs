//! A refresh brings a transaction's snapshot up to date. Afterwards the transaction is as if it had
//! begun now and made its changes then. If it is refused, nothing has changed.
//! `ATOMDIR_SEED=n` replays one of the random runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use atomdir_disk::Errno;
use atomdir_engine::{
    BeginOptions, CommitError, Conflict, ConflictKind, Isolation, NodeId, Portion, RefreshError,
    Store, Transaction,
};
use atomdir_testing::pick;

use crate::merges::{DEEDS, GIVEN, deed};
use crate::support::failing::FailingDisk;
use crate::support::model::{Tree, caller};
use crate::support::script::{inside, outside, try_inside};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{Random, Scratch, begin, create_with, open, open_with, options, seeds};
use crate::survival::reopened;

type Open = Arc<Transaction<FailingDisk>>;

struct Run {
    scratch: Scratch,
    disk: FailingDisk,
    store: Store<FailingDisk>,
}

impl Run {
    fn new() -> Run {
        let scratch = Scratch::new();
        let disk = FailingDisk::without_flushes();
        create_with(&disk, &scratch.0);
        for line in GIVEN {
            outside(&scratch.0, &words(line));
        }
        let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
        Run {
            scratch,
            disk,
            store,
        }
    }

    fn others(&self, deeds: &str) {
        let other = begin(&self.store);
        act(&other, deeds);
        self.store.commit(&other).expect("nobody is in the way");
    }

    fn base(&self) -> Tree {
        tree_of_base(&self.scratch.0)
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn act(view: &Open, deeds: &str) {
    for deed in deeds.split("; ") {
        inside(view, &words(deed));
    }
}

fn try_all(view: &Open, deeds: &str) -> Vec<Result<(), Errno>> {
    let deeds = deeds.split("; ");
    deeds.map(|deed| try_inside(view, &words(deed))).collect()
}

fn conflicts<T>(refused: Result<T, CommitError>) -> Vec<Conflict> {
    match refused {
        Ok(_) => Vec::new(),
        Err(CommitError::Conflict(conflicts)) => conflicts,
        Err(error) => panic!("{error}"),
    }
}

fn refresh(store: &Store<FailingDisk>, view: &Open) -> Vec<Conflict> {
    conflicts(store.refresh(view).map_err(|error| match error {
        RefreshError::Commit(error) => error,
        error => panic!("{error}"),
    }))
}

/// The transaction does one operation, others do one, and after the refresh the transaction does
/// one more.
#[test]
fn refreshed_transaction_is_as_if_it_had_begun_now() {
    let mut random = Random::new(14);
    let (mut refreshed, mut refused) = (0, 0);
    // The quick run takes some pairs of each operation.
    let stride = pick(7, 1) as usize;
    for (place, mine) in DEEDS.iter().enumerate() {
        for theirs in DEEDS.iter().skip(place % stride).step_by(stride) {
            let case = format!("1 {mine}; 2 {theirs}");
            let run = Run::new();
            let one = begin(&run.store);
            act(&one, mine);
            run.others(theirs);
            let before = tree_of_view(&one);
            let listed = run.store.list_conflicts(&one).expect("listed");
            let found = refresh(&run.store, &one);
            let mut merged = found.clone();
            // A commit takes equal objects that others have created for its own. A refresh does not.
            let is_equal =
                |one: &Conflict| one.what == ConflictKind::Entry && !listed.contains(one);
            merged.retain(|one| one.what == ConflictKind::Unmerged || is_equal(one));
            assert_eq!(
                found.len(),
                listed.len() + merged.len(),
                "{case}: {found:?}"
            );
            if !found.is_empty() {
                assert_eq!(tree_of_view(&one), before, "{case}");
                refused += 1;
                continue;
            }
            refreshed += 1;
            let more = DEEDS[random.below(DEEDS.len())];
            compare_with_new(&one, mine, theirs, more);
            let shown = tree_of_view(&one);
            run.store.commit(&one).expect("nobody is in the way");
            assert_eq!(run.base(), shown, "{case}; {more}");
        }
    }
    println!("{refreshed} were refreshed, {refused} refused");
    assert!(refreshed > refused && refused > 0);
}

/// Compares `one` with a transaction that began after the others' commit, and then does `more` in
/// both.
fn compare_with_new(one: &Open, mine: &str, theirs: &str, more: &str) {
    let case = format!("1 {mine}; 2 {theirs}; 1 {more}");
    let again = Run::new();
    again.others(theirs);
    let other = begin(&again.store);
    if try_all(&other, mine).iter().any(Result::is_err) {
        // Others have moved a directory, so the same paths mean something else now.
        try_all(one, more);
        return;
    }
    assert_eq!(tree_of_view(one), tree_of_view(&other), "{case}");
    assert_eq!(one.changes(), other.changes(), "{case}");
    assert_eq!(try_all(one, more), try_all(&other, more), "{case}");
    assert_eq!(tree_of_view(one), tree_of_view(&other), "{case}");
}

/// Several transactions are refreshed and committed in any order. Some survive the death of their
/// service.
#[test]
fn the_commit_of_a_refreshed_view_lands_what_it_shows() {
    for seed in seeds(pick(60, 2000)) {
        println!("ATOMDIR_SEED={seed}");
        let mut random = Random::new(seed);
        let mut run = Run::new();
        let mut open: Vec<Open> = Vec::new();
        for _ in 0..20 {
            while open.len() < 3 {
                open.push(begin(&run.store));
            }
            for one in &open {
                for _ in 0..random.below(3) {
                    let paths = paths(one);
                    // A change that a plain directory would refuse is skipped.
                    let _ = try_inside(one, &words(&deed(&mut random, &paths)));
                }
                if random.below(3) == 0 {
                    check_refresh(&run, one, seed);
                }
            }
            let one = open.swap_remove(random.below(open.len()));
            let shown = check_refresh(&run, &one, seed);
            match (shown, random.below(3)) {
                (Some(shown), 0) => {
                    let disk = FailingDisk::without_flushes();
                    run.store.survive(&one, Vec::new()).expect("it survives");
                    refresh(&run.store, &one);
                    let id = one.id();
                    drop((one, run.store));
                    open.clear();
                    run.store = open_with(disk, &run.scratch.0).expect("it opens again");
                    let one = run.store.transaction(id).expect("it has survived");
                    assert_eq!(tree_of_view(&one), shown, "seed {seed}");
                    run.store.commit(&one).expect("nobody is in the way");
                    assert_eq!(run.base(), shown, "seed {seed}");
                }
                (Some(shown), _) => {
                    run.store.commit(&one).expect("nobody is in the way");
                    assert_eq!(run.base(), shown, "seed {seed}");
                }
                (None, _) => assert!(run.store.abort(&one)),
            }
        }
        assert_eq!(run.store.check().problems, Vec::<String>::new());
    }
}

/// Returns what the view shows if it was refreshed.
fn check_refresh(run: &Run, one: &Open, seed: u64) -> Option<Tree> {
    let before = tree_of_view(one);
    if refresh(&run.store, one).is_empty() {
        let unchanged = one.changes().expect("listed").is_empty();
        assert!(!unchanged || tree_of_view(one) == run.base(), "seed {seed}");
        return Some(tree_of_view(one));
    }
    assert_eq!(tree_of_view(one), before, "refused, seed {seed}");
    None
}

fn paths(view: &Open) -> Vec<(String, bool)> {
    let tree = tree_of_view(view).into_iter();
    let path = |path: Vec<u8>| String::from_utf8(path).expect("an ASCII path");
    tree.map(|(at, what)| (path(at), what.starts_with("directory")))
        .collect()
}

#[test]
fn serializable_transaction_is_refreshed_only_if_all_it_read_is_unchanged() {
    let serializable = || BeginOptions {
        isolation: Isolation::Serializable,
        ..options()
    };
    let run = Run::new();
    // A transaction that has only read can commit with its old snapshot. It cannot be refreshed,
    // since what it read has changed.
    let reader = run.store.begin(serializable()).expect("it begins");
    act(&reader, "read f 0");
    let other = run.store.begin(serializable()).expect("it begins");
    act(&other, "read a 0; put new x");
    run.others("put f new");
    let found = refresh(&run.store, &reader);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(run.store.list_conflicts(&reader).expect("listed"), []);
    assert_eq!(refresh(&run.store, &other), []);
    // What it read before the refresh still counts.
    run.others("put a new");
    let refused = conflicts(run.store.commit(&other).map(drop));
    assert_eq!(refused.len(), 1, "{refused:?}");
}

#[test]
fn outside_changes_before_the_refresh_are_in_the_snapshot_and_later_ones_conflict() {
    let run = Run::new();
    let one = begin(&run.store);
    act(&one, "put new x");
    outside(&run.scratch.0, &["put", "f", "outside"]);
    assert_eq!(refresh(&run.store, &one), []);
    act(&one, "append f mine");
    outside(&run.scratch.0, &["put", "a", "outside"]);
    act(&one, "rm d/f");
    outside(&run.scratch.0, &["append", "d/f", "x"]);
    let found = refresh(&run.store, &one);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].path, b"d/f");
}

#[test]
fn transaction_that_has_landed_a_part_is_refreshed_and_survives_again() {
    let run = Run::new();
    let one = begin(&run.store);
    act(&one, "put f mine; put g mine; mkdir n; put n/x mine");
    let paths = [b"f".to_vec(), b"n".to_vec()];
    let landed = run
        .store
        .commit_portion(&one, Portion::part(&paths), &mut |_| {});
    landed.expect("nobody is in the way");
    run.others("append f x; put n/y other");
    assert_eq!(refresh(&run.store, &one), []);
    act(&one, "append f y; put n/z mine");
    let shown = tree_of_view(&one);
    let id = one.id();
    run.store.survive(&one, Vec::new()).expect("it can survive");
    let Run { scratch, store, .. } = run;
    drop((one, store));
    let (store, one) = reopened(&scratch, id);
    assert_eq!(tree_of_view(&one), shown);
    store.commit(&one).expect("nobody is in the way");
    drop((one, store));
    let store = open(&scratch.0);
    assert!(store.transaction(id).is_none());
    assert_eq!(tree_of_base(&scratch.0), shown);
    let contents = std::fs::read(scratch.0.join("f")).expect("it is there");
    assert_eq!(contents, b"minexy");
}

#[test]
fn node_ids_from_before_a_refresh_never_lead_to_another_object() {
    let run = Run::new();
    let one = begin(&run.store);
    act(&one, "put mine x");
    let id = |path: &[u8]| {
        let name = path.to_vec();
        one.lookup(NodeId::ROOT, &name).expect("it is there").node
    };
    let (old, mine) = (id(b"f"), id(b"mine"));
    run.others("put f new");
    assert_eq!(refresh(&run.store, &one), []);
    assert_eq!(id(b"mine"), mine);
    assert_ne!(id(b"f"), old);
    for name in 0..50 {
        act(&one, &format!("put {name} x; rm {name}"));
    }
    let read = one.read(old, 0, &mut [0; 8], caller());
    assert_eq!(read.err(), Some(Errno::STALE));
}

#[test]
fn attributes_that_were_shown_before_a_refresh_do_not_count_afterwards() {
    // A commit checks an ordinary user's permissions against the attributes that the view has
    // shown, even for a new name.
    for (owner, directory, later) in [
        (0, "d", "chmod d 711"),
        (0, ".", "chmod . 711"),
        (1000, "d", "put d/new x"),
    ] {
        for is_outside in [false, true] {
            let run = Run::new();
            run.others("mkdir d/sub; put d/sub/f old");
            let options = BeginOptions { owner, ..options() };
            let one = run.store.begin(options).expect("it begins");
            act(&one, &format!("stat .; stat {directory}; put d/sub/f mine"));
            let chmod = format!("chmod {directory} 777");
            match is_outside {
                true => outside(&run.scratch.0, &words(&chmod)),
                false => run.others(&chmod),
            }
            assert_eq!(refresh(&run.store, &one), []);
            act(&one, &format!("stat {directory}; {later}"));
            let shown = tree_of_view(&one);
            let refused = conflicts(run.store.commit(&one).map(drop));
            assert_eq!(refused, [], "{later}, outside: {is_outside}");
            assert_eq!(run.base(), shown, "{later}");
        }
    }
}

/// In round n an outside writer acts after the n-th lookup of the directory by a refresh.
#[test]
fn outside_change_during_a_refresh_conflicts_with_the_commit() {
    let (mut refused, mut accepted) = (0, 0);
    for looks in 1.. {
        let run = Run::new();
        let one = begin(&run.store);
        act(&one, "stat d; chmod d 711");
        let root = run.scratch.0.clone();
        let left = Arc::new(AtomicUsize::new(looks));
        let chmod = move || outside(&root, &["chmod", "d", "700"]);
        act_after_looks(run.disk.clone(), left.clone(), Box::new(chmod));
        let found = refresh(&run.store, &one);
        if left.load(Ordering::SeqCst) > 0 {
            break;
        }
        match found.is_empty() {
            true => accepted += 1,
            false => refused += 1,
        }
        let found = conflicts(run.store.commit(&one).map(drop));
        assert_eq!(found.len(), 1, "after look {looks}: {found:?}");
        assert_eq!(found[0].path, b"d");
    }
    println!("{refused} refreshes were refused, {accepted} not");
    assert!(refused > 0 && accepted > 0);
}

fn act_after_looks(disk: FailingDisk, left: Arc<AtomicUsize>, act: Box<dyn FnOnce() + Send>) {
    let again = disk.clone();
    disk.intrude_after_lookup(b"d", move || {
        if left.fetch_sub(1, Ordering::SeqCst) == 1 {
            act();
        } else {
            act_after_looks(again, left, act);
        }
    });
}

/// Once the new name of an old file has landed, the transaction no longer changes that file. Others
/// may change it, and it has as many links as in the base.
#[test]
fn refresh_is_possible_after_a_hard_link_has_landed() {
    use std::os::unix::fs::MetadataExt;
    for theirs in [
        "put e/other x",
        "append f x",
        "chmod f 600",
        "ln f third",
        "rm new",
    ] {
        let run = Run::new();
        let one = begin(&run.store);
        act(&one, "ln f new; put rest x");
        let landed = run
            .store
            .commit_portion(&one, Portion::part(&[b"new".to_vec()]), &mut |_| {});
        landed.expect("nobody is in the way");
        run.others(theirs);
        assert_eq!(refresh(&run.store, &one), [], "{theirs}");
        let file = one.lookup(NodeId::ROOT, b"f").expect("it is there");
        let links = std::fs::metadata(run.scratch.0.join("f"))
            .expect("it is there")
            .nlink();
        assert_eq!(u64::from(file.attributes.links), links, "{theirs}");
        let shown = tree_of_view(&one);
        run.store.commit(&one).expect("nobody is in the way");
        assert_eq!(run.base(), shown, "{theirs}");
    }
}
