//! The record that is kept of a commit after the log has been emptied, so that the commit can be
//! undone.

use std::collections::HashSet;

use atomdir_disk::Timestamp;

use crate::record::{CommitRecord, Locator, LogRecord, Source};

/// A commit without its new contents: which entries and objects it changed, and how they were
/// before. The past has no gaps: a sequence that belongs to no commit has a cancellation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastRecord {
    /// A moment on the file system's clock: whatever the commit changed has no later change
    /// time, unless it was changed again.
    pub settled: Timestamp,
    pub settled_by: SettledBy,
    /// The record takes the place of a commit whose old states had to make room for others. To
    /// later undos, what it changed was changed by an outside writer.
    pub is_given_up: bool,
    pub record: LogRecord,
}

impl PastRecord {
    /// Returns `None` if the commit's record does not say what it replaces.
    pub fn of(mut record: LogRecord, settled: Timestamp) -> Option<PastRecord> {
        if let LogRecord::Commit(commit) = &mut record {
            leave_out_new_contents(commit).then_some(())?;
        }
        Some(PastRecord {
            settled,
            settled_by: SettledBy::Commit,
            is_given_up: false,
            record,
        })
    }

    /// What takes the place of the record if the commit has to make room for others.
    pub fn given_up(&self) -> PastRecord {
        PastRecord {
            settled: self.settled,
            settled_by: SettledBy::Commit,
            is_given_up: true,
            record: self.record.cancelled(),
        }
    }
}

/// What has taken the time at which a commit was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettledBy {
    Commit,
    /// A recovery, later. Outside writers may have changed the same objects before that.
    Recovery,
    /// The adoption of a copied store, likewise. All objects were made after the commit.
    Adoption,
}

impl SettledBy {
    pub fn is_late(self) -> bool {
        self != SettledBy::Commit
    }
}

/// Returns false if the record does not say what the commit replaces.
fn leave_out_new_contents(commit: &mut CommitRecord) -> bool {
    let Some(before) = &commit.before else {
        return false;
    };
    let former = before.objects.iter().map(|former| former.object);
    let former: HashSet<u32> = former.collect();
    commit.made.clear();
    commit.summary.clear();
    commit.label.clear();
    // Updates without a former state set times of directories.
    let objects = &commit.objects;
    commit.updates.retain(|update| {
        let object = &objects[update.object as usize];
        let is_new = matches!(object.locator, Locator::Staged { .. });
        former.contains(&update.object) || !is_new
    });
    let contents = commit.updates.iter_mut();
    for content in contents.filter_map(|update| update.content.as_mut()) {
        content.source = Source::Carried { runs: Vec::new() };
    }
    true
}
