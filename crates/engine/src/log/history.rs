//! The history of commits: those that have left the log, and those still in it.
//!
//! It does not grow for ever: when it gets long, a checkpoint makes it half as long. `shares` says
//! who loses what then.

use atomdir_disk::{Disk, Errno, RenameMode, reason};
use atomdir_format::frame::Record;
use atomdir_format::summary::SummaryRecord;

use crate::base::core::Core;
use crate::error::StoreError;
use crate::ids::Sequence;
use crate::log::journal::Journal;
use crate::log::shares::{Claim, excessive};
use crate::log::{Log, Records};
use crate::names;

/// Listing commits reads the whole history, and so does opening the store.
pub(crate) const HISTORY_BYTES_MAX: u64 = 32 << 20;

impl<D: Disk> Journal<D> {
    /// The summaries of all sequences after this one. They can be read without the commit lock.
    pub fn summaries(&self, core: &Core<D>, after: Sequence) -> Result<Summaries<D>, StoreError> {
        let in_history = self.header.last_sequence;
        let mut logged = Vec::new();
        self.for_each_logged(core, |record| {
            logged.push(record.into());
            Ok(())
        })?;
        Ok(Summaries {
            after,
            history: (after.0 < in_history).then(|| self.history.records()),
            in_history,
            logged,
        })
    }

    /// If the history is longer than this, makes it half as long. The oldest commits of the users
    /// who take the most go: as a whole, if there are no others before them, otherwise all but
    /// their number of changes. If that is not enough, the oldest of all go. The newest is always
    /// listed.
    pub fn shorten_history(&mut self, core: &Core<D>, bytes_max: u64) -> Result<(), StoreError> {
        if self.history.length() <= bytes_max {
            return Ok(());
        }
        let mut claims = Vec::new();
        self.history
            .end_of_prefix(&core.disk, |record: SummaryRecord, bytes| {
                let user = record.commit.map_or(0, |commit| commit.user);
                claims.push(Claim {
                    user,
                    bytes,
                    may_go: true,
                });
                true
            })?;
        let gone = excessive(&claims, bytes_max / 2, core.options.privileges.user);
        let oldest = (0..claims.len().saturating_sub(1)).take_while(|place| gone.contains(place));
        let dropped = oldest.count();
        let mut place = 0;
        let change = |record: SummaryRecord| {
            place += 1;
            match gone.contains(&(place - 1)) {
                _ if place <= dropped => None,
                true => Some(record.without_lines()),
                false => Some(record),
            }
        };
        let names = (names::HISTORY_NEW, names::HISTORY);
        // The shorter file's name becomes durable with the next header, which is in
        // the same directory and is written after everything that is appended.
        let last = self.header.last_sequence;
        self.history = rewrite(core, names, (&self.history, last), change)?;
        match self.history.length() <= bytes_max {
            true => Ok(()),
            false => self.drop_oldest(core, bytes_max / 2),
        }
    }

    /// Drops the oldest commits, whoever made them, because even what is left of those that had to
    /// make room is too much. Keeps the newest.
    fn drop_oldest(&mut self, core: &Core<D>, bytes_left: u64) -> Result<(), StoreError> {
        let excess = self.history.length().saturating_sub(bytes_left);
        let (mut seen, mut bytes_seen, mut dropped) = (0_usize, 0_u64, 0_usize);
        self.history
            .end_of_prefix(&core.disk, |_: SummaryRecord, bytes| {
                seen += 1;
                if bytes_seen < excess {
                    bytes_seen += bytes;
                    dropped = seen;
                }
                true
            })?;
        let dropped = dropped.min(seen.saturating_sub(1));
        if dropped == 0 {
            return Ok(());
        }
        let mut place = 0;
        let change = |record: SummaryRecord| {
            place += 1;
            (place > dropped).then_some(record)
        };
        let names = (names::HISTORY_NEW, names::HISTORY);
        let last = self.header.last_sequence;
        self.history = rewrite(core, names, (&self.history, last), change)?;
        Ok(())
    }
}

/// Past commits, as they were known at one moment.
pub(crate) struct Summaries<D: Disk> {
    after: Sequence,
    /// The history is only ever appended to, or replaced by a shorter file.
    history: Option<Records<D>>,
    /// The newest sequence in it that is not in the log as well.
    in_history: u64,
    /// The summaries of the commits in the log.
    logged: Vec<SummaryRecord>,
}

impl<D: Disk> Summaries<D> {
    /// Calls `each` for every sequence, in order. Some belong to no commit.
    pub fn for_each(self, disk: &D, mut each: impl FnMut(SummaryRecord)) -> Result<(), StoreError> {
        let mut newest = self.after.0;
        let mut take = |summary: SummaryRecord| {
            if summary.sequence > newest {
                newest = summary.sequence;
                each(summary);
            }
        };
        if let Some(history) = self.history {
            history.for_each(disk, |summary: SummaryRecord| {
                // A summary that an interrupted checkpoint added is also in the log.
                if summary.sequence <= self.in_history {
                    take(summary);
                }
                Ok(())
            })?;
        }
        self.logged.into_iter().for_each(take);
        Ok(())
    }
}

/// Replaces the file by one with the records that `change` makes of the present ones; `None` for
/// some of the oldest. If this fails, the file stays, and nothing else. `last`: the sequence up to
/// which the new file counts as durable.
pub(super) fn rewrite<D: Disk, R: Record>(
    core: &Core<D>,
    (new, name): (&str, &str),
    (log, last): (&Log<D>, u64),
    mut change: impl FnMut(R) -> Option<R>,
) -> Result<Log<D>, StoreError> {
    let (disk, directory) = (&core.disk, &core.control.directory);
    let (new, name) = (names::fixed(new), names::fixed(name));
    let remove = || match disk.unlink(directory, &new) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    };
    let mut write = || {
        let file = disk.create(directory, &new, 0o600).map_err(failed)?;
        let mut written = Log::new(file, core.control.applied.store(), 0, 0);
        log.for_each(disk, |record: R| {
            if let Some(record) = change(record) {
                // The file is flushed as a whole before anybody reads it.
                written.note_durable(record.sequence().saturating_sub(1));
                written.append(disk, &record).map_err(failed)?;
            }
            Ok(())
        })?;
        written.give_back(disk).map_err(failed)?;
        disk.sync(&written.file()).map_err(failed)?;
        let renamed = disk.rename((directory, &new), (directory, &name), RenameMode::Replace);
        renamed.map_err(failed)?;
        written.note_durable(last);
        Ok(written)
    };
    remove().map_err(failed)?;
    write().inspect_err(|_| {
        if let Err(errno) = remove() {
            tracing::warn!(errno = %reason(errno), "a part of a shorter history is left");
        }
    })
}

/// Replaces the file by a copy that begins at `start`. If this fails, the file stays, and nothing
/// else.
pub(super) fn copy_tail<D: Disk>(
    core: &Core<D>,
    (new, name): (&str, &str),
    file: &D::Handle,
    start: u64,
    end: u64,
) -> Result<D::Handle, Errno> {
    let (disk, directory) = (&core.disk, &core.control.directory);
    let (new, name) = (names::fixed(new), names::fixed(name));
    let remove = || match disk.unlink(directory, &new) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    };
    let copy = || {
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
    };
    remove()?;
    copy().inspect_err(|_| {
        if let Err(errno) = remove() {
            tracing::warn!(errno = %reason(errno), "a part of a shorter history is left");
        }
    })
}

fn failed(errno: Errno) -> StoreError {
    StoreError::Control {
        step: "shorten the history",
        errno,
    }
}
