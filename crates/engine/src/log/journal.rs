//! The log, the history and the past together, and the header that says where one ends and the
//! other begins.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use atomdir_disk::{Disk, Errno, Identity, Name, Times, Timestamp};
use atomdir_format::header::StoreHeader;
use atomdir_format::log_place::{LogHead, LogId};
use atomdir_format::past::SettledBy;
use atomdir_format::record::{CommitRecord, LogRecord};
use atomdir_format::summary::SummaryRecord;
use atomdir_types::{EarlyReason, ForgottenEarly};

use crate::base::core::Core;
use crate::control;
use crate::control::log_elsewhere;
use crate::error::StoreError;
use crate::ids::Sequence;
use crate::log::Log;
use crate::log::annotations::AnnotationFile;
use crate::log::forgotten::Forgotten;
use crate::log::past::{Forget, Gone, Kept, PastFile, limbo_bytes};
use crate::log::past_limits::{Excess, HistoryStatus};
use crate::log::recent::RecentCommits;
use crate::names;
use crate::options::HistoryLimits;

pub(crate) struct Journal<D: Disk> {
    pub log: Log<D>,
    /// `None`: the log is in the control directory.
    pub log_id: Option<LogId>,
    pub history: Log<D>,
    /// The newest commit that has its summary in the history.
    pub newest_summary: u64,
    pub header: StoreHeader,
    /// The newest commit in the log.
    pub newest: Sequence,
    /// The objects that older commits have replaced; `None` if the store has never kept these.
    pub past: Option<PastFile<D>>,
    pub annotations: AnnotationFile,
    /// The number and size of the commits in the log that can be undone.
    pub logged: HistoryStatus,
    /// The moments at which the commits in the log were in the base: see
    /// [`PastRecord::settled`](atomdir_format::past::PastRecord).
    pub settled: BTreeMap<u64, Timestamp>,
    /// Objects that recovery has made again, which the log knows under other identities.
    pub remade: HashMap<Identity, Identity>,
    /// The sequences in the log that belong to no commit: of commits that were cancelled, and of
    /// the records that cancel them.
    pub cancelled: BTreeSet<u64>,
    /// Limbo may hold something that no commit keeps.
    pub has_garbage: bool,
    pub forgotten: Forgotten,
    /// Commits that are in the base.
    pub recent: RecentCommits,
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

    pub fn note_appended(&mut self, record: &CommitRecord) {
        self.newest = Sequence(record.sequence);
        if record.before.is_none() {
            self.logged = HistoryStatus::default();
            return;
        }
        let oldest = (Sequence(record.sequence), record.time);
        self.logged.oldest.get_or_insert(oldest);
        self.logged.commits += 1;
        self.logged.bytes += limbo_bytes(record);
    }

    /// Notes that the log has another record now, which says that a commit did not happen. `next`
    /// is the oldest commit behind that one, if there was none before it.
    pub fn note_cancelled(
        &mut self,
        record: &CommitRecord,
        by: Sequence,
        next: Option<(Sequence, Timestamp)>,
    ) {
        self.newest = by;
        self.cancelled.extend([record.sequence, by.0]);
        if record.before.is_none() {
            return;
        }
        self.logged.commits = self.logged.commits.saturating_sub(1);
        self.logged.bytes = self.logged.bytes.saturating_sub(limbo_bytes(record));
        let oldest = self.logged.oldest;
        if oldest.is_some_and(|(oldest, _)| oldest.0 == record.sequence) {
            self.logged.oldest = next;
        }
        // Limbo may have pages that only this commit would have kept.
        self.has_garbage = true;
    }

    /// Notes that the log has a record that belongs to no commit.
    pub fn note_no_commit(&mut self, sequence: Sequence) {
        self.newest = sequence;
        self.cancelled.insert(sequence.0);
    }

    /// Calls `each` for every record of the log, oldest first. In the place of a commit that did
    /// not happen there is a cancellation.
    pub fn for_each_logged(
        &self,
        core: &Core<D>,
        each: impl FnMut(LogRecord) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for_each_logged((&self.log, &self.cancelled), core, each)
    }

    /// Notes that a commit is in the base.
    pub fn note_published(&mut self, record: &CommitRecord) {
        self.recent.note(record.into());
    }

    /// Notes that commits have just been applied.
    pub fn note_settled(&mut self, core: &Core<D>, commits: impl Iterator<Item = Sequence>) {
        let mut commits = commits.peekable();
        if commits.peek().is_some()
            && let Ok(now) = touch_clock(core)
        {
            self.settled
                .extend(commits.map(|sequence| (sequence.0, now)));
        }
    }

    /// The commits that can be undone; `None` if the store does not keep what commits replace.
    pub fn history_status(&self) -> Option<HistoryStatus> {
        let past = self.past.as_ref()?;
        let (is_in_past, past) = (past.newest() >= self.newest, past.figures());
        if is_in_past {
            // A checkpoint has failed after it moved the log's commits there.
            return Some(past);
        }
        Some(HistoryStatus {
            commits: past.commits + self.logged.commits,
            bytes: past.bytes + self.logged.bytes,
            oldest: past.oldest.or(self.logged.oldest),
            early: None,
        })
    }

