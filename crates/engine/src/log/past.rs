//! The past: what commits have replaced, in the file `past` and in limbo.
//!
//! The log records for each commit what it replaces. A checkpoint moves these records to `past`,
//! which names objects and saved pages in limbo.
//!
//! Invariants
//! 1. `past` holds consecutive commits, up to the header's last sequence. After a commit that
//!    does not say what it replaces, it begins anew.
//! 2. Every object that `past` and the log name is in limbo, unless an undo has brought it back
//!    into the base. It is durably there before the header says that `past` has the commit.
//! 3. A commit is forgotten durably before the objects that it alone keeps in limbo are removed.

use std::collections::{BTreeSet, HashMap, HashSet};

use atomdir_disk::{Disk, Errno, Identity, Timestamp};
use atomdir_format::past::{PastRecord, SettledBy};
use atomdir_format::record::{CommitRecord, FormerPages, LogRecord};

use crate::base::core::Core;
use crate::error::StoreError;
use crate::ids::Sequence;
use crate::lock;
use crate::log::history::{copy_tail, rewrite};
use crate::log::past_limits::{Excess, HistoryStatus};
use crate::log::shares::{Claim, excessive};
use crate::log::{Log, read_records};
use crate::names::{self, InLimbo};

pub(crate) struct PastFile<D: Disk> {
    records: Log<D>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    /// How many commits keep each object in limbo.
    kept: HashMap<InLimbo, u32>,
    figures: HistoryStatus,
    /// The sequences in the file of which it says nothing: commits that were cancelled, and those
    /// that had to make room.
    absent: BTreeSet<u64>,
    /// The first commit in the file, perhaps a cancelled one.
    first: Option<u64>,
    newest: u64,
}

/// What is to be forgotten.
pub(crate) struct Forget<'a> {
    pub excess: &'a Excess,
    /// Commits after this one stay.
    pub held: Option<Sequence>,
    /// These stay, too, and the limits are for all others.
    pub pins: &'a BTreeSet<u64>,
    /// Younger commits are forgotten early.
    pub early_from: Timestamp,
}

/// What was forgotten.
#[derive(Default)]
pub(crate) struct Gone {
    /// No commit keeps these in limbo any more.
    pub limbo: Vec<InLimbo>,
    /// The number of commits that were forgotten early, and the newest.
    pub early: (u64, u64),
}

impl Gone {
    fn note(&mut self, record: &PastRecord, early_from: Timestamp) {
        if record.record.commit().is_some() && record.record.time() >= early_from {
            let (count, newest) = self.early;
            self.early = (count + 1, newest.max(record.record.sequence()));
        }
    }

    /// Together with what was forgotten besides.
    pub fn and(mut self, other: Gone) -> Gone {
        self.limbo.extend(other.limbo);
        let ((count, newest), (more, newer)) = (self.early, other.early);
        self.early = (count + more, newest.max(newer));
        self
    }
}

impl Forget<'_> {
    fn may_go(&self, sequence: u64) -> bool {
        self.held.is_none_or(|held| sequence <= held.0) && !self.pins.contains(&sequence)
    }
}

/// The objects and saved pages that a commit keeps in limbo.
pub(crate) fn kept_by(commit: &CommitRecord) -> impl Iterator<Item = InLimbo> + '_ {
    let buried = commit.entries.iter().filter(|entry| entry.buries);
    let buried = buried.filter_map(|entry| Some((entry.before?, None)));
    let former = commit.before.iter().flat_map(|before| &before.objects);
    let saved = former.filter(|former| former.pages == FormerPages::Limbo);
    let saved = saved.map(|former| {
        let identity = commit.objects[former.object as usize].identity;
        (identity, Some(Sequence(commit.sequence)))
    });
    buried.chain(saved)
}

impl Counts {
    fn add<D: Disk>(&mut self, core: &Core<D>, record: &PastRecord, bytes: u64) {
        let (sequence, time) = (record.record.sequence(), record.record.time());
        self.first.get_or_insert(sequence);
        self.newest = sequence;
        let mut bytes = bytes;
        if let Some(commit) = record.record.commit() {
            for kept in kept_by(commit) {
                *self.kept.entry(kept).or_default() += 1;
            }
            self.figures
                .oldest
                .get_or_insert((Sequence(sequence), time));
            self.figures.commits += 1;
            bytes += limbo_bytes(commit);
        } else {
            self.absent.insert(sequence);
        }
        self.figures.bytes += bytes;
        lock(&core.past_sizes).add(sequence, time, bytes);
    }

