//! Finds names of one file that an undo would make names of two.
//!
//! A commit that writes a file whole may put a new inode in its place. If another commit then gives
//! the new inode a second name, the old one cannot come back in the first name alone. Nor can it
//! come back in another name that it had before it was written. The record does not tell such a
//! write from a file that was renamed over another one, so that is a conflict, too.

use std::collections::{HashMap, HashSet};

use atomdir_disk::{Disk, Identity, Kind, Result};

use crate::error::ConflictKind;
use crate::ids::Sequence;
use crate::undo::changes::Changes;
use crate::undo::find::Fate;
use crate::undo::reverse::Reverse;

/// Inodes that have followed each other as one file, and the newest commit that is not undone and
/// put one in the place of another.
#[derive(Default)]
struct Line {
    inodes: Vec<Identity>,
    by_other: Option<Sequence>,
}

impl<D: Disk> Reverse<'_, D> {
    pub(super) fn check_successions(&mut self) -> Result<()> {
        let changes = self.changes;
        for line in lines(changes) {
            let returning = line.inodes.iter();
            let returning = returning.filter(|identity| self.finder.is_returning(identity));
            let returning: HashSet<Identity> = returning.copied().collect();
            if returning.is_empty() {
                continue;
            }
            let mut living = Vec::new();
            for identity in line.inodes {
                if self.finder.fate(self.view, identity)? == Fate::Lives {
                    living.push(identity);
                }
            }
            let returns = |identity: &&Identity| returning.contains(identity);
            let Some(returning) = living.iter().find(returns).copied() else {
                continue;
            };
            let base = self.finder.find(self.view, returning)?;
            if base.is_some_and(|base| base.kind != Kind::File) {
                continue;
            }
            let other = living.into_iter().rfind(|one| *one != returning);
            if let Some(other) = other {
                let path = changes.path_of(returning).unwrap_or_default();
                let by = changes.named_by.get(&other).copied().or(line.by_other);
                self.conflict(&path, ConflictKind::Contents, by);
            }
        }
        Ok(())
    }
}

fn lines(changes: &Changes) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut line_of: HashMap<Identity, usize> = HashMap::new();
    for succession in &changes.successions {
        let pair = [succession.before, succession.after];
        let known = pair.iter().filter_map(|identity| line_of.get(identity));
        let place = known.copied().min().unwrap_or_else(|| {
            lines.push(Line::default());
            lines.len() - 1
        });
        for identity in pair {
            match line_of.insert(identity, place) {
                Some(known) if known == place => {}
                // Two lines meet when an undo brings a file back.
                Some(known) => {
                    let met = std::mem::take(&mut lines[known]);
                    for identity in met.inodes {
                        line_of.insert(identity, place);
                        lines[place].inodes.push(identity);
                    }
                    lines[place].by_other = lines[place].by_other.max(met.by_other);
                }
                None => lines[place].inodes.push(identity),
            }
        }
        let by_other = &mut lines[place].by_other;
        *by_other = (*by_other).max(succession.by_other);
    }
    lines
}
