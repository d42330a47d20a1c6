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
use rustix::io::Errno;
use std::fs::File;
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
    file: File,
}

impl LogFile {
    fn open(control: OwnedFd) -> Result<LogFile, Errno> {
        let file = open(&control)?;
        Ok(LogFile { control, file })
    }

    fn write(&mut self, line: &[u8], replaced: impl FnOnce(&File)) -> io::Result<()> {
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
        self.file.write_all(line)
    }

    fn has_room(&self, bytes: usize) -> bool {
        fstat(&self.file).is_ok_and(|log| log.st_size as u64 + bytes as u64 <= LOG_BYTES_MAX)
    }
}

fn open(control: &OwnedFd) -> Result<File, Errno> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(control, NAME, flags, Mode::RUSR | Mode::WUSR).map(File::from)
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
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_line_whatever_names_contain() {
        let report = "WARN 'a\nERROR forged\r\u{1b}[2J\u{202e}\u{200b}\u{2028}ö'\n";
        let expected = "WARN 'a\\nERROR forged\\r\\u{1b}[2J\\u{202e}\\u{200b}\\u{2028}ö'\n";
        assert_eq!(line(report.as_bytes()), expected);
        assert_eq!(line(b"\xff\n"), "\\xff\n");
    }

    #[test]
    fn a_long_report_is_cut_off() {
        for report in ["a".repeat(1 << 20), "ö\n".repeat(1 << 18)] {
            let line = line(report.as_bytes());
            assert!(line.len() <= LINE_BYTES_MAX, "{} bytes", line.len());
            assert!(line.ends_with(" [cut off]\n"));
        }
    }

    #[test]
    fn the_log_stays_bounded_while_the_service_runs() {
        let directory = std::env::temp_dir().join(format!("service-log-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let control = std::fs::File::open(&directory).unwrap().into();
        let mut log = LogFile::open(control).unwrap();
        let mut replaced = 0;
        for number in 0..1000 {
            let line = line(format!("{number} {}", "a/\n".repeat(5000)).as_bytes());
            log.write(line.as_bytes(), |_| replaced += 1).unwrap();
        }
        assert!(replaced > 1);
        let read = |name| std::fs::read_to_string(directory.join(name)).unwrap();
        let kept = read(OLD_NAME) + &read(NAME);
        let files = std::fs::read_dir(&directory).unwrap().count();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(files, 2);
        assert!(kept.len() as u64 <= 2 * LOG_BYTES_MAX);
        assert!(kept.len() as u64 > LOG_BYTES_MAX, "the newest lines stay");
        let numbers = kept.lines().map(|line| line.split_once(' ').unwrap().0);
        let first = 1000 - kept.lines().count();
        let expected = (first..1000).map(|number| number.to_string());
        assert!(numbers.eq(expected));
    }
}
