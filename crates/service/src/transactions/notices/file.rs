//! The file of the notices: docs/format.md draws its records.
//!
//! Invariants
//! 1. A record is appended whole or counts for nothing: reading stops at the first one that is
//!    torn, and the file is then written anew.
//! 2. A new file replaces the old one by rename, after it was flushed. So after a crash of the
//!    machine there is the old file or the new one.
//! 3. Single records are not flushed when they are written. They survive the death of the service;
//!    a power cut may lose those since the last [`flush`](NoticeFile::flush).

use atomdir_disk::reason;
use atomdir_format::frame;
use atomdir_format::header::StoreId;
use atomdir_format::notice::{Notice, NoticeRecord};
use atomdir_format::scan::{Scanned, Scanner};
use rustix::fs::{FileType, Mode, OFlags, fdatasync, fstat, fsync, openat, renameat};
use rustix::io::{Errno, pread, pwrite};
use rustix::process::geteuid;
use std::os::fd::OwnedFd;
use std::sync::Arc;

const NAME: &str = "transactions";
const NAME_NEW: &str = "transactions.new";
/// A longer file is not ours.
const LENGTH_MAX: u64 = 64 << 20;
/// The file is written anew when it has grown by this.
const GROWTH_MAX: u64 = 1 << 20;

pub(super) struct NoticeFile {
    control: Arc<OwnedFd>,
    store: StoreId,
    /// `None` if the next notice must write the file anew.
    file: Option<Arc<OwnedFd>>,
    /// It has got its name, and the directory was not flushed since.
    is_renamed: bool,
    length: u64,
    /// The length when it was last written anew.
    whole_length: u64,
    /// The last record's.
    sequence: u64,
    /// The last write has failed, and that was reported.
    is_failing: bool,
}

/// A flush that is to be [run](Flush::run) while nothing is locked.
pub(super) struct Flush {
    file: Option<Arc<OwnedFd>>,
    directory: Option<Arc<OwnedFd>>,
}

impl Flush {
    pub(super) fn run(&self) -> Result<(), Errno> {
        self.file.iter().try_for_each(fdatasync)?;
        self.directory.iter().try_for_each(fsync)
    }
}

impl NoticeFile {
    /// Reads the file, as far as it is ours and whole.
    pub(super) fn open(control: OwnedFd, store: StoreId) -> (NoticeFile, Vec<Notice>) {
        let mut file = NoticeFile {
            control: Arc::new(control),
            store,
            file: None,
            is_renamed: false,
            length: 0,
            whole_length: 0,
            sequence: 0,
            is_failing: false,
        };
        let notices = match file.read() {
            Ok(notices) => notices,
            Err(Errno::NOENT) => Vec::new(),
            Err(errno) => {
                tracing::warn!(
                    "cannot read '{NAME}' in the control directory: {}",
                    reason(errno)
                );
                Vec::new()
            }
        };
        (file, notices)
    }

    fn read(&mut self) -> Result<Vec<Notice>, Errno> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.control, NAME, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        let length = stat.st_size.cast_unsigned();
        let is_ours = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && stat.st_uid == geteuid().as_raw()
            && stat.st_mode & 0o022 == 0
            && stat.st_nlink == 1
            && length <= LENGTH_MAX;
        if !is_ours {
            return Err(Errno::PERM);
        }
        let read = |offset, buffer: &mut [u8]| read_full(&file, buffer, offset);
        let mut scanner = Scanner::<NoticeRecord, _>::new(self.store, length, 1, read);
        let mut notices = Vec::new();
        let is_whole = loop {
            match scanner.step()? {
                Scanned::Record {
                    record,
                    next_offset,
                } => {
                    self.sequence = record.sequence;
                    self.length = next_offset;
                    notices.push(record.notice);
                }
                Scanned::End { offset } => break offset == length,
                Scanned::Torn { .. } => break false,
                Scanned::Damaged { damage, .. } => {
                    tracing::warn!("'{NAME}' in the control directory is damaged: {damage}");
                    break false;
                }
            }
        };
        self.whole_length = self.length;
        self.file = is_whole.then(|| Arc::new(file));
        Ok(notices)
    }

    /// Appends a notice, or writes the file anew with all that now hold. An error is reported
    /// once, and the next notice tries again.
    pub(super) fn append(&mut self, notice: &Notice, all: impl Iterator<Item = Notice>) {
        let done = match self.file.take() {
            Some(file) if self.length < self.whole_length + GROWTH_MAX => self.add(file, notice),
            _ => self.write_anew(all),
        };
        if let Err(errno) = done
            && !self.is_failing
        {
            tracing::warn!(
                "cannot write '{NAME}' in the control directory: {}",
                reason(errno)
            );
        }
        self.is_failing = done.is_err();
    }

    fn add(&mut self, file: Arc<OwnedFd>, notice: &Notice) -> Result<(), Errno> {
        let bytes = self.encode(self.sequence + 1, notice.clone());
        write_all(&file, &bytes, self.length)?;
        self.sequence += 1;
        self.length += bytes.len() as u64;
        self.file = Some(file);
        Ok(())
    }

    fn write_anew(&mut self, all: impl Iterator<Item = Notice>) -> Result<(), Errno> {
        let flags = OFlags::RDWR
            | OFlags::CREATE
            | OFlags::TRUNC
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = openat(&self.control, NAME_NEW, flags, mode)?;
        let mut bytes = Vec::new();
        let mut sequence = 0;
        for notice in all {
            sequence += 1;
            bytes.extend(self.encode(sequence, notice));
        }
        write_all(&file, &bytes, 0)?;
        fdatasync(&file)?;
        renameat(&self.control, NAME_NEW, &self.control, NAME)?;
        self.sequence = sequence;
        self.length = bytes.len() as u64;
        self.whole_length = self.length;
        self.file = Some(Arc::new(file));
        self.is_renamed = true;
        Ok(())
    }

    /// Returns the flush that makes all records durable that were written so far.
    pub(super) fn flush(&mut self) -> Flush {
        Flush {
            file: self.file.clone(),
            directory: std::mem::take(&mut self.is_renamed).then(|| self.control.clone()),
        }
    }

    fn encode(&self, sequence: u64, notice: Notice) -> Vec<u8> {
        frame::encode(self.store, 0, &NoticeRecord { sequence, notice })
    }
}

fn read_full(file: &OwnedFd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buffer.len() {
        match pread(file, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

fn write_all(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match pwrite(file, bytes, offset) {
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
