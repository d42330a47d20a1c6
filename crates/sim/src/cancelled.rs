//! A commit that meets an obstacle right before it is applied. It is cancelled or, if it is lazy,
//! set aside.

use atomdir_engine::{CommitError, Committed, Durability, Transaction};

use crate::disk::SimDisk;
use crate::expected::Expected;
use crate::group::{Company, Moment};
use crate::opening::{begin, begin_in_base};
use crate::operation::Operation;
use crate::tree::Tree;
use crate::workload::{Driver, act};

#[derive(Debug, Clone)]
pub struct Cancelled {
    /// Becomes immutable after the flush of the log, or after a lazy commit has returned.
    pub path: &'static str,
    pub operations: Vec<Operation>,
    /// What another transaction commits while the obstacle is there.
    pub beside: Vec<Operation>,
    /// What another transaction commits lazily over the commit before the obstacle comes. It is set
    /// aside, too. Empty: there is none. The commit then only makes, replaces and removes files.
    pub leaning: Vec<Operation>,
    /// The commit is lazy, and the obstacle comes after it has returned.
    pub is_lazy: bool,
    /// Whether a checkpoint makes the base durable and empties the log before the commit is tried
    /// again.
    pub checkpoint: bool,
}

impl SimDisk {
    /// The object at this path is immutable from now on, or none is.
    fn make_immutable(&self, path: Option<&str>) {
        let mut world = self.world();
        world.immutable = path.map(|path| world.object_at(path));
    }
}

impl Driver {
    pub fn cancelled(&mut self, cancelled: &Cancelled, salt: u64) {
        let Cancelled {
            path,
            operations,
            beside,
            leaning,
            checkpoint,
            is_lazy,
        } = cancelled;
        let store = self.store();
        let durability = match is_lazy {
            true => Durability::Lazy,
            false => Durability::Durable,
        };
        let transaction = begin_in_base(&store, durability).expect("a transaction begins");
        self.all_is_durable();
        act(&*transaction, operations, salt);
        let tree = Tree::of_view(&transaction).expect("a view can be read");
        let before = match leaning.is_empty() {
            true => self.expect_cancelled(tree.clone()),
            false => self.lean(&transaction, (path, leaning), (tree.clone(), salt << 2)),
        };
        match is_lazy {
            _ if !leaning.is_empty() => {}
            true => self.set_aside(path, &transaction),
            false => self.refused(path, &transaction),
        }
        // The caller knows that the commit did not happen.
        self.all_is_durable();
        let status = store.status();
        assert!(status.stalled.is_none() && status.poisoned.is_none());
        let difference = before.difference(&self.disk.image());
        assert_eq!(difference, None, "the base after the commit was cancelled");
        let shown = Tree::of_view(&transaction).expect("a view can be read");
        assert!(shown == tree, "{}", shown.difference(&tree));
        self.commit(beside, Durability::Durable, salt << 4);
        if *checkpoint {
            store
                .checkpoint()
                .expect("an undisturbed checkpoint succeeds");
        }
        self.disk.make_immutable(None);
        act(&self.plain, operations, salt);
        self.commit_unseen_by(|store| match is_lazy {
            true => {
                assert!(store.retry_set_aside(&transaction) && store.set_aside().is_empty());
                store.sync().expect("nothing is in the way");
                Ok(Committed::default())
            }
            false => store.commit(&transaction),
        });
        self.note_plain();
    }

    fn refused(&self, path: &'static str, transaction: &Transaction<SimDisk>) {
        let disk = self.disk.clone();
        let obstacle = move || disk.make_immutable(Some(path));
        let company = Company::new(Moment::After, obstacle);
        self.disk.await_company(company);
        let refused = self.store().commit(transaction);
        self.disk.release_company();
        let refused = refused.expect_err("the base cannot take it");
        assert!(
            matches!(refused, CommitError::Immutable { .. }),
            "{refused}"
        );
    }

    fn set_aside(&self, path: &str, transaction: &Transaction<SimDisk>) {
        let store = self.store();
        store.commit(transaction).expect("nobody is in the way");
        self.disk.make_immutable(Some(path));
        store.sync().expect("others can commit");
        let aside = store.set_aside();
        assert!(aside.len() == 1 && aside[0].transaction == transaction.id());
        assert!(!store.retry_set_aside(transaction));
    }

    /// Commits lazily, and another transaction over it. Then both are set aside, and the other one is
    /// aborted. A crash may leave both, the first one alone, or none. Returns what the base then holds.
    fn lean(
        &mut self,
        transaction: &Transaction<SimDisk>,
        (path, operations): (&str, &[Operation]),
        (tree, salt): (Tree, u64),
    ) -> Expected {
        let store = self.store();
        let before = self.newest().clone();
        let after = |records: u64, commits: u64, tree: &Tree| Expected {
            sequence: before.sequence + records,
            tree: tree.clone(),
            commits_min: before.commits_min + commits,
            is_cancelled: records > commits,
            ..before.clone()
        };
        let first = self.expected.len();
        self.expected.push(after(1, 1, &tree));
        self.note_plain();
        self.disk.allow(&[self.durable, first]);
        store.commit(transaction).expect("nobody is in the way");
        let over = begin(&store, Durability::Lazy).expect("a transaction begins");
        act(&*over, operations, salt);
        let both = Tree::of_view(&over).expect("a view can be read");
        self.expected.push(after(2, 2, &both));
        self.expected.push(after(3, 1, &tree));
        let none = (1..=4).map(|records| after(records, 0, &before.tree));
        self.expected.extend(none);
        (0..3).for_each(|_| self.note_plain());
        self.disk
            .allow(&[self.durable, first, first + 1, first + 2, first + 6]);
        store.commit(&over).expect("nobody is in the way");
        self.disk.make_immutable(Some(path));
        store.sync().expect("others can commit");
        assert_eq!(store.set_aside().len(), 2);
        store.abort(&over);
        after(4, 0, &before.tree)
    }

    /// A crash may leave the base with the commit or without it. In the end the sequences of the
    /// commit and of the record that cancels it belong to no commit. Returns what the base then
    /// holds.
    fn expect_cancelled(&mut self, tree: Tree) -> Expected {
        let before = self.newest().clone();
        let sequence = before.sequence + 1;
        let landed = Expected {
            sequence,
            tree,
            commits_min: before.commits_min + 1,
            is_cancelled: false,
            ..before.clone()
        };
        let none = |sequence| Expected {
            sequence,
            is_cancelled: true,
            ..before.clone()
        };
        let first = self.expected.len();
        self.expected
            .extend([landed, none(sequence), none(sequence + 1)]);
        self.note_plain();
        self.note_plain();
        self.disk.allow(&[self.durable, first, first + 2]);
        none(sequence + 1)
    }
}
