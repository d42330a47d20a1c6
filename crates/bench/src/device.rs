//! The kernel's counts of a block device's writes and flushes. They include the writes of other
//! programs. Only an image that the bench has made is used by no other program.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{major, minor};

use crate::error::{Describe, Result};
use crate::machine;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    pub flushes: u64,
    pub bytes: u64,
}

/// The block device beneath a file system, if it has one with statistics.
#[derive(Debug)]
pub struct Device {
    statistics: Option<PathBuf>,
}

/// Positions in the line of numbers (Documentation/block/stat.rst).
const SECTORS_WRITTEN: usize = 6;
const IN_FLIGHT: usize = 8;
const FLUSHES: usize = 15;
const SECTOR_BYTES: u64 = 512;

const REST: Duration = Duration::from_millis(100);
const REST_AWAITED_MAX: Duration = Duration::from_secs(3);

impl Device {
    pub fn of(directory: &Path) -> Result<Device> {
        let status = rustix::fs::stat(directory)
            .map_err(std::io::Error::from)
            .describe("examine", directory)?;
        let direct = statistics(status.st_dev);
        // Btrfs gives each subvolume a device number of its own: look up the mounted device instead.
        let statistics = direct.or_else(|| {
            let (source, _) = machine::mounted_at(directory)?;
            let device = rustix::fs::stat(source.as_str()).ok()?;
            statistics(device.st_rdev)
        });
        Ok(Device { statistics })
    }

    pub fn written(&self) -> Option<Written> {
        let numbers = self.numbers()?;
        Some(Written {
            flushes: *numbers.get(FLUSHES)?,
            bytes: numbers.get(SECTORS_WRITTEN)? * SECTOR_BYTES,
        })
    }

    /// Waits until the device was idle for `REST`, but at most `REST_AWAITED_MAX`, since other
    /// programs may use it all the time.
    pub fn await_rest(&self) {
        let began = Instant::now();
        let (mut last, mut since) = (self.numbers(), began);
        while since.elapsed() < REST && began.elapsed() < REST_AWAITED_MAX {
            thread::sleep(REST / 10);
            let now = self.numbers();
            let is_busy = now.as_ref().and_then(|now| now.get(IN_FLIGHT)) > Some(&0);
            if is_busy || now != last {
                (last, since) = (now, Instant::now());
            }
        }
    }

    fn numbers(&self) -> Option<Vec<u64>> {
        let line = fs::read_to_string(self.statistics.as_ref()?).ok()?;
        let numbers = line.split_whitespace().map(str::parse);
        numbers.collect::<std::result::Result<_, _>>().ok()
    }
}

/// The statistics of a device. For a partition, those of its disk, since the kernel counts flushes
/// only there.
fn statistics(device: u64) -> Option<PathBuf> {
    let entry = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let entry = fs::canonicalize(entry).ok()?;
    let disk = match entry.join("partition").exists() {
        true => entry.parent()?.to_owned(),
        false => entry,
    };
    Some(disk.join("stat"))
}
