//! Finds files that an undo would make two.
//!
//! A file to which commits gave other inodes (`files`) may have got another name since, or a second one. Then the old inode cannot come back
//! in one of the file's names while the new one stays in another: one file would become two. That is
//! a conflict. Otherwise the view notes which inode the old one follows, so that the record of this
//! undo says it as well.

use std::sync::Arc;

use atomdir_disk::{Disk, Identity, Result};

use crate::base::Base;
use crate::error::ConflictKind;
use crate::ids::Sequence;
use crate::undo::Purpose;
use crate::undo::changes::Changes;
use crate::undo::files::Files;
use crate::undo::find::Fate;
use crate::undo::reverse::Reverse;

/// Inodes that have followed each other as one file, and the newest commit that is not undone and
/// put one in the place of another.
#[derive(Default)]
struct Line {
    inodes: Vec<Identity>,
    by_other: Option<Sequence>,
    /// The undone ones of `Changes::successions`, by their places there.
    undone: Vec<usize>,
}

impl<D: Disk> Reverse<'_, D> {
    /// The files that get another inode back: the last one, and the one that returns.
    pub(super) fn successions(&mut self) -> Result<Vec<(Arc<Base>, Arc<Base>)>> {
        let mut found = Vec::new();
        for line in lines(self.changes) {
            let mut living = Vec::new();
            let mut returning = None;
            for identity in &line.inodes {
                if self.finder.fate(self.view, *identity)? == Fate::Lives {
                    living.push(*identity);
                    // It may come back within a directory.
                    if self.finder.is_returning(identity) || self.is_removed(*identity)? {
                        returning = returning.or(Some(*identity));
                    }
                }
            }
            if self.purpose == Purpose::Undo && living.iter().all(|one| Some(*one) == returning) {
                self.check_replaced(&line);
            }
            let Some(returning) = returning else {
                continue;
            };
            let other = living.into_iter().rfind(|one| *one != returning);
            match other {
                Some(other) if self.purpose == Purpose::Undo => {
                    let changes = self.changes;
                    let mut above = changes.with_what_is_above(returning);
                    let path = above.find_map(|one| changes.path_of(one));
                    let path = path.unwrap_or_default();
                    let by = self.kept_by(other, line.by_other);
                    self.conflict(&path, ConflictKind::Contents, by);
                }
                Some(_) => {}
                None => found.extend(self.succession(&line, returning)?),
            }
        }
        Ok(found)
    }

    /// The commit that gave an object a name, or put it in the place of another, or gave a directory
    /// above it a name.
    pub(super) fn kept_by(&self, object: Identity, put_by: Option<Sequence>) -> Option<Sequence> {
        let named_by = &self.changes.named_by;
        let by = named_by.get(&object).copied().or(put_by);
        let mut above = self.changes.with_what_is_above(object);
        by.or_else(|| above.find_map(|directory| named_by.get(&directory).copied()))
    }

    /// Checks the inodes that undone commits gave the file and took from it.
    fn check_replaced(&mut self, line: &Line) {
        let changes = self.changes;
        for place in &line.undone {
            let succession = &changes.successions[*place];
            if !self.is_changed_before_replaced(succession.before, succession.step) {
                continue;
            }
            let step = &self.since.steps[succession.step];
            let mut entries = step.entries().iter();
            let entry = entries.find(|entry| step.after(entry) == Some(succession.after));
            let path = entry.map(|entry| step.path(entry.directory, &entry.name));
            self.conflict(&path.unwrap_or_default(), ConflictKind::Contents, None);
        }
    }

    /// The last inode of the file may be in limbo as well.
    fn succession(
        &mut self,
        line: &Line,
        returning: Identity,
    ) -> Result<Option<(Arc<Base>, Arc<Base>)>> {
        let Some(after) = self.finder.find(self.view, returning)? else {
            return Ok(None);
        };
        let mut last = None;
        for identity in line.inodes.iter().filter(|one| **one != returning) {
            if let Some(before) = self.finder.find(self.view, *identity)? {
                let is_in_tree = !self.is_in_limbo(&before);
                last = Some((before, after.clone()));
                if is_in_tree {
                    break;
                }
            }
        }
        Ok(last)
    }
}

fn lines(changes: &Changes) -> Vec<Line> {
    let pairs = changes
        .successions
        .iter()
        .map(|one| (one.before, one.after));
    let files = Files::new(pairs);
    let line = |inodes: &Vec<Identity>| Line {
        inodes: inodes.clone(),
        ..Line::default()
    };
    let mut lines: Vec<Line> = files.all().iter().map(line).collect();
    for (number, succession) in changes.successions.iter().enumerate() {
        let Some(line) = files.place(succession.before) else {
            continue;
        };
        let line = &mut lines[line];
        line.by_other = line.by_other.max(succession.by_other);
        if succession.by_other.is_none() {
            line.undone.push(number);
        }
    }
    lines
}
