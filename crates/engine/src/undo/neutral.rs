//! Finds the commits that have no effect any more: those that were undone since, and the undos.
//!
//! An undo lands only if nothing that came between, and was not itself left out, has changed what it
//! changes. So what came between is as it would be without the undo and the commits that it took back,
//! and these can be left out of the history together. Only their times count, because they explain the
//! times of objects. That does not hold if something that was left out when the undo landed shall now
//! be undone.
//!
//! Invariant: no commit is undone by two undos that are both in effect. To have its changes again,
//! undo the undo; then it can be undone again.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::error::UndoError;
use crate::ids::Sequence;
use crate::undo::since::Since;

/// Commits that are undone, each with the undo that is in effect.
type UndoneBy = HashMap<Sequence, Sequence>;

impl Since {
    /// Marks the steps that have no effect. Fails if one of the commits to be undone is undone
    /// already, or if undoing an undo would undo others twice.
    pub(super) fn find_neutral(&mut self) -> Result<(), UndoError> {
        let undone_now = self.undone_by(|_| true)?;
        let undone: BTreeSet<Sequence> = self.undone().collect();
        let undone_then = self.undone_by(|undo| !undone.contains(&undo))?;
        for commit in undone {
            if let Some(by) = undone_then.get(&commit).copied() {
                return Err(UndoError::AlreadyUndone { commit, by });
            }
        }
        let with_undos = self.undone_with_undos();
        for place in 0..self.undos.len() {
            let (undo, taken_back) = &self.undos[place];
            let steps = taken_back.iter().chain([undo]);
            let steps: Option<Vec<usize>> = steps.map(|commit| self.place(*commit)).collect();
            let is_in_effect = taken_back
                .iter()
                .all(|commit| undone_now.get(commit) == Some(undo));
            let Some(steps) = steps.filter(|_| is_in_effect) else {
                continue;
            };
            let mut left_out = steps.iter().map(|place| &self.steps[*place]);
            let between = steps.iter().min()..steps.iter().max();
            if left_out.all(|step| !step.is_undone && !step.leaves_traces())
                && !with_undos
                    .iter()
                    .any(|place| between.contains(&Some(place)))
            {
                for place in steps {
                    self.steps[place].is_neutral = true;
                }
            }
        }
        Ok(())
    }

    /// The steps to be undone that are undos, or that an undo took back.
    fn undone_with_undos(&self) -> Vec<usize> {
        let undos = self.undos.iter();
        let with_undos: HashSet<Sequence> = undos
            .flat_map(|(undo, taken_back)| taken_back.iter().chain([undo]).copied())
            .collect();
        let steps = self.steps.iter().enumerate();
        let undone = steps.filter(|(_, step)| step.is_undone);
        undone
            .filter(|(_, step)| with_undos.contains(&step.sequence))
            .map(|(place, _)| place)
            .collect()
    }

    /// The commits that are undone if only these undos have landed.
    fn undone_by(&self, has_landed: impl Fn(Sequence) -> bool) -> Result<UndoneBy, UndoError> {
        let mut undone_by = UndoneBy::new();
        for (undo, taken_back) in self.undos.iter().rev() {
            if !has_landed(*undo) || undone_by.contains_key(undo) {
                continue;
            }
            for commit in taken_back {
                if let Some(by) = undone_by.insert(*commit, *undo) {
                    let commit = *commit;
                    return Err(UndoError::AlreadyUndone { commit, by });
                }
            }
        }
        Ok(undone_by)
    }

    fn undone(&self) -> impl Iterator<Item = Sequence> + '_ {
        let undone = self.steps.iter().filter(|step| step.is_undone);
        undone.map(|step| step.sequence)
    }

    fn place(&self, commit: Sequence) -> Option<usize> {
        let steps = &self.steps;
        steps
            .binary_search_by_key(&commit, |step| step.sequence)
            .ok()
    }
}
