//! One database file in the transaction of its connection.

use crate::abi::{self, LOCK_NONE, LOCK_RESERVED};
use crate::failure::{Failure, Result};
use crate::header::{self, Counters};
use crate::outer;
use crate::page_set::{PAGE, PageSet};
use atomdir::{FileError, OpenOptions, Sequence, SharedFile, SharedTransaction};
use std::ffi::{OsStr, c_int};
use std::io;
use std::path::{Path, PathBuf};
use std::ptr;

pub(crate) struct Database {
    /// Relative to the store's root.
    pub(crate) path: PathBuf,
    /// Names its locks in an outer transaction.
    pub(crate) key: u64,
    /// Where SQLite keeps the address of its connection; 0 before `OpenDatabase::belongs_to`.
    pub(crate) place: usize,
    /// SQLite has written pages and has neither synced nor restored them yet.
    pub(crate) is_dirty: bool,
    is_writable: bool,
    pub(crate) lock: c_int,
    /// Ready to be committed together with other databases.
    pub(crate) is_prepared: bool,
    /// Closed before the transaction ends. `None` also if the file does not exist.
    file: Option<SharedFile>,
    /// The file's first page and its length in the transaction, cached while the file is open.
    first: Option<Vec<u8>>,
    length: Option<u64>,
    /// The counters of the file in the snapshot.
    counters: Option<Counters>,
    /// The change counter that SQLite is shown in this transaction.
    shown: u32,
    /// The highest change counter that SQLite was shown or has written so far.
    highest: u32,
    /// The length and the counters after the last commit, or in the snapshot of a backup's last step.
    pub(crate) committed_length: u64,
    left: Option<Counters>,
    /// The change counter that SQLite wrote last, if it differs from the one that it was shown.
    raised: Option<u32>,
    /// The pages that SQLite may have in its page cache.
    cached: PageSet,
    /// The newest commit in the snapshot from which SQLite has read these pages, if it is known.
    cached_at: Option<Sequence>,
    /// SQLite keeps its cache from an earlier transaction. Those pages are not in the read set.
    keeps_cache: bool,
}

impl Database {
    pub(crate) fn new(path: PathBuf, is_writable: bool) -> Database {
        Database {
            path,
            key: outer::key(),
            place: 0,
            is_dirty: false,
            is_writable,
            lock: LOCK_NONE,
            is_prepared: false,
            file: None,
            first: None,
            length: None,
            counters: None,
            shown: 0,
            highest: 0,
            committed_length: 0,
            left: None,
            raised: None,
            cached: PageSet::default(),
            cached_at: None,
            keeps_cache: false,
        }
    }

    /// The address of the connection that uses the file now.
    pub(crate) fn owner(&self) -> usize {
        let place: *const *mut abi::Database = ptr::with_exposed_provenance(self.place);
        // SAFETY: SQLite keeps it there as long as the file is open.
        unsafe { place.read() }.addr()
    }

    /// Prepares the database for its first lock in a transaction. `at` is the newest commit in its
    /// snapshot, if SQLite may keep its cache for several transactions with that snapshot.
    pub(crate) fn begin(
        &mut self,
        transaction: &SharedTransaction,
        at: Option<Sequence>,
    ) -> Result<()> {
        self.refuse_leftovers(transaction)?;
        self.counters = None;
        self.raised = None;
        self.is_dirty = false;
        let cached = (self.cached_at.take(), self.left, self.committed_length);
        if at.is_some() {
            self.note_left(transaction)?;
        }
        self.cached_at = at;
        // An outside writer may have changed the file since: so compare counters and length, too.
        self.keeps_cache =
            at.is_some() && cached == (self.cached_at, self.left, self.committed_length);
        if !self.keeps_cache {
            self.cached.clear();
            self.highest = self.highest.wrapping_add(1).max(1);
            self.shown = self.highest;
        }
        Ok(())
    }

    /// Call it before the first change in a transaction.
    pub(crate) fn reserve(&mut self, transaction: &SharedTransaction) -> Result<()> {
        self.cached_at = None;
        match std::mem::take(&mut self.keeps_cache) {
            true => self.read_cached(transaction),
            false => Ok(()),
        }
    }

    /// Reads the pages that SQLite may have in its cache, so that they enter the read set.
    fn read_cached(&mut self, transaction: &SharedTransaction) -> Result<()> {
        self.cached.insert(0..header::LENGTH as u64);
        let cached = std::mem::take(&mut self.cached);
        let mut page = [0; PAGE];
        for number in cached.iter() {
            self.read_file(transaction, &mut page, number * PAGE as u64)?;
        }
        self.cached = cached;
        Ok(())
    }

