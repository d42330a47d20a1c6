//! The write-ahead log, and the history of commits, which has the same form.
//!
//! This module reads and writes a file of records. A `journal` is a store's log together with
//! its history and the header that says where one ends and the other begins; `history`
//! lists commits from both. `past` is what commits have replaced, `past_limits` says how much
//! of that is kept, and `shares` whose part of it goes first. `recent` finds the newest commits.
//! `record_builder` writes a write set down as a record.
//!
//! Invariants
//! 1. `tail` is the end of the last whole record. Nothing behind it was ever acknowledged.
//! 2. Each record carries the sequence up to which everything was durable when the record was
//!    written. So recovery can distinguish a lost record from one that was never written.

pub(crate) mod annotations;
pub(crate) mod forgotten;
pub(crate) mod history;
pub(crate) mod journal;
pub(crate) mod past;
pub(crate) mod past_limits;
pub(crate) mod recent;
pub(crate) mod record_builder;
pub(crate) mod shares;

use std::sync::Arc;

use atomdir_disk::{Disk, Errno};
use atomdir_format::frame::{self, FrameKind, Record};
use atomdir_format::header::StoreId;
use atomdir_format::scan::{Scanned, Scanner};

use crate::error::StoreError;
use crate::names;

pub(crate) struct Log<D: Disk> {
    file: Arc<D::Handle>,
    /// Where the frames begin in the file. All other offsets count from there.
    start: u64,
    id: StoreId,
    tail: u64,
    allocated: u64,
    growth: Growth,
    /// The last sequence that a completed flush covers.
    durable: u64,
}

/// The records of a log at one moment. They can be read later as well, as long as nothing is cut
/// off the file: the log only grows, or gets another file.
pub(crate) struct Records<D: Disk> {
    file: Arc<D::Handle>,
    start: u64,
    id: StoreId,
    tail: u64,
}

impl<D: Disk> Records<D> {
    /// Calls `each` for every record, oldest first, one at a time, as a log may be large.
    /// Records before a damaged one are included.
    pub fn for_each<R: Record>(
        &self,
        disk: &D,
        mut each: impl FnMut(R) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let scanner = scanner(disk, (&self.file, self.start), self.tail, self.id, u64::MAX);
        scan(scanner, |_, record| each(record)).map(drop)
    }
}

/// The file grows in steps, so that neither appending nor flushing runs out of space half-way.
enum Growth {
    Allocated,
    /// Each step has at least this many bytes of zeros, which are written. Blocks that are only
    /// allocated make ext4 note in its journal at each flush which of them have been written since,
    /// and so flush the disk once more. A step makes ext4 flush once more as well. So a log that
    /// has many bytes since the last checkpoint, and will probably get as many again, grows by half
    /// of its length at a time, up to [`STEPS_MAX`] times the least step.
    Zeros(u64),
}

const ALLOCATION_STEP: u64 = 128 << 10;

/// The commit that makes a step also writes its zeros. Longer steps would make it slow, and could
/// not save much: with these, one commit of 128 KiB in eight makes one.
const STEPS_MAX: u64 = 8;

const REWRITE_CHUNK: usize = 1 << 20;

impl<D: Disk> Log<D> {
    /// An empty file, or one whose records were all read.
    pub fn new(file: D::Handle, id: StoreId, tail: u64, durable: u64) -> Log<D> {
        Log {
            file: Arc::new(file),
            start: 0,
            id,
            tail,
            allocated: tail,
            growth: Growth::Allocated,
            durable,
        }
    }

    /// For a file whose frames begin at `start`.
    pub fn beginning_at(self, start: u64) -> Log<D> {
        Log { start, ..self }
    }

    /// For a log that is flushed often.
    pub fn growing_by_zeros(self, step: u64) -> Log<D> {
        let growth = Growth::Zeros(step);
        Log { growth, ..self }
    }

    pub fn length(&self) -> u64 {
        self.tail
    }

    /// Appends a record; on failure the log is as it was.
    pub fn append<R: Record>(&mut self, disk: &D, record: &R) -> Result<(), Errno> {
        let bytes = frame::encode(self.id, self.durable, record);
        let end = self.tail + bytes.len() as u64;
        let written = self
            .allocate(disk, end)
            .and_then(|()| disk.write_at(&self.file, &bytes, self.start + self.tail));
        if let Err(errno) = written {
            // A partly written record must not be taken for a record later.
            disk.set_length(&self.file, self.start + self.tail)?;
            self.allocated = self.tail;
            return Err(errno);
        }
        self.tail = end;
        Ok(())
    }

