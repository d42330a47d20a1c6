//! One database file in the transaction of its connection.

use crate::abi::{self, LOCK_NONE, LOCK_RESERVED};
use crate::failure::{Failure, Result};
use crate::header::{self, Counters};
use crate::outer;
use atomdir::{FileError, OpenOptions, SharedFile, SharedTransaction};
use std::ffi::{OsStr, c_int};
use std::io;
use std::path::{Path, PathBuf};
use std::ptr;

pub(crate) struct Database {
    /// In the store.
    pub(crate) path: PathBuf,
    /// Names its locks in an outer transaction.
    pub(crate) key: u64,
    /// Where SQLite keeps the address of its connection; 0 if it has not said.
    pub(crate) place: usize,
    /// SQLite has written something that it has neither committed nor restored yet.
    pub(crate) is_dirty: bool,
    is_writable: bool,
    pub(crate) lock: c_int,
    /// Ready to be committed together with other databases.
    pub(crate) is_prepared: bool,
    /// Closed before the transaction ends. `None` also if there is no file.
    file: Option<SharedFile>,
    /// Those of the file in the snapshot.
    counters: Option<Counters>,
    /// The counter that SQLite sees in this transaction.
    shown: u32,
    /// The highest that SQLite has seen or written so far.
    highest: u32,
    /// The length that the last commit has given it.
    pub(crate) committed_length: u64,
    /// The counter that SQLite wrote last, if it is not the one that it was shown.
    raised: Option<u32>,
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
            counters: None,
            shown: 0,
            highest: 0,
            committed_length: 0,
            raised: None,
        }
    }

    /// The address of the connection that uses the file now.
    pub(crate) fn owner(&self) -> usize {
        let place: *const *mut abi::Database = ptr::with_exposed_provenance(self.place);
        // SAFETY: SQLite keeps it there as long as the file is open.
        unsafe { place.read() }.addr()
    }

    /// The first lock in a transaction.
    pub(crate) fn begin(&mut self, transaction: &SharedTransaction) -> Result<()> {
        self.refuse_leftovers(transaction)?;
        self.counters = None;
        self.raised = None;
        self.is_dirty = false;
        self.highest = self.highest.wrapping_add(1).max(1);
        self.shown = self.highest;
        Ok(())
    }

    /// A program that uses the database without the extension and is killed leaves a journal
    /// that has to be rolled back, or a write-ahead log with a part of the contents.
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
                    "'{}' is left of a program that used the database without Atomdir; open and \
                     close the database with plain sqlite3 once, in rollback mode",
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
            // After a commit SQLite continues from what it wrote.
            self.shown = raised;
        }
        if level == LOCK_NONE {
            self.close_file();
            self.counters = None;
        }
    }

    pub(crate) fn close_file(&mut self) {
        self.file = None;
    }

    /// The file, opened if that was not done yet. `None` if there is none.
    fn file(&mut self, transaction: &SharedTransaction) -> Result<Option<&SharedFile>> {
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            let found =
                transaction.open_shared(&self.path, options.read(true).write(self.is_writable));
            match found {
                Ok(file) => self.file = Some(file),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(Failure::of_file(abi::IOERR, &error)),
            }
        }
        Ok(self.file.as_ref())
    }

    fn create(&mut self, transaction: &SharedTransaction) -> Result<&SharedFile> {
        if self.file.is_none() {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).mode(0o644);
            let file = transaction.open_shared(&self.path, &options);
            let file = file.map_err(|error: FileError| Failure::of_file(abi::IOERR, &error))?;
            self.file = Some(file);
        }
        self.file
            .as_ref()
            .ok_or_else(|| Failure::new(abi::IOERR, "the file is not open"))
    }

    pub(crate) fn exists(&mut self, transaction: &SharedTransaction) -> Result<bool> {
        Ok(self.file(transaction)?.is_some())
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
            // SQLite takes the header of an empty file to be zero.
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
        match self.file(transaction)? {
            Some(file) => file.read_at(buffer, offset).map_err(reading),
            None => Ok(0),
        }
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
        if let Some(counters) = counters {
            let counter = self.raised.unwrap_or(self.shown);
            counters.shown(counter).overlay(&mut buffer[..read], offset);
        }
        Ok(read)
    }

    pub(crate) fn length(&mut self, transaction: &SharedTransaction) -> Result<u64> {
        match self.file(transaction)? {
            Some(file) => {
                let length = file.length();
                length.map_err(|error| Failure::of_io(abi::IOERR_FSTAT, &error))
            }
            None => Ok(0),
        }
    }

    pub(crate) fn write(
        &mut self,
        transaction: &SharedTransaction,
        data: &[u8],
        offset: u64,
    ) -> Result<()> {
        self.counters(transaction)?;
        self.is_dirty = true;
        if offset >= header::LENGTH as u64 {
            let file = self.create(transaction)?;
            return file.write_all_at(data, offset).map_err(writing);
        }
        if offset != 0 || data.len() < header::LENGTH {
            return Err(Failure::new(
                abi::IOERR_WRITE,
                "SQLite wrote a part of the first page",
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
        let file = self.create(transaction)?;
        file.write_all_at(&present, 0).map_err(writing)
    }

    pub(crate) fn truncate(&mut self, transaction: &SharedTransaction, length: u64) -> Result<()> {
        if length == 0 {
            self.raised = None;
        }
        let present = self.length(transaction)?;
        if present == length {
            return Ok(());
        }
        let file = self.create(transaction)?;
        let cut = file.set_length(length);
        cut.map_err(|error| Failure::of_io(abi::IOERR_TRUNCATE, &error))
    }

    /// Whether SQLite wants to commit.
    pub(crate) fn is_committing(&self) -> bool {
        self.raised.is_some()
    }

    /// Does what is left to do before the commit: SQLite cuts off the end of a file only after it.
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
        self.committed_length = self.length(transaction)?;
        self.is_prepared = true;
        Ok(())
    }
}

fn reading(error: io::Error) -> Failure {
    Failure::of_io(abi::IOERR_READ, &error)
}

fn writing(error: io::Error) -> Failure {
    Failure::of_io(abi::IOERR_WRITE, &error)
}
