//! How far a long commit has come, or the begin of a long undo.

/// Steps take different times; the numbers are good enough for a line on a
/// terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
}

/// Reports progress now and then, not at every step.
pub(crate) struct Meter<'a> {
    report: &'a mut dyn FnMut(Progress),
    progress: Progress,
    /// The number of steps at which to report next.
    next: u64,
}

/// Work with fewer steps ends before anyone could read a report.
const STEPS_BETWEEN_REPORTS: u64 = 1_000;
const REPORTS_MAX: u64 = 50;

/// A meter, or none, without its lifetime.
pub(crate) trait Steps {
    /// Adds to the number of expected steps.
    fn expect(&mut self, steps: usize);
    fn step(&mut self);
}

impl Steps for Meter<'_> {
    fn expect(&mut self, steps: usize) {
        Meter::expect(self, steps);
    }

    fn step(&mut self) {
        Meter::step(self);
    }
}

/// Nobody wants to know.
pub(crate) struct Unreported;

impl Steps for Unreported {
    fn expect(&mut self, _: usize) {}

    fn step(&mut self) {}
}

impl<'a> Meter<'a> {
    pub fn new(report: &'a mut dyn FnMut(Progress)) -> Meter<'a> {
        Meter {
            report,
            progress: Progress { done: 0, total: 0 },
            next: STEPS_BETWEEN_REPORTS,
        }
    }

    /// Adds to the number of expected steps.
    pub fn expect(&mut self, steps: usize) {
        self.progress.total += steps as u64;
    }

    pub fn step(&mut self) {
        self.progress.done += 1;
        if self.progress.done >= self.next {
            // A client that never reads reports must not block the work, so
            // their number is limited.
            let share = self.progress.total / REPORTS_MAX;
            self.next = self.progress.done + share.max(STEPS_BETWEEN_REPORTS);
            (self.report)(self.progress);
        }
    }
}
