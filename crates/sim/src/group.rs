//! Commits that arrive while another one's flush of the log is under way.
//!
//! Which thread of those that wait then flushes for all is the scheduler's to
//! say, but what it does is the same for each. All else has a fixed order: the
//! others arrive one by one, and none of them flushes before it is let.

use std::thread::{self, ThreadId};

use crate::disk::SimDisk;

/// When, in the flush, the others arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The flush covers them, though nobody may rely on it.
    Before,
    After,
}

pub(crate) struct Company {
    moment: Moment,
    arrive: Box<dyn FnOnce() + Send>,
}

impl Company {
    pub fn new(moment: Moment, arrive: impl FnOnce() + Send + 'static) -> Company {
        let arrive = Box::new(arrive);
        Company { moment, arrive }
    }
}

/// What a flush of the log meets.
#[derive(Default)]
pub(crate) struct Meeting {
    awaited: Option<Company>,
    /// The only thread that may flush.
    leader: Option<ThreadId>,
}

impl SimDisk {
    /// The next flush of a file's data, which this thread is about to ask for,
    /// meets the company; what that flushes itself waits to be released.
    pub(crate) fn await_company(&self, company: Company) {
        let meeting = &mut self.world().meeting;
        meeting.awaited = Some(company);
        meeting.leader = Some(thread::current().id());
    }

    pub(crate) fn release_company(&self) {
        self.world().meeting.leader = None;
    }

    /// Does a flush of a file's data, with whom it is to meet.
    pub(crate) fn flush_in_company<T>(&self, flush: impl FnOnce(&SimDisk) -> T) -> T {
        let own = thread::current().id();
        while self
            .world()
            .meeting
            .leader
            .is_some_and(|leader| leader != own)
        {
            thread::yield_now();
        }
        let Some(company) = self.world().meeting.awaited.take() else {
            return flush(self);
        };
        match company.moment {
            Moment::Before => {
                (company.arrive)();
                flush(self)
            }
            Moment::After => {
                let flushed = flush(self);
                (company.arrive)();
                flushed
            }
        }
    }
}
