//! Transactions that survive the death of their service. A death is simulated by dropping the
//! store without any call that ends it in order. `ATOMDIR_SEED=n` replays one run.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use atomdir_disk::{LinuxDisk, RenameMode};
use atomdir_engine::{CommitError, NewNode, Store, Transaction, TransactionId};
use atomdir_testing::pick;

use crate::support::model::{Model, Tree, caller};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{Random, Scratch, begin, create, open, open_history, options, seeds};

pub type Open = Arc<Transaction<LinuxDisk>>;

pub fn reopened(scratch: &Scratch, id: TransactionId) -> (Store<LinuxDisk>, Open) {
    let store = open(&scratch.0);
    let stranded = store.stranded();
    let found = store.transaction(id);
    let found = found.unwrap_or_else(|| panic!("{id} has survived; stranded: {stranded:?}"));
    (store, found)
}

pub fn survive(store: &Store<LinuxDisk>, transaction: &Open) {
    store
        .survive(transaction, b"note".to_vec())
        .expect("it can survive");
}

#[test]
fn view_and_commit_are_the_same_after_any_number_of_kills() {
    for seed in seeds(pick(40, 400)) {
        println!("ATOMDIR_SEED={seed}");
        let scratch = Scratch::new();
        create(&scratch.0);
        let mut store = open(&scratch.0);
        let mut random = Random::new(seed);
        let mut model = Model::new();
        let first = begin(&store);
        (0..random.below(30)).for_each(|_| model.step(&mut random, &first));
        store.commit(&first).expect("nobody is in the way");
        drop(first);
        let base = model.tree();
        let mut transaction = begin(&store);
        let id = transaction.id();
        (0..random.below(12)).for_each(|_| model.step(&mut random, &transaction));
        survive(&store, &transaction);
        for _ in 0..1 + random.below(3) {
            for _ in 0..random.below(20) {
                model.step(&mut random, &transaction);
                if random.below(8) == 0 {
                    transaction.flush().expect("it is flushed");
                }
                if random.below(8) == 0 {
                    let other = model.clone();
                    transaction.set_savepoint(b"here").expect("it is set");
                    (0..3).for_each(|_| model.step(&mut random, &transaction));
                    if random.below(2) == 0 {
                        transaction.roll_back(b"here").expect("it is there");
                        model = other;
                    }
                }
            }
            if random.below(3) == 0 {
                refused_commit(&scratch, &store, &transaction);
            }
            drop((store, transaction));
            (store, transaction) = reopened(&scratch, id);
            assert_eq!(tree_of_view(&transaction), model.tree(), "seed {seed}");
            assert_eq!(tree_of_base(&scratch.0), base, "seed {seed}");
            assert_eq!(transaction.note(), Some(b"note".to_vec()));
            assert_eq!(transaction.label(), b"test");
            assert_eq!(store.check().problems, Vec::<String>::new(), "seed {seed}");
        }
        if random.below(4) == 0 {
            store.abort(&transaction);
            drop((store, transaction));
            store = open(&scratch.0);
            assert_eq!(tree_of_base(&scratch.0), base, "seed {seed}");
        } else {
            (0..random.below(8)).for_each(|_| model.step(&mut random, &transaction));
            store.commit(&transaction).expect("nobody is in the way");
            assert_eq!(tree_of_base(&scratch.0), model.tree(), "seed {seed}");
            drop((store, transaction));
            store = open(&scratch.0);
            assert_eq!(tree_of_base(&scratch.0), model.tree(), "seed {seed}");
        }
        assert!(store.transactions().is_empty(), "seed {seed}");
        let staged = std::fs::read_dir(scratch.0.join(".atomdir/stage")).expect("it is there");
        assert_eq!(staged.count(), 0, "seed {seed}");
    }
}

