//! Commits of what an outside writer has made as well, and has not flushed. The commit is durable all
//! the same.

use atomdir_engine::Durability;

use crate::opening::begin;
use crate::operation::Operation;
use crate::tree::Tree;
use crate::workload::{Driver, act};

impl Driver {
    pub fn commit_same_unflushed(&mut self, operations: &[Operation], salt: u64) {
        // Until the commit has ended, a crash may leave any part of what the outside writer did.
        self.disk.allow(&[]);
        act(&self.disk, operations, salt);
        let transaction = begin(&self.store(), Durability::Durable).expect("a transaction begins");
        act(&*transaction, operations, salt);
        act(&self.plain, operations, salt);
        self.expect_view(&transaction);
        self.commit_expected(&transaction);
    }

    pub fn commit_equal_unflushed(&mut self, both: &[Operation], mine: &[Operation], salt: u64) {
        let transaction = begin(&self.store(), Durability::Durable).expect("a transaction begins");
        // A view shows what outside writers have made at names that it has not looked up.
        act(&*transaction, both, salt);
        act(&*transaction, mine, salt);
        // As above.
        self.disk.allow(&[]);
        act(&self.disk, both, salt);
        act(&self.plain, both, salt);
        act(&self.plain, mine, salt);
        let committed = self.store().commit(&transaction);
        committed.expect("what both have made is equal");
        // What the outside writer has made keeps its times.
        let tree = Tree::of_image(&self.disk.image());
        self.expect(tree);
        self.all_is_durable();
    }
}
