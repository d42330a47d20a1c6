//! What is kept of a commit once the log has been emptied, so that the commit can be undone.

use atomdir_disk::Timestamp;

use crate::record::{CommitRecord, Locator, Source};

/// A commit without its new contents: which entries and objects it changed, and how they were
/// before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastRecord {
    /// A moment on the file system's clock: whatever the commit changed has no later change
    /// time, unless it was changed again.
    pub settled: Timestamp,
    /// `settled` was taken later, by a recovery. Outside writers may have changed meanwhile what the
    /// commit changed.
    pub is_settled_late: bool,
    pub commit: CommitRecord,
}

impl PastRecord {
    /// Returns `None` if the commit's record does not say what it replaces.
    pub fn of(mut commit: CommitRecord, settled: Timestamp) -> Option<PastRecord> {
        let before = commit.before.as_ref()?;
        let former = before.objects.iter().map(|former| former.object);
        let former: std::collections::HashSet<u32> = former.collect();
        commit.made.clear();
        commit.summary.clear();
        commit.label.clear();
        // Updates without a former state set times of directories.
        let (updates, objects) = (&mut commit.updates, &commit.objects);
        updates.retain(|update| {
            let object = &objects[update.object as usize];
            let is_new = matches!(object.locator, Locator::Staged { .. });
            former.contains(&update.object) || !is_new
        });
        for content in commit
            .updates
            .iter_mut()
            .filter_map(|update| update.content.as_mut())
        {
            content.source = Source::Carried { runs: Vec::new() };
        }
        Some(PastRecord {
            settled,
            is_settled_late: false,
            commit,
        })
    }
}
