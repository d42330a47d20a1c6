//! Small transactions by files, databases and Atomdir.
//!
//! Each of them runs in processes of its own, which the workload `library` starts. A process prints
//! `ready`, waits for a line, commits, prints `done`, and ends when its input ends. So the measured
//! time does not include opening and closing, and threads and processes are measured alike.

mod child;
mod databases;
mod delayed;
mod files;
mod transactions;

pub use child::run;
pub use databases::build;

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::measure::Side;

/// The first argument that selects this load.
pub const WORD: &str = "small";

/// The work of one process.
#[derive(Debug, Clone)]
pub struct Work {
    pub side: Side,
    pub directory: PathBuf,
    pub files: u64,
    pub bytes: usize,
    pub is_new: bool,
    pub is_lazy: bool,
    /// How much longer each flush takes.
    pub delay_us: u64,
    pub threads: u64,
    /// The number of the first thread. Each thread has files of its own.
    pub first: u64,
    /// How many times each thread commits.
    pub commits: u64,
}

impl Work {
    /// The work as arguments, in the order of `parse` and databases.c.
    pub fn arguments(&self) -> Vec<String> {
        vec![
            self.side.name().to_owned(),
            self.directory.display().to_string(),
            self.files.to_string(),
            self.bytes.to_string(),
            u8::from(self.is_new).to_string(),
            u8::from(self.is_lazy).to_string(),
            self.delay_us.to_string(),
            self.threads.to_string(),
            self.first.to_string(),
            self.commits.to_string(),
        ]
    }

    fn parse(words: &[String]) -> Result<Work> {
        let unknown = || Error::NoLoad(words.to_vec());
        let [side, directory, numbers @ ..] = words else {
            return Err(unknown());
        };
        let side = Side::ALL.into_iter().find(|known| known.name() == side);
        let numbers: std::result::Result<Vec<u64>, _> =
            numbers.iter().map(|number| number.parse()).collect();
        let numbers = numbers.map_err(|_| unknown())?;
        let [
            files,
            bytes,
            is_new,
            is_lazy,
            delay_us,
            threads,
            first,
            commits,
        ] = numbers[..]
        else {
            return Err(unknown());
        };
        Ok(Work {
            side: side.ok_or_else(unknown)?,
            directory: directory.into(),
            files,
            bytes: bytes as usize,
            is_new: is_new != 0,
            is_lazy: is_lazy != 0,
            delay_us,
            threads,
            first,
            commits,
        })
    }

    /// The files of one commit.
    fn names(&self, thread: u64, commit: u64) -> Vec<String> {
        let first = match self.is_new {
            true => commit * self.files,
            false => 0,
        };
        (first..first + self.files)
            .map(|file| format!("{thread}/{file}"))
            .collect()
    }
}

/// An open store, database or directory in which transactions are made.
trait Peer: Sync {
    /// A connection for one thread.
    fn session(&self, thread: u64) -> Result<Box<dyn Session + '_>>;
}

trait Session {
    /// Writes all these files, in one transaction if the peer has transactions.
    fn commit(&mut self, names: &[String], contents: &[u8]) -> Result<()>;
}

/// The directory of a thread's files.
pub fn thread_directory(root: &Path, thread: u64) -> PathBuf {
    root.join(thread.to_string())
}
