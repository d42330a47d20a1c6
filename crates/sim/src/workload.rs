//! A few commits in a row on a simulated disk, and what a crash at any moment may leave of them.

use std::sync::Arc;

use atomdir_disk::{Disk, Name};
use atomdir_engine::{
    CommitError, Committed, Durability, HistoryLimits, Isolation, Sequence, Transaction,
};

use crate::cancelled::Cancelled;
use crate::disk::SimDisk;
use crate::effect::Ordering;
use crate::expected::Expected;
use crate::group::Moment;
use crate::image::Image;
use crate::opening::{HISTORY, SimStore, begin, make_store, open_with, options};
use crate::operation::{Operation, Target};
use crate::survivors::{Surviving, Survivor};
use crate::trace::Trace;
use crate::transactions::{Act, LandedPart, Reader};
use crate::tree::Tree;
use crate::world::Site;

#[derive(Debug, Clone)]
pub struct Workload {
    pub name: String,
    /// The files that exist before the store.
    pub base: Vec<Operation>,
    pub steps: Vec<Step>,
    /// Commits that stage at most this much carry it in the log.
    pub carried_bytes_max: u64,
    /// Whether directories must have the times that the view showed. False if entries were changed
    /// and changed back.
    pub has_directory_times: bool,
    /// The store keeps what commits replace.
    pub keeps_history: bool,
    /// The log is on a file system of its own.
    pub has_log_elsewhere: bool,
}

#[derive(Debug, Clone)]
pub enum Step {
    /// A durable commit.
    Commit(Vec<Operation>),
    Lazy(Vec<Operation>),
    /// A commit that is durable before it is in the base.
    Deferred(Vec<Operation>),
    /// Lazy commits, each of which begins while those before it are on their way to the base.
    Row(Vec<Vec<Operation>>),
    /// Two concurrent transactions that do not conflict.
    Both(Vec<Operation>, Vec<Operation>),
    /// A durable commit of nested transactions and savepoints.
    Transaction(Vec<Act>),
    /// A durable commit of changes made in a native view.
    Native(Vec<Operation>),
    /// Likewise, but lazy commits before it may be on their way to the base.
    NativeAtOnce(Vec<Operation>),
    Serializable(Reader),
    /// While one transaction holds a lock on the path and changes it, a second one that
    /// changes it too is refused, and a third one that does not is committed.
    Locked {
        path: &'static str,
        holder: Vec<Operation>,
        other: Vec<Operation>,
        beside: Vec<Operation>,
    },
    /// A transaction that lands a part of its changes, and is then committed or aborted.
    Part(LandedPart),
    Cancelled(Cancelled),
    Survivor(Survivor),
    /// A durable commit. Others arrive during its flush of the log.
    Group(Vec<Operation>, Vec<(Durability, Vec<Operation>)>, Moment),
    /// Durable changes by an outside writer.
    Outside(Vec<Operation>),
    /// An outside writer makes these changes and does not flush them; then a durable commit makes the
    /// very same ones.
    SameUnflushed(Vec<Operation>),
    /// A durable commit makes `both` and `mine`. Before it, an outside writer has made `both` as well
    /// and has not flushed it.
    EqualUnflushed {
        both: Vec<Operation>,
        mine: Vec<Operation>,
    },
    /// From now on another program has the file open for writing.
    Use(&'static str),
    Sync,
    Checkpoint,
    /// Drops all commits but the newest from the history.
    ShortenHistory,
    /// Undoes this commit and all later ones together.
    Undo(u64),
    /// Brings the whole store back as it was after this commit.
    Restore(u64),
    /// Forgets all commits, so that none can be undone.
    Prune,
    /// Forgets the oldest commit that can be undone, and keeps the others.
    ForgetOldest,
    /// All commits get older than the history keeps any, so that none can be undone.
    Age,
    /// A transaction begins, and stays open for its snapshot.
    Snapshot,
    EndSnapshots,
    /// The store is closed normally and opened again.
    Reopen,
    /// The store is closed normally and opened again. In between, somebody removes the empty
    /// directories of its control directory, as git does, which cannot store them.
    LoseDirectories,
}

/// What a workload did without faults.
pub struct Run {
    pub trace: Trace,
    pub expected: Vec<Expected>,
    pub sites: Vec<Site>,
}

impl Workload {
    /// The disk before the trace begins: the base and an empty store.
    pub fn start(&self) -> Image {
        let disk = SimDisk::new();
        if self.has_log_elsewhere {
            disk.add_file_system();
        }
        act(&disk, &self.base, 0);
        make_store(&disk).expect("a fresh disk takes a store");
        disk.crash(true)
    }

