//! The history of commits does not grow for ever: when it is long, a checkpoint
//! drops its older half.

use atomdir_disk::{Disk, Errno, RenameMode};
use atomdir_format::summary::SummaryRecord;

use crate::commit::CommitState;
use crate::core::Core;
use crate::error::StoreError;
use crate::log::Log;
use crate::names;
use crate::store::Store;

/// Who asks for a commit reads the history, and so does who opens the store.
pub(crate) const HISTORY_BYTES_MAX: u64 = 32 << 20;

impl<D: Disk> Store<D> {
    /// Drops the oldest commits from the history if it is longer than this, so
    /// that half is left; the newest stays in any case. Commits themselves are
    /// in the base, and stay there.
    pub fn shorten_history(&self, bytes_max: u64) -> Result<(), StoreError> {
        let mut state = self.lock_settled()?;
        state.shorten_history(&self.0.core, bytes_max)
    }
}

impl<D: Disk> CommitState<D> {
    pub fn shorten_history(&mut self, core: &Core<D>, bytes_max: u64) -> Result<(), StoreError> {
        let length = self.history.length();
        if length <= bytes_max {
            return Ok(());
        }
        let id = self.header.store_id;
        let file = self.history.file();
        let start = self
            .history
            .start_of_last::<SummaryRecord>(&core.disk, bytes_max / 2)?;
        if start == 0 {
            return Ok(());
        }
        let durable = self.header.last_sequence;
        let shorter = copy_tail(core, &file, start, length).map_err(failed)?;
        // Its name is durable with the next header, which lies beside it and
        // comes after whatever is appended.
        self.history = Log::new(shorter, id, length - start, durable);
        Ok(())
    }
}

/// Puts a copy of the file from `start` on in its place.
fn copy_tail<D: Disk>(
    core: &Core<D>,
    file: &D::Handle,
    start: u64,
    end: u64,
) -> Result<D::Handle, Errno> {
    let (disk, directory) = (&core.disk, &core.control.directory);
    let (new, name) = (
        names::fixed(names::HISTORY_NEW),
        names::fixed(names::HISTORY),
    );
    match disk.unlink(directory, &new) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error),
    }
    let copy = disk.create(directory, &new, 0o600)?;
    let mut at = start;
    while at < end {
        match disk.copy_range((file, at), (&copy, at - start), end - at)? {
            0 => return Err(Errno::IO),
            count => at += count,
        }
    }
    disk.sync(&copy)?;
    disk.rename((directory, &new), (directory, &name), RenameMode::Replace)?;
    Ok(copy)
}

fn failed(errno: Errno) -> StoreError {
    StoreError::Control {
        step: "shorten the history",
        errno,
    }
}
