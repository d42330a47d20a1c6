//! The applied mark names the last commit applied. Recovery needs it after the death of
//! the process alone, because changes that outside writers have made since then must
//! stay. The mark also proves that the record it names, and every older one, was
//! durable. So a log that ends before that record is damaged and not torn.
//!
//! Invariants
//! 1. The mark names a commit only once the whole commit is in the base. So it only moves forward,
//!    unless it is cleared.
//! 2. The mark counts only during the boot in which it was written, and only while the disk stays
//!    attached. Then everything that was applied is still in the page cache or on the disk, except
//!    contents that the kernel failed to write. So recovery writes contents again
//!    (`apply::again`). No mount decides this: another mount namespace has mounts of its own, and
//!    what the kernel unmounts, it writes.
//! 3. It is cleared in three cases: while recovery writes contents again (`apply::again`), before
//!    the base is flushed, since a failed flush may lose applied changes, and whenever the store is
//!    poisoned.

use std::sync::atomic::{AtomicU64, Ordering};

use atomdir_disk::{Attachment, Disk, Errno, reason};
use atomdir_format::applied::{self, AppliedMark};
use atomdir_format::header::StoreId;

use crate::ids::Sequence;

pub(crate) struct AppliedFile<D: Disk> {
    file: D::Handle,
    store: StoreId,
    /// `None` if the boot is not known. Then no mark is ever written.
    attachment: Option<Attachment>,
    /// The commit that this process has named last, or 0.
    named: AtomicU64,
}

impl<D: Disk> AppliedFile<D> {
    pub fn new(disk: &D, file: D::Handle, store: StoreId) -> Result<AppliedFile<D>, Errno> {
        let attachment = disk.attachment(&file)?;
        Ok(AppliedFile {
            file,
            store,
            attachment,
            named: AtomicU64::new(0),
        })
    }

    pub fn store(&self) -> StoreId {
        self.store
    }

    pub fn attachment(&self) -> Option<Attachment> {
        self.attachment
    }

    /// The newest commit that is known to be in the base.
    pub fn read(&self, disk: &D) -> Result<Option<Sequence>, Errno> {
        let mark = self.mark(disk)?;
        let continues = |mark: &AppliedMark| {
            let present = self.attachment;
            present.is_some_and(|present| present.continues(mark.attachment))
        };
        let mark = mark.filter(continues);
        Ok(mark.map(|mark| Sequence(mark.sequence)))
    }

    /// The last commit that the mark names. Its record was durable, since a commit is
    /// applied only then. That stays true whatever has happened to the base.
    pub fn durable(&self, disk: &D) -> Result<Option<Sequence>, Errno> {
        Ok(self.mark(disk)?.map(|mark| Sequence(mark.sequence)))
    }

    fn mark(&self, disk: &D) -> Result<Option<AppliedMark>, Errno> {
        let mut bytes = [0; applied::LENGTH];
        if disk.read_at(&self.file, &mut bytes, 0)? < bytes.len() {
            return Ok(None);
        }
        Ok(AppliedMark::decode(self.store, &bytes))
    }

    /// To be called for each commit in the order of the log. A mark that cannot be written only
    /// makes recovery do more.
    pub fn advance(&self, disk: &D, sequence: Sequence) {
        let named = self.named.swap(sequence.0, Ordering::Relaxed);
        assert!(named < sequence.0, "the applied mark only moves forward");
        let Some(attachment) = self.attachment else {
            return;
        };
        let mark = AppliedMark {
            attachment,
            sequence: sequence.0,
        };
        if let Err(error) = disk.write_at(&self.file, &mark.encode(self.store), 0) {
            tracing::debug!(error = %reason(error), "the applied mark stays behind");
        }
    }

    /// Clears it durably, whatever the boot.
    pub fn wipe(&self, disk: &D) -> Result<(), Errno> {
        disk.write_at(&self.file, &[0; applied::LENGTH], 0)?;
        disk.sync(&self.file)
    }

    pub fn clear(&self, disk: &D) -> Result<(), Errno> {
        self.named.store(0, Ordering::Relaxed);
        if self.attachment.is_none() {
            return Ok(());
        }
        disk.write_at(&self.file, &[0; applied::LENGTH], 0)
    }
}
