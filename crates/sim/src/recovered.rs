//! Starts the program again on what a death has left, lets it recover, and compares.
//!
//! Workloads, the two orderings, kills and left out syncs lead to many of the same states of the disk.
//! What a recovery finds depends on nothing but the state from which it starts, so that each state is
//! recovered and compared once in the life of the test's process, for each tree that it may show.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex};

use atomdir_disk::sync;
use atomdir_engine::{CARRIED_BYTES_MAX, Durability, Isolation, Sequence};

use crate::disk::SimDisk;
use crate::effect::Ordering;
use crate::expected::Expected;
use crate::image::Image;
use crate::opening::{SimStore, open_with, options};
use crate::operation::{Node, Operation};
use crate::survivors::{self, Found};
use crate::trace::Trace;
use crate::tree::Tree;
use crate::workload::act;
use crate::world::Site;

/// A state from which a machine starts, and whether the store keeps history.
type State = (u64, u64, bool);

/// Recoveries that were compared, and were as expected.
#[derive(Default)]
struct Compared {
    /// The newest commit of the store that a recovery has opened.
    sequences: HashMap<State, u64>,
    /// By the state and what it was compared with: the lines that have asked for a sync.
    sites: HashMap<(State, u64), Arc<[Site]>>,
    /// The few different values of `sites`, to share them.
    lists: BTreeSet<Arc<[Site]>>,
}

static COMPARED: LazyLock<Mutex<Compared>> = LazyLock::new(Mutex::default);

/// Starts a machine on the image, recovers and compares, unless that was done before. Returns the
/// lines that have asked for a sync.
///
/// Neither a sync that is left out nor the ordering matters here: they change what another crash
/// leaves, and not what programs see.
pub(crate) fn recover_once(
    image: Image,
    allowed: &[usize],
    expected: &[Expected],
) -> Result<Arc<[Site]>, String> {
    let keeps_history = expected[0].undoable_from.is_some();
    let state = (image.hash(), image.hash_of_rest(), keeps_history);
    let at = |found: usize| (state, compared_with(&expected[..=found]));
    let before = {
        let compared = sync::lock(&COMPARED);
        let sequence = compared.sequences.get(&state);
        let found = sequence.and_then(|sequence| allowed_at(*sequence, allowed, expected));
        found.and_then(|found| compared.sites.get(&at(found)).cloned())
    };
    if let Some(sites) = before {
        return Ok(sites);
    }
    let booted = SimDisk::boot(image, Ordering::Least);
    let Opened { store, found, .. } = open_and_compare(&booted, allowed, expected)?;
    check_undo(&booted, &store, &expected[..=found])?;
    let sites: Arc<[Site]> = booted.sync_sites().into();
    let mut compared = sync::lock(&COMPARED);
    let known = compared.lists.get(&sites).cloned();
    let sites = known.unwrap_or(sites);
    compared.lists.insert(sites.clone());
    compared.sequences.insert(state, expected[found].sequence);
    compared.sites.insert(at(found), sites.clone());
    Ok(sites)
}

/// What a recovery is compared with that finds the last of these.
fn compared_with(expected: &[Expected]) -> u64 {
    let is_undoable = |one: &&Expected| one.undoable_from.is_some();
    let may_undo = expected.first().is_some_and(|one| is_undoable(&one))
        || expected.last().is_some_and(|one| is_undoable(&one));
    // The earlier ones are what undoing gives.
    let from = if may_undo { 0 } else { expected.len() - 1 };
    let mut hasher = DefaultHasher::new();
    for one in &expected[from..] {
        one.digest().hash(&mut hasher);
    }
    hasher.finish()
}

/// The tree of this commit among those that are allowed.
fn allowed_at(sequence: u64, allowed: &[usize], expected: &[Expected]) -> Option<usize> {
    let mut allowed = allowed.iter().copied();
    allowed.find(|tree| expected[*tree].sequence == sequence)
}

