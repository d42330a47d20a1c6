//! Reads that a program declares. They replace the reads that the kernel requests of its view.
//!
//! The kernel reads ahead, and asks for a file's attributes where a program only opens it. So a
//! serializable transaction that works in a view conflicts with every change of a file that it has
//! read a page of. A program that knows what it has read can say so instead.

use atomdir_disk::{Disk, Result};
use atomdir_types::FileRead;

use crate::transaction::Transaction;

impl<D: Disk> Transaction<D> {
    /// From now on, reads of files count only if the program declares them. Reads of names,
    /// listings and directories count as before. Call this before the first read.
    pub fn expect_declared_reads(&self) -> Result<()> {
        self.with(|view| {
            view.has_declared_reads = view.reads.is_some();
            Ok(())
        })
    }

    /// Notes these reads of files, as if they had been made in the view.
    pub fn declare_reads(&self, files: &[FileRead]) -> Result<()> {
        self.with(|view| self.reading(view, |view| view.note_declared(files)))
    }
}
