//! What a block device was made to do, by the kernel's own count. Others who
//! write to the same device are counted too: an image of the bench's own has
//! none.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use crate::error::{Describe, Result};
use crate::machine;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    pub flushes: u64,
    pub bytes: u64,
}

/// The device beneath a file system, if it has one that counts.
#[derive(Debug)]
pub struct Device {
    statistics: Option<PathBuf>,
}

/// Places in the line of numbers (Documentation/block/stat.rst).
const SECTORS_WRITTEN: usize = 6;
const FLUSHES: usize = 15;
const SECTOR_BYTES: u64 = 512;

impl Device {
    pub fn of(directory: &Path) -> Result<Device> {
        let status = rustix::fs::stat(directory)
            .map_err(std::io::Error::from)
            .describe("examine", directory)?;
        let direct = statistics(status.st_dev);
        // Btrfs gives each subvolume a number of its own: ask what is mounted.
        let statistics = direct.or_else(|| {
            let (source, _) = machine::mounted_at(directory)?;
            let device = rustix::fs::stat(source.as_str()).ok()?;
            statistics(device.st_rdev)
        });
        Ok(Device { statistics })
    }

    pub fn written(&self) -> Option<Written> {
        let line = fs::read_to_string(self.statistics.as_ref()?).ok()?;
        let numbers: Vec<u64> = line
            .split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect();
        Some(Written {
            flushes: *numbers.get(FLUSHES)?,
            bytes: numbers.get(SECTORS_WRITTEN)? * SECTOR_BYTES,
        })
    }
}

/// Only whole disks count flushes, not their partitions.
fn statistics(device: u64) -> Option<PathBuf> {
    let entry = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let entry = fs::canonicalize(entry).ok()?;
    let disk = match entry.join("partition").exists() {
        true => entry.parent()?.to_owned(),
        false => entry,
    };
    Some(disk.join("stat"))
}