/// Recovers and compares. If this run is traced, makes one more commit, and returns what
/// crashes in the trace may leave.
pub(crate) fn recover(
    disk: &SimDisk,
    allowed: &[usize],
    expected: &[Expected],
    traced: bool,
) -> Result<Option<(Trace, Vec<Expected>)>, String> {
    if traced {
        disk.start_trace();
        disk.allow(allowed);
    }
    let Opened {
        store,
        found,
        survivor,
    } = open_and_compare(disk, allowed, expected)?;
    if !traced {
        check_undo(disk, &store, &expected[..=found])?;
        return Ok(None);
    }
    let sequence = expected[found].sequence;
    let mut expected = expected.to_vec();
    // A commit that recovery does not find cancelled is not cancelled later.
    let later = expected[found + 1..].iter_mut();
    let never = later.filter(|later| later.is_cancelled);
    never.for_each(|never| never.sequence = u64::MAX);
    let reopened = survivors::expect_again(disk, &mut expected, found, &survivor);
    disk.allow(&[reopened]);
    let (transaction, surviving) = survivors::or_begin(&store, survivor, &expected[reopened])?;
    let directory = format!("probe-{sequence}");
    let file = format!("{directory}/inside");
    let operations = [
        Operation::Make(directory, Node::Directory),
        Operation::File(file, 700),
    ];
    act(&*transaction, &operations, sequence);
    let tree = Tree::of_view(&transaction).map_err(|errno| format!("view: {errno}"))?;
    expected.push(Expected {
        sequence: sequence + 1,
        tree,
        has_times: true,
        commits_min: expected[found].commits_min + 1,
        is_cancelled: false,
        surviving,
        ..expected[found].clone()
    });
    disk.allow(&[reopened, expected.len() - 1]);
    store
        .commit(&transaction)
        .map_err(|error| format!("the commit after recovery: {error}"))?;
    disk.allow(&[expected.len() - 1]);
    let trace = disk.take_trace();
    let mut reached = expected[..=found].to_vec();
    reached.extend(expected.last().cloned());
    check_undo(disk, &store, &reached)?;
    Ok(Some((trace, expected)))
}

/// A store after recovery, and which tree it shows.
struct Opened {
    store: SimStore,
    found: usize,
    survivor: Found,
}

fn open_and_compare(
    disk: &SimDisk,
    allowed: &[usize],
    expected: &[Expected],
) -> Result<Opened, String> {
    let keeps_history = expected[0].undoable_from.is_some();
    let opened = open_with(disk, CARRIED_BYTES_MAX, keeps_history);
    let (store, _) = opened.map_err(|error| format!("recovery: {error}"))?;
    let sequence = store.status().sequence.0;
    let Some(found) = allowed_at(sequence, allowed, expected) else {
        let allowed = allowed.iter().map(|tree| expected[*tree].sequence);
        let allowed: Vec<u64> = allowed.collect();
        return Err(format!(
            "commit {sequence} is the last, which should be one of {allowed:?}"
        ));
    };
    if let Some(difference) = expected[found].difference(&disk.image()) {
        return Err(format!(
            "the base is not as of commit {sequence}:\n{difference}"
        ));
    }
    let survivor = survivors::check(disk, &store, &expected[found])?;
    let problems = store.check().problems;
    if !problems.is_empty() {
        return Err(format!("check: {problems:?}"));
    }
    let commits = store.commits().map_err(|error| error.to_string())?;
    let newest = commits.last().map_or(0, |newest| newest.summary.sequence.0);
    let is_commit = !expected[found].is_cancelled;
    if (newest == sequence) != is_commit || (commits.len() as u64) < expected[found].commits_min {
        let count = commits.len();
        return Err(format!(
            "{count} commits are known, the last is {newest} of {sequence}"
        ));
    }
    Ok(Opened {
        store,
        found,
        survivor,
    })
}

/// Undoes the newest commit, and then all kept commits together. Each undo must give the tree
/// before. `expected` ends with the tree that is in the base.
fn check_undo(disk: &SimDisk, store: &SimStore, expected: &[Expected]) -> Result<(), String> {
    let Some(newest) = expected.last() else {
        return Ok(());
    };
    let Some(wanted) = newest.undoable_from else {
        return Ok(());
    };
    // The store must keep what is expected.
    let oldest = store.status().history.and_then(|history| history.oldest);
    let from = oldest.map_or(newest.sequence + 1, |(oldest, _)| oldest.0);
    if wanted <= newest.sequence && from > wanted {
        return Err(format!(
            "commits are kept from {from} on, not from {wanted}"
        ));
    }
    if from > newest.sequence {
        return Ok(());
    }
    let before = |first: u64| {
        let mut trees = expected.iter().rev();
        let wanted = trees.find(|tree| tree.sequence == first - 1);
        wanted.ok_or(format!("no tree before commit {first}"))
    };
    let undo = |first: u64| {
        let commits: Vec<Sequence> = (first..=newest.sequence).map(Sequence).collect();
        let begin = options(Isolation::Snapshot, Durability::Durable);
        let undone = store.undo(&commits, &[], begin);
        undone.map_err(|error| format!("undo from commit {first} on: {error}"))
    };
    if !newest.is_cancelled {
        let undone = undo(newest.sequence)?;
        let shown = Tree::of_view(&undone).map_err(|errno| format!("view of an undo: {errno}"))?;
        let wanted = before(newest.sequence)?;
        if let Some(difference) = wanted.difference_but_times_of_directories(shown) {
            let sequence = newest.sequence;
            return Err(format!("commit {sequence} undone:\n{difference}"));
        }
        store.abort(&undone);
    }
    let undone = undo(from)?;
    let committed = store.commit(&undone);
    committed.map_err(|error| format!("undo from commit {from} on: {error}"))?;
    let shown = Tree::of_image(&disk.image());
    match before(from)?.difference_but_times_of_directories(shown) {
        Some(difference) => Err(format!("undone from commit {from} on:\n{difference}")),
        None => Ok(()),
    }
}
