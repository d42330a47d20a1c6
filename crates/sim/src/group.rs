//! Commits that arrive while another one's flush of the log is running.
//!
//! The scheduler decides which waiting thread then flushes for all, but each would do the same.
//! Everything else has a fixed order: the others arrive one by one, and none of them flushes before
//! it is allowed to.

use std::thread::{self, ThreadId};

use crate::disk::SimDisk;

/// When the others arrive: before or after the flush itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The flush covers the others, though nobody may rely on it.
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

/// Commits that arrive during a flush of the log.
#[derive(Default)]
pub(crate) struct Meeting {
    awaited: Option<Company>,
    /// The only thread that may flush.
    leader: Option<ThreadId>,
}

impl SimDisk {
    /// This thread is about to flush a file's data. The company arrives during that flush. Flushes
    /// by other threads wait until the company is released.
    pub(crate) fn await_company(&self, company: Company) {
        let meeting = &mut self.world().meeting;
        meeting.awaited = Some(company);
        meeting.leader = Some(thread::current().id());
    }

    pub(crate) fn release_company(&self) {
        self.world().meeting.leader = None;
    }

    /// Flushes a file's data, and lets the awaited company arrive.
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
