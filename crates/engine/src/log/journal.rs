//! The log and the history together, and the header that says where one ends and the
//! other begins.

use atomdir_disk::{Disk, Errno};
use atomdir_format::header::StoreHeader;
use atomdir_format::record::CommitRecord;
use atomdir_format::summary::SummaryRecord;

use crate::base::core::Core;
use crate::control;
use crate::error::StoreError;
use crate::ids::Sequence;
use crate::log::Log;

pub(crate) struct Journal<D: Disk> {
    pub log: Log<D>,
    pub history: Log<D>,
    /// The newest commit that has its summary in the history.
    pub newest_summary: u64,
    pub header: StoreHeader,
    /// The newest commit in the log.
    pub newest: Sequence,
}

impl<D: Disk> Journal<D> {
    /// Reserves transaction ids, and returns the end of the reserved range.
    pub fn reserve_ids(&mut self, core: &Core<D>, count: u64) -> Result<u64, StoreError> {
        self.header.transaction_high_water += count;
        self.write_header(core)?;
        Ok(self.header.transaction_high_water)
    }

    pub fn write_header(&self, core: &Core<D>) -> Result<(), StoreError> {
        control::write_header(&core.disk, &core.control.directory, &self.header)
    }

    /// Empties the log, all of whose commits are durably in the base.
    pub fn retire_log(&mut self, core: &Core<D>) -> Result<(), StoreError> {
        let before = (self.history.length(), self.newest_summary);
        self.log.for_each(&core.disk, |record: CommitRecord| {
            // An interrupted checkpoint or recovery may have added this summary
            // already.
            if record.sequence > self.header.last_sequence.max(self.newest_summary) {
                let summary = SummaryRecord::from(record);
                self.history
                    .append(&core.disk, &summary)
                    .map_err(failed("write the history"))?;
                self.newest_summary = summary.sequence;
            }
            Ok(())
        })?;
        let newest = self.newest.0;
        if let Err(errno) = self.history.flush(&core.disk, newest) {
            // The next flush might succeed without writing what this one lost.
            let cut = self.history.cut(&core.disk, before.0);
            cut.map_err(failed("cut the history"))?;
            self.newest_summary = before.1;
            return Err(failed("flush the history")(errno));
        }
        self.header.last_sequence = newest;
        self.write_header(core)?;
        self.log
            .drop_all(&core.disk)
            .map_err(failed("empty the log"))
    }
}

fn failed(step: &'static str) -> impl Fn(Errno) -> StoreError {
    move |errno| StoreError::Control { step, errno }
}