    /// Whether no other commit keeps it.
    fn release(&mut self, kept: &InLimbo) -> bool {
        let Some(count) = self.kept.get_mut(kept) else {
            return false;
        };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.kept.remove(kept);
        }
        is_last
    }
}

impl<D: Disk> PastFile<D> {
    /// Makes the file, if it is missing. Its name is durable once the directory is flushed.
    pub fn create(core: &Core<D>, last_sequence: u64) -> Result<PastFile<D>, StoreError> {
        let name = names::fixed(names::PAST);
        let made = core.disk.create(&core.control.directory, &name, 0o600);
        PastFile::open(core, made.map_err(failed("create files"))?, last_sequence)
    }

    /// Reads the file. Commits after the header's last sequence are still in the log, and an
    /// interrupted checkpoint has added them: they are cut off.
    pub fn open(
        core: &Core<D>,
        file: D::Handle,
        last_sequence: u64,
    ) -> Result<PastFile<D>, StoreError> {
        let id = core.control.applied.store();
        let none = |_: PastRecord| None::<()>;
        let read = read_records(&core.disk, &file, id, u64::MAX, none)?;
        let mut records = Log::new(file, id, read.tail, last_sequence);
        let mut counts = Counts::default();
        let end = records.end_of_prefix(&core.disk, |record: PastRecord, bytes| {
            let is_before = record.record.sequence() <= last_sequence;
            if is_before {
                counts.add(core, &record, bytes);
            }
            is_before
        })?;
        if read.torn_bytes > 0 || end < read.tail {
            let cut = records.cut(&core.disk, end);
            cut.map_err(failed("cut the past"))?;
        }
        let mut past = PastFile { records, counts };
        if past.counts.newest < last_sequence && past.records.length() > 0 {
            past.reset(core)?;
        }
        Ok(past)
    }

    /// Forgets everything. It is in `past` again or gone for good once the next flush succeeds.
    pub fn reset(&mut self, core: &Core<D>) -> Result<(), StoreError> {
        self.counts = Counts::default();
        lock(&core.past_sizes).clear();
        let dropped = self.records.drop_all(&core.disk);
        dropped.map_err(failed("empty the past"))
    }

    /// Adds what leaves the log. To be durable before the log is dropped. Returns whether
    /// earlier commits were forgotten.
    pub fn append(
        &mut self,
        core: &Core<D>,
        logged: &LogRecord,
        remade: &HashMap<Identity, Identity>,
        (settled, settled_by): (Timestamp, SettledBy),
    ) -> Result<bool, StoreError> {
        if logged.sequence() <= self.counts.newest {
            return Ok(false);
        }
        let is_next = self.counts.newest + 1 == logged.sequence();
        let record = PastRecord::of(logged.clone(), settled);
        let begins_anew = !(is_next && record.is_some()) && self.records.length() > 0;
        if begins_anew {
            self.reset(core)?;
        }
        if let Some(mut record) = record {
            record.settled_by = settled_by;
            if let LogRecord::Commit(commit) = &mut record.record {
                rename(commit, remade);
            }
            let before = self.records.length();
            let appended = self.records.append(&core.disk, &record);
            appended.map_err(failed("write the past"))?;
            let bytes = self.records.length() - before;
            self.counts.add(core, &record, bytes);
        }
        Ok(begins_anew)
    }

    /// A flush of the whole file system has made everything durable, up to the last record's sequence.
    pub fn note_durable(&mut self, newest: u64) {
        self.records.note_durable(newest);
    }

    /// Calls `each` for every commit, oldest first.
    pub fn for_each(
        &self,
        core: &Core<D>,
        mut each: impl FnMut(PastRecord),
    ) -> Result<(), StoreError> {
        self.records.for_each(&core.disk, |record| {
            each(record);
            Ok(())
        })
    }

    /// Whether it has each commit after `at`, up to `newest`.
    pub fn has_all(&self, at: Sequence, newest: Sequence) -> bool {
        let first = self.counts.first;
        self.counts.newest == newest.0 && first.is_some_and(|first| first <= at.next().0)
    }