    fn allocate(&mut self, disk: &D, end: u64) -> Result<(), Errno> {
        if end <= self.allocated {
            return Ok(());
        }
        let (step, steps) = match self.growth {
            Growth::Allocated => (ALLOCATION_STEP, 0),
            Growth::Zeros(step) => (step, (self.tail / 2 / step).min(STEPS_MAX)),
        };
        let least = end.next_multiple_of(step);
        let target = least.max((self.tail + steps * step).next_multiple_of(step));
        // On a full disk a shorter step is enough.
        let mut grown = self.grow(disk, end, target);
        for less in [least, end] {
            if matches!(grown, Err(Errno::NOSPC | Errno::DQUOT)) && less < target {
                grown = self.grow(disk, end, less);
            }
        }
        grown
    }

    /// Lengthens the file for a record that will be written up to `end`.
    fn grow(&mut self, disk: &D, end: u64, target: u64) -> Result<(), Errno> {
        let from = self.start + self.allocated;
        match disk.allocate(&self.file, from, target - self.allocated) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
        disk.set_length(&self.file, self.start + target)?;
        if let Growth::Zeros(step) = self.growth {
            let zeros = vec![0; step.min(target - end) as usize];
            let mut at = end;
            while at < target {
                let length = (target - at).min(step);
                disk.write_at(&self.file, &zeros[..length as usize], self.start + at)?;
                at += length;
            }
        }
        self.allocated = target;
        Ok(())
    }

    /// Makes everything appended durable; `last` is the last record's sequence.
    #[track_caller]
    pub fn flush(&mut self, disk: &D, last: u64) -> Result<(), Errno> {
        disk.sync_data(&self.file)?;
        self.note_durable(last);
        Ok(())
    }

    /// Writes the records from `start` on once more: after a failed flush they may be only in
    /// memory although the kernel has marked their pages clean.
    pub fn rewrite(&self, disk: &D, start: u64) -> Result<(), Errno> {
        let chunk = self.tail.saturating_sub(start).min(REWRITE_CHUNK as u64);
        let mut buffer = vec![0; chunk as usize];
        let mut at = start;
        while at < self.tail {
            let length = (self.tail - at).min(chunk) as usize;
            let count = disk.read_at(&self.file, &mut buffer[..length], self.start + at)?;
            if count == 0 {
                return Err(Errno::IO);
            }
            disk.write_at(&self.file, &buffer[..count], self.start + at)?;
            at += count as u64;
        }
        Ok(())
    }

    /// The file, for a caller that flushes it without holding the log.
    pub fn file(&self) -> Arc<D::Handle> {
        self.file.clone()
    }

    /// The last sequence that a completed flush covers.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Notes that every record up to this sequence was in the file when a successful flush
    /// began.
    pub fn note_durable(&mut self, last: u64) {
        self.durable = self.durable.max(last);
    }

    /// Cuts off the records from `tail` on. None of their callers had received a success.
    pub fn cut(&mut self, disk: &D, tail: u64) -> Result<(), Errno> {
        assert!(tail <= self.tail, "a cut only shortens");
        disk.set_length(&self.file, self.start + tail)?;
        self.tail = tail;
        self.allocated = tail;
        Ok(())
    }

    /// Gives the space back that is reserved for later records.
    pub fn give_back(&mut self, disk: &D) -> Result<(), Errno> {
        self.cut(disk, self.tail)
    }

    /// Empties the log. Its records are in the base, and the header says so: readers skip
    /// records that a crash brings back, and the next flush makes this durable.
    pub fn drop_all(&mut self, disk: &D) -> Result<(), Errno> {
        self.cut(disk, 0)
    }

    /// The records that are in the log now.
    pub fn records(&self) -> Records<D> {
        Records {
            file: self.file.clone(),
            start: self.start,
            id: self.id,
            tail: self.tail,
        }
    }

    /// See [`Records::for_each`].
    pub fn for_each<R: Record>(
        &self,
        disk: &D,
        each: impl FnMut(R) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.records().for_each(disk, each)
    }

