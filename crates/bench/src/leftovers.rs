//! Removes the directories and mounts of runs that were killed.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::error::{Describe, Result};
use crate::image;
use crate::programs::{clear, output};

const PREFIX: &str = "atomdir-bench-";

/// The name of this run's directory, which contains its process id.
pub fn directory_name() -> String {
    format!("{PREFIX}{}", std::process::id())
}

/// Removes the directories of runs whose process has ended. Services that still run there end by
/// themselves when their store is gone.
pub fn clear_in(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory).describe("list", directory)? {
        let entry = entry.describe("list", directory)?;
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let Some(process) = process.and_then(|number| number.parse::<u32>().ok()) else {
            continue;
        };
        if Path::new("/proc").join(process.to_string()).exists() {
            continue;
        }
        let places = [image::root(&entry.path()), image::slow_disk(&entry.path())];
        for mounted in places {
            if is_mounted(&mounted)? {
                output(Command::new("umount").arg("--lazy").arg(&mounted))?;
            }
        }
        clear(&entry.path())?;
    }
    Ok(())
}

fn is_mounted(directory: &Path) -> Result<bool> {
    let table = Path::new("/proc/self/mounts");
    let mounts = fs::read_to_string(table).describe("read", table)?;
    let is_it = |line: &str| line.split(' ').nth(1).map(Path::new) == Some(directory);
    Ok(mounts.lines().any(is_it))
}