    /// The oldest commit in the file.
    pub fn oldest(&self) -> Option<Sequence> {
        self.counts.first.map(Sequence)
    }

    /// The newest commit in the file.
    pub fn newest(&self) -> Sequence {
        Sequence(self.counts.newest)
    }

    pub fn records_mut(&mut self) -> &mut Log<D> {
        &mut self.records
    }

    pub fn figures(&self) -> HistoryStatus {
        self.counts.figures
    }

    /// The figures of the commits that are not pinned.
    pub fn loose_figures(&self, core: &Core<D>, pins: &BTreeSet<u64>) -> HistoryStatus {
        let figures = self.counts.figures;
        if pins.is_empty() {
            return figures;
        }
        let sizes = lock(&core.past_sizes);
        let absent = &self.counts.absent;
        let oldest = sizes.oldest(|one| !pins.contains(&one) && !absent.contains(&one));
        let pinned: u64 = pins.iter().map(|one| sizes.of(*one)).sum();
        HistoryStatus {
            bytes: figures.bytes.saturating_sub(pinned),
            oldest: oldest.map(|(sequence, time)| (Sequence(sequence), time)),
            ..figures
        }
    }

    /// The commits of which it says what they replaced.
    pub fn kept(&self) -> Kept {
        let oldest = self.counts.figures.oldest;
        Kept {
            oldest: oldest.map(|(sequence, _)| sequence.0),
            newest: self.counts.newest,
            absent: self.counts.absent.clone(),
        }
    }

    pub fn file_bytes(&self) -> u64 {
        self.records.length()
    }

    pub fn keeps(&self, object: &InLimbo) -> bool {
        self.counts.kept.contains_key(object)
    }

    /// If commits are too many, gives up the oldest of the users who have the most. Also those that
    /// are too old, if a pinned one before them keeps them in the file.
    pub fn give_up(&mut self, core: &Core<D>, forget: &Forget) -> Result<Gone, StoreError> {
        let Some(gone) = self.excessive(core, forget)? else {
            return Ok(Gone::default());
        };
        let mut result = Gone::default();
        let names = (names::PAST_NEW, names::PAST);
        let log = (&self.records, self.counts.newest);
        self.records = rewrite(core, names, log, |record: PastRecord| {
            Some(match gone.contains(&record.record.sequence()) {
                true => {
                    result.note(&record, forget.early_from);
                    record.given_up()
                }
                false => record,
            })
        })?;
        let kept = std::mem::take(&mut self.counts).kept;
        lock(&core.past_sizes).clear();
        let counts = &mut self.counts;
        self.records
            .end_of_prefix(&core.disk, |record: PastRecord, bytes| {
                counts.add(core, &record, bytes);
                true
            })?;
        sync_name(core).map_err(failed("shorten the past"))?;
        let kept = kept.into_keys();
        result.limbo = kept.filter(|one| !self.keeps(one)).collect();
        Ok(result)
    }

    /// The sequences of the commits to give up; `None` if nothing is to be rewritten.
    fn excessive(
        &self,
        core: &Core<D>,
        forget: &Forget,
    ) -> Result<Option<HashSet<u64>>, StoreError> {
        let mut claims = Vec::new();
        let mut file_claims = Vec::new();
        let mut sequences = Vec::new();
        // Commits behind a pinned one cannot be forgotten by shortening the file.
        let first_pin = forget.pins.first().copied();
        let mut gone = HashSet::new();
        self.records
            .end_of_prefix(&core.disk, |record: PastRecord, bytes| {
                let sequence = record.record.sequence();
                let Some(commit) = record.record.commit() else {
                    return true;
                };
                if forget.pins.contains(&sequence) {
                    return true;
                }
                let may_go = forget.may_go(sequence);
                let is_behind = first_pin.is_some_and(|first| sequence > first);
                if may_go && is_behind && forget.excess.is_old(record.record.time()) {
                    gone.insert(sequence);
                    return true;
                }
                let claim = |bytes| Claim {
                    user: commit.user,
                    bytes,
                    may_go,
                };
                sequences.push(sequence);
                claims.push(claim(bytes + limbo_bytes(commit)));
                file_claims.push(claim(bytes));
                true
            })?;
        // If the oldest commits of all users are to go, `forget` takes less work.
        let users: HashSet<u32> = claims.iter().map(|claim| claim.user).collect();
        let owner = core.options.privileges.user;
        let (bytes_max, file_bytes_max) = forget.excess.bytes_max();
        if first_pin.is_none() && (users.len() < 2 || bytes_max == 0) {
            return Ok(None);
        }
        let places = excessive(&claims, bytes_max, owner)
            .into_iter()
            .chain(excessive(&file_claims, file_bytes_max, owner));
        gone.extend(places.map(|place| sequences[place]));
        Ok((!gone.is_empty()).then_some(gone))
    }