    /// Refuses a database with a journal to roll back, or a write-ahead log that holds a part of its
    /// contents. A program that uses the database without the extension leaves them when it is killed.
    fn refuse_leftovers(&self, transaction: &SharedTransaction) -> Result<()> {
        let mut first = [0];
        for suffix in ["-journal", "-wal"] {
            let mut path = self.path.clone().into_os_string();
            path.push(OsStr::new(suffix));
            let path = Path::new(&path);
            let file = match transaction.open(path) {
                Ok(file) => file,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(Failure::of_file(abi::CANTOPEN, &error)),
            };
            let read = file.read_at(&mut first, 0);
            let read = read.map_err(|error| Failure::of_io(abi::CANTOPEN, &error))?;
            if read > 0 && first[0] != 0 {
                return Err(Failure::cannot_open(format_args!(
                    "'{}' was left by a program that used the database without Atomdir; run PRAGMA \
                     journal_mode = delete in the database once with plain sqlite3",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn unlock(&mut self, level: c_int) {
        self.lock = level;
        if level < LOCK_RESERVED {
            self.is_prepared = false;
        }
        if let Some(raised) = self.raised.take() {
            // SQLite's cache is valid for the counter that it wrote, so go on showing that.
            self.shown = raised;
        }
        if level == LOCK_NONE {
            self.close_file();
            self.counters = None;
        }
    }

    /// Moves the database to another transaction after a commit; SQLite keeps its cache. Returns
    /// false if the file has changed since the commit.
    pub(crate) fn go_on(&mut self, transaction: &SharedTransaction) -> Result<bool> {
        let committed = (self.left, self.committed_length);
        self.counters = None;
        self.note_left(transaction)?;
        if committed != (self.left, self.committed_length) {
            return Ok(false);
        }
        self.read_cached(transaction)?;
        Ok(true)
    }

    /// Notes counters and length of the file, as the transaction has them.
    pub(crate) fn note_left(&mut self, transaction: &SharedTransaction) -> Result<()> {
        let mut header = [0; header::LENGTH];
        let read = self.read_file(transaction, &mut header, 0)?;
        self.left = Some(Counters::of(&header[..read]));
        self.committed_length = self.length(transaction)?;
        Ok(())
    }

    pub(crate) fn close_file(&mut self) {
        self.file = None;
        self.first = None;
        self.length = None;
    }

    /// Opens the file unless it is open already. `None` if it does not exist.
    fn file(&mut self, transaction: &SharedTransaction) -> Result<Option<&SharedFile>> {
        while self.file.is_none() {
            let mut options = OpenOptions::new();
            options.read(true).write(self.is_writable).in_place(true);
            let found = transaction.open_shared(&self.path, &options);
            match found {
                Ok(file) => self.file = Some(file),
                Err(error) if error.is_not_found() => break,
                // The user may not write. Try again for reading only.
                Err(error) if self.is_writable && is_forbidden(error.kind()) => {
                    self.is_writable = false;
                }
                Err(error) => return Err(Failure::of_file(abi::IOERR, &error)),
            }
        }
        Ok(self.file.as_ref())
    }

    fn create(&mut self, transaction: &SharedTransaction) -> Result<&SharedFile> {
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).mode(0o644);
            options.in_place(true);
            let file = transaction.open_shared(&self.path, &options);
            let file = file.map_err(|error: FileError| Failure::of_file(abi::IOERR, &error))?;
            self.file = Some(file);
        }
        self.file
            .as_ref()
            .ok_or_else(|| Failure::new(abi::IOERR, "the file is not open"))
    }

    /// Whether the file exists, and whether it may be written.
    pub(crate) fn look(&mut self, transaction: &SharedTransaction) -> Result<(bool, bool)> {
        let exists = self.file(transaction)?.is_some();
        Ok((exists, self.is_writable))
    }

    /// The counters in the snapshot. Call it before the first page is written.
    fn counters(&mut self, transaction: &SharedTransaction) -> Result<Counters> {
        if let Some(counters) = self.counters {
            return Ok(counters);
        }
        let mut header = [0; header::LENGTH];
        let read = self.read_file(transaction, &mut header, 0)?;
        let counters = Counters::of(&header[..read]);
        if read == 0 {
            // SQLite takes the counter of an empty file to be zero.
            self.shown = 0;
        }
        self.counters = Some(counters);
        Ok(counters)
    }

    fn read_file(
        &mut self,
        transaction: &SharedTransaction,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<usize> {
        let end = offset.saturating_add(buffer.len() as u64);
        if end <= PAGE as u64 {
            let first = self.first_page(transaction)?;
            // The offset fits: it is at most the length of a page.
            let rest = first.get(offset as usize..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            return Ok(count);
        }
        match self.file(transaction)? {
            Some(file) => file.read_at(buffer, offset).map_err(reading),
            None => Ok(0),
        }
    }

    /// The first page, which SQLite reads several times in each transaction.
    fn first_page(&mut self, transaction: &SharedTransaction) -> Result<&[u8]> {
        if self.first.is_none() {
            let mut first = vec![0; PAGE];
            let read = match self.file(transaction)? {
                Some(file) => file.read_at(&mut first, 0).map_err(reading)?,
                None => 0,
            };
            first.truncate(read);
            self.first = Some(first);
        }
        Ok(self.first.as_deref().unwrap_or_default())
    }

    fn write_file(
        &mut self,
        transaction: &SharedTransaction,
        data: &[u8],
        offset: u64,
    ) -> Result<()> {
        let is_partial = |first: &Vec<u8>| first.len() < PAGE;
        if offset < PAGE as u64 || self.first.as_ref().is_some_and(is_partial) {
            self.first = None;
        }
        let end = offset.saturating_add(data.len() as u64);
        let file = self.create(transaction)?;
        file.write_all_at(data, offset).map_err(writing)?;
        self.length = self.length.map(|length| length.max(end));
        Ok(())
    }

    pub(crate) fn read(
        &mut self,
        transaction: &SharedTransaction,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<usize> {
        let has_counters = offset < header::LENGTH as u64 && self.lock != LOCK_NONE;
        let counters = match has_counters {
            true => Some(self.counters(transaction)?),
            false => None,
        };
        let read = self.read_file(transaction, buffer, offset)?;
        self.cached.insert(offset..offset + buffer.len() as u64);
        if let Some(counters) = counters {
            let counter = self.raised.unwrap_or(self.shown);
            counters.shown(counter).overlay(&mut buffer[..read], offset);
        }
        Ok(read)
    }

    pub(crate) fn length(&mut self, transaction: &SharedTransaction) -> Result<u64> {
        if let Some(length) = self.length {
            return Ok(length);
        }
        let length = match self.file(transaction)? {
            Some(file) => file.length(),
            None => return Ok(0),
        };
        let length = length.map_err(|error| Failure::of_io(abi::IOERR_FSTAT, &error))?;
        self.length = Some(length);
        Ok(length)
    }

    pub(crate) fn write(
        &mut self,
        transaction: &SharedTransaction,
        data: &[u8],
        offset: u64,
    ) -> Result<()> {
        self.counters(transaction)?;
        self.is_dirty = true;
        self.cached.insert(offset..offset + data.len() as u64);
        if offset >= header::LENGTH as u64 {
            return self.write_file(transaction, data, offset);
        }
        if offset != 0 || data.len() < header::LENGTH {
            return Err(Failure::new(
                abi::IOERR_WRITE,
                "SQLite wrote only a part of the first page, which is not supported",
            ));
        }
        self.write_first_page(transaction, data)
    }

    fn write_first_page(&mut self, transaction: &SharedTransaction, data: &[u8]) -> Result<()> {
        let counters = self.counters(transaction)?;
        let counter = header::number(data, header::COUNTER);
        self.highest = self.highest.max(counter);
        self.raised = (counter != self.shown).then_some(counter);
        let mut present = vec![0; data.len()];
        let read = self.read_file(transaction, &mut present, 0)?;
        if header::differ_in_counters_alone(&present[..read], data) {
            return Ok(());
        }
        let written = match self.raised {
            Some(_) => {
                let next = counters.counter.wrapping_add(1);
                Counters {
                    counter: next,
                    valid_for: next,
                }
            }
            None => counters,
        };
        present.clear();
        present.extend_from_slice(data);
        written.overlay(&mut present, 0);
        self.write_file(transaction, &present, 0)
    }

    pub(crate) fn truncate(&mut self, transaction: &SharedTransaction, length: u64) -> Result<()> {
        if length == 0 {
            self.raised = None;
        }
        let present = self.length(transaction)?;
        if present == length {
            return Ok(());
        }
        self.first = None;
        self.length = None;
        let file = self.create(transaction)?;
        let cut = file.set_len(length);
        cut.map_err(|error| Failure::of_io(abi::IOERR_TRUNCATE, &error))
    }

    /// Whether SQLite wants to commit.
    pub(crate) fn is_committing(&self) -> bool {
        self.raised.is_some()
    }

    /// Prepares the file for the commit: cuts it off to the database's length, which SQLite would
    /// do only after the commit, and notes counters and length.
    pub(crate) fn prepare(&mut self, transaction: &SharedTransaction) -> Result<()> {
        let mut header = [0; header::LENGTH];
        let read = self.read_file(transaction, &mut header, 0)?;
        let counters = Counters::of(&header);
        if read == header.len() && counters.counter == counters.valid_for {
            let length = header::database_length(&header);
            if length > 0 && self.length(transaction)? > length {
                self.truncate(transaction, length)?;
            }
        }
        self.left = Some(counters);
        self.committed_length = self.length(transaction)?;
        self.is_prepared = true;
        Ok(())
    }
}

fn is_forbidden(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(kind, PermissionDenied | ReadOnlyFilesystem)
}

fn reading(error: io::Error) -> Failure {
    Failure::of_io(abi::IOERR_READ, &error)
}

fn writing(error: io::Error) -> Failure {
    Failure::of_io(abi::IOERR_WRITE, &error)
}