    /// Where the first record begins for which `is_before` is false. It is called for every
    /// record up to that one, with the bytes that the record takes.
    pub fn end_of_prefix<R: Record>(
        &self,
        disk: &D,
        mut is_before: impl FnMut(R, u64) -> bool,
    ) -> Result<u64, StoreError> {
        let mut scanner =
            scanner::<D, R>(disk, (&self.file, self.start), self.tail, self.id, u64::MAX);
        let mut start = 0;
        while start < self.tail
            && let Scanned::Record {
                record,
                next_offset,
            } = scanner.step().map_err(unread)?
            && is_before(record, next_offset - start)
        {
            start = next_offset;
        }
        Ok(start)
    }
}

fn unread(errno: Errno) -> StoreError {
    StoreError::Control {
        step: "read the log",
        errno,
    }
}

pub(crate) struct ReadRecords<T> {
    /// The values that the caller has kept of the records.
    pub records: Vec<T>,
    pub tail: u64,
    /// Where the first record begins that no later record proves to be durable.
    pub unproven: u64,
    /// How many bytes follow that are no whole record.
    pub torn_bytes: u64,
}

/// Reads every record of a file. `keep` returns the value to keep of a record, if any.
pub(crate) fn read_records<D: Disk, R: Record, T>(
    disk: &D,
    file: &D::Handle,
    id: StoreId,
    first_at_most: u64,
    keep: impl FnMut(R) -> Option<T>,
) -> Result<ReadRecords<T>, StoreError> {
    read_records_from(disk, (file, 0), id, first_at_most, keep)
}

/// Likewise, from `start` on.
pub(crate) fn read_records_from<D: Disk, R: Record, T>(
    disk: &D,
    (file, start): (&D::Handle, u64),
    id: StoreId,
    first_at_most: u64,
    mut keep: impl FnMut(R) -> Option<T>,
) -> Result<ReadRecords<T>, StoreError> {
    let length = disk
        .stat(file)
        .map_err(unread)?
        .length
        .saturating_sub(start);
    let mut records = Vec::new();
    let mut starts = Vec::new();
    let ending = scan(
        scanner(disk, (file, start), length, id, first_at_most),
        |start, record: R| {
            starts.push((record.sequence(), start));
            records.extend(keep(record));
            Ok(())
        },
    )?;
    let proven = starts.partition_point(|(sequence, _)| *sequence <= ending.durable);
    Ok(ReadRecords {
        records,
        tail: ending.tail,
        unproven: starts.get(proven).map_or(ending.tail, |(_, start)| *start),
        torn_bytes: if ending.is_torn {
            length - ending.tail
        } else {
            0
        },
    })
}

struct Ending {
    tail: u64,
    /// The bytes that follow are neither a whole record nor zeros.
    is_torn: bool,
    /// The sequence up to which the last record proves everything to be durable.
    durable: u64,
}

fn scanner<'a, D: Disk, R: Record>(
    disk: &'a D,
    (file, start): (&'a D::Handle, u64),
    length: u64,
    id: StoreId,
    first_at_most: u64,
) -> Scanner<R, impl FnMut(u64, &mut [u8]) -> Result<usize, Errno> + 'a> {
    let read = move |offset, buffer: &mut [u8]| disk.read_at(file, buffer, start + offset);
    Scanner::new(id, length, first_at_most, read)
}

/// Calls `each` for every record with its offset, and returns how the records end. Files of
/// records are read in no other way.
fn scan<R: Record>(
    mut scanner: Scanner<R, impl FnMut(u64, &mut [u8]) -> Result<usize, Errno>>,
    mut each: impl FnMut(u64, R) -> Result<(), StoreError>,
) -> Result<Ending, StoreError> {
    let mut start = 0;
    loop {
        let (tail, is_torn) = match scanner.step().map_err(unread)? {
            Scanned::Record {
                record,
                next_offset,
            } => {
                each(start, record)?;
                start = next_offset;
                continue;
            }
            Scanned::End { offset } => (offset, false),
            Scanned::Torn { offset } => (offset, true),
            Scanned::Damaged { offset, damage } => {
                return Err(StoreError::Damaged {
                    file: match R::KIND {
                        FrameKind::Commit => names::LOG,
                        FrameKind::Summary => names::HISTORY,
                        FrameKind::Past => names::PAST,
                        FrameKind::View => names::VIEW,
                        FrameKind::Notice => names::TRANSACTIONS,
                        FrameKind::Annotations => names::ANNOTATIONS,
                    },
                    offset,
                    reason: damage.to_string(),
                });
            }
        };
        return Ok(Ending {
            tail,
            is_torn,
            durable: scanner.durable(),
        });
    }
}