    /// Runs the workload to its end, and records what happens to the disk.
    pub fn run(&self, ordering: Ordering, skipped: Option<Site>) -> Run {
        let mut driver = self.driver(ordering, skipped);
        driver.open();
        for (number, step) in self.steps.iter().enumerate() {
            driver.step(step, 1 + number as u64);
        }
        Run {
            trace: driver.disk.take_trace(),
            expected: driver.expected,
            sites: driver.disk.sync_sites(),
        }
    }

    /// The same with the log on a file system of its own.
    #[must_use]
    pub fn with_log_elsewhere(self) -> Workload {
        Workload {
            name: format!("{}, log elsewhere", self.name),
            has_log_elsewhere: true,
            ..self
        }
    }

    pub(crate) fn driver(&self, ordering: Ordering, skipped: Option<Site>) -> Driver {
        let disk = SimDisk::boot(self.start(), ordering);
        disk.skip_sync(skipped);
        let first = Expected {
            sequence: 0,
            tree: Tree::of_image(&disk.image()),
            has_directory_times: self.has_directory_times,
            has_times: true,
            commits_min: 0,
            undoable_from: self.keeps_history.then_some(1),
            is_cancelled: false,
            surviving: None,
            digest: Default::default(),
        };
        let plain = SimDisk::new();
        act(&plain, &self.base, 0);
        disk.start_trace();
        disk.allow(&[0]);
        Driver {
            store: None,
            snapshots: Vec::new(),
            survives_commit: None,
            expected: vec![first],
            durable: 0,
            has_directory_times: self.has_directory_times,
            carried_bytes_max: self.carried_bytes_max,
            keeps_history: self.keeps_history,
            plains: vec![plain.image()],
            plain,
            disk,
        }
    }
}

/// Does the operations. Workloads are written so that all of them succeed.
pub(crate) fn act(target: &impl Target, operations: &[Operation], salt: u64) {
    for (number, operation) in operations.iter().enumerate() {
        let done = target.act(operation, salt << 8 | number as u64);
        done.unwrap_or_else(|errno| panic!("{operation:?}: {errno}"));
    }
}

pub(crate) struct Driver {
    pub disk: SimDisk,
    store: Option<SimStore>,
    snapshots: Vec<Arc<Transaction<SimDisk>>>,
    pub expected: Vec<Expected>,
    /// The newest commit that must survive.
    pub durable: usize,
    has_directory_times: bool,
    carried_bytes_max: u64,
    keeps_history: bool,
    /// The transaction that stays open while others commit.
    pub survives_commit: Option<Surviving>,
    /// The same operations, on a disk without transactions.
    pub plain: SimDisk,
    /// That disk after each commit.
    plains: Vec<Image>,
}

impl Driver {
    pub fn open(&mut self) {
        let opened = open_with(&self.disk, self.carried_bytes_max, self.keeps_history);
        let (store, _) = opened.expect("an undisturbed store opens");
        self.store = Some(store);
    }

    pub fn store(&self) -> SimStore {
        self.store.clone().expect("the store is open")
    }

    /// A crash from now on may leave any commit from the last durable one on.
    pub fn allow(&self) {
        let allowed: Vec<usize> = (self.durable..self.expected.len()).collect();
        self.disk.allow(&allowed);
    }