/// A commit that conflicts with a name from outside. The attempt moves staged objects and sets
/// their attributes.
fn refused_commit(scratch: &Scratch, store: &Store<LinuxDisk>, transaction: &Open) {
    let made = transaction.create(
        atomdir_engine::NodeId::ROOT,
        b"refused",
        atomdir_engine::NewNode::File,
        0o644,
        0,
        caller(),
    );
    made.expect("the model does not use the name");
    let outside = scratch.0.join("refused");
    std::fs::write(&outside, b"outside").expect("the base takes a file");
    let refused = store.commit(transaction);
    assert!(
        matches!(refused, Err(CommitError::Conflict(_))),
        "{refused:?}"
    );
    std::fs::remove_file(&outside).expect("it is there");
    let unlinked = transaction.unlink(atomdir_engine::NodeId::ROOT, b"refused");
    unlinked.expect("it is there");
}

pub fn file(view: &Open, name: &[u8], contents: &[u8]) {
    let made = view.create(
        atomdir_engine::NodeId::ROOT,
        name,
        atomdir_engine::NewNode::File,
        0o644,
        0,
        caller(),
    );
    let node = made.expect("the name is free").node;
    view.write(node, 0, contents, false).expect("it is written");
}

#[test]
fn change_from_outside_while_no_service_runs_is_a_conflict() {
    let scratch = Scratch::new();
    create(&scratch.0);
    std::fs::write(scratch.0.join("a"), b"before").expect("the base takes a file");
    let store = open(&scratch.0);
    let transaction = begin(&store);
    let id = transaction.id();
    let node = transaction.resolve(b"a").expect("it resolves");
    let node = node.expect("it is there");
    transaction
        .write(node, 0, b"inside", false)
        .expect("it is written");
    survive(&store, &transaction);
    drop((store, transaction));
    std::fs::write(scratch.0.join("a"), b"outside").expect("it can be written");
    let (store, transaction) = reopened(&scratch, id);
    let refused = store.commit(&transaction);
    assert!(
        matches!(refused, Err(CommitError::Conflict(_))),
        "{refused:?}"
    );
    let contents = std::fs::read(scratch.0.join("a")).expect("it is there");
    assert_eq!(contents, b"outside");
}

/// The refused commit has already put the new object into its new directory on disk.
#[test]
fn objects_removed_after_a_refused_commit_do_not_land() {
    for survives in [false, true] {
        for is_moved in [false, true] {
            let scratch = Scratch::new();
            create(&scratch.0);
            let store = open(&scratch.0);
            let view = begin(&store);
            let root = atomdir_engine::NodeId::ROOT;
            let made = view.create(root, b"d", NewNode::Directory, 0o755, 0, caller());
            let directory = made.expect("the name is free").node;
            let link = NewNode::Symlink(b"target".to_vec());
            let made = view.create(directory, b"gone", link, 0o777, 0, caller());
            let gone = made.expect("the name is free").node;
            if survives {
                survive(&store, &view);
            }
            refused_commit(&scratch, &store, &view);
            view.flush().expect("it is flushed");
            if is_moved {
                let moved = view.rename(directory, b"gone", root, b"kept", RenameMode::Replace);
                moved.expect("the new name is free");
                view.remove_directory(root, b"d").expect("it is empty");
                view.forget(directory, 1);
            } else {
                view.unlink(directory, b"gone").expect("it is there");
                view.forget(gone, 1);
            }
            store.commit(&view).expect("nobody is in the way");
            let names: Vec<Vec<u8>> = tree_of_base(&scratch.0).into_keys().collect();
            let expected: &[u8] = if is_moved { b"kept" } else { b"d" };
            assert_eq!(names, [expected], "survives: {survives}");
        }
    }
}

/// Whether a survivor has committed, and the base after that.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    has_committed: bool,
    base: Tree,
}

/// A store with a transaction that survives while others commit.
struct Scene {
    scratch: Scratch,
    store: Option<Store<LinuxDisk>>,
    keeps_history: bool,
    kills: Option<Random>,
    base: Model,
    survivors: Vec<(Open, Model)>,
    context: String,
}

impl Scene {
    fn store(&self) -> &Store<LinuxDisk> {
        self.store.as_ref().expect("it is open")
    }

