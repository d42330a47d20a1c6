//! The file system's own clock, which stamps the changes of outside writers.

use atomdir_disk::{Disk, Errno, Times, Timestamp};

use crate::error::StoreError;
use crate::store::Store;

impl<D: Disk> Store<D> {
    /// Returns a moment on the file system's own clock: everything that changed before
    /// has an earlier change time, and nothing that changes later does. That clock may
    /// stand still for a tick. Since Linux 6.13 it moves when a file is changed whose
    /// change time was just read and would otherwise stay the same.
    pub(crate) fn stamp(&self) -> Result<Timestamp, StoreError> {
        let core = &self.0.core;
        let time = core.options.clock.now();
        let times = Times {
            accessed: time,
            modified: time,
        };
        let touch = || -> Result<Timestamp, Errno> {
            core.disk.set_times(&core.control.clock, times)?;
            Ok(core.disk.stat(&core.control.clock)?.changed)
        };
        let moment = || {
            let first = touch()?;
            loop {
                let next = touch()?;
                if next != first {
                    return Ok(next);
                }
            }
        };
        moment().map_err(|errno| StoreError::Control {
            step: "read the file system's clock",
            errno,
        })
    }
}
