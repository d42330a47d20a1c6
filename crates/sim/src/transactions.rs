//! Steps of workloads in which a transaction does more than write and commit.

use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use atomdir_engine::{
    CommitError, Committed, Credentials, Durability, Isolation, LockMode, LockRequest, LockScope,
    NodeId, Patience, Portion, Transaction,
};

use crate::disk::SimDisk;
use crate::expected::Expected;
use crate::group::{Company, Moment};
use crate::opening::{SimStore, begin, begin_in_base, begin_published, options};
use crate::operation::Operation;
use crate::overlay::Overlay;
use crate::tree::{CALLER, Tree};
use crate::workload::{Driver, Step, act};

/// One part of a transaction.
#[derive(Debug, Clone)]
pub enum Act {
    Do(Vec<Operation>),
    /// Done in a nested transaction, which is committed into this one.
    Nested(Vec<Act>),
    /// Done in nested transactions that are all open before the first of them commits. Their
    /// changes do not overlap.
    Siblings(Vec<Vec<Operation>>),
    /// Done in a nested transaction that is aborted.
    Aborted(Vec<Act>),
    /// Done after a savepoint and then rolled back.
    RolledBack(Vec<Act>),
}

/// A read by a serializable transaction.
#[derive(Debug, Clone, Copy)]
pub enum Read {
    Contents(&'static str),
    Attributes(&'static str),
    Listing(&'static str),
    Missing(&'static str),
}

/// A serializable transaction during which another one commits.
#[derive(Debug, Clone)]
pub struct Reader {
    pub reads: Vec<Read>,
    pub writes: Vec<Operation>,
    /// The changes that the other one commits.
    pub meanwhile: Vec<Operation>,
    /// Whether these change what the reader has read, so that its commit is refused.
    pub is_refused: bool,
}

/// A transaction that lands a part of its changes.
#[derive(Debug, Clone)]
pub struct LandedPart {
    /// The changes that land: all that are at and below `paths`.
    pub landed: Vec<Operation>,
    pub paths: Vec<&'static str>,
    /// Done before the part lands, and not part of it.
    pub rest: Vec<Operation>,
    /// A checkpoint comes after the part has landed.
    pub checkpoint: bool,
    /// Whether the rest is committed or aborted.
    pub is_committed: bool,
}

type Open = Arc<Transaction<SimDisk>>;

/// Does the acts in the transaction and also on a plain disk, with which views
/// are compared. Acts that are undone change only a copy of the plain disk.
fn play(store: &SimStore, open: &Open, plain: &mut SimDisk, acts: &[Act], salt: u64) {
    for (salt, one) in (salt << 4..).zip(acts) {
        match one {
            Act::Do(operations) => {
                act(&**open, operations, salt);
                act(plain, operations, salt);
            }
            Act::Nested(acts) => {
                let nested = begin_nested(store, open);
                play(store, &nested, plain, acts, salt);
                commit_nested(store, &nested);
            }
            Act::Siblings(all) => {
                for nested in work_beside(store, open, plain, all, salt) {
                    commit_nested(store, &nested);
                }
            }
            Act::Aborted(acts) => {
                let nested = begin_nested(store, open);
                play(store, &nested, &mut copy(plain), acts, salt);
                assert!(store.abort(&nested), "it is open");
            }
            Act::RolledBack(acts) => {
                let name = salt.to_string();
                open.set_savepoint(name.as_bytes()).expect("it is set");
                play(store, open, &mut copy(plain), acts, salt);
                open.roll_back(name.as_bytes()).expect("it is there");
            }
        }
        assert_shows(open, plain);
    }
}

/// Begins a nested transaction for each list of operations and does the list in it and on the plain
/// disk. Each view must show its own operations only.
pub(crate) fn work_beside(
    store: &SimStore,
    outer: &Open,
    plain: &SimDisk,
    all: &[Vec<Operation>],
    salt: u64,
) -> Vec<Open> {
    let fork = copy(plain);
    let opened: Vec<Open> = all.iter().map(|_| begin_nested(store, outer)).collect();
    for (salt, (nested, operations)) in (salt << 4..).zip(opened.iter().zip(all)) {
        let alone = copy(&fork);
        act(&**nested, operations, salt);
        act(&alone, operations, salt);
        act(plain, operations, salt);
        assert_shows(nested, &alone);
    }
    opened
}

pub(crate) fn commit_nested(store: &SimStore, nested: &Open) {
    let committed = store.commit(nested);
    let sequence = committed.map(|committed| committed.sequence);
    assert!(matches!(sequence, Ok(None)), "{sequence:?}");
}

pub(crate) fn copy(plain: &SimDisk) -> SimDisk {
    SimDisk::boot(plain.image(), Default::default())
}

fn begin_nested(store: &SimStore, outer: &Open) -> Open {
    let options = options(outer.isolation(), outer.durability());
    let nested = store.begin_nested(outer, options);
    nested.expect("a nested transaction begins")
}

fn assert_shows(view: &Open, plain: &SimDisk) {
    let tree = Tree::of_view(view).expect("a view can be read");
    let (shown, plain) = (tree.without_times(), tree_of(plain).without_times());
    assert!(
        shown == plain,
        "the view shows\n{}",
        shown.difference(&plain)
    );
}

fn tree_of(disk: &SimDisk) -> Tree {
    Tree::of_image(&disk.image())
}

fn read(view: &Transaction<SimDisk>, read: Read) {
    let node = |path: &str| -> NodeId {
        let found = view.resolve(path.as_bytes()).expect("the view resolves");
        found.expect("it is there")
    };
    match read {
        Read::Contents(path) => {
            let mut bytes = [0; 1 << 14];
            let read = view.read(node(path), 0, &mut bytes, CALLER);
            read.expect("it is read");
        }
        Read::Attributes(path) => drop(view.attributes(node(path)).expect("they are read")),
        Read::Listing(path) => drop(view.list(node(path)).expect("it is listed")),
        Read::Missing(path) => {
            let found = view.resolve(path.as_bytes()).expect("the view resolves");
            assert_eq!(found, None, "nothing is there");
        }
    }
}

fn assert_conflict(committed: Result<Committed, CommitError>) {
    assert!(
        matches!(committed, Err(CommitError::Conflict(_))),
        "{committed:?}"
    );
}

impl Driver {
    pub fn transaction(&mut self, acts: &[Act], salt: u64) {
        let store = self.store();
        let open = begin(&store, Durability::Durable).expect("a transaction begins");
        let mut plain = copy(&self.plain);
        play(&store, &open, &mut plain, acts, salt);
        self.plain = plain;
        self.finish(&open);
    }

    /// Lazy commits that begin while those before them are on their way to the base.
    pub fn row(&mut self, commits: &[Vec<Operation>], salt: u64) {
        for (place, operations) in (0..).zip(commits) {
            let open = begin(&self.store(), Durability::Lazy).expect("a transaction begins");
            act(&*open, operations, salt << 4 | place);
            act(&self.plain, operations, salt << 4 | place);
            self.expect(Tree::of_image(&self.plain.image()));
            self.expected.last_mut().expect("it was added").has_times = false;
            self.allow();
            self.commit_expected(&open);
        }
    }

    /// A transaction in a native view.
    pub fn native(&mut self, operations: &[Operation], salt: u64) {
        let open = begin_in_base(&self.store(), Durability::Durable);
        self.all_is_durable();
        self.act_natively(&open.expect("a transaction begins"), operations, salt);
    }

    /// Lazy commits before it may be on their way to the base.
    pub fn native_at_once(&mut self, operations: &[Operation], salt: u64) {
        let open = begin_published(&self.store(), Durability::Durable);
        self.act_natively(&open.expect("a transaction begins"), operations, salt);
    }

    fn act_natively(&mut self, open: &Open, operations: &[Operation], salt: u64) {
        let disk = self.disk.clone();
        let overlay = Overlay::mount(&disk, open).expect("there is nothing in the way");
        act(&overlay, operations, salt);
        act(&self.plain, operations, salt);
        let taken = open.take_over_upper();
        taken.expect("the layer is as the kernel leaves it");
        self.finish(open);
    }

    pub fn reader(&mut self, reader: &Reader, salt: u64) {
        let store = self.store();
        let options = options(Isolation::Serializable, Durability::Durable);
        let open = store.begin(options).expect("a transaction begins");
        reader.reads.iter().for_each(|one| read(&open, *one));
        act(&*open, &reader.writes, salt << 4);
        self.commit(&reader.meanwhile, Durability::Durable, salt);
        if reader.is_refused {
            assert_conflict(store.commit(&open));
            store.abort(&open);
            return;
        }
        act(&self.plain, &reader.writes, salt << 4);
        // Reading its view would add to its read set.
        self.commit_unseen(&open);
    }

    pub fn part(&mut self, part: &LandedPart, salt: u64) {
        let store = self.store();
        let open = begin(&store, Durability::Durable).expect("a transaction begins");
        self.all_is_durable();
        act(&*open, &part.landed, salt);
        act(&self.plain, &part.landed, salt);
        let with_rest = copy(&self.plain);
        act(&*open, &part.rest, salt << 4);
        act(&with_rest, &part.rest, salt << 4);
        let paths = part.paths.iter().map(|path| path.as_bytes().to_vec());
        let paths: Vec<Vec<u8>> = paths.collect();
        self.commit_unseen_by(|store| {
            store.commit_portion(&open, Portion::part(&paths), &mut |_| {})
        });
        assert_shows(&open, &with_rest);
        if part.checkpoint {
            self.step(&Step::Checkpoint, salt);
        }
        if !part.is_committed {
            assert!(store.abort(&open), "it is open");
            return;
        }
        self.plain = with_rest;
        self.commit_unseen(&open);
    }

    /// One transaction holds a lock. Another that changes the same object is
    /// refused; then the first commits.
    pub fn locked(
        &mut self,
        path: &str,
        holder: &[Operation],
        other: &[Operation],
        beside: &[Operation],
        salt: u64,
    ) {
        let store = self.store();
        let open = begin(&store, Durability::Durable).expect("a transaction begins");
        let late = begin(&store, Durability::Durable).expect("a transaction begins");
        self.all_is_durable();
        let request = LockRequest {
            mode: LockMode::Exclusive,
            scope: LockScope::Subtree,
            paths: vec![path.as_bytes().to_vec()],
        };
        let root = Credentials {
            user: 0,
            groups: vec![0],
        };
        let mut patience = Patience {
            wake: Arc::new(|| ()),
            wait: &mut || false,
        };
        let locked = store.lock(&open, &request, &root, &mut patience);
        locked.expect("nobody else holds it");
        let before = self.newest().tree.clone();
        act(&*open, holder, salt << 4);
        act(&*late, other, salt << 5);
        assert_conflict(store.commit(&late));
        store.abort(&late);
        self.commit(beside, Durability::Durable, salt);
        act(&self.plain, holder, salt << 4);
        self.commit_beside(&[(&open, &before)], || {
            store.commit(&open).expect("it holds the lock");
        });
    }

    /// Other commits arrive while the first one's flush of the log runs. Lazy
    /// ones return at once. Durable ones, each in a thread of its own, wait for
    /// the next flush.
    pub fn group(
        &mut self,
        first: &[Operation],
        others: &[(Durability, Vec<Operation>)],
        moment: Moment,
        salt: u64,
    ) {
        let store = self.store();
        let begin = |durability| begin(&store, durability).expect("a transaction begins");
        let leader = begin(Durability::Durable);
        let followers: Vec<Open> = others
            .iter()
            .map(|(durability, _)| begin(*durability))
            .collect();
        self.all_is_durable();
        act(&*leader, first, salt << 4);
        act(&self.plain, first, salt << 4);
        for ((number, follower), (_, operations)) in (1..).zip(&followers).zip(others) {
            act(&**follower, operations, salt << 4 | number);
            act(&self.plain, operations, salt << 4 | number);
        }
        let before = self.newest().tree.clone();
        let mut together = vec![(&leader, &before)];
        together.extend(followers.iter().map(|follower| (follower, &before)));
        let (disk, durable) = (self.disk.clone(), self.durable);
        let waiting = Arc::new(Mutex::new(Vec::new()));
        let company = {
            let (store, disk, followers) = (store.clone(), disk.clone(), followers.clone());
            let waiting = waiting.clone();
            Company::new(moment, move || {
                for (number, follower) in (2..).zip(followers) {
                    let allowed: Vec<usize> = (durable..=durable + number).collect();
                    disk.allow(&allowed);
                    let thread = append(&store, follower);
                    let mut waiting = waiting.lock().expect("nothing panics with it");
                    waiting.extend(thread);
                }
            })
        };
        self.commit_beside(&together, || {
            disk.allow(&[durable, durable + 1]);
            disk.await_company(company);
            store.commit(&leader).expect("nobody is in the way");
            let all: Vec<usize> = (durable + 1..=durable + 1 + followers.len()).collect();
            disk.allow(&all);
            disk.release_company();
            let waiting = std::mem::take(&mut *waiting.lock().expect("nothing panics with it"));
            for thread in waiting {
                thread.join().expect("nobody is in the way");
            }
            store.sync().expect("an undisturbed sync succeeds");
        });
    }

    pub fn newest(&self) -> &Expected {
        self.expected.last().expect("there is the empty store")
    }

    /// Commits transactions that began before the newest commit and conflict with none since.
    fn commit_beside(&mut self, transactions: &[(&Open, &Tree)], commit: impl FnOnce()) {
        for (transaction, before) in transactions {
            let view = Tree::of_view(transaction).expect("a view can be read");
            let newest = self.newest();
            let expected = Expected {
                sequence: newest.sequence + 1,
                tree: newest.tree.with_changes(before, &view),
                has_directory_times: newest.has_directory_times,
                has_times: newest.has_times,
                commits_min: newest.commits_min + 1,
                undoable_from: newest.undoable_from,
                is_cancelled: false,
                surviving: None,
                digest: Default::default(),
            };
            self.expected.push(expected);
        }
        self.allow();
        commit();
        self.all_is_durable();
        let newest = self.newest();
        let difference = newest.difference(&self.disk.image());
        assert_eq!(difference, None, "after the commit");
        let plain = tree_of(&self.plain).without_times();
        let shown = newest.tree.clone().without_times();
        assert!(shown == plain, "{}", shown.difference(&plain));
    }
}

/// Returns when the commit is in the log. A durable commit then waits in its
/// thread.
fn append(store: &SimStore, transaction: Open) -> Option<JoinHandle<()>> {
    let commit = {
        let (store, transaction) = (store.clone(), transaction.clone());
        move || drop(store.commit(&transaction).expect("nobody is in the way"))
    };
    if transaction.durability() == Durability::Lazy {
        commit();
        return None;
    }
    let next = store.status().sequence.next();
    let thread = thread::spawn(commit);
    while store.status().sequence < next {
        assert!(!thread.is_finished(), "it waits for a flush");
        thread::yield_now();
    }
    Some(thread)
}