    /// Drops the store and opens it again. No survivor may be in use.
    fn open(&mut self) {
        self.store = None;
        self.store = Some(match self.keeps_history {
            true => open_history(&self.scratch.0),
            false => open(&self.scratch.0),
        });
    }

    fn begin(&mut self, random: &mut Random) {
        let transaction = begin(self.store());
        let mut model = self.base.clone();
        (0..random.below(6)).for_each(|_| model.step(random, &transaction));
        survive(self.store(), &transaction);
        self.survivors.push((transaction, model));
    }

    /// Returns whether anything has changed.
    fn others_commit(&mut self, random: &mut Random) -> bool {
        let transaction = begin(self.store());
        (0..1 + random.below(8)).for_each(|_| self.base.step(random, &transaction));
        let committed = self.store().commit(&transaction);
        let committed = committed.unwrap_or_else(|error| panic!("{}: {error}", self.context));
        committed.sequence.is_some()
    }

    /// Undoes the newest commit, then undoes the undo.
    fn others_undo(&mut self, before: &Model) {
        let after = self.base.clone();
        for base in [before, &after] {
            let newest = self.store().status().sequence;
            let undone = self.store().undo(&[newest], &[], options());
            let undone = undone.unwrap_or_else(|error| panic!("{}: {error}", self.context));
            if self.store().commit(&undone).is_err() {
                // The undo of a file with several names may be refused.
                self.store().abort(&undone);
                return;
            }
            self.base = base.clone();
        }
    }

    /// An outside writer overwrites a file.
    fn outside_write(&mut self, random: &mut Random) {
        let tree = self.base.tree();
        let files = tree.iter().filter(|(_, what)| what.starts_with("file"));
        let files: Vec<&Vec<u8>> = files.map(|(path, _)| path).collect();
        if files.is_empty() || random.below(2) == 0 {
            return;
        }
        let path = files[random.below(files.len())];
        let path = self.scratch.0.join(OsStr::from_bytes(path));
        std::fs::write(path, b"outside").expect("it can be written");
    }

    fn maybe_die(&mut self) {
        let Some(kills) = &mut self.kills else { return };
        match kills.below(4) {
            0 => return,
            1 => {}
            _ => self
                .store
                .as_ref()
                .expect("it is open")
                .checkpoint()
                .expect("a checkpoint works"),
        }
        let ids: Vec<TransactionId> = self.survivors.iter().map(|(open, _)| open.id()).collect();
        let models: Vec<Model> = self.survivors.drain(..).map(|(_, model)| model).collect();
        self.open();
        for (id, model) in ids.into_iter().zip(models) {
            let stranded = self.store().stranded();
            let found = self.store().transaction(id);
            let found = found.unwrap_or_else(|| panic!("{}: {id}: {stranded:?}", self.context));
            self.survivors.push((found, model));
        }
    }

    fn check(&self) {
        let context = &self.context;
        for (survivor, model) in &self.survivors {
            assert_eq!(tree_of_view(survivor), model.tree(), "{context}");
        }
        assert_eq!(tree_of_base(&self.scratch.0), self.base.tree(), "{context}");
        let problems = self.store().check().problems;
        assert_eq!(problems, Vec::<String>::new(), "{context}");
    }
}

