//! Commits in conflict with changes that go together with their own.
//!
//! Invariant: if the commit is refused all the same, the view is as it was before. Otherwise the next
//! attempt would find what the others have appended on both sides.

use super::{Changes, Patterns, Rewrite, appended, by_path, is_of_index};
use crate::three_way::{ThreeWay, Versions};
use atomdir_types::{ChangeLine, ChangedBy, Conflict, Isolation};

const SAVEPOINT: &[u8] = b"before both have appended";

/// A transaction whose commit was refused, by whatever way it is reached. `None`: it cannot be said,
/// or done.
pub(crate) trait Refused: Versions {
    /// The files to which both sides may append.
    fn patterns(&mut self) -> Patterns;
    /// What keeps it from being committed now. Drops all savepoints.
    fn list_conflicts(&mut self) -> Option<Vec<Conflict>>;
    fn isolation(&mut self) -> Option<Isolation>;
    fn changes(&mut self) -> Option<Vec<ChangeLine>>;
    /// Whether git's index in the store is equal to that in the view, which changes with `changes`.
    fn has_equal_index(&mut self, path: &[u8], changes: &Changes) -> bool;
    fn set_savepoint(&mut self, name: &[u8]) -> Option<()>;
    fn roll_back(&mut self, name: &[u8]) -> Option<()>;
    /// Writes to the view.
    fn write(&mut self, rewrite: &Rewrite) -> Option<()>;
}

/// Commits a transaction that was refused for these conflicts, with its own side in those that are
/// listed now, which `commit` gets by their numbers. It does so if in all of them the files of others
/// are equal to what the transaction has found, or both have only appended; what the others have
/// appended is in the view then. Whatever others change after the list is made refuses the commit.
pub(crate) fn commit_reconciled<R: Refused, T, E>(
    refused: &mut R,
    conflicts: &[Conflict],
    commit: impl FnOnce(&mut R, Vec<u64>) -> Result<T, E>,
) -> Option<Result<T, E>> {
    let mine = reconcile(refused, conflicts)?;
    let committed = commit(refused, mine);
    if committed.is_err() {
        // If there is no savepoint, nothing was written.
        let _ = refused.roll_back(SAVEPOINT);
    }
    Some(committed)
}

fn reconcile<R: Refused>(refused: &mut R, conflicts: &[Conflict]) -> Option<Vec<u64>> {
    let patterns = refused.patterns();
    let is_known = |conflict: &Conflict| is_of_index(conflict) || patterns.have(&conflict.path);
    if !conflicts.iter().all(is_known) {
        return None;
    }
    let listed = refused.list_conflicts()?;
    if listed.is_empty() || !listed.iter().all(is_known) {
        return None;
    }
    let isolation = refused.isolation()?;
    let changes = by_path(&refused.changes()?);
    let mut texts = Vec::new();
    for conflict in &listed {
        if is_of_index(conflict) {
            let is_outside = conflict.by == ChangedBy::Outside;
            if !is_outside || !refused.has_equal_index(&conflict.path, &changes) {
                return None;
            }
        } else if isolation != Isolation::Serializable {
            texts.push(both_appended(refused, conflict)?);
        } else {
            return None;
        }
    }
    append(refused, &texts)?;
    Some((1..=listed.len() as u64).collect())
}

/// A file to which both have appended, as it is to be in the view.
fn both_appended<R: Refused>(refused: &mut R, conflict: &Conflict) -> Option<Rewrite> {
    let path = &conflict.path[..];
    let texts = ThreeWay::look_up(refused, path, conflict.what);
    let texts = texts.ok()?.ok()?;
    Some(Rewrite {
        path: path.to_vec(),
        contents: Some(appended::both(&texts)?),
        found: texts.mine,
    })
}

/// Writes the files in the view, or none.
fn append<R: Refused>(refused: &mut R, texts: &[Rewrite]) -> Option<()> {
    if texts.is_empty() {
        return Some(());
    }
    refused.set_savepoint(SAVEPOINT)?;
    match texts.iter().all(|one| refused.write(one).is_some()) {
        true => Some(()),
        false => {
            refused.roll_back(SAVEPOINT)?;
            None
        }
    }
}
