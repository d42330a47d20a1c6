//! Verifies what can be verified of an open store without changing it.

use atomdir_disk::{Disk, reason};
use atomdir_format::summary::SummaryRecord;
use atomdir_types::Checked;

use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::names;
use crate::store::Store;

impl<D: Disk> Store<D> {
    pub fn check(&self) -> Checked {
        let mut checked = Checked::default();
        self.check_log(&mut checked);
        self.check_stage(&mut checked);
        let core = &self.0.core;
        match core.disk.list(&core.control.limbo) {
            Ok(entries) => {
                checked.report.limbo_objects = entries.len() as u64;
                let displaced = entries
                    .iter()
                    .filter(|entry| names::is_displaced(&entry.name));
                checked.problems.extend(displaced.map(|entry| {
                    format!(
                        "limbo/{:?} in the control directory is an outside writer's, whose name a \
                         commit has taken: move it out of there or remove it",
                        entry.name
                    )
                }));
            }
            Err(errno) => checked.problems.push(format!(
                "limbo cannot be read: {errno}",
                errno = reason(errno)
            )),
        }
        if let Some(reason) = &*lock(&self.0.poisoned) {
            checked
                .problems
                .push(format!("changes are refused, because {reason}"));
        }
        checked
    }

    fn check_log(&self, checked: &mut Checked) {
        let core = &self.0.core;
        let state = lock(&self.0.commit);
        checked.report.log_bytes = state.journal.log.length();
        let (mut count, mut last) = (0, state.journal.header.last_sequence);
        let read = state.journal.for_each_logged(core, |record| {
            count += u64::from(record.commit().is_some());
            last = record.sequence();
            Ok(())
        });
        match read {
            Ok(()) => {
                checked.report.commits_in_log = count;
                if last != state.journal.newest.0 {
                    let newest = state.journal.newest;
                    let problem = format!("the log ends at commit {last}, not at {newest}");
                    checked.problems.push(problem);
                }
            }
            Err(error) => checked.problems.push(error.to_string()),
        }
        let (mut count, mut gaps, mut next) = (0, 0, None);
        let mut note = |summary: SummaryRecord| {
            count += u64::from(summary.commit.is_some());
            if next.is_some_and(|next| next != summary.sequence) {
                gaps += 1;
            }
            next = Some(summary.sequence + 1);
        };
        let summaries = state.journal.summaries(core, Sequence(0));
        let read = summaries.and_then(|summaries| summaries.for_each(&core.disk, &mut note));
        match read {
            Ok(()) => {
                checked.report.commits_in_history = count;
                if gaps > 0 {
                    checked
                        .problems
                        .push(format!("the history has {gaps} gaps"));
                }
            }
            Err(error) => checked.problems.push(format!("the history: {error}")),
        }
    }

    /// A staging directory belongs to an open transaction, or to a commit in the log.
    fn check_stage(&self, checked: &mut Checked) {
        let core = &self.0.core;
        let state = lock(&self.0.commit);
        let entries = match core.disk.list(&core.control.stage) {
            Ok(entries) => entries,
            Err(errno) => {
                checked.problems.push(format!(
                    "the staging directory cannot be read: {errno}",
                    errno = reason(errno)
                ));
                return;
            }
        };
        checked.report.staging_directories = entries.len() as u64;
        let stranded = self.stranded();
        for entry in entries {
            let id = names::slot_number(&entry.name).map(TransactionId);
            let is_known = id.is_some_and(|id| {
                state.stages.contains(&id)
                    || core.stages.is_taken(id)
                    || self.transaction(id).is_some()
            });
            let is_known = is_known || stranded.iter().any(|one| Some(one.id) == id);
            // It may have gone since it was listed, and its transaction with it.
            let is_there = || core.disk.stat_at(&core.control.stage, &entry.name).is_ok();
            if !is_known && is_there() {
                let name = String::from_utf8_lossy(entry.name.as_bytes());
                let problem = format!("'.atomdir/stage/{name}' belongs to no transaction");
                checked.problems.push(problem);
            }
        }
    }
}
