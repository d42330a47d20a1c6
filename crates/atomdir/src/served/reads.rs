//! What a serializable transaction reads of files, as its program sees it.
//!
//! The service sees more: the kernel reads ahead, and looks at attributes when a file is opened. So
//! for a transaction whose program reads through this library only, the library notes the reads and
//! declares them before the commit.
//!
//! Invariant: a file of which something was read stays open until that is declared, since the
//! service finds it by the inode number that the view shows.

use crate::connection::Connection;
use crate::error::RequestError;
use atomdir_disk::Errno;
use atomdir_protocol::{FileRead, TransactionId};
use atomdir_types::sync;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// The unit of conflicts in a file's contents.
const PAGE: u64 = 4096;
/// A file that is read in more runs counts as read from the first to the last.
const RUNS_MAX: usize = 512;
/// If more files were read, what is known is declared, so that they can be closed.
const FILES_MAX: usize = 256;

/// A transaction's connection, as long as it is open.
pub(super) type Slot = Arc<Mutex<Option<Connection>>>;

pub(super) struct Reads {
    transaction: TransactionId,
    connection: Slot,
    /// By inode number.
    files: Mutex<HashMap<u64, Known>>,
}

struct Known {
    _file: Arc<OwnedFd>,
    read: FileRead,
}

/// An open file of whose reads note is taken.
#[derive(Clone)]
pub(super) struct Noted {
    reads: Arc<Reads>,
    inode: u64,
}

impl Reads {
    pub(super) fn new(transaction: TransactionId, connection: Slot) -> Reads {
        Reads {
            transaction,
            connection,
            files: Mutex::default(),
        }
    }

    /// Declares everything that was read so far. If that fails, the next call tries again.
    pub(super) fn declare(&self) -> Result<(), RequestError> {
        let mut known = sync::lock(&self.files);
        if known.is_empty() {
            return Ok(());
        }
        let files = known.values().map(|known| known.read.clone()).collect();
        let mut connection = sync::lock(&self.connection);
        // If there is none, the transaction has ended.
        if let Some(connection) = connection.as_mut() {
            connection.declare_reads(self.transaction, files)?;
        }
        known.clear();
        Ok(())
    }

    fn note(
        &self,
        (file, inode): (&Arc<OwnedFd>, u64),
        add: impl FnOnce(&mut FileRead),
    ) -> Result<(), Errno> {
        let count = {
            let mut files = sync::lock(&self.files);
            let known = files.entry(inode).or_insert_with(|| Known {
                _file: file.clone(),
                read: FileRead {
                    inode,
                    ..FileRead::default()
                },
            });
            add(&mut known.read);
            files.len()
        };
        match count > FILES_MAX {
            true => self.declare().map_err(|_| Errno::IO),
            false => Ok(()),
        }
    }

    pub(super) fn noted(self: &Arc<Reads>, inode: u64) -> Noted {
        Noted {
            reads: self.clone(),
            inode,
        }
    }
}

impl Noted {
    /// `count` bytes were read where `wanted` were asked for.
    pub(super) fn contents(
        &self,
        file: &Arc<OwnedFd>,
        offset: u64,
        (wanted, count): (usize, usize),
    ) -> Result<(), Errno> {
        let end = offset.saturating_add(count as u64);
        self.reads.note((file, self.inode), |read| {
            read.length |= count < wanted;
            if count > 0 {
                add_run(
                    &mut read.bytes,
                    (offset / PAGE * PAGE, end.next_multiple_of(PAGE)),
                );
            }
        })
    }

    pub(super) fn length(&self, file: &Arc<OwnedFd>) -> Result<(), Errno> {
        self.reads
            .note((file, self.inode), |read| read.length = true)
    }

    pub(super) fn attributes(&self, file: &Arc<OwnedFd>) -> Result<(), Errno> {
        self.reads
            .note((file, self.inode), |read| read.attributes = true)
    }
}

fn add_run(runs: &mut Vec<(u64, u64)>, (start, end): (u64, u64)) {
    match runs.last_mut() {
        Some((from, to)) if start <= *to && *from <= end => {
            (*from, *to) = (start.min(*from), end.max(*to));
        }
        _ => runs.push((start, end)),
    }
    if runs.len() > RUNS_MAX {
        join(runs);
    }
}

fn join(runs: &mut Vec<(u64, u64)>) {
    runs.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in runs.drain(..) {
        match joined.last_mut() {
            Some((_, to)) if start <= *to => *to = end.max(*to),
            _ => joined.push((start, end)),
        }
    }
    if joined.len() > RUNS_MAX / 2
        && let (Some((from, _)), Some((_, to))) = (joined.first(), joined.last())
    {
        joined = vec![(*from, *to)];
    }
    *runs = joined;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_what_was_read_and_stay_few() {
        let mut runs = Vec::new();
        for page in (0..2000).rev().chain(0..2000) {
            add_run(&mut runs, (page * PAGE, (page + 1) * PAGE));
        }
        assert_eq!(runs, [(0, 2000 * PAGE)]);
        let mut runs = Vec::new();
        for page in 0..RUNS_MAX as u64 {
            add_run(
                &mut runs,
                (page % 16 * 2 * PAGE, (page % 16 * 2 + 1) * PAGE),
            );
        }
        add_run(&mut runs, (100 * PAGE, 101 * PAGE));
        assert_eq!(runs.len(), 17);
        for page in 0..2000 {
            add_run(&mut runs, (page * 2 * PAGE, (page * 2 + 1) * PAGE));
            assert!(runs.len() <= RUNS_MAX);
            assert!(
                runs.iter()
                    .any(|(start, end)| *start <= page * 2 * PAGE && page * 2 * PAGE < *end)
            );
        }
    }
}
