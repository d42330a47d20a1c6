//! Describes the machine on which the bench runs.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

#[derive(Debug)]
pub struct Machine {
    pub processor: String,
    pub processors: usize,
    pub memory_gib: u64,
    pub kernel: String,
    pub file_system: String,
    /// How much longer each flush of the disk takes.
    pub flush_us: Option<u64>,
    /// How requests for views reach the service: over io_uring or `/dev/fuse`.
    pub views_over: &'static str,
    /// The load average at the start.
    pub load: String,
}

impl Machine {
    pub fn here(directory: &Path) -> Machine {
        let processor = field("/proc/cpuinfo", "model name");
        let memory = field("/proc/meminfo", "MemTotal");
        let kibibytes: u64 = memory.trim_end_matches(" kB").parse().unwrap_or_default();
        let load = read("/proc/loadavg");
        let file_system = match mounted_at(directory) {
            Some((source, kind)) if kind == "ext4" && !has_journal(&source) => {
                "ext4 without a journal".to_owned()
            }
            Some((_, kind)) => kind,
            None => String::new(),
        };
        Machine {
            processor,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: kibibytes >> 20,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            file_system,
            flush_us: None,
            views_over: crate::uring::way_of_requests(),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
        }
    }

    pub fn line(&self) -> String {
        format!(
            "{}, {} processors, {} GiB, Linux {}, {}, views over {}, load {} at the start",
            self.processor,
            self.processors,
            self.memory_gib,
            self.kernel,
            self.file_system,
            self.views_over,
            self.load
        )
    }

    pub fn json(&self) -> Value {
        json!({
            "line": self.line(),
            "processor": self.processor, "processors": self.processors,
            "memory_gib": self.memory_gib, "kernel": self.kernel,
            "file_system": self.file_system, "flush_us": self.flush_us,
            "views_over": self.views_over, "load": self.load,
        })
    }
}

fn read(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

fn field(file: &str, name: &str) -> String {
    let text = read(file);
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(':'));
    value.map_or_else(String::new, |(_, value)| value.trim().to_owned())
}

/// Whether an ext4 has a journal. Without one, ext4 does not reuse a removed file's inode for minutes,
/// and each creation searches past these inodes. Then earlier removals make workloads slower.
fn has_journal(source: &str) -> bool {
    let device = fs::canonicalize(source).unwrap_or_else(|_| source.into());
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    let Ok(journals) = fs::read_dir("/proc/fs/jbd2") else {
        return true;
    };
    // Each entry is named `DEVICE-INODE`.
    journals.flatten().any(|journal| {
        let journal = journal.file_name();
        let of = journal
            .to_str()
            .and_then(|journal| journal.rsplit_once('-'));
        of.is_some_and(|(of, _)| of == name)
    })
}

/// The device that is mounted where `directory` lies, and the kind of its file system.
pub fn mounted_at(directory: &Path) -> Option<(String, String)> {
    let directory = fs::canonicalize(directory).ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        Some((fields.next()?, Path::new(fields.next()?), fields.next()?))
    });
    // A later mount hides an earlier one.
    let (source, _, kind) = mounts
        .filter(|(_, place, _)| directory.starts_with(place))
        .max_by_key(|(_, place, _)| place.components().count())?;
    Some((source.to_owned(), kind.to_owned()))
}
