//! Where the service reports what no client asked for: on standard error, which
//! for a detached service is `service.log` in the control directory.
//!
//! Invariants
//! 1. A report is one line. Names and labels are their users' choice, so whatever could end a line,
//!    control a terminal or reorder text on it is escaped.
//! 2. The log and the one before it take at most [`LOG_BYTES_MAX`] bytes each, however long the
//!    service runs, and one report at most [`LINE_BYTES_MAX`] of them.

use atomdir_disk::sync;
use rustix::fs::{Mode, OFlags, fstat, ftruncate, openat, renameat};
use rustix::io::{Errno, retry_on_intr};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use tracing_subscriber::fmt::MakeWriter;

const NAME: &str = "service.log";
const OLD_NAME: &str = "service.log.old";
const LOG_BYTES_MAX: u64 = 512 << 10;
const LINE_BYTES_MAX: usize = 4 << 10;

pub(crate) fn begin(control: &OwnedFd, detached: bool) {
    // Without a log the service still serves.
    let control = detached.then(|| control.try_clone().ok()).flatten();
    let log = control.and_then(|control| {
        let log = LogFile::open(control).ok()?;
        rustix::stdio::dup2_stderr(&log.file).ok()?;
        Some(log)
    });
    let _ = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(Lines(Mutex::new(log)))
        // By default it would report on standard error that it cannot write there, and panic
        // because it cannot. The log is often on the store's own disk, which may be full.
        .log_internal_errors(false)
        .try_init();
}

/// `service.log`, which is also the service's standard error: the runtime writes there as well.
struct LogFile {
    control: OwnedFd,
    file: OwnedFd,
}

impl LogFile {
    fn open(control: OwnedFd) -> Result<LogFile, Errno> {
        let file = open(&control)?;
        Ok(LogFile { control, file })
    }

    fn write(&mut self, line: &[u8], replaced: impl FnOnce(&OwnedFd)) -> io::Result<()> {
        if !self.has_room(line.len()) {
            let renamed = renameat(&self.control, NAME, &self.control, OLD_NAME);
            match renamed.and_then(|()| open(&self.control)) {
                Ok(file) => {
                    self.file = file;
                    replaced(&self.file);
                }
                Err(_) => ftruncate(&self.file, 0)?,
            }
        }
        write_all(&self.file, line)
    }

    fn has_room(&self, bytes: usize) -> bool {
        fstat(&self.file).is_ok_and(|log| log.st_size as u64 + bytes as u64 <= LOG_BYTES_MAX)
    }
}

fn open(control: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(control, NAME, flags, Mode::RUSR | Mode::WUSR)
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match retry_on_intr(|| rustix::io::write(file, bytes))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

/// Writes each report as one line.
struct Lines(Mutex<Option<LogFile>>);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Lines;

    fn make_writer(&'a self) -> &'a Lines {
        self
    }
}

impl Write for &Lines {
    /// `tracing_subscriber` calls this once for each report.
    fn write(&mut self, report: &[u8]) -> io::Result<usize> {
        let line = line(report);
        match &mut *sync::lock(&self.0) {
            Some(log) => log.write(line.as_bytes(), |file| {
                let _ = rustix::stdio::dup2_stderr(file);
            })?,
            None => io::stderr().write_all(line.as_bytes())?,
        }
        Ok(report.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn line(report: &[u8]) -> String {
    let report = report.strip_suffix(b"\n").unwrap_or(report);
    let mut line = String::new();
    for chunk in report.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\'' | '\\' => line.push(character),
                // It escapes control and format characters, and whatever else is not printable.
                _ => line.extend(character.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            line.push_str(&format!("\\x{byte:02x}"));
        }
        if line.len() > LINE_BYTES_MAX {
            break;
        }
    }
    if line.len() >= LINE_BYTES_MAX {
        let fits = |(start, _): &(usize, char)| *start <= LINE_BYTES_MAX - CUT.len();
        let end = line.char_indices().take_while(fits).last();
        line.truncate(end.map_or(0, |(start, _)| start));
        line.push_str(CUT);
    } else {
        line.push('\n');
    }
    line
}

const CUT: &str = " [cut off]\n";

#[cfg(test)]
mod tests;