/// Transactions survive while others commit. With `kills`, the service dies now and then. Returns
/// the outcome of each survivor's commit.
fn play(seed: u64, kills: Option<Random>) -> Vec<Outcome> {
    let scratch = Scratch::new();
    create(&scratch.0);
    let mut random = Random::new(seed);
    let keeps_history = random.below(2) == 0;
    let mut scene = Scene {
        store: None,
        scratch,
        keeps_history,
        context: format!("ATOMDIR_SEED={seed}, kills: {}", kills.is_some()),
        kills,
        base: Model::new(),
        survivors: Vec::new(),
    };
    scene.open();
    for _ in 0..4 {
        scene.others_commit(&mut random);
    }
    for _ in 0..2 + random.below(5) {
        if scene.survivors.len() < 3 && random.below(2) == 0 {
            scene.begin(&mut random);
        }
        let before = scene.base.clone();
        let is_any = scene.others_commit(&mut random);
        if is_any && scene.keeps_history && random.below(3) == 0 {
            scene.others_undo(&before);
        }
        scene.maybe_die();
        scene.check();
        for (survivor, model) in &mut scene.survivors {
            (0..random.below(3)).for_each(|_| model.step(&mut random, survivor));
        }
        scene.check();
    }
    scene.outside_write(&mut random);
    scene.maybe_die();
    let mut outcomes = Vec::new();
    for (survivor, _) in std::mem::take(&mut scene.survivors) {
        let committed = scene.store().commit(&survivor);
        let is_conflict = matches!(committed, Err(CommitError::Conflict(_)));
        assert!(
            is_conflict || committed.is_ok(),
            "{}: {committed:?}",
            scene.context
        );
        scene.store().abort(&survivor);
        outcomes.push(Outcome {
            has_committed: committed.is_ok(),
            base: tree_of_base(&scene.scratch.0),
        });
    }
    scene.open();
    let store = scene.store();
    assert_eq!(
        store.check().problems,
        Vec::<String>::new(),
        "{}",
        scene.context
    );
    outcomes
}

#[test]
fn older_snapshot_and_its_commit_are_the_same_after_any_number_of_kills() {
    let (mut same, mut refused) = (0, 0);
    // With the last seed, a commit rewrites a file and gives it one more name.
    for seed in seeds(pick(80, 2000)).into_iter().chain([1803]) {
        println!("ATOMDIR_SEED={seed}");
        let undisturbed = play(seed, None);
        let killed = play(seed, Some(Random::new(seed ^ 0x5eed)));
        assert_eq!(undisturbed.len(), killed.len());
        for (undisturbed, killed) in undisturbed.into_iter().zip(killed) {
            if undisturbed == killed {
                same += 1;
            } else {
                // After a restart the store may refuse a commit that it would otherwise accept,
                // never the reverse.
                let is_refused = undisturbed.has_committed && !killed.has_committed;
                assert!(
                    is_refused,
                    "ATOMDIR_SEED={seed}: {undisturbed:?}, {killed:?}"
                );
                refused += 1;
                break;
            }
        }
    }
    println!("{same} the same, {refused} refused");
    assert!(refused * 10 <= same, "{same} the same, {refused} refused");
}

/// A commit overwrites pages of a file with two names in place, and a later one replaces the file,
/// which has one name left. The snapshot shows pages that the first has kept, and pages of the
/// inode that the second has replaced.
#[test]
fn older_snapshot_shows_a_file_that_was_overwritten_and_then_replaced() {
    let before = vec![b'a'; 7290];
    for (first, second) in [(0, 4500), (4500, 0), (0, 0)] {
        let scratch = Scratch::new();
        create(&scratch.0);
        std::fs::write(scratch.0.join("g"), &before).expect("the base takes a file");
        std::fs::hard_link(scratch.0.join("g"), scratch.0.join("f")).expect("the name is free");
        let store = open(&scratch.0);
        let survivor = begin(&store);
        survive(&store, &survivor);
        let id = survivor.id();
        for (is_first, at) in [(true, first), (false, second)] {
            let other = begin(&store);
            if is_first {
                let unlinked = other.unlink(atomdir_engine::NodeId::ROOT, b"f");
                unlinked.expect("it is there");
            }
            let node = other.resolve(b"g").expect("it resolves");
            let node = node.expect("it is there");
            let written = other.write(node, at, &[b'b'; 1500], false);
            written.expect("it is written");
            store.commit(&other).expect("nobody is in the way");
        }
        drop((store, survivor));
        let (_store, survivor) = reopened(&scratch, id);
        let node = survivor.resolve(b"g").expect("it resolves");
        let mut contents = vec![0; before.len() + 1];
        let read = survivor.read(node.expect("it is there"), 0, &mut contents, caller());
        contents.truncate(read.expect("it is read"));
        assert!(contents == before, "pages at {first}, then at {second}");
    }
}
