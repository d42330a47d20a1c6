//! A limit of the memory and page cache that some processes use together.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Describe, Result};

/// The directory of the memory controller, and the file of its limit, in cgroups version 1 and 2.
const PLACES: [(&str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
];

/// How often, and after which pauses, a group is looked at again that still has processes.
const TRIES: u32 = 200;
const PAUSE: Duration = Duration::from_millis(10);

/// A control group with a memory limit. Dropping it removes the group; its processes must have ended.
#[derive(Debug)]
pub struct MemoryLimit {
    group: PathBuf,
}

impl MemoryLimit {
    /// `None` if this user may not set a limit, or the kernel has none.
    pub fn new(bytes: u64) -> Option<MemoryLimit> {
        let name = format!("atomdir-bench-{}", std::process::id());
        PLACES.iter().find_map(|(parent, file)| {
            let group = Path::new(parent).join(&name);
            fs::create_dir(&group).ok()?;
            let limit = MemoryLimit { group };
            // The file exists only if the kernel has the memory controller, so do not create it.
            let opened = OpenOptions::new().write(true).open(limit.group.join(file));
            let written = opened.and_then(|mut file| write!(file, "{bytes}"));
            written.ok().map(|()| limit)
        })
    }

    /// Limits a process and its descendants.
    pub fn include(&self, process: u32) -> Result<()> {
        let file = self.processes();
        fs::write(&file, process.to_string()).describe("write", &file)?;
        let threads = PathBuf::from(format!("/proc/{process}/task"));
        for thread in fs::read_dir(&threads).describe("list", &threads)? {
            let children = thread.describe("list", &threads)?.path().join("children");
            let children = fs::read_to_string(children).unwrap_or_default();
            for child in children.split_whitespace().flat_map(str::parse) {
                self.include(child)?;
            }
        }
        Ok(())
    }

    /// A shell command that limits the shell and all its later children.
    pub fn command(&self) -> String {
        format!("echo $$ > '{}'", self.processes().display())
    }

    fn processes(&self) -> PathBuf {
        self.group.join("cgroup.procs")
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // The child of a service ends a moment after it.
        let mut removed = fs::remove_dir(&self.group);
        for _ in 0..TRIES {
            if !matches!(&removed, Err(error) if error.kind() == ErrorKind::ResourceBusy) {
                break;
            }
            std::thread::sleep(PAUSE);
            removed = fs::remove_dir(&self.group);
        }
        if let Err(error) = removed.describe("remove", &self.group) {
            eprintln!("atomdir-bench: {error}");
        }
    }
}

/// Makes the kernel drop the cached pages of a file.
pub fn forget(path: &Path) -> Result<()> {
    let file = fs::File::open(path).describe("open", path)?;
    file.sync_all().describe("flush", path)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
        .describe("drop the cached pages of", path)
}