    pub fn step(&mut self, step: &Step, salt: u64) {
        match step {
            Step::Commit(operations) => self.commit(operations, Durability::Durable, salt),
            Step::Deferred(operations) => self.commit(operations, Durability::Deferred, salt),
            Step::Row(commits) => self.row(commits, salt),
            Step::Lazy(operations) => self.commit(operations, Durability::Lazy, salt),
            Step::Both(first, second) => self.commit_both(first, second, salt),
            Step::Transaction(acts) => self.transaction(acts, salt),
            Step::Native(operations) => self.native(operations, salt),
            Step::NativeAtOnce(operations) => self.native_at_once(operations, salt),
            Step::Serializable(reader) => self.reader(reader, salt),
            Step::Locked {
                path,
                holder,
                other,
                beside,
            } => self.locked(path, holder, other, beside, salt),
            Step::Part(part) => self.part(part, salt),
            Step::Cancelled(cancelled) => self.cancelled(cancelled, salt),
            Step::Survivor(survivor) => self.survivor(survivor, salt),
            Step::Group(first, others, moment) => self.group(first, others, *moment, salt),
            Step::Outside(operations) => self.change_outside(operations, salt),
            Step::EqualUnflushed { both, mine } => self.commit_equal_unflushed(both, mine, salt),
            Step::SameUnflushed(operations) => self.commit_same_unflushed(operations, salt),
            Step::Use(path) => self.disk.use_file(path),
            Step::Sync => {
                self.store().sync().expect("an undisturbed sync succeeds");
                self.all_is_durable();
            }
            Step::Checkpoint => {
                let done = self.store().checkpoint();
                done.expect("an undisturbed checkpoint succeeds");
                self.all_is_durable();
            }
            Step::ShortenHistory => {
                for expected in &mut self.expected {
                    expected.commits_min = expected.commits_min.min(1);
                }
                let done = self.store().shorten_history(1);
                done.expect("an undisturbed history is shortened");
                self.all_is_durable();
            }
            Step::Undo(first) => self.undo(*first),
            Step::Restore(commit) => self.restore(*commit),
            Step::Prune => self.prune(0, self.newest().sequence + 1),
            Step::ForgetOldest => self.forget_oldest(),
            Step::Age => self.age(),
            Step::Snapshot => {
                let snapshot = begin(&self.store(), Durability::Durable);
                self.snapshots.push(snapshot.expect("a transaction begins"));
            }
            Step::EndSnapshots => {
                for snapshot in std::mem::take(&mut self.snapshots) {
                    self.store().abort(&snapshot);
                }
            }
            Step::Reopen => {
                self.step(&Step::EndSnapshots, salt);
                self.store().close().expect("an undisturbed store closes");
                self.all_is_durable();
                self.store = None;
                self.open();
            }
            Step::LoseDirectories => {
                self.step(&Step::EndSnapshots, salt);
                self.store().close().expect("an undisturbed store closes");
                self.all_is_durable();
                self.store = None;
                let control = self.disk.directory_at(".atomdir");
                let control = control.expect("the control directory is there");
                for name in ["stage", "limbo"] {
                    let name = Name::new(name.as_bytes()).expect("a constant is a valid name");
                    let removed = self.disk.remove_directory(&control, &name);
                    removed.expect("it is empty");
                }
                self.open();
            }
        }
    }

    fn change_outside(&mut self, operations: &[Operation], salt: u64) {
        self.disk.allow(&[]);
        act(&self.disk, operations, salt);
        act(&self.plain, operations, salt);
        let flushed = self.disk.sync_file_system(&self.disk.root());
        flushed.expect("an undisturbed flush succeeds");
        self.expected.push(Expected {
            tree: Tree::of_image(&self.disk.image()),
            ..self.newest().clone()
        });
        self.all_is_durable();
    }

    pub fn all_is_durable(&mut self) {
        self.durable = self.expected.len() - 1;
        self.allow();
    }

    pub fn commit(&mut self, operations: &[Operation], durability: Durability, salt: u64) {
        let store = self.store();
        let transaction = begin(&store, durability).expect("a transaction begins");
        act(&*transaction, operations, salt);
        act(&self.plain, operations, salt);
        self.finish(&transaction);
    }

    fn undo(&mut self, first: u64) {
        let commits = (first..=self.newest().sequence).map(Sequence);
        let commits: Vec<Sequence> = commits.collect();
        let begin = options(Isolation::Snapshot, Durability::Durable);
        let undone = self.store().undo(&commits, &[], begin);
        let undone = undone.unwrap_or_else(|error| panic!("from {first} on: {error}"));
        self.all_is_durable();
        let before = self.plains[first as usize - 1].clone();
        self.plain = SimDisk::boot(before, Ordering::Least);
        self.finish(&undone);
    }

    fn restore(&mut self, commit: u64) {
        let begin = options(Isolation::Snapshot, Durability::Durable);
        let restored = self.store().restore(Sequence(commit), &[Vec::new()], begin);
        let restored = restored.unwrap_or_else(|error| panic!("to {commit}: {error}"));
        self.all_is_durable();
        let then = self.plains[commit as usize].clone();
        self.plain = SimDisk::boot(then, Ordering::Least);
        self.finish(&restored);
    }

    fn forget_oldest(&mut self) {
        // Only a checkpoint makes the size of what is kept exact.
        self.step(&Step::Checkpoint, 0);
        let kept = self.store().status().history.expect("it is kept");
        let (oldest, _) = kept.oldest.expect("there is one");
        self.prune(kept.bytes - 1, oldest.0 + 1);
        let left = self.store().status().history.expect("it is kept");
        assert_eq!(left.commits, kept.commits - 1);
    }

