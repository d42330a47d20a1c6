//! Plain files: appending to a log, which is the cheapest durable write, and the renames of careful
//! programs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use super::{Peer, Session, Work};
use crate::error::{Describe, Result};

/// Appends all bytes of a commit to a file, and flushes it once.
pub struct Append(pub Work);

/// For each file: a temporary file, fsync, rename, fsync of the directory.
pub struct Renames(pub Work);

impl Peer for Append {
    fn session(&self, thread: u64) -> Result<Box<dyn Session + '_>> {
        let path = self.0.directory.join(format!("log-{thread}"));
        let file = OpenOptions::new().append(true).create(true).open(&path);
        let file = file.describe("open", &path)?;
        Ok(Box::new(Log {
            work: &self.0,
            file,
            path,
        }))
    }
}

struct Log<'a> {
    work: &'a Work,
    file: File,
    path: PathBuf,
}

impl Session for Log<'_> {
    fn commit(&mut self, names: &[String], contents: &[u8]) -> Result<()> {
        let bytes = contents.repeat(names.len());
        let appended = self.file.write_all(&bytes);
        appended
            .and_then(|()| flush(self.work, || self.file.sync_data()))
            .describe("append to", &self.path)
    }
}

impl Peer for Renames {
    fn session(&self, _thread: u64) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }
}

impl Session for &Renames {
    fn commit(&mut self, names: &[String], contents: &[u8]) -> Result<()> {
        names.iter().try_for_each(|name| {
            let path = self.0.directory.join(name);
            replace(&self.0, &path, contents).describe("replace", &path)
        })
    }
}

fn replace(work: &Work, path: &Path, contents: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = File::create(&temporary)?;
    file.write_all(contents)?;
    flush(work, || file.sync_all())?;
    fs::rename(&temporary, path)?;
    let directory = path.parent().unwrap_or(&work.directory);
    flush(work, || File::open(directory)?.sync_all())
}

/// Flushes and waits for the delay, unless commits are lazy.
fn flush(work: &Work, flush: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    if work.is_lazy {
        return Ok(());
    }
    flush()?;
    sleep(Duration::from_micros(work.delay_us));
    Ok(())
}
