//! A file that is open through the kernel.

use super::directory::{metadata, set_attributes};
use super::reads::Noted;
use crate::api::Metadata;
use crate::api::session::{AttributeChange, OpenFile, Result};
use crate::process::Opener;
use atomdir_disk::Errno;
use atomdir_types::sync;
use rustix::fs::{SeekFrom, ftruncate};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

pub(super) struct KernelFile {
    file: Arc<OwnedFd>,
    /// Set if the transaction declares its reads.
    noted: Option<Noted>,
    opener: Opener,
    /// Held between an append and the question where the file ends since.
    appending: Mutex<()>,
}

impl KernelFile {
    pub(super) fn new(file: OwnedFd, noted: Option<Noted>) -> KernelFile {
        KernelFile {
            file: Arc::new(file),
            noted,
            opener: Opener::this_process(),
            appending: Mutex::new(()),
        }
    }

    fn here(&self) -> Result<&OwnedFd> {
        self.opener.require_for_files()?;
        Ok(&self.file)
    }

    fn note(&self, note: impl FnOnce(&Noted, &Arc<OwnedFd>) -> Result<()>) -> Result<()> {
        match &self.noted {
            Some(noted) => note(noted, &self.file),
            None => Ok(()),
        }
    }
}

impl OpenFile for KernelFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let file = self.here()?;
        let mut read = 0;
        loop {
            match rustix::io::pread(file, &mut buffer[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.note(|noted, file| noted.contents(file, offset, (buffer.len(), read)))?;
        Ok(read)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let file = self.here()?;
        write_all(data, |rest, written| {
            rustix::io::pwrite(file, rest, offset + written as u64)
        })
    }

    /// The file is open with `O_APPEND`.
    fn append(&self, data: &[u8]) -> Result<u64> {
        let file = self.here()?;
        let _appending = sync::lock(&self.appending);
        write_all(data, |rest, _| rustix::io::write(file, rest))?;
        self.note(Noted::length)?;
        rustix::fs::seek(file, SeekFrom::Current(0))
    }

    fn length(&self) -> Result<u64> {
        let stat = rustix::fs::fstat(self.here()?)?;
        self.note(Noted::length)?;
        Ok(metadata(&stat).len)
    }

    fn metadata(&self) -> Result<Metadata> {
        let stat = rustix::fs::fstat(self.here()?)?;
        self.note(Noted::attributes)?;
        Ok(metadata(&stat))
    }

    fn set_attributes(&self, change: &AttributeChange) -> Result<()> {
        let file = self.here()?;
        if let Some(length) = change.length {
            ftruncate(file, length)?;
        }
        set_attributes(file, change)
    }
}

/// Writes until all is written; once even if there is nothing to write, since that may fail.
fn write_all(data: &[u8], write: impl Fn(&[u8], usize) -> Result<usize>) -> Result<()> {
    let mut written = 0;
    loop {
        match write(&data[written..], written) {
            Ok(count) => written += count,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        }
        if written == data.len() {
            return Ok(());
        }
    }
}
