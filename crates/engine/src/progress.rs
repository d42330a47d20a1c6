//! How far a long commit is.

/// Steps are of unlike length: enough for a line on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
}

/// Tells of progress now and then, not at every step.
pub(crate) struct Meter<'a> {
    report: &'a mut dyn FnMut(Progress),
    progress: Progress,
    /// When to tell next.
    next: u64,
}

/// A commit of fewer steps is over before anyone could read of it.
const STEPS_BETWEEN_REPORTS: u64 = 1_000;
const REPORTS_MAX: u64 = 50;

impl<'a> Meter<'a> {
    pub fn new(report: &'a mut dyn FnMut(Progress)) -> Meter<'a> {
        Meter {
            report,
            progress: Progress { done: 0, total: 0 },
            next: STEPS_BETWEEN_REPORTS,
        }
    }

    /// So many more steps are to come.
    pub fn expect(&mut self, steps: usize) {
        self.progress.total += steps as u64;
    }

    pub fn step(&mut self) {
        self.progress.done += 1;
        if self.progress.done >= self.next {
            // Not so many that a listener who never listens could block us.
            let share = self.progress.total / REPORTS_MAX;
            self.next = self.progress.done + share.max(STEPS_BETWEEN_REPORTS);
            (self.report)(self.progress);
        }
    }
}