    /// Which commits can be undone: those for which the result is true.
    pub fn kept(&self) -> impl Fn(Sequence) -> bool + use<D> {
        let past = self
            .past
            .as_ref()
            .map_or_else(Kept::default, PastFile::kept);
        let in_log = self.logged.oldest.filter(|_| self.past.is_some());
        let newest = self.newest;
        let cancelled = self.cancelled.clone();
        move |sequence| {
            let is_in_log = in_log.is_some_and(|(oldest, _)| {
                (oldest..=newest).contains(&sequence) && !cancelled.contains(&sequence.0)
            });
            is_in_log || past.has(sequence.0)
        }
    }

    /// Forgets the oldest commits that are beyond the limits, except those after `held`, and pinned
    /// ones. `asked_from`: somebody has asked for it, and commits that are not older than this are
    /// forgotten early.
    pub fn limit_past(
        &mut self,
        core: &Core<D>,
        limits: &HistoryLimits,
        held: Option<Sequence>,
        asked_from: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let Some(past) = &self.past else {
            return Ok(());
        };
        let status = core.disk.status(&core.root);
        let status = status.map_err(failed("examine the file system"))?;
        let (figures, file_bytes) = (past.figures(), past.file_bytes());
        let pins = self.annotations.pins();
        let loose = past.loose_figures(core, &pins);
        let now = core.options.clock.now();
        let free_bytes = status.bytes_available();
        let mut excess = Excess::of(limits, now, free_bytes, loose.bytes);
        let why = match excess.is_larger(&loose) {
            _ if asked_from.is_some() => EarlyReason::Asked,
            true if free_bytes < limits.free_bytes_min => EarlyReason::FreeSpace,
            true => EarlyReason::Space,
            false => EarlyReason::TooMany,
        };
        if asked_from.is_none() {
            if !excess.is_due(limits, &loose, file_bytes) {
                return Ok(());
            }
            excess = excess.with_room();
        }
        let forget = Forget {
            excess: &excess,
            held,
            pins: &pins,
            early_from: asked_from.unwrap_or(excess.older_than()),
        };
        let given_up = self.in_tails(core, |journal| match &mut journal.past {
            Some(past) => past.give_up(core, &forget),
            None => Ok(Gone::default()),
        })?;
        let mut forgotten = self.in_tails(core, |journal| match &mut journal.past {
            Some(past) => past.forget(core, &forget),
            None => Ok(Gone::default()),
        });
        let more = forgotten.as_mut().map(std::mem::take).unwrap_or_default();
        let Gone { limbo: gone, early } = given_up.and(more);
        if let (commits @ 1.., newest) = early {
            let newest = Sequence(newest);
            let early = ForgottenEarly {
                time: now,
                commits,
                newest,
                why,
            };
            self.annotations.note_early(core, early);
        }
        if let Some(past) = self.past.as_ref().filter(|past| past.figures() != figures) {
            self.has_garbage = true;
            let in_limbo = |bytes: u64, file_bytes: u64| bytes.saturating_sub(file_bytes);
            let before = in_limbo(figures.bytes, file_bytes);
            let left = in_limbo(past.figures().bytes, past.file_bytes());
            self.forgotten.add(gone, before.saturating_sub(left));
        }
        forgotten.map(drop)
    }

    /// The newest commit whose base is that of `at`, if none has happened between the two. Later
    /// sequences than the newest commit's belong to commits that were cancelled.
    pub fn same_base(&self, at: Sequence) -> Sequence {
        let happened = self.recent.newest().map(|newest| newest.sequence);
        match happened.is_none_or(|happened| happened <= at) {
            true => self.newest.max(at),
            false => at,
        }
    }

    /// Whether the past says what each commit after `at` has replaced. The log must be empty.
    pub fn past_has_all_after(&self, at: Sequence) -> bool {
        let past = self.past.as_ref();
        at >= self.newest || past.is_some_and(|past| past.has_all(at, self.newest))
    }

    /// Whether limbo may hold something that neither the history nor an open snapshot needs.
    pub fn needs_purge(&self) -> bool {
        self.past.is_none() || self.has_garbage
    }

    /// Removes from limbo the objects that the history does not keep. No snapshot may be open.
    pub fn purge_limbo(&mut self, core: &Core<D>) -> Result<(), Errno> {
        let keeps = |name: &Name| {
            let object = names::parse_limbo(name);
            let past = self.past.as_ref();
            let keeps = object.is_some_and(|object| past.is_some_and(|past| past.keeps(&object)));
            keeps || names::is_displaced(name)
        };
        control::purge(&core.disk, &core.control.limbo, keeps)?;
        self.has_garbage = false;
        self.forgotten.clear();
        Ok(())
    }

