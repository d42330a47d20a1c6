//! Reads that a program declares, in place of those that its file system is asked for.
//!
//! The kernel reads ahead, and asks for a file's attributes where a program only opens it. So a
//! serializable transaction that works in a view conflicts with every change of a file that it has
//! read a page of. A program that knows what it has read can say so instead.

use atomdir_disk::{Disk, Result};
use atomdir_types::FileRead;

use crate::transaction::Transaction;

impl<D: Disk> Transaction<D> {
    /// From now on, what is read of files counts only if it is declared. Names, listings and
    /// directories count as before. Call it before anything is read.
    pub fn expect_declared_reads(&self) -> Result<()> {
        self.with(|view| {
            view.has_declared_reads = view.reads.is_some();
            Ok(())
        })
    }

    /// Notes what was read of files, as if the view had seen it.
    pub fn declare_reads(&self, files: &[FileRead]) -> Result<()> {
        self.with(|view| self.reading(view, |view| view.note_declared(files)))
    }
}
