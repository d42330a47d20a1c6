//! On what terms a transaction is committed, as its user says.

use atomdir_disk::Disk;
use atomdir_types::Terms;

use crate::lock;
use crate::transaction::Transaction;

impl<D: Disk> Transaction<D> {
    /// They hold until the transaction ends, or until others are set. A part may have another label.
    pub fn set_terms(&self, terms: Terms) {
        let mut now = lock(&self.terms);
        if terms.label.is_some() {
            now.label = terms.label;
        }
        match terms.confirm_ms {
            Some(0) => now.confirm_ms = None,
            Some(wait_ms) => now.confirm_ms = Some(wait_ms),
            None => {}
        }
        now.times_at_commit = terms.times_at_commit.or(now.times_at_commit);
    }

    /// Whether files get the time of its commit, if its user has said anything of that.
    pub(crate) fn times_at_commit(&self) -> Option<bool> {
        lock(&self.terms).times_at_commit
    }

    /// How long its commit waits to be confirmed, if it does.
    pub fn confirm_ms(&self) -> Option<u64> {
        lock(&self.terms).confirm_ms
    }

    pub fn label(&self) -> Vec<u8> {
        let label = lock(&self.terms).label.clone();
        label.unwrap_or_else(|| self.options.label.clone())
    }
}