    /// Empties the log, all of whose commits are in the base. `flush` makes the whole file system
    /// durable: the base, and with it what the history and the past get here. Neither counts before
    /// the header says so. `flush_log` makes a log durable that is elsewhere. On a full disk this makes
    /// do with the space that the files have reserved for later records. `drops_past`: nobody needs the
    /// past any more.
    pub fn retire_log(
        &mut self,
        core: &Core<D>,
        drops_past: bool,
        (flush, flush_log): (
            impl FnOnce() -> Result<(), StoreError>,
            impl FnOnce(&D::Handle) -> Result<(), StoreError>,
        ),
    ) -> Result<(), StoreError> {
        self.in_tails(core, |journal| journal.copy_log(core))?;
        if let Some(past) = self.past.as_mut().filter(|_| drops_past) {
            self.has_garbage |= past.file_bytes() > 0;
            past.reset(core)?;
        }
        flush()?;
        if self.log_id.is_some() {
            self.write_log_head(core)?;
            flush_log(&self.log.file())?;
        }
        self.in_tails(core, |journal| journal.drop_log(core))
    }

    /// Lets the log follow the header as it is now, and also as it is once the log is dropped.
    fn write_log_head(&self, core: &Core<D>) -> Result<(), StoreError> {
        let Some(id) = self.log_id else {
            return Ok(());
        };
        let head = LogHead {
            id,
            follows: self.header.last_sequence,
            follows_next: self.newest.0,
        };
        let written =
            log_elsewhere::write_head(&core.disk, &self.log.file(), self.header.store_id, &head);
        written.map_err(failed("write the log's head"))
    }

    /// If there is no space left, frees the space that the files have reserved for later records,
    /// and tries once more. An attempt that has failed must be repeatable.
    fn in_tails<T>(
        &mut self,
        core: &Core<D>,
        mut attempt: impl FnMut(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match attempt(self) {
            Err(error) if lacks_space(&error) => {
                let past = self.past.iter_mut().map(PastFile::records_mut);
                for log in past.chain([&mut self.log, &mut self.history]) {
                    log.give_back(&core.disk)
                        .map_err(failed("release reserved space"))?;
                }
                attempt(self)
            }
            done => done,
        }
    }

    /// Adds the log's commits to the history and the past.
    fn copy_log(&mut self, core: &Core<D>) -> Result<(), StoreError> {
        let now = match self.past {
            Some(_) => touch_clock(core).map_err(failed("read the file system's clock"))?,
            None => Timestamp::default(),
        };
        for_each_logged((&self.log, &self.cancelled), core, |record| {
            let sequence = record.sequence();
            let is_new = sequence > self.header.last_sequence;
            if let Some(past) = self.past.as_mut().filter(|_| is_new) {
                let settled = self.settled.get(&sequence).copied();
                let settled =
                    settled.map_or((now, SettledBy::Recovery), |at| (at, SettledBy::Commit));
                self.has_garbage |= past.append(core, &record, &self.remade, settled)?;
            }
            // An interrupted checkpoint or recovery may have added this summary
            // already.
            if sequence > self.header.last_sequence.max(self.newest_summary) {
                let summary = SummaryRecord::from(record);
                self.history
                    .append(&core.disk, &summary)
                    .map_err(failed("write the history"))?;
                self.newest_summary = summary.sequence;
            }
            Ok(())
        })
    }

    /// Everything that the log has is durable in the base, the history and the past.
    fn drop_log(&mut self, core: &Core<D>) -> Result<(), StoreError> {
        let newest = self.newest.0;
        self.history.note_durable(newest);
        if let Some(past) = &mut self.past {
            past.note_durable(newest);
        }
        self.header.last_sequence = newest;
        self.write_header(core)?;
        self.settled.clear();
        self.remade.clear();
        self.cancelled.clear();
        self.logged = HistoryStatus::default();
        let dropped = self.log.drop_all(&core.disk);
        dropped.map_err(failed("empty the log"))?;
        self.write_log_head(core)
    }
}

fn for_each_logged<D: Disk>(
    (log, cancelled): (&Log<D>, &BTreeSet<u64>),
    core: &Core<D>,
    mut each: impl FnMut(LogRecord) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    log.for_each(&core.disk, |record: LogRecord| {
        match cancelled.contains(&record.sequence()) {
            true => each(record.cancelled()),
            false => each(record),
        }
    })
}

/// Returns a moment on the file system's clock that is not before any change made so far, and
/// before any that comes later. Kernels before 6.13 may give it to what changes in the same tick.
fn touch_clock<D: Disk>(core: &Core<D>) -> Result<Timestamp, Errno> {
    let time = core.options.clock.now();
    let times = Times {
        accessed: time,
        modified: time,
    };
    let clock = &core.control.clock;
    core.disk.set_times(clock, times)?;
    let now = core.disk.stat(clock)?.changed;
    // The kernel does not give out a time again that somebody has read. So this moves its clock.
    core.disk.set_times(clock, times)?;
    Ok(now)
}

/// Whether there was no space left, or a quota was exceeded.
pub(crate) fn lacks_space(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Control {
            errno: Errno::NOSPC | Errno::DQUOT,
            ..
        }
    )
}

fn failed(step: &'static str) -> impl Fn(Errno) -> StoreError {
    move |errno| StoreError::Control { step, errno }
}
