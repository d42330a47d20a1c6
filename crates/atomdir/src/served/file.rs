//! A file that is open through the kernel.

use super::directory::{metadata, set_attributes};
use crate::api::Metadata;
use crate::api::session::{AttributeChange, OpenFile, Result};
use atomdir_disk::Errno;
use rustix::fs::{SeekFrom, ftruncate};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

pub(super) struct KernelFile {
    file: OwnedFd,
    /// Held between an append and the question where the file ends since.
    appending: Mutex<()>,
}

impl KernelFile {
    pub(super) fn new(file: OwnedFd) -> KernelFile {
        KernelFile {
            file,
            appending: Mutex::new(()),
        }
    }
}

impl OpenFile for KernelFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut read = 0;
        while read < buffer.len() {
            match rustix::io::pread(&self.file, &mut buffer[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(read)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let mut written = 0;
        while written < data.len() {
            match rustix::io::pwrite(&self.file, &data[written..], offset + written as u64) {
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// The file is open with `O_APPEND`.
    fn append(&self, data: &[u8]) -> Result<u64> {
        let appending = self.appending.lock();
        let _appending = appending.unwrap_or_else(PoisonError::into_inner);
        let mut written = 0;
        while written < data.len() {
            match rustix::io::write(&self.file, &data[written..]) {
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        rustix::fs::seek(&self.file, SeekFrom::Current(0))
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(metadata(&rustix::fs::fstat(&self.file)?))
    }

    fn set_attributes(&self, change: &AttributeChange) -> Result<()> {
        if let Some(length) = change.length {
            ftruncate(&self.file, length)?;
        }
        set_attributes(&self.file, change)
    }
}
