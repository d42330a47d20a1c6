//! Finds the commits that have no effect any more: those that were undone since, and the undos.
//!
//! An undo lands only if nothing that came between has changed what it changes. So what came between
//! is as it would be without the undo and the commits that it took back, and these can be left out of
//! the history together. Only their times count, because they explain the times of objects.
//!
//! A commit is undone once. To have its changes again, undo the undo; then it can be undone again.

use std::collections::HashMap;

use crate::error::UndoError;
use crate::ids::Sequence;
use crate::undo::since::Since;

impl Since {
    /// Marks the steps that have no effect. Fails if a commit shall be undone that is undone already,
    /// unless that undo shall be undone with it.
    pub(super) fn find_neutral(&mut self) -> Result<(), UndoError> {
        let undone_by = self.undone_by();
        for step in self.steps.iter().filter(|step| step.is_undone) {
            let by = undone_by.get(&step.sequence);
            if let Some(by) = by.filter(|by| !self.is_undone(**by)) {
                return Err(UndoError::AlreadyUndone {
                    commit: step.sequence,
                    by: *by,
                });
            }
        }
        for place in 0..self.steps.len() {
            let undo = &self.steps[place];
            let taken_back: Vec<Sequence> = undo.takes_back().collect();
            let is_left_out = !undo.is_undone
                && !undo.leaves_traces()
                && !taken_back.is_empty()
                && taken_back.iter().all(|commit| {
                    let is_here = self.place(*commit).is_some();
                    is_here && undone_by.get(commit) == Some(&undo.sequence)
                });
            if is_left_out {
                let left_out = taken_back.iter().filter_map(|commit| self.place(*commit));
                let left_out: Vec<usize> = left_out.chain([place]).collect();
                for place in left_out {
                    self.steps[place].is_neutral = true;
                }
            }
        }
        Ok(())
    }

    /// The commits that are undone, each with the undo that is in effect.
    fn undone_by(&self) -> HashMap<Sequence, Sequence> {
        let mut undone_by = HashMap::new();
        for step in self.steps.iter().rev() {
            if !undone_by.contains_key(&step.sequence) {
                for commit in step.takes_back() {
                    undone_by.entry(commit).or_insert(step.sequence);
                }
            }
        }
        undone_by
    }

    fn place(&self, commit: Sequence) -> Option<usize> {
        let found = self
            .steps
            .binary_search_by_key(&commit, |step| step.sequence);
        found.ok()
    }

    fn is_undone(&self, commit: Sequence) -> bool {
        self.place(commit)
            .is_some_and(|place| self.steps[place].is_undone)
    }
}