    fn age(&mut self) {
        self.undoable_from(self.newest().sequence + 1);
        let limits = HistoryLimits {
            age_seconds_max: 0,
            ..HISTORY
        };
        for limits in [limits, HISTORY] {
            let set = self.store().set_history(Some(limits));
            set.expect("the limits of an undisturbed store are set");
            self.step(&Step::Checkpoint, 0);
        }
        let kept = self.store().status().history.expect("it is kept");
        assert_eq!(kept.commits, 0);
    }

    fn undoable_from(&mut self, from: u64) {
        for expected in &mut self.expected {
            if let Some(undoable_from) = &mut expected.undoable_from {
                *undoable_from = from;
            }
        }
    }

    /// Prunes the history to `bytes_max`. The commits from `from` on must be kept.
    fn prune(&mut self, bytes_max: u64, from: u64) {
        self.undoable_from(from);
        let limits = HistoryLimits {
            bytes_max,
            ..HISTORY
        };
        let pruned = self.store().prune(&limits);
        let pruned = pruned.expect("an undisturbed history is pruned");
        let oldest = pruned.oldest.map(|(oldest, _)| oldest.0);
        assert_eq!(oldest, (from <= self.newest().sequence).then_some(from));
        self.all_is_durable();
    }

    /// Adds the plain disk's image as the one after the next sequence.
    pub fn note_plain(&mut self) {
        self.plains.push(self.plain.image());
    }

    /// Commits changes that have also been made on the plain disk.
    pub fn finish(&mut self, transaction: &Transaction<SimDisk>) {
        self.expect_view(transaction);
        self.allow();
        self.commit_expected(transaction);
    }

    /// The base will be as the view is.
    pub fn expect_view(&mut self, transaction: &Transaction<SimDisk>) {
        let tree = Tree::of_view(transaction).expect("a view can be read");
        let plain = Tree::of_image(&self.plain.image()).without_times();
        let shown = tree.clone().without_times();
        assert!(
            shown == plain,
            "the view shows\n{}",
            shown.difference(&plain)
        );
        self.expect(tree);
    }

    /// The base will be like this tree.
    pub fn expect(&mut self, tree: Tree) {
        let newest = self.newest().clone();
        self.expected.push(Expected {
            sequence: newest.sequence + 1,
            tree,
            has_directory_times: self.has_directory_times,
            has_times: true,
            commits_min: newest.commits_min + 1,
            undoable_from: newest.undoable_from,
            is_cancelled: false,
            surviving: self.survives_commit.clone(),
            digest: Default::default(),
        });
        self.note_plain();
    }

    pub fn commit_expected(&mut self, transaction: &Transaction<SimDisk>) {
        let committed = self.store().commit(transaction);
        committed.expect("nobody is in the way");
        if transaction.durability() != Durability::Lazy {
            self.all_is_durable();
        }
        if transaction.durability() == Durability::Durable {
            let difference = self.expected[self.durable].difference(&self.disk.image());
            assert_eq!(difference, None, "after the commit");
        }
    }

    fn commit_both(&mut self, first: &[Operation], second: &[Operation], salt: u64) {
        let later = begin(&self.store(), Durability::Durable).expect("a transaction begins");
        act(&*later, second, salt << 4);
        self.commit(first, Durability::Durable, salt);
        act(&self.plain, second, salt << 4);
        self.commit_unseen(&later);
    }

    /// Like `finish`, if no view has shown the base as it will be. The base after the commit is
    /// compared with the plain disk, and becomes the expected tree.
    pub fn commit_unseen(&mut self, transaction: &Transaction<SimDisk>) {
        self.commit_unseen_by(|store| store.commit(transaction));
    }

    pub fn commit_unseen_by(
        &mut self,
        commit: impl FnOnce(&SimStore) -> Result<Committed, CommitError>,
    ) {
        let newest = self.expected[self.durable].clone();
        self.expected.push(Expected {
            sequence: newest.sequence + 1,
            commits_min: self.newest().commits_min + 1,
            is_cancelled: false,
            surviving: None,
            has_times: true,
            ..newest
        });
        self.allow();
        let committed = commit(&self.store());
        committed.expect("it meets no other commit");
        self.all_is_durable();
        let base = Tree::of_image(&self.disk.image());
        let shown = base.clone().without_times();
        let plain = Tree::of_image(&self.plain.image()).without_times();
        assert!(shown == plain, "{}", shown.difference(&plain));
        self.expected[self.durable].tree = base;
    }
}