    /// Forgets the oldest commits as far as they are too many, up to the first that must stay.
    pub fn forget(&mut self, core: &Core<D>, forget: &Forget) -> Result<Gone, StoreError> {
        let length = self.records.length();
        let mut figures = self.counts.figures;
        let loose_bytes = self.loose_figures(core, forget.pins).bytes;
        let pinned_bytes = figures.bytes.saturating_sub(loose_bytes);
        let mut file_bytes = length;
        let mut gone = Gone::default();
        let mut first = None;
        let goes = |record: PastRecord, bytes: u64| {
            let sequence = Sequence(record.record.sequence());
            first = Some(sequence.0);
            figures.oldest = Some((sequence, record.record.time()));
            if !forget.may_go(sequence.0) {
                return false;
            }
            let commit = record.record.commit();
            let loose = HistoryStatus {
                bytes: figures.bytes.saturating_sub(pinned_bytes),
                ..figures
            };
            let goes = commit.is_none() || forget.excess.includes(&loose, file_bytes);
            if goes {
                gone.note(&record, forget.early_from);
                first = None;
                figures.commits -= u64::from(commit.is_some());
                figures.bytes -= bytes + commit.map_or(0, limbo_bytes);
                file_bytes -= bytes;
                gone.limbo.extend(commit.into_iter().flat_map(kept_by));
            }
            goes
        };
        let start = self.records.end_of_prefix(&core.disk, goes)?;
        if start == 0 {
            return Ok(Gone::default());
        }
        let names = (names::PAST_NEW, names::PAST);
        let file = self.records.file();
        let failed = failed("shorten the past");
        let shorter = copy_tail(core, names, &file, start, length).map_err(&failed)?;
        let (id, durable) = (core.control.applied.store(), self.records.durable());
        self.records = Log::new(shorter, id, length - start, durable);
        if figures.commits == 0 {
            figures.oldest = None;
        }
        self.counts.figures = figures;
        self.counts.first = first;
        match first {
            Some(first) => self.counts.absent = self.counts.absent.split_off(&first),
            None => self.counts.absent.clear(),
        }
        lock(&core.past_sizes).forget_before(first);
        sync_name(core).map_err(&failed)?;
        gone.limbo.retain(|kept| self.counts.release(kept));
        Ok(gone)
    }
}

/// Which commits of the past can be undone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    oldest: Option<u64>,
    newest: u64,
    absent: BTreeSet<u64>,
}

impl Kept {
    pub fn has(&self, sequence: u64) -> bool {
        let oldest = self.oldest;
        oldest.is_some_and(|oldest| (oldest..=self.newest).contains(&sequence))
            && !self.absent.contains(&sequence)
    }
}

pub(crate) fn rename(commit: &mut CommitRecord, remade: &HashMap<Identity, Identity>) {
    let objects = commit.objects.iter_mut().map(|object| &mut object.identity);
    let entries = commit.entries.iter_mut();
    let befores = entries.filter_map(|entry| entry.before.as_mut());
    for identity in objects.chain(befores) {
        *identity = remade.get(identity).copied().unwrap_or(*identity);
    }
}

pub(crate) fn limbo_bytes(commit: &CommitRecord) -> u64 {
    let before = commit.before.as_ref();
    before.map_or(0, |before| before.limbo_bytes)
}

/// Makes the name of a file durable that was written anew.
fn sync_name<D: Disk>(core: &Core<D>) -> Result<(), Errno> {
    core.disk.sync_directory(&core.control.directory)
}

fn failed(step: &'static str) -> impl Fn(Errno) -> StoreError {
    move |errno| StoreError::Control { step, errno }
}
